import pytest
from benchmarks.spark import decode


@pytest.mark.long
def test_every_case_of_the_decoder_runs_and_shows_its_rate(capsys: pytest.CaptureFixture[str]) -> None:
    decode.main(["--quick"])
    shown = capsys.readouterr().out
    for case in decode.CASES:
        assert f"decode {case.name}" in shown
    assert "encode 100 B values with keys" in shown
