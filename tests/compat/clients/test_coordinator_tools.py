"""Apache Kafka's own tools for groups and transactions, and its producer in transactions, on Penstock.

Kafka's producer is the client that speaks `transaction.version` 2 (KIP-890). Each start of a tool is a JVM: few tests,
each whole.
"""

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import Record
from tests.compat.clients.servers import Server
from tests.compat.kafka.peer import KafkaPeer
from tests.processes import Process

from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.settings import parse_servers
from penstock.client.transactions import Transaction, describe_transaction

pytestmark = pytest.mark.kafka

WAIT_S = 60

Tool = Callable[..., str]


@pytest.fixture
def groups(kafka: KafkaPeer, server: Server) -> Tool:
    """kafka-consumer-groups."""
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    return lambda *arguments: kafka.java(main, "--bootstrap-server", server.bootstrap, *arguments)


@pytest.fixture
def transactions(kafka: KafkaPeer, server: Server) -> Tool:
    """kafka-transactions."""
    main = "org.apache.kafka.tools.TransactionsCommand"
    return lambda *arguments: kafka.java(main, "--bootstrap-server", server.bootstrap, *arguments)


def rows(table: str) -> list[dict[str, str]]:
    """What a tool prints, by the words of its head; what it says above the table is left out."""
    lines = [
        re.split(r"\s{2,}|\s*\t\s*|\s(?=\S)", line.strip()) for line in table.splitlines() if line.strip()
    ]
    head = next(index for index, line in enumerate(lines) if line[0] in ("GROUP", "TransactionalId"))
    return [dict(zip(lines[head], line, strict=False)) for line in lines[head + 1 :]]


@contextmanager
def member(server: Server, group: str, topic: str, protocol: str, count: int) -> Iterator[None]:
    """One that has read so many records and has committed."""
    settings = {
        "bootstrap.servers": server.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "client.id": "reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        for _ in range(count):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None, message.error()
        consumer.commit(asynchronous=False)
        yield
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.long)])
def test_kafka_consumer_groups_shows_resets_and_deletes_a_group(
    groups: Tool, server: Server, name: str, protocol: str
) -> None:
    driver = ConfluentDriver(server.bootstrap)
    driver.create_topic(name)
    driver.produce(name, [Record(b"x")] * 4)
    group = f"group-of-{name}"
    with member(server, group, name, protocol, 3):
        [shown] = rows(groups("--describe", "--group", group))
        assert (shown["TOPIC"], shown["PARTITION"], shown["CLIENT-ID"]) == (name, "0", "reader")
        assert (shown["CURRENT-OFFSET"], shown["LOG-END-OFFSET"], shown["LAG"]) == ("3", "4", "1")
    [reset] = rows(
        groups("--reset-offsets", "--group", group, "--topic", name, "--shift-by", "-2", "--execute")
    )
    assert (reset["TOPIC"], reset["NEW-OFFSET"]) == (name, "1")
    with member(server, group, name, protocol, 3):
        pass
    assert f"Deletion of requested consumer groups ('{group}') was successful." in groups(
        "--delete", "--group", group
    )


@pytest.mark.long
def test_kafka_consumer_groups_lists_members_and_states_and_forgets_offsets(
    groups: Tool, server: Server, name: str
) -> None:
    driver = ConfluentDriver(server.bootstrap)
    driver.create_topic(name)
    driver.produce(name, [Record(b"x")] * 2)
    group = f"group-of-{name}"
    with member(server, group, name, "consumer", 2):
        assert re.search(rf"{group}\s+Stable\b", groups("--list", "--state"))
        assert re.search(rf"{group}\s+Consumer\b", groups("--list", "--type"))
        assert re.search(
            rf"{group}\s+\S+\s+/127\.0\.0\.1\s+reader\s+1\s.*{name}:0",
            groups("--describe", "--group", group, "--members", "--verbose"),
        )
        assert re.search(
            rf"{group}\s.*\(1\)\s+uniform\s+Stable\s+1\b", groups("--describe", "--group", group, "--state")
        )
        assert "is not empty" in groups("--delete", "--group", group)
    assert re.search(
        rf"{name}\s+0\s+Successful", groups("--delete-offsets", "--group", group, "--topic", name)
    )
    [planned] = rows(
        groups("--reset-offsets", "--group", group, "--topic", name, "--by-duration", "PT1H", "--dry-run")
    )
    assert planned["NEW-OFFSET"] == "0"


@pytest.mark.long
def test_kafka_transactions_shows_and_ends_a_transaction(
    transactions: Tool, server: Server, name: str
) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": name})
    producer.init_transactions(WAIT_S)
    ConfluentDriver(server.bootstrap).create_topic(name)
    producer.begin_transaction()
    producer.produce(name, b"never", partition=0)
    assert producer.flush(WAIT_S) == 0
    [found] = [each for each in rows(transactions("list")) if each["TransactionalId"] == name]
    assert found["TransactionState"] == "Ongoing"
    transactions("forceTerminateTransaction", "--transactionalId", name)
    with pytest.raises(KafkaException) as fenced:
        producer.commit_transaction(WAIT_S)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    assert committed(server.bootstrap, name, 1) == []


def test_kafkas_producer_moves_its_epoch_with_every_transaction(
    kafka: KafkaPeer, server: Server, name: str
) -> None:
    """KIP-890: what is late from one transaction has an epoch that the next one does not know."""
    ConfluentDriver(server.bootstrap).create_topic(name, partitions=3)
    out = kafka.java(*perf(server.bootstrap, name, records=3000, rate=-1, each_ms=20))
    assert "3000 records sent" in out
    assert len(committed(server.bootstrap, name, 3)) == 3000
    assert described(server.bootstrap, name).producer_epoch >= 1


@pytest.mark.long
def test_kafkas_producer_writes_once_whenever_the_broker_is_killed(kafka: KafkaPeer, tmp_path: Path) -> None:
    """The broker dies and comes back in the middle of transactions of version 2: none is lost, none is there twice."""
    with Process("--set", "auto.create.topics.enable=true", data=tmp_path / "data") as penstock:
        ConfluentDriver(penstock.bootstrap).create_topic("ledger", partitions=3)
        command = kafka._java_command("error")
        arguments = perf(penstock.bootstrap, "ledger", records=30_000, rate=3000, each_ms=100)
        with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, encoding="utf-8") as client:
            for _ in range(4):
                epoch = epoch_of(penstock.bootstrap, "ledger")
                while epoch_of(penstock.bootstrap, "ledger") < epoch + 5:
                    assert client.poll() is None, "it has ended before the broker was killed"
                penstock.kill()
                penstock.start()
            out, _ = client.communicate(timeout=2 * WAIT_S)
        assert "30000 records sent" in out
        assert len(committed(penstock.bootstrap, "ledger", 3)) == 30_000


def perf(bootstrap: str, topic: str, *, records: int, rate: int, each_ms: int) -> tuple[str, ...]:
    """kafka-producer-perf-test, in transactions of so many milliseconds; the topic's name is its transactional id."""
    return (
        "org.apache.kafka.tools.ProducerPerformance",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--record-size", "100", "--throughput", str(rate)),
        *("--transactional-id", topic, "--transaction-duration-ms", str(each_ms)),
    )


def described(bootstrap: str, transactional_id: str) -> Transaction:
    with Cluster(parse_servers(bootstrap)) as cluster:
        return describe_transaction(cluster, transactional_id)


def epoch_of(bootstrap: str, transactional_id: str) -> int:
    """How many transactions there were; none where the producer has not begun."""
    try:
        return described(bootstrap, transactional_id).producer_epoch
    except BrokerRefused:
        return -1
    finally:
        time.sleep(0.05)  # its coordinator has more to do than to be asked


def committed(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, int]]:
    """Where the records are that a reader of what is committed sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-of-{topic}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
    found: list[tuple[int, int]] = []
    ended: set[int] = set()
    try:
        while len(ended) < partitions:
            message = consumer.poll(WAIT_S)
            assert message is not None, "the topic cannot be read to its end"
            if message.error() is None:
                found.append((message.partition(), message.offset()))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    finally:
        consumer.close()
    return found
