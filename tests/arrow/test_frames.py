"""Headers in columns are what the parser of one batch reads, wherever the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrow.frames import Frames
from penstock.records import HEADER_BYTES, Codec, build_batch, end_txn_marker, iter_batches
from penstock.records.batch import LENGTH_AT, MAGIC_AT

T = 1_700_000_000_000


def batch(offset: int, count: int, *, codec: Codec = Codec.NONE, producer: int = -1) -> bytes:
    rows = [(None, b"v" * 20, T + each) for each in range(count)]
    if producer < 0:
        return build_batch(rows, base_offset=offset, codec=codec)
    return build_batch(
        rows,
        base_offset=offset,
        codec=codec,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )


LOG = (
    batch(5, 3)
    + batch(8, 1, codec=Codec.ZSTD)
    + batch(20, 7, producer=9)
    + end_txn_marker(9, 0, True, 1, T, base_offset=27)
    + batch(28, 2)
)


@given(st.integers(0, len(LOG)), st.sampled_from((bytes, bytearray, memoryview)))
def test_all_that_lie_whole_in_the_bytes_are_found(cut: int, of: type) -> None:
    data = LOG[:cut]
    frames = Frames.read(of(data))
    parsed = [each for each in iter_batches(LOG) if each.view.nbytes]
    ends = [sum(each.size for each in parsed[: index + 1]) for index in range(len(parsed))]
    whole = [each for each, end in zip(parsed, ends, strict=True) if end <= cut]
    assert frames.sizes.tolist() == [each.size for each in whole]
    assert frames.base_offsets.tolist() == [each.base_offset for each in whole]
    assert frames.last_offsets.tolist() == [each.last_offset for each in whole]
    assert frames.counts.tolist() == [each.count for each in whole]
    assert frames.timestamps.tolist() == [each.base_timestamp for each in whole]
    assert frames.producer_ids.tolist() == [each.producer_id for each in whole]
    assert frames.is_control.tolist() == [each.is_control for each in whole]
    assert frames.next_offset == (whole[-1].last_offset + 1 if whole else None)
    assert bytes(frames.rest) == data[frames.end :]
    assert frames.bad_crc() is None


@pytest.mark.parametrize(
    ("at", "new"),
    [(MAGIC_AT, b"\x01"), (LENGTH_AT, b"\xff" * 4), (LENGTH_AT, (48).to_bytes(4, "big"))],
)
def test_what_is_no_batch_ends_them(at: int, new: bytes) -> None:
    first = batch(0, 4)
    data = bytearray(first + batch(4, 4) + batch(8, 4))
    data[len(first) + at : len(first) + at + len(new)] = new
    frames = Frames.read(data)
    assert frames.base_offsets.tolist() == [0]
    assert bytes(frames.rest) == data[len(first) :]


def test_the_first_batch_with_a_wrong_crc_is_named() -> None:
    data = bytearray(LOG)
    at = Frames.read(LOG).at.tolist()
    for index in (3, 1):
        data[at[index] + HEADER_BYTES] ^= 1
    frames = Frames.read(data)
    assert frames.bad_crc() == 1
    said, found = frames.crcs(1)
    assert said != found
    assert frames.between(2, 5).bad_crc() == 1
    assert frames.between(0, 1).bad_crc() is None


def test_some_of_them_have_nothing_behind() -> None:
    """Whoever chose them knows what follows."""
    frames = Frames.read(LOG + b"anything")
    assert bytes(frames.rest) == b"anything"
    chosen = frames.between(1, 3)
    assert chosen.base_offsets.tolist() == [8, 20]
    assert bytes(chosen.rest) == b""
    assert frames.only(frames.is_transactional).base_offsets.tolist() == [20, 27]
    assert frames.between(2, 2).end == 0
