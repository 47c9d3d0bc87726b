"""The benchmark of clusters runs; what it finds in a hundredth of the work means nothing."""

import json

import pytest
from benchmarks.cluster.__main__ import LINES, main


@pytest.mark.long
def test_every_figure_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "replicate,sim"
    assert main(["--quick", "--rows", rows, "--no-goals", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["rounds"]["penstock"]
    assert set(figures) == set(LINES) - {"freeze", "kill", "follower"}
    assert all(value >= 0 for values in figures.values() for value in values)


def test_a_row_that_is_not_there_is_named() -> None:
    with pytest.raises(SystemExit, match="no row nonsense; there are: replicate, "):
        main(["--rows", "nonsense"])
