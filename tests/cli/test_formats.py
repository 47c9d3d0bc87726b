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
from penstock.cli.formats import Form, writer_of
from penstock.cli.output import Refused
from penstock.cli.positions import Place, parse_place
from penstock.cli.produce_input import LineForm, NewRecord, generated, parse_json, parse_line, read_lines
from penstock.records import Record

PLAIN = Record(7, 1_700_000_000_123, b"k", b"v", (("h", b"1"), ("g", None)))
ODD = Record(8, -1, None, b"\xff\n\x1b[31m")
NULL = Record(9, 0, b"", None)


def written(form: Form, record: Record) -> bytes:
    return writer_of(form)("orders", 3, record)


@pytest.mark.parametrize(
    ("form", "record", "expected"),
    [
        (Form("text"), PLAIN, b"v\n"),
        (Form("text", key_separator="="), PLAIN, b"k=v\n"),
        (Form("text", key_separator=r"\t", header_separator="|"), PLAIN, b"h=1,g|k\tv\n"),
        (Form("text", null_value="NIL"), NULL, b"NIL\n"),
        (Form("text"), ODD, b"\xff\n\x1b[31m\n"),
        (Form("text", is_terminal=True), ODD, rb"\xff\x0a\x1b[31m" + b"\n"),
        (Form("value", key_separator="="), PLAIN, b"v\n"),
        (Form("raw"), ODD, b"\xff\n\x1b[31m"),
        (Form("raw"), NULL, b""),
        (Form("hex"), PLAIN, b"orders-3:7 6b 76\n"),
        (Form("hex"), NULL, b"orders-3:9 empty null\n"),
        (Form("full"), PLAIN, b"orders-3:7 2023-11-14 22:13:20.123Z k v [h=1, g=null]\n"),
        (Form("full"), ODD, rb"orders-3:8 - null \xff\x0a\x1b[31m" + b"\n"),
        (Form("%t %p %o %k %v"), PLAIN, b"orders 3 7 k v\n"),
        (Form(r"%K/%V %T %h%%\x41\t\n"), PLAIN, b"1/1 1700000000123 h=1,g%A\t\n"),
        (Form("%k:%s:%S", null_value="-"), NULL, b":-:-1\n"),
    ],
)
def test_a_record_is_written_so(form: Form, record: Record, expected: bytes) -> None:
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
    line = written(Form("json", base64=always), Record(5, timestamp, key, value, headers))
    assert parse_json(line, LineForm(), "here") == NewRecord(key, value, headers, 3, timestamp)


@pytest.mark.parametrize(
    ("line", "form", "expected"),
    [
        (b"v", LineForm(), NewRecord(None, b"v")),
        (b"v\r", LineForm(), NewRecord(None, b"v")),
        (b"", LineForm(), NewRecord(None, b"")),
        (b"k:v:w", LineForm(key_separator=b":"), NewRecord(b"k", b"v:w")),
        (b"k:NIL", LineForm(key_separator=b":", null_value=b"NIL"), NewRecord(b"k", None)),
        (b"v", LineForm(key=b"all", headers=(("a", b"1"),)), NewRecord(b"all", b"v", (("a", b"1"),))),
        (
            b"a=1,b|k=v",
            LineForm(key_separator=b"=", header_separator=b"|", headers=(("z", b""),)),
            NewRecord(b"k", b"v", (("z", b""), ("a", b"1"), ("b", None))),
        ),
        (b"|v", LineForm(header_separator=b"|"), NewRecord(None, b"v")),
    ],
)
def test_a_line_is_taken_apart_so(line: bytes, form: LineForm, expected: NewRecord) -> None:
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
    assert parse_json(json.dumps(document).encode(), LineForm(), "here") == expected


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
        parse_json(line, LineForm(), "here")
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
    source = generated(50, LineForm(key=b"k"), Random(1))
    values = [next(source).value for _ in range(1000)]
    assert {len(value or b"") for value in values} == {50}
    assert len(set(values)) == 1000
    assert next(generated(1, LineForm(), Random(1))).value == b"0"


NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Place(edge="earliest")),
        ("latest", Place(edge="latest")),
        ("0", Place(offset=0)),
        ("-5", Place(offset=-5)),
        ("@12", Place(time_ms=12)),
        ("-1h", Place(time_ms=NOW - 3_600_000)),
        ("-1.5s", Place(time_ms=NOW - 1500)),
        ("-999999w", Place(time_ms=0)),
        ("2023-11-14T22:13:20Z", Place(time_ms=NOW)),
        ("2023-11-14T22:13:20", Place(time_ms=NOW)),
        ("2023-11-15T00:13:20+02:00", Place(time_ms=NOW)),
        ("2023-11-14", Place(time_ms=1_699_920_000_000)),
    ],
)
def test_a_place_is_named_so(text: str, expected: Place) -> None:
    assert parse_place(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "x", "--5", "1h", "@", "@x", "-1y", "2023-13-01", "9" * 30])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="is no position in a log"):
        parse_place(text, NOW)
