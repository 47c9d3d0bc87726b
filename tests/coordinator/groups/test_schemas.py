"""The records of `__consumer_offsets`: Kafka's bytes read and written back, and every version round the loop."""

import json
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.coordinator.groups import consumer_protocol, schemas
from penstock.coordinator.groups.schemas import (
    KEYS,
    GroupRecord,
    Key,
    OffsetCommitValue,
    Value,
    decode,
    encode_value,
)
from penstock.records import iter_batches
from penstock.records.structs import NO_UUID, CorruptStruct, Kind, Struct, body_of

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/kafka/logs/__consumer_offsets-0/00000000000000000000.log"
JARS = ROOT / ".cache/kafka-4.3.1"


def golden() -> list[tuple[bytes, bytes | None]]:
    return [
        (bytes(record.key or b""), None if record.value is None else bytes(record.value))
        for batch in iter_batches(GOLDEN.read_bytes())
        if not batch.is_control
        for record in batch.records()
    ]


def test_every_record_that_kafka_wrote_decodes_and_encodes_to_the_same_bytes() -> None:
    seen = set()
    for key, value in golden():
        record = decode(key, value)
        assert record is not None
        assert record.encoded() == (key, value)
        if record.value is not None:
            seen.add(type(record.value).__name__)
            assert record.value.version == type(record.value)().version, "what Kafka writes is the default"
    assert len(seen) >= 6


_PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=60),
    "bytes": st.binary(max_size=60),
}
_STRUCTS = {
    each.__name__: each
    for each in vars(schemas).values()
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
        if how.since <= version <= how.until
    }
    return st.fixed_dictionaries(fields).map(lambda drawn: of(**fixed, **drawn))


ALL_VERSIONS = [(key, version) for key in KEYS.values() for version in range(key.VALUE.LATEST + 1)]


@pytest.mark.parametrize(("key", "version"), ALL_VERSIONS)
def test_every_version_of_every_record_comes_back_as_it_went(key: type[Key], version: int) -> None:
    @settings(max_examples=15)
    @given(structs(key, 0), structs(key.VALUE, version, version=version))
    def check(drawn: Key, value: Value) -> None:
        record = GroupRecord(drawn, value)
        assert decode(*record.encoded()) == record
        assert decode(record.encoded()[0], None) == GroupRecord(drawn, None)

    check()


@given(
    offset=_PLAIN["int64"],
    leader_epoch=_PLAIN["int32"],
    metadata=st.sampled_from(["", "text"]),
    commit_timestamp=_PLAIN["int64"],
    topic_id=st.one_of(st.just(NO_UUID), _PLAIN["uuid"]),
    unknown_tags=st.sampled_from([(), ((7, b"later"),)]),
)
def test_an_offset_written_by_hand_is_what_its_declaration_says(**fields: Any) -> None:
    value = OffsetCommitValue(**fields)
    declared = bytearray(value.version.to_bytes(2, "big"))
    body_of(OffsetCommitValue, value.version).write(declared, value)
    assert encode_value(value) == declared


def test_a_record_of_a_type_that_is_not_acted_on_is_passed_over() -> None:
    assert decode(b"\0\x0b\0\1g", b"\0\0anything") is None


def test_a_known_record_of_an_unknown_version_is_refused() -> None:
    key = schemas.encode_key(schemas.GroupMetadataKey(group="g"))
    with pytest.raises(CorruptStruct, match="GroupMetadataValue has version 5, expected 0 to 4"):
        decode(key, b"\0\5")


def test_a_record_that_is_cut_short_or_has_a_tail_is_refused() -> None:
    for key, value in golden():
        for end in range(len(key)):
            with pytest.raises(CorruptStruct):
                decode(key[:end], value)
        with pytest.raises(CorruptStruct):
            decode(key + b"\0", value)
        if value is not None:
            for end in range(len(value)):
                with pytest.raises(CorruptStruct):
                    decode(key, value[:end])
            with pytest.raises(CorruptStruct):
                decode(key, value + b"\0")


@given(st.integers(0, 17), st.binary(max_size=40), st.integers(0, 5), st.binary(max_size=60))
def test_no_bytes_make_the_decoder_fail_otherwise(kind: int, key: bytes, version: int, value: bytes) -> None:
    with suppress(CorruptStruct):
        decode(kind.to_bytes(2, "big") + key, version.to_bytes(2, "big") + value)
    with suppress(CorruptStruct):
        decode(key, value)


@given(st.binary(max_size=60))
def test_no_subscription_or_assignment_makes_its_reader_fail_otherwise(data: bytes) -> None:
    for read in (
        consumer_protocol.read_subscription,
        consumer_protocol.read_topics,
        consumer_protocol.read_assignment,
    ):
        for start in (b"", b"\0\0", b"\0\3", b"\0\x09"):
            with suppress(CorruptStruct):
                read(start + data)


_RENAMED = {("ConsumerGroupRegularExpressionValue", "version"): "regex_version"}


def _snake(of: str, name: str) -> str:
    snake = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    return _RENAMED.get((of, snake), snake)


def _first(versions: str) -> int:
    return int(re.split(r"[-+]", versions)[0])


def _compare(each: dict[str, Any], of: type[Struct], common: dict[str, Any]) -> None:
    wanted = {
        _snake(of.__name__, field["name"]): (
            field.get("tag"),
            "nullableVersions" in field,
            _first(field["versions"]),
        )
        for field in each["fields"]
    }
    assert {name: (how.tag, how.nullable, how.since) for name, how in of.FIELDS.items()} == wanted, (
        of.__name__
    )
    for field in each["fields"]:
        how = of.FIELDS[_snake(of.__name__, field["name"])]
        inner = field["type"].removeprefix("[]")
        if inner in common or field.get("fields"):
            _compare(common.get(inner, field), _STRUCTS[how.kind.name.removeprefix("[]")], common)
            continue
        assert how.kind.name == field["type"]
        if field.get("default") is not None:
            assert str(how.default).lower().replace("none", "null") == str(field["default"])


@pytest.mark.kafka
@pytest.mark.skipif(
    not (JARS / "kafka-group-coordinator-4.3.1.jar").exists(), reason="needs Apache Kafka's jars"
)
def test_the_declarations_are_those_of_kafkas_own_schemas() -> None:
    with zipfile.ZipFile(JARS / "kafka-group-coordinator-4.3.1.jar") as archive:
        found = [
            json.loads(re.sub(r"^\s*//.*$", "", archive.read(path).decode(), flags=re.MULTILINE))
            for path in archive.namelist()
            if re.fullmatch(r"common/message/(?!Share|Streams)\w+\.json", path)
        ]
    by_type = {(each["apiKey"], each["type"]): each for each in found}
    assert {number for number, _ in by_type} == set(KEYS)
    for number, key in KEYS.items():
        for kind, of in (("coordinator-key", key), ("coordinator-value", key.VALUE)):
            each = by_type[number, kind]
            assert of.__name__ == each["name"]
            latest = 0 if kind == "coordinator-key" else key.VALUE.LATEST
            assert int(each["validVersions"].rpartition("-")[2]) == latest
            flexible = each["flexibleVersions"]
            assert (2**15 if flexible == "none" else _first(flexible)) == of.FLEXIBLE_SINCE
            _compare(each, of, {one["name"]: one for one in each.get("commonStructs", ())})
