"""Ranges read a few records at a time."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, KafkaError
from penstock.gateway.shared.reading import RECORDS_A_SLICE, Walk
from penstock.records import Codec, Record, build_batch


class Shelf:
    """A log of batches of these sizes, with gaps of one offset between them as compaction leaves them."""

    def __init__(self, sizes: list[int], batches_a_read: int = 2, codec: Codec = Codec.NONE) -> None:
        self.offsets: list[int] = []
        self.reads = 0
        self._batches: list[tuple[int, bytes]] = []
        self._batches_a_read = batches_a_read
        end = 0
        for size in sizes:
            records = [Record(end + index, 0, None, b"x" * 10) for index in range(size)]
            self._batches.append((end + size, build_batch(records, codec=codec)))
            self.offsets += [each.offset for each in records]
            end += size + 1
        self.end = max(end - 1, 0)

    def read(self, offset: int, bytes_max: int, *, visible: int) -> bytes:
        self.reads += 1
        from_here = [data for after, data in self._batches if after > offset and after <= visible]
        return b"".join(from_here[: self._batches_a_read])

    def aborted(self, start: int, end: int) -> list[Any]:
        return []

    @property
    def partition(self) -> Any:
        return SimpleNamespace(
            name="t-0", is_leader=True, last_stable=self.end, log=self, bytes_out=0, messages_out=0
        )


@given(
    st.lists(st.integers(1, 8), max_size=8),
    st.integers(0, 70),
    st.integers(0, 70),
    st.integers(1, 5),
    st.integers(1, 3),
)
def test_parts_make_up_the_range(
    sizes: list[int], start: int, length: int, records_max: int, batches_a_read: int
) -> None:
    shelf = Shelf(sizes, batches_a_read)
    start = min(start, shelf.end)
    stop = min(start + length, shelf.end)
    walk = Walk(shelf.partition, start, stop)
    found: list[int] = []
    while not walk.is_over:
        some = walk.some(records_max)
        assert len(some) <= records_max
        found += [each.offset for each in some]
    assert found == [each for each in shelf.offsets if start <= each < stop]
    assert walk.position == stop


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_large_batch_is_read_once_and_given_in_turns(codec: Codec) -> None:
    shelf = Shelf([3 * RECORDS_A_SLICE + 1], codec=codec)
    walk = Walk(shelf.partition, 0, shelf.end)
    turns = []
    while not walk.is_over:
        turns.append(len(walk.some(10**9)))
    assert turns == [RECORDS_A_SLICE] * 3 + [1]
    assert shelf.reads == 1


def test_partition_that_is_lost_on_the_way_is_an_error() -> None:
    partition = Shelf([2, 2], 1).partition
    walk = Walk(partition, 0, 5)
    assert len(walk.some()) == 2
    partition.is_leader = False
    with pytest.raises(KafkaError) as caught:
        walk.some()
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
