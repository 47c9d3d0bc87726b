"""Leader epochs: where each leader's reign began and ended (KIP-101, KIP-279)."""

import pytest

from penstock.storage.epochs import EpochStart, LeaderEpochs
from penstock.storage.errors import BadCheckpoint


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs([EpochStart(*entry) for entry in entries])


def test_an_epoch_begins_where_its_first_record_is() -> None:
    known = epochs()
    assert known.latest == -1
    assert known.assign(0, 0)
    assert known.assign(3, 17)
    assert not known.assign(3, 40), "it has begun already"
    assert known.entries == [(0, 0), (3, 17)]
    assert known.latest == 3


def test_what_contradicts_a_new_epoch_is_superseded() -> None:
    known = epochs((0, 0), (3, 17), (5, 52))
    assert known.assign(6, 30)
    assert known.entries == [(0, 0), (3, 17), (6, 30)]
    assert known.assign(7, 17)
    assert known.entries == [(0, 0), (7, 17)]
    assert known.assign(2, 90), "an older leader's batches, replicated after a truncation"
    assert known.entries == [(0, 0), (2, 90)]


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (0, (0, 17)),
        (1, (0, 17)),
        (2, (0, 17)),
        (3, (3, 52)),
        (4, (4, 100)),
        (5, (-1, -1)),
        (-1, (-1, -1)),
    ],
)
def test_a_follower_learns_where_an_epoch_ended(epoch: int, answer: tuple[int, int]) -> None:
    """KIP-101: the largest epoch at or below the one asked for, and the start of the one after it."""
    assert epochs((0, 0), (3, 17), (4, 52)).end_of(epoch, 100) == answer


def test_an_epoch_older_than_all_that_is_known_ended_where_they_begin() -> None:
    assert epochs((3, 17), (4, 52)).end_of(2, 100) == (2, 17)


def test_without_epochs_nothing_is_known() -> None:
    assert epochs().end_of(0, 100) == (-1, -1)
    assert epochs().epoch_at(5) == -1


def test_each_offset_has_its_epoch() -> None:
    known = epochs((1, 10), (3, 17))
    assert [known.epoch_at(offset) for offset in (9, 10, 16, 17, 99)] == [-1, 1, 1, 3, 3]


def test_truncating_the_end_forgets_epochs_that_began_there() -> None:
    known = epochs((0, 0), (3, 17), (4, 52))
    assert not known.truncate_end(53)
    assert known.truncate_end(52)
    assert known.entries == [(0, 0), (3, 17)]
    assert known.truncate_end(0)
    assert known.entries == []


def test_truncating_the_start_moves_the_epoch_that_it_falls_into() -> None:
    known = epochs((0, 0), (3, 17), (4, 52))
    assert not known.truncate_start(0)
    assert known.truncate_start(20)
    assert known.entries == [(3, 20), (4, 52)]
    assert known.truncate_start(52)
    assert known.entries == [(4, 52)]
    assert not known.truncate_start(52)
    assert not epochs((4, 52)).truncate_start(10)


def test_the_file_is_kafkas() -> None:
    known = epochs((0, 0), (3, 17))
    assert known.encode() == b"0\n2\n0 0\n3 17\n"
    assert LeaderEpochs.decode(known.encode(), "x").entries == known.entries
    assert LeaderEpochs.decode(b"", "x").entries == []


@pytest.mark.parametrize(
    "data",
    [
        b"1\n0\n",
        b"0\n2\n0 0\n",
        b"0\n1\n0\n",
        b"0\n1\n0 0 0\n",
        b"0\n1\nx 5\n",
        b"0\n1\n5 x\n",
        b"0\n2\n3 17\n0 20\n",
        b"0\n2\n3 17\n4 5\n",
        b"0\n1\n0 123",
        b"0\n",
        b"\xff\xfe",
        b"zero\n1\n",
    ],
)
def test_a_file_that_cannot_be_kafkas_is_refused(data: bytes) -> None:
    with pytest.raises(BadCheckpoint, match="checkpoint-path"):
        LeaderEpochs.decode(data, "checkpoint-path")
