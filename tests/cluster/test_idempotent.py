"""Idempotent producers of several clients, while disks are full for moments, replicas are too few and leaders move.

Nothing of this makes them begin a new epoch, with which they would write again what they do not know to be written.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Message
from tests.cluster.idempotent import (
    PARTITIONS,
    TOPIC,
    assert_once_and_in_order,
    fill_disk,
    meanwhile,
    prepare,
    value_of,
)
from tests.cluster.processes import ClusterProcesses
from tests.cluster.views import Seen
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.kafkapython import KafkaProducer
from tests.compat.clients.patient import wait_until

Client = Callable[[Seen, Event], list[bytes]]
"""Produces to all partitions until the event is set; the values that were delivered."""


def librdkafka(seen: Seen, over: Event) -> list[bytes]:
    delivered: list[bytes] = []
    failures: list[str] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            delivered.append(message.value() or b"")
        else:
            failures.append(error.name())

    producer = seen.producer(enable_idempotence=True, linger_ms=1, batch_num_messages=3)
    number = 0
    while not over.is_set():
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, value_of(partition, number), partition=partition, on_delivery=told)
        number += 1
        producer.poll(0.003)
    assert producer.flush(SECONDS_MAX) == 0
    assert not failures, failures[:3]
    return delivered


def aiokafka(seen: Seen, over: Event) -> list[bytes]:
    async def produce() -> list[bytes]:
        producer = AIOKafkaProducer(
            bootstrap_servers=seen.bootstrap, enable_idempotence=True, retry_backoff_ms=20, linger_ms=1
        )
        await producer.start()
        sent: dict[bytes, asyncio.Future[object]] = {}
        number = 0
        while not over.is_set():
            for partition in range(PARTITIONS):
                value = value_of(partition, number)
                sent[value] = await producer.send(TOPIC, value, partition=partition)
            number += 1
            await asyncio.sleep(0.003)
        await asyncio.wait_for(asyncio.gather(*sent.values()), SECONDS_MAX)
        await producer.stop()
        return list(sent)

    return asyncio.run(produce())


def kafka_python(seen: Seen, over: Event) -> list[bytes]:
    producer = KafkaProducer(
        bootstrap_servers=seen.bootstrap.split(","),
        enable_idempotence=True,
        retry_backoff_ms=20,
        linger_ms=1,
        batch_size=100,
    )
    sent = {}
    number = 0
    while not over.is_set():
        for partition in range(PARTITIONS):
            value = value_of(partition, number)
            sent[value] = producer.send(TOPIC, value, partition=partition)
        number += 1
        over.wait(0.003)
    producer.flush(SECONDS_MAX)
    for each in sent.values():
        each.get(SECONDS_MAX)
    producer.close()
    return list(sent)


@pytest.mark.parametrize(
    "client", [librdkafka, *(pytest.param(each, marks=pytest.mark.long) for each in (aiokafka, kafka_python))]
)
def test_a_disk_that_is_full_for_moments_duplicates_nothing(tmp_path: Path, client: Client) -> None:
    data = tmp_path / "node-1"
    with ClusterProcesses(tmp_path, count=1) as cluster:
        seen = prepare(cluster, replicas=1)
        with meanwhile(lambda: fill_disk(cluster.nodes[1], data, times=12)) as over:
            delivered = client(seen, over)
        assert "cannot write" in cluster.nodes[1].stderr, "the disk was never full"
    assert_once_and_in_order(data, delivered)


@pytest.mark.long
def test_too_few_replicas_and_leaders_that_move_duplicate_nothing(tmp_path: Path) -> None:
    """The disk of a leader is full for moments, and others lead; then a broker is killed, and none may be missing."""
    with ClusterProcesses(tmp_path, settings={"min.insync.replicas": "3"}) as cluster:
        seen = prepare(cluster, replicas=3)
        leaders = {seen.leader(TOPIC, number) for number in range(PARTITIONS)}
        assert leaders == {1, 2, 3}

        def trouble() -> None:
            fill_disk(cluster.nodes[1], tmp_path / "node-1", times=4)
            cluster.nodes[3].kill()
            wait_until(lambda: seen.isr(TOPIC) == {1, 2})
            cluster.nodes[3].start()
            wait_until(lambda: len(seen.isr(TOPIC)) == 3)

        with meanwhile(trouble) as over:
            delivered = librdkafka(seen, over)
        wait_until(seen.is_whole)
    for number in (1, 2, 3):
        assert_once_and_in_order(tmp_path / f"node-{number}", delivered)
