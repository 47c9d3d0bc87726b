"""Record starts found in lockstep, with guesses inside of large batches, are those that a plain loop finds."""

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.arrow import walk
from penstock.arrow.decode import Decoder
from penstock.arrow.speculative_starts import LANE_RECORDS, lanes
from penstock.arrow.varints import Source
from penstock.records import BatchBuilder, Codec, Record, RecordBatch, build_batch
from penstock.records.batch import RECORDS_AT
from penstock.records.builder import encode_record

T = 1_700_000_000_000
MANY = 4 * LANE_RECORDS


def of_random_bytes(rng: random.Random, _: int) -> bytes:
    return rng.randbytes(rng.randint(0, 300))


def of_zeros(rng: random.Random, _: int) -> bytes:
    return bytes(rng.randint(0, 300))


def of_small_numbers(rng: random.Random, _: int) -> bytes:
    return bytes(rng.choices((0, 0, 0, 2, 14, 16, 18), k=rng.randint(0, 200)))


def of_text(rng: random.Random, number: int) -> bytes:
    return b'{"id": %d, "name": "%s"}' % (number, b"x" * rng.randint(0, 100))


def of_records(rng: random.Random, number: int) -> bytes:
    """Values that look just like records that follow one another: every guess is likely to be wrong."""
    return b"".join(encode_record(each, 0, None, b"v" * 9) for each in range(rng.randint(3, 12)))


def of_one_size(_: random.Random, number: int) -> bytes:
    return b"%0100d" % number


def of_many_sizes(rng: random.Random, _: int) -> bytes:
    return rng.randbytes(rng.choice((0, 3, 40, 2000, 8100)))


MAKERS = [of_random_bytes, of_zeros, of_small_numbers, of_text, of_records, of_one_size, of_many_sizes]


def walked(batches: Sequence[bytes]) -> tuple[Source, list[int], list[int], list[int]]:
    data = b"".join(batches)
    begins, ends, counts = [], [], []
    at = 0
    for each in batches:
        begins.append(at + RECORDS_AT)
        at += len(each)
        ends.append(at)
        counts.append(RecordBatch.parse(each).count)
    return Source(data), begins, ends, counts


@pytest.mark.parametrize("make", MAKERS)
def test_large_batches_of_any_values_are_walked_rightly(make: Callable[[random.Random, int], bytes]) -> None:
    rng = random.Random(7)
    batches = [
        build_batch([(None, make(rng, number), T + rng.randint(-70, 9000)) for number in range(count)])
        for count in (MANY, 3, 2 * LANE_RECORDS, 1, MANY + 77)
    ]
    source, begins, ends, counts = walked(batches)
    plain = walk._one_by_one(source, begins, ends, counts)
    assert isinstance(plain, np.ndarray)
    assert len(plain) == sum(counts)
    in_step = walk._in_lockstep(source, begins, ends, counts)
    assert in_step is None or np.array_equal(in_step, plain)


@pytest.mark.parametrize("make", [of_random_bytes, of_zeros, of_small_numbers, of_text, of_one_size])
def test_usual_values_need_no_second_walk_and_have_several_lanes(
    make: Callable[[random.Random, int], bytes],
) -> None:
    rng = random.Random(8)
    batch = build_batch([(None, make(rng, number), T) for number in range(MANY)])
    source, begins, ends, counts = walked([batch])
    assert walk._in_lockstep(source, begins, ends, counts) is not None
    lane_begins, lane_ends = lanes(source, walk._STEPS, begins, ends, counts)
    assert len(lane_begins) >= 3
    assert lane_begins[1:].tolist() == lane_ends[:-1].tolist()


def test_a_compacted_batch_with_holes_is_walked_rightly() -> None:
    rng = random.Random(9)
    builder = BatchBuilder()
    offset = 0
    for _ in range(MANY):
        offset += rng.randint(1, 4)
        builder.append(b"k", rng.randbytes(60), T, offset=offset)
    source, begins, ends, counts = walked([builder.build()])
    in_step = walk._in_lockstep(source, begins, ends, counts)
    assert in_step is not None
    assert np.array_equal(in_step, walk._one_by_one(source, begins, ends, counts))


@given(st.integers(0, 1 << 40), st.integers(1, 255), st.integers(-2, 2))
@settings(max_examples=60)
def test_a_flipped_byte_in_a_large_batch_gives_both_walks_the_same_end(at: int, mask: int, more: int) -> None:
    rng = random.Random(10)
    data = bytearray(build_batch([(None, rng.randbytes(20), T)] * (2 * LANE_RECORDS)))
    data[RECORDS_AT + at % (len(data) - RECORDS_AT)] ^= mask
    source, begins, ends, counts = walked([bytes(data)])
    counts[0] += more
    in_step = walk._in_lockstep(source, begins, ends, counts)
    plain = walk._one_by_one(source, begins, ends, counts)
    assert in_step is None or np.array_equal(in_step, plain)


def test_a_length_that_never_ends_and_one_that_is_negative_end_the_walk() -> None:
    for first in (b"\xff" * 40, b"\x01" * 40, b"\x00" * 40):
        source = Source(first)
        assert walk._in_lockstep(source, [0], [40], [5]) is None
        assert walk._one_by_one(source, [0], [40], [5]) == 0


def test_records_are_the_same_as_the_readers_in_a_large_batch_of_records_inside_records() -> None:
    rng = random.Random(11)
    records = [Record(number, T, b"%d" % number, of_records(rng, number)) for number in range(20 * MANY)]
    data = build_batch(records, codec=Codec.LZ4)
    decoder = Decoder("orders", 3, ("key", "value"), start=0, stop=1 << 40)
    found = [*decoder.feed(data), *decoder.finish()]
    assert [row for batch in found for row in batch.column("value").to_pylist()] == [
        each.value for each in records
    ]
