"""Numbers read in step are those that were written, whatever their widths."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.arrow.varints import MALFORMED, Cursor, Source
from penstock.records.varint import encode_varint, encode_varlong

byte = st.integers(-64, 63)
pair = st.integers(-8192, 8191)
any_int = st.integers(-(1 << 31), (1 << 31) - 1)
any_long = st.integers(-(1 << 63) + 1, (1 << 63) - 1)


@given(st.data())
def test_fields_of_any_widths_are_read_in_turn(choose: st.DataObject) -> None:
    """One number, a byte, a long, a number, some bytes, a number: about as records have them."""
    widths = choose.draw(st.lists(st.sampled_from((byte, pair, any_int)), min_size=3, max_size=3))
    longs = choose.draw(st.sampled_from((byte, pair, any_long)))
    row = st.tuples(*widths[:2], longs, widths[2], st.binary(max_size=12), widths[2])
    rows = choose.draw(st.lists(row, min_size=1, max_size=20))
    data, starts = bytearray(), []
    for first, second, third, fourth, between, fifth in rows:
        starts.append(len(data))
        data += encode_varint(first) + b"\x80" + encode_varint(second) + encode_varlong(third)
        data += encode_varint(fourth) + between + encode_varint(fifth)
    cursor = Cursor(Source(bytes(data)), np.array(starts))
    cursor.skip_varint(extra=1)
    assert cursor.varints().tolist() == [each[1] for each in rows]
    assert cursor.varlongs().tolist() == [each[2] for each in rows]
    assert cursor.varints().tolist() == [each[3] for each in rows]
    cursor.skip(np.array([len(each[4]) for each in rows]))
    assert cursor.varints().tolist() == [each[5] for each in rows]
    assert cursor.at.tolist() == [*starts[1:], len(data)]


def test_one_that_never_ends_spoils_no_other() -> None:
    data = b"\x02" + bytes(9) + b"\xff" * 12 + b"\xac\x03" + bytes(9)
    for read in (Cursor.varints, Cursor.varlongs):
        numbers = read(Cursor(Source(data), np.array([0, 10, 22])))
        assert numbers.tolist() == [1, MALFORMED, 214]


def test_numbers_at_the_very_end_of_the_bytes_are_read() -> None:
    data = bytes(20) + b"\xac\x03"
    cursor = Cursor(Source(data), np.array([19, 20]))
    assert cursor.varints().tolist() == [0, 214]
    assert cursor.at.tolist() == [20, 22]
