"""Metadata records: Kafka's bytes read and written back, and every kind round the loop."""

import json
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.metadata import control_records as control
from penstock.metadata import records as schema
from penstock.metadata.records import KINDS, LATEST, OWN_TAG, MetadataRecord, UnknownRecord, decode, encode
from penstock.records import iter_batches, parse_control
from penstock.records.structs import CorruptStruct, Kind, Struct

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/kafka/logs"
FILES = ["__cluster_metadata-0/00000000000000000000.log", "bootstrap.checkpoint"]
JARS = ROOT / ".cache/kafka-4.3.1"


@pytest.mark.parametrize("name", FILES)
def test_every_record_that_kafka_wrote_decodes_and_encodes_to_the_same_bytes(name: str) -> None:
    seen = set()
    for batch in iter_batches((GOLDEN / name).read_bytes()):
        for record in batch.records():
            value = bytes(record.value or b"")
            if batch.is_control:
                message = control.decode_control(parse_control(record).type, value)
                assert control.encode_control(message) == value
                seen.add(type(message).__name__)
            else:
                decoded = decode(value)
                assert encode(decoded) == value
                seen.add(type(decoded).__name__)
    assert "UnknownRecord" not in seen
    assert len(seen) >= 3


_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "bool": st.booleans(),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=200),
    "bytes": st.binary(max_size=200),
}
_STRUCTS = {
    each.__name__: each
    for module in (schema, control)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Struct)
}


def values(kind: Kind, version: int, nullable: bool) -> st.SearchStrategy[Any]:
    if kind.name.startswith("[]"):
        inner = Kind(kind.name[2:], kind.codec, None)
        drawn: st.SearchStrategy[Any] = st.lists(values(inner, version, False), max_size=4).map(tuple)
    elif kind.name in _PLAIN:
        drawn = _PLAIN[kind.name]
    else:
        drawn = structs(_STRUCTS[kind.name], version)
    return st.none() | drawn if nullable else drawn


def structs(of: type[Struct], version: int, /, **fixed: Any) -> st.SearchStrategy[Any]:
    fields = {
        name: values(how.kind, version, how.nullable)
        for name, how in of.FIELDS.items()
        if how.since <= version <= how.until and name not in fixed
    }
    tags = st.lists(
        st.tuples(st.integers(50, 300), st.binary(max_size=9)), max_size=2, unique_by=lambda t: t[0]
    )
    fields["unknown_tags"] = tags.map(lambda each: tuple(sorted(each)))
    return st.fixed_dictionaries(fields).map(lambda drawn: of(**fixed, **drawn))


ALL_VERSIONS = [(kind, version) for key, kind in KINDS.items() for version in range(LATEST[key] + 1)]


@pytest.mark.parametrize(("kind", "version"), ALL_VERSIONS)
def test_every_version_of_every_kind_comes_back_as_it_went(kind: type[MetadataRecord], version: int) -> None:
    @settings(max_examples=15)
    @given(record=structs(kind, version).map(lambda drawn: kind(**(vars(drawn) | {"version": version}))))
    def check(record: MetadataRecord) -> None:
        assert decode(encode(record)) == record

    check()


@pytest.mark.parametrize("kind", control.MESSAGES.values(), ids=lambda each: each.__name__)
def test_every_control_message_comes_back_as_it_went(kind: type[control.ControlMessage]) -> None:
    @settings(max_examples=15)
    @given(st.integers(0, kind.LATEST).flatmap(lambda version: structs(kind, version, version=version)))
    def check(message: control.ControlMessage) -> None:
        assert control.decode_control(kind.TYPE, control.encode_control(message)) == message

    check()


@given(
    st.integers(100, 2**20) | st.sampled_from([6, 13, 16]), st.integers(0, 2**15 - 1), st.binary(max_size=50)
)
def test_a_record_of_an_unknown_kind_is_kept_byte_for_byte(key: int, version: int, data: bytes) -> None:
    record = UnknownRecord(key, version, data)
    assert decode(encode(record)) == record


def test_a_later_version_of_a_known_kind_is_kept_byte_for_byte() -> None:
    data = bytes([1, schema.TopicRecord.KEY, 7]) + b"whatever"
    assert decode(data) == UnknownRecord(schema.TopicRecord.KEY, 7, b"whatever")
    assert encode(decode(data)) == data


def golden_values() -> Iterator[bytes]:
    for batch in iter_batches((GOLDEN / FILES[0]).read_bytes()):
        if not batch.is_control:
            yield from (bytes(record.value or b"") for record in batch.records())


def test_a_record_that_is_cut_short_or_has_a_tail_is_refused() -> None:
    for value in list(golden_values())[:40]:
        for end in range(len(value)):
            with pytest.raises(CorruptStruct):
                decode(value[:end])
        with pytest.raises(CorruptStruct, match="bytes were given"):
            decode(value + b"\0")


@given(st.binary(max_size=60))
def test_no_bytes_make_the_decoder_fail_otherwise(data: bytes) -> None:
    for start in (b"", b"\1", b"\1\0\4", b"\1\3\2", b"\1\5\2"):
        with suppress(CorruptStruct):
            decode(start + data)


def test_another_frame_version_is_refused() -> None:
    with pytest.raises(CorruptStruct, match="frame version 2, expected 1"):
        decode(b"\2\2\0")


def test_a_value_that_its_version_cannot_hold_is_not_dropped_in_silence() -> None:
    with pytest.raises(ValueError, match="log_dirs"):
        encode(schema.RegisterBrokerRecord(version=1, log_dirs=(b"d" * 16,)))


def test_records_are_values() -> None:
    record = schema.TopicRecord(name="a", topic_id=b"i" * 16)
    assert record == schema.TopicRecord(name="a", topic_id=b"i" * 16)
    assert record != schema.TopicRecord(name="b", topic_id=b"i" * 16)
    assert len({record, schema.TopicRecord(name="a", topic_id=b"i" * 16)}) == 1
    assert repr(record).startswith("TopicRecord(version=0, name='a'")
    with pytest.raises(AttributeError):
        record.name = "b"  # type: ignore[misc]
    with pytest.raises(TypeError, match="has no field nmae"):
        schema.TopicRecord(nmae="a")  # type: ignore[call-arg]


_RENAMED = {
    "min_supported_version": "min_level",
    "max_supported_version": "max_level",
    "end_points": "endpoints",
    "entity_type": "type",
    "entity_name": "name",
    "voter_id": "id",
    "voter_directory_id": "directory_id",
    "k_raft_version": "kraft_version",
    "k_raft_version_feature": "kraft_version",
}


def _declared(of: type[Struct], version: int) -> dict[str, Any]:
    return {
        name: (how.tag, how.nullable, how.since)
        for name, how in of.FIELDS.items()
        if how.since <= version <= how.until and how.tag != OWN_TAG
    }


def _snake(name: str) -> str:
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return _RENAMED.get(snake, snake)


def _schema_of(archive: zipfile.ZipFile, path: str) -> Any:
    return json.loads(re.sub(r"^\s*//.*$", "", archive.read(path).decode(), flags=re.MULTILINE))


@pytest.mark.kafka
@pytest.mark.skipif(not (JARS / "kafka-metadata-4.3.1.jar").exists(), reason="needs Apache Kafka's jars")
def test_the_declarations_are_those_of_kafkas_own_schemas() -> None:
    with zipfile.ZipFile(JARS / "kafka-metadata-4.3.1.jar") as archive:
        paths = [each for each in archive.namelist() if re.fullmatch(r"common/metadata/\w+\.json", each)]
        found = [_schema_of(archive, path) for path in paths]
    assert {each["apiKey"] for each in found} == set(KINDS)
    for each in found:
        kind = KINDS[each["apiKey"]]
        assert kind.__name__ == each["name"]
        assert int(each["validVersions"].rpartition("-")[2]) == LATEST[kind.KEY]
        assert each["flexibleVersions"] == "0+"
        _compare(each["fields"], kind)


def _compare(fields: list[Any], of: type[Struct]) -> None:
    wanted = {
        _snake(each["name"]): (each.get("tag"), "nullableVersions" in each, int(each["versions"].rstrip("+")))
        for each in fields
    }
    assert _declared(of, 99) == wanted
    for each in fields:
        how = of.FIELDS[_snake(each["name"])]
        if each.get("fields"):
            _compare(each["fields"], _STRUCTS[how.kind.name.removeprefix("[]")])
            continue
        assert how.kind.name == each["type"]
        if "default" in each:
            assert str(how.default).lower().replace("none", "null") == each["default"]
