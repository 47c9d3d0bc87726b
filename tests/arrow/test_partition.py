import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrow.partition import partitions_of
from penstock.base.hashing import partition_of_key

keys = st.lists(st.none() | st.binary(max_size=40) | st.sampled_from((b"", b"same", bytes(300))), max_size=60)


@given(keys, st.integers(1, 1 << 31), st.integers(0, 3))
def test_keys_go_where_the_clients_own_partitioner_puts_them(
    found: list[bytes | None], count: int, skipped: int
) -> None:
    array = pa.array([*[b"before"] * skipped, *found], pa.binary()).slice(skipped)
    assert partitions_of(array, count).tolist() == [
        -1 if key is None else partition_of_key(key, count) for key in found
    ]


def test_long_keys_among_many_short_ones_are_hashed_too() -> None:
    rng = random.Random(3)
    found = [rng.randbytes(rng.choice((3, 8, 17, 100_001))) for _ in range(100)] + [b"k"] * 100
    assert partitions_of(pa.array(found), 12).tolist() == [partition_of_key(key, 12) for key in found]


def test_text_and_other_widths_are_hashed_by_their_bytes() -> None:
    found = ["a", "größer", None, ""]
    expected = [-1 if key is None else partition_of_key(key.encode(), 7) for key in found]
    for kind in (pa.string(), pa.large_string(), pa.large_binary()):
        assert partitions_of(pa.array(found).cast(kind), 7).tolist() == expected


def test_the_answer_of_no_keys_is_empty_and_of_the_right_type() -> None:
    answer = partitions_of(pa.array([], pa.binary()), 3)
    assert answer.dtype == np.int32
    assert len(answer) == 0
    assert partitions_of(pa.nulls(3, pa.binary()), 3).tolist() == [-1, -1, -1]


def test_a_topic_without_partitions_is_refused() -> None:
    with pytest.raises(ValueError, match="0 partitions, expected at least 1"):
        partitions_of(pa.array([b"k"]), 0)
