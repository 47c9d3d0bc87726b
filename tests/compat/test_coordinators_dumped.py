"""kafka-dump-log with its decoders on what Penstock's coordinators wrote.

The decoders know every record that Kafka's coordinators write, by type and version, and print each as JSON. A type
they do not know, or a value that does not fit its version, is printed as such. Groups of both protocols, offsets
committed by members, by nobody and by a transaction, and transactions that ended either way or not at all.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import SECONDS_MAX, Record
from tests.compat.kafka.peer import KafkaPeer

from penstock.storage import names
from penstock.testing import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("coordinators-dumped")]

JSON_AT = re.compile(r" (key|payload): ?(?=[{<N])")
"""Where the two halves of a record begin."""

SETTINGS = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}


@dataclass(frozen=True)
class Decoded:
    """A record, as a decoder printed it."""

    key: Any
    value: Any
    """None for a tombstone."""

    @property
    def key_type(self) -> str:
        return str(self.key["type"])


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of a broker that coordinated, and was stopped."""
    data = tmp_path_factory.mktemp("coordinated")
    with Broker(data=data, settings=SETTINGS) as broker:
        coordinate(broker.bootstrap)
    return data / "logs"


def coordinate(bootstrap: str) -> None:
    driver = ConfluentDriver(bootstrap)
    driver.create_topic("orders")
    driver.create_topic("payments")
    driver.produce("orders", [Record(b"%d" % number) for number in range(9)])
    read_and_commit(bootstrap, "old-readers", "classic", 3)
    read_and_commit(bootstrap, "new-readers", "consumer", 4)

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    place = TopicPartition("orders", 0, 7, "by hand")
    consumer.commit(offsets=[place], asynchronous=False)

    kept = transact(bootstrap, "kept")
    kept.send_offsets_to_transaction(
        [TopicPartition("orders", 0, 8)], consumer.consumer_group_metadata(), SECONDS_MAX
    )
    consumer.close()
    kept.commit_transaction(SECONDS_MAX)
    transact(bootstrap, "dropped").abort_transaction(SECONDS_MAX)
    transact(bootstrap, "open")


def read_and_commit(bootstrap: str, group: str, protocol: str, count: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe(["orders"])
        got = consumer.consume(1, SECONDS_MAX)
        assert [each.value() for each in got] == [b"0"]
        consumer.commit(offsets=[TopicPartition("orders", 0, count)], asynchronous=False)
    finally:
        consumer.close()


def transact(bootstrap: str, name: str) -> Producer:
    """Begin a transaction and write to it."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce("payments", name.encode(), partition=0)
    assert producer.flush(SECONDS_MAX) == 0
    return producer


def decoded(kafka: KafkaPeer, logs: Path, topic: str, decoder: str) -> list[Decoded]:
    """Every record of a coordinator's partition; one that the decoder could not read fails."""
    files = sorted((logs / f"{topic}-0").glob(f"*{names.LOG}"))
    dump = kafka.dump_log(files, decoder)
    assert dump.problems() == []
    return list(_records(dump.text))


def _records(text: str) -> Iterator[Decoded]:
    for line in text.splitlines():
        if not line.startswith("|") or " endTxnMarker: " in line:
            continue
        halves = JSON_AT.split(line)
        assert halves[1::2] == ["key", "payload"], f"the decoder could not read: {line}"
        key, value = halves[2::2]
        yield Decoded(json.loads(key), None if value == "<DELETE>" else json.loads(value))


def test_the_offsets_decoder_reads_groups_and_their_offsets(kafka: KafkaPeer, logs: Path) -> None:
    """Types 1: offsets, 2: classic groups, 3 and 5 to 8: groups of KIP-848."""
    records = decoded(kafka, logs, "__consumer_offsets", "--offsets-decoder")

    committed = [
        (each.key["data"]["group"], each.key["data"]["topic"], each.value["data"]["offset"])
        for each in records
        if each.key_type == "1"
    ]
    assert committed == [
        ("old-readers", "orders", 3),
        ("new-readers", "orders", 4),
        ("nobody", "orders", 7),
        ("nobody", "orders", 8),  # by the transaction
    ]
    classic = [each for each in records if each.key_type == "2"]
    assert {each.key["data"]["group"] for each in classic} == {"old-readers"}
    assert [(each.value["data"]["generation"], len(each.value["data"]["members"])) for each in classic] == [
        (0, 0),
        (1, 1),
        (2, 0),
    ]
    [member] = classic[1].value["data"]["members"]
    assert member["subscription"]["topics"] == ["orders"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "orders", "partitions": [0]}]

    of_new = [each for each in records if int(each.key_type) > 2]
    assert {each.key["data"]["groupId"] for each in of_new} == {"new-readers"}
    assert {each.key_type for each in of_new} == {"3", "5", "6", "7", "8"}
    subscription, *_, gone = [each.value for each in of_new if each.key_type == "5"]
    assert subscription["data"]["subscribedTopicNames"] == ["orders"]
    assert gone is None, "the member left"
    assignment = next(each.value for each in of_new if each.key_type == "8")
    assert [each["partitions"] for each in assignment["data"]["assignedPartitions"]] == [[0]]


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)


def test_the_transaction_log_decoder_reads_every_state(kafka: KafkaPeer, logs: Path) -> None:
    records = decoded(kafka, logs, "__transaction_state", "--transaction-log-decoder")
    states: dict[str, list[int]] = {}
    for each in records:
        mine = states.setdefault(each.key["data"]["transactionalId"], [])
        if each.value["data"]["transactionStatus"] not in mine[-1:]:
            mine.append(each.value["data"]["transactionStatus"])
    assert states == {
        "kept": [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT],
        "dropped": [EMPTY, ONGOING, PREPARE_ABORT, COMPLETE_ABORT],
        "open": [EMPTY, ONGOING],
    }
    prepared = next(each for each in records if each.value["data"]["transactionStatus"] == PREPARE_COMMIT)
    assert prepared.value["data"]["transactionPartitions"] == [
        {"topic": "__consumer_offsets", "partitionIds": [0]},
        {"topic": "payments", "partitionIds": [0]},
    ]
    producer_ids = {each.value["data"]["producerId"] for each in records}
    assert len(producer_ids) == 3
