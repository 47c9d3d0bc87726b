"""How records are written and read as text: formats, lines, JSON, places in a log."""

import io
import json
import os
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli import produce_input
from penstock.cli.formats import RecordFormat, writer_of
from penstock.cli.output import Refused
from penstock.cli.positions import LogPosition, parse_position
from penstock.cli.produce_input import LineFormat, NewRecord, generated, parse_json, parse_line, read_lines
from penstock.records import Record

PLAIN = Record(7, 1_700_000_000_123, b"k", b"v", (("h", b"1"), ("g", None)))
ODD = Record(8, -1, None, b"\xff\n\x1b[31m")
NULL = Record(9, 0, b"", None)


def written(form: RecordFormat, record: Record) -> bytes:
    return writer_of(form)("orders", 3, record)


@pytest.mark.parametrize(
    ("form", "record", "expected"),
    [
        (RecordFormat("text"), PLAIN, b"v\n"),
        (RecordFormat("text", key_separator="="), PLAIN, b"k=v\n"),
        (RecordFormat("text", key_separator=r"\t", header_separator="|"), PLAIN, b"h=1,g|k\tv\n"),
        (RecordFormat("text", null_value="NIL"), NULL, b"NIL\n"),
        (RecordFormat("text"), ODD, b"\xff\n\x1b[31m\n"),
        (RecordFormat("text", is_terminal=True), ODD, rb"\xff\x0a\x1b[31m" + b"\n"),
        (RecordFormat("value", key_separator="="), PLAIN, b"v\n"),
        (RecordFormat("raw"), ODD, b"\xff\n\x1b[31m"),
        (RecordFormat("raw"), NULL, b""),
        (RecordFormat("hex"), PLAIN, b"orders-3:7 6b 76\n"),
        (RecordFormat("hex"), NULL, b"orders-3:9 empty null\n"),
        (RecordFormat("full"), PLAIN, b"orders-3:7 2023-11-14 22:13:20.123Z k v [h=1, g=null]\n"),
        (RecordFormat("full"), ODD, rb"orders-3:8 - null \xff\x0a\x1b[31m" + b"\n"),
        (RecordFormat("%t %p %o %k %v"), PLAIN, b"orders 3 7 k v\n"),
        (RecordFormat(r"%K/%V %T %h%%\x41\t\n"), PLAIN, b"1/1 1700000000123 h=1,g%A\t\n"),
        (RecordFormat("%k:%s:%S", null_value="-"), NULL, b":-:-1\n"),
    ],
)
def test_a_record_is_written_so(form: RecordFormat, record: Record, expected: bytes) -> None:
    assert written(form, record) == expected


blobs = st.none() | st.binary(max_size=20) | st.text(max_size=10).map(str.encode)
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3).map(tuple)


@given(key=blobs, value=blobs, headers=headers, timestamp=st.integers(0, 2**62), always=st.booleans())
def test_json_reads_back_as_it_was_written(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp: int,
    always: bool,
) -> None:
    line = written(RecordFormat("json", base64=always), Record(5, timestamp, key, value, headers))
    assert parse_json(line, LineFormat(), "here") == NewRecord(key, value, headers, 3, timestamp)


@pytest.mark.parametrize(
    ("line", "form", "expected"),
    [
        (b"v", LineFormat(), NewRecord(None, b"v")),
        (b"v\r", LineFormat(), NewRecord(None, b"v")),
        (b"", LineFormat(), NewRecord(None, b"")),
        (b"k:v:w", LineFormat(key_separator=b":"), NewRecord(b"k", b"v:w")),
        (b"k:NIL", LineFormat(key_separator=b":", null_value=b"NIL"), NewRecord(b"k", None)),
        (b"v", LineFormat(key=b"all", headers=(("a", b"1"),)), NewRecord(b"all", b"v", (("a", b"1"),))),
        (
            b"a=1,b|k=v",
            LineFormat(key_separator=b"=", header_separator=b"|", headers=(("z", b""),)),
            NewRecord(b"k", b"v", (("z", b""), ("a", b"1"), ("b", None))),
        ),
        (b"|v", LineFormat(header_separator=b"|"), NewRecord(None, b"v")),
    ],
)
def test_a_line_is_taken_apart_so(line: bytes, form: LineFormat, expected: NewRecord) -> None:
    assert parse_line(line, form, "here") == expected


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({}, NewRecord(None, None)),
        ({"value": {"a": [1, "é"]}}, NewRecord(None, '{"a":[1,"é"]}'.encode())),
        ({"value": 5, "key": "k"}, NewRecord(b"k", b"5")),
        ({"headers": {"a": "1", "b": None}}, NewRecord(None, None, (("a", b"1"), ("b", None)))),
        ({"headers": [{"key": "a", "valueBase64": "/w=="}]}, NewRecord(None, None, (("a", b"\xff"),))),
        ({"partition": 2, "timestamp": 9, "offset": 1}, NewRecord(None, None, (), 2, 9)),
    ],
)
def test_json_is_read_so(document: object, expected: NewRecord) -> None:
    assert parse_json(json.dumps(document).encode(), LineFormat(), "here") == expected


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{", "here: not JSON"),
        (b"[1]", "here: expected an object, not list"),
        (b'{"valeu": 1}', "here: unknown field 'valeu'"),
        (b'{"valueBase64": "!"}', "here: valueBase64 is not base64"),
        (b'{"valueBase64": 5}', "here: valueBase64 is not base64"),
        (b'{"partition": -1}', "here: partition is -1, expected a number of at least 0"),
        (b'{"timestamp": true}', "here: timestamp is True"),
        (b'{"headers": ["a"]}', "here: headers are"),
        (b"\xff", "here: not JSON"),
    ],
)
def test_json_that_is_no_record_is_one_sentence(line: bytes, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_json(line, LineFormat(), "here")
    assert str(refused.value).startswith(sentence)


def never() -> float:
    return float("inf")


def in_memory(data: bytes) -> list[bytes | None]:
    return list(read_lines(io.BytesIO(data), "x", never))


def through_a_pipe(data: bytes) -> list[bytes | None]:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream:
        with open(writing, "wb") as pipe:
            pipe.write(data)
        return list(read_lines(stream, "x", never))


@pytest.mark.parametrize("read", [in_memory, through_a_pipe])
@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", []), (b"a", [b"a"]), (b"a\n", [b"a"]), (b"\n\nb", [b"", b"", b"b"]), (b"a\nb\n", [b"a", b"b"])],
)
def test_lines_are_cut_so(
    read: Callable[[bytes], list[bytes | None]], data: bytes, expected: list[bytes]
) -> None:
    assert read(data) == expected


@pytest.mark.parametrize("read", [in_memory, through_a_pipe])
def test_a_line_without_an_end_is_refused(
    read: Callable[[bytes], list[bytes | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce_input, "LINE_BYTES_MAX", 100)
    with pytest.raises(Refused, match="x: a line has more than 100 bytes"):
        read(b"a" * 200)


def test_while_nothing_comes_the_producer_gets_its_turn() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as stream, open(writing, "wb") as pipe:
        lines = read_lines(stream, "x", lambda: 0.0)
        assert next(lines) is None
        pipe.write(b"a\nb")
        pipe.flush()
        assert next(lines) == b"a"
        assert next(lines) is None


def test_generated_values_have_their_size_and_differ() -> None:
    source = generated(50, LineFormat(key=b"k"), Random(1))
    values = [next(source).value for _ in range(1000)]
    assert {len(value or b"") for value in values} == {50}
    assert len(set(values)) == 1000
    assert next(generated(1, LineFormat(), Random(1))).value == b"0"


NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", LogPosition(edge="earliest")),
        ("latest", LogPosition(edge="latest")),
        ("0", LogPosition(offset=0)),
        ("-5", LogPosition(offset=-5)),
        ("@12", LogPosition(time_ms=12)),
        ("-1h", LogPosition(time_ms=NOW - 3_600_000)),
        ("-1.5s", LogPosition(time_ms=NOW - 1500)),
        ("-999999w", LogPosition(time_ms=0)),
        ("2023-11-14T22:13:20Z", LogPosition(time_ms=NOW)),
        ("2023-11-14T22:13:20", LogPosition(time_ms=NOW)),
        ("2023-11-15T00:13:20+02:00", LogPosition(time_ms=NOW)),
        ("2023-11-14", LogPosition(time_ms=1_699_920_000_000)),
    ],
)
def test_a_place_is_named_so(text: str, expected: LogPosition) -> None:
    assert parse_position(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "x", "--5", "1h", "@", "@x", "-1y", "2023-13-01", "9" * 30])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is not a position in a log"):
        parse_position(text, NOW)
