from collections import Counter
from itertools import pairwise

import pytest
from tests.client.fake import seeded

from penstock.base.hashing import murmur2, partition_of_key
from penstock.client.partitioner import StickyPartitioner


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_kafkas(key: bytes, expected: int) -> None:
    """The cases of UtilsTest.testMurmur2."""
    assert murmur2(key) == expected % 2**32


def test_a_key_goes_by_the_positive_part_of_its_hash() -> None:
    assert partition_of_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
    assert partition_of_key(b"", 1) == 0


def test_without_a_key_records_stick_until_a_batch_is_full() -> None:
    """KIP-794: switch after batch.size bytes."""
    sticky = StickyPartitioner(seeded(), 1000)
    chosen = [sticky.choose(lambda: range(4), 250) for _ in range(400)]
    runs = [chosen[at : at + 4] for at in range(0, 400, 4)]
    assert all(len(set(run)) == 1 for run in runs)
    assert all(before[0] != after[0] for before, after in pairwise(runs))
    assert len(Counter(chosen)) == 4


def test_with_one_partition_there_is_no_choice() -> None:
    sticky = StickyPartitioner(seeded(), 1)
    assert {sticky.choose(lambda: [3], 10) for _ in range(5)} == {3}
