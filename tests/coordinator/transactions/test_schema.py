"""Records of `__transaction_state`: Kafka's bytes read and written back, and every version round the loop."""

import json
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.transactions.driver import P0, P1, P2, load

from penstock.base.ids import TopicPartition
from penstock.coordinator.transactions import schema as schema_module
from penstock.coordinator.transactions.coordinator import TransactionCoordinator
from penstock.coordinator.transactions.schema import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from penstock.coordinator.transactions.state import State, Transaction, from_value
from penstock.records import iter_batches
from penstock.records.structs import CorruptStruct, Struct

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests/golden/kafka/logs/__transaction_state-0/00000000000000000000.log"
JAR = ROOT / ".cache/kafka-4.3.1/kafka-transaction-coordinator-4.3.1.jar"
INT64 = st.integers(-(2**63), 2**63 - 1)
INT16 = st.integers(-(2**15), 2**15 - 1)


def golden_records() -> list[tuple[bytes, bytes | None]]:
    return [
        (bytes(record.key or b""), None if record.value is None else bytes(record.value))
        for batch in iter_batches(GOLDEN.read_bytes())
        for record in batch.records()
    ]


def test_every_record_that_kafka_wrote_decodes_and_encodes_to_the_same_bytes() -> None:
    states = set()
    for key, value in golden_records():
        transactional_id = decode_key(key)
        assert transactional_id is not None
        assert encode_key(transactional_id) == key
        assert value is not None
        decoded = decode_value(value)
        assert encode_value(decoded) == value
        states.add(State(decoded.transaction_status))
    assert {State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT} <= states


def test_a_state_of_kafkas_written_by_us_is_the_same_bytes() -> None:
    """Where a transaction has one partition; of more, Kafka's order is that of a Java hash set."""
    seen = 0
    for key, value in golden_records():
        assert value is not None
        state = from_value(decode_value(value))
        if len(state.partitions) <= 1:
            seen += 1
            assert state.record(str(decode_key(key)), 2) == (key, value)
    assert seen


def test_a_coordinator_loads_what_kafka_left() -> None:
    coordinator = TransactionCoordinator()
    load(coordinator, golden_records(), 3, 1_700_000_000_000)
    ids = {decode_key(key) for key, _ in golden_records()}
    assert all(coordinator.current(str(each)) is not None for each in ids)


TRANSACTIONS = st.builds(
    Transaction,
    producer_id=INT64,
    epoch=INT16,
    timeout_ms=st.integers(0, 2**31 - 1),
    updated_ms=INT64,
    state=st.sampled_from([each for each in State if each <= State.COMPLETE_ABORT]),
    partitions=st.frozensets(st.builds(TopicPartition, st.text(max_size=30), st.integers(0, 9)), max_size=6),
    started_ms=INT64,
    version=st.integers(0, 2),
    previous_producer_id=INT64,
    next_producer_id=INT64,
    last_epoch=st.just(-1),
).map(lambda each: each._replace(partitions=frozenset()) if each.state is State.EMPTY else each)


@given(st.text(max_size=60), TRANSACTIONS)
def test_a_state_comes_back_as_it_went(transactional_id: str, state: Transaction) -> None:
    key, value = state.record(transactional_id, 2)
    assert decode_key(key) == transactional_id
    assert value is not None
    assert from_value(decode_value(value)) == state


@given(TRANSACTIONS)
def test_version_0_has_no_room_for_what_kip_890_added(state: Transaction) -> None:
    value = state.record("id", 0).value
    assert value is not None
    assert value[:2] == b"\0\0"
    plain = state._replace(version=0, previous_producer_id=-1, next_producer_id=-1)
    assert from_value(decode_value(value)) == plain


def test_partitions_are_grouped_by_topic_and_none_where_the_state_is_empty() -> None:
    other = TopicPartition("audit", 7)
    state = Transaction(5, 1, 1000, 10, State.ONGOING, frozenset({P2, other, P0, P1}), 9)
    value = decode_value(state.record("id", 2).value or b"")
    assert value.transaction_partitions == (
        PartitionsSchema(topic="audit", partition_ids=(7,)),
        PartitionsSchema(topic="orders", partition_ids=(0, 1, 2)),
    )
    assert (
        decode_value(Transaction(5, 1, 1000, 10).record("id", 2).value or b"").transaction_partitions is None
    )


def test_a_record_that_is_cut_short_or_has_a_tail_is_refused() -> None:
    for key, value in golden_records()[:10]:
        for data, decode in ((key, decode_key), (value or b"", decode_value)):
            for end in range(len(data)):
                with pytest.raises(CorruptStruct):
                    decode(data[:end])
            with pytest.raises(CorruptStruct, match="bytes were given"):
                decode(data + b"\0")


@given(st.binary(max_size=60))
def test_no_bytes_make_the_decoders_fail_otherwise(data: bytes) -> None:
    for start in (b"", b"\0\0", b"\0\1"):
        with suppress(CorruptStruct):
            from_value(decode_value(start + data))
        with suppress(CorruptStruct):
            decode_key(start + data)


def test_another_type_of_key_is_passed_over_and_another_version_of_a_value_is_not() -> None:
    assert decode_key(b"\0\1whatever") is None
    with pytest.raises(CorruptStruct, match="version 2, expected 0 to 1"):
        decode_value(b"\0\2whatever")
    with pytest.raises(CorruptStruct, match="state is 6"):
        from_value(TransactionLogValue(transaction_status=6))


_STRUCTS = {
    each.__name__: each
    for each in vars(schema_module).values()
    if isinstance(each, type) and issubclass(each, Struct)
}


@pytest.mark.kafka
@pytest.mark.skipif(not JAR.exists(), reason="needs Apache Kafka's jars")
def test_the_declarations_are_those_of_kafkas_own_schemas() -> None:
    with zipfile.ZipFile(JAR) as archive:
        for name in ("TransactionLogKey", "TransactionLogValue"):
            text = archive.read(f"common/message/{name}.json").decode()
            found = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
            of = _STRUCTS[name]
            assert found["name"] == name
            if name == "TransactionLogKey":
                assert (found["validVersions"], found["flexibleVersions"]) == ("0", "none")
                assert found["apiKey"] == schema_module.TRANSACTION_LOG_TYPE
                assert of is TransactionLogKey
            else:
                assert found["validVersions"] == f"0-{TransactionLogValue.LATEST}"
                assert found["flexibleVersions"] == f"{of.FLEXIBLE_SINCE}+"
            _compare(found["fields"], of)


def _compare(fields: list[Any], of: type[Struct]) -> None:
    assert [_snake(each["name"]) for each in fields] == list(of.FIELDS)
    for each in fields:
        how = of.FIELDS[_snake(each["name"])]
        since = each.get("taggedVersions") or each["versions"]
        assert how.since == int(since.rstrip("+"))
        assert (how.tag, how.nullable) == (each.get("tag"), "nullableVersions" in each)
        if each.get("fields"):
            _compare(each["fields"], _STRUCTS[how.kind.name.removeprefix("[]")])
            continue
        assert how.kind.name == each["type"]
        if "default" in each:
            assert how.default == each["default"]


def _snake(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
