"""`penstock quorum` against a broker of Penstock's in this process, which is a quorum by itself."""

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Command
from tests.cli.wire_tour import Shell

from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def shell(penstock: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(penstock, broker.bootstrap, monkeypatch)


def test_a_quorum_is_described(shell: Shell) -> None:
    told = shell.json("quorum", "describe")
    (voter,) = told["voters"]
    assert (told["leaderId"], voter["id"], voter["role"], voter["lag"]) == (1, 1, "leader", 0)
    assert (told["observers"], told["leaderEpoch"] >= 1) == ([], True)
    assert 0 < told["highWatermark"] <= voter["logEndOffset"]
    first, *rows = shell.lines("quorum", "describe")
    assert first.startswith(f"cluster {told['clusterId']}: node 1 leads epoch {told['leaderEpoch']}, high ")
    assert voter["directoryId"] in rows[-1]


def test_the_last_voter_stays(shell: Shell) -> None:
    outcome = shell.try_("quorum", "remove-voter", 1)
    assert (outcome.code, outcome.out) == (2, "")
    assert "is the last voter (VOTER_NOT_FOUND)" in outcome.err


def test_an_unknown_voter_is_not_changed(shell: Shell) -> None:
    gone = shell.try_("quorum", "remove-voter", 7)
    assert gone.err == "penstock: the quorum has no voter 7, it has 1\n"
    stranger = shell.try_("quorum", "add-voter", 7, "localhost:9093")
    assert stranger.err == "penstock: the quorum has no observer 7, it has none\n"
    named = ("--directory", "yeRU_49QQnyJsQ9mc4LBBg")
    late = shell.try_("quorum", "add-voter", 7, "localhost:9093", *named)
    assert (late.code, "has not caught up with the log; retry (REQUEST_TIMED_OUT)" in late.err) == (2, True)
    gone = shell.try_("quorum", "remove-voter", 7, *named)
    assert (gone.code, "is not a voter (VOTER_NOT_FOUND)" in gone.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("add-voter", 7, "nowhere:"), "'nowhere:' is no server, expected HOST:PORT"),
        (("remove-voter", 7, "--directory", "x"), "--directory: 'x' is"),
        (("remove-voter", -1), "-1"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[object, ...], complaint: str, shell: Shell) -> None:
    outcome = shell.try_("quorum", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert complaint in outcome.err
