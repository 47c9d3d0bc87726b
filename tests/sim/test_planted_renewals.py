"""Topics that are deleted and created again while they are written, and nodes that mistake one for the other."""

from dataclasses import replace
from typing import Any

import pytest
from tests.planting import plant
from tests.sim.rules import assert_caught
from tests.sim.test_planted_cluster import BUSY

from penstock.base.ids import TopicPartition
from penstock.metadata.image import Topic
from penstock.replica.partition import Partition
from penstock.replica.replicas import Replicas
from penstock.sim.checkers.history import Survives
from penstock.sim.checkers.topic_lives import LivesApart
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.producers import ALL, ProducerPlan
from penstock.sim.clients.topic_renewer import RenewalPlan
from penstock.sim.run import Simulation
from penstock.storage import Log

TOPIC = "renewed"


def _producer(name: str, survives: Survives = Survives.POWER_CUT, **how: Any) -> ProducerPlan:
    return ProducerPlan(name, TOPIC, ALL, survives, pace_us=50_000, **how)


def _consumer(name: str) -> ConsumerPlan:
    return ConsumerPlan(name, TOPIC, max_wait_ms=300, pause_us_max=50_000, uses_session=True)


RENEWED = replace(
    BUSY,
    topics=BUSY.topics[:1],
    producers=BUSY.producers[:1],
    cluster=replace(BUSY.cluster, cut_us_mean=6_000_000),
    crash_us_mean=3_000_000,
    renewals=(
        RenewalPlan(
            TOPIC,
            mean_us=1_000_000,
            configs={"file.delete.delay.ms": "1000"},
            producers=(_producer("exact by id", is_idempotent=True), _producer("durable by id")),
            producers_by_name=(
                _producer("exact by name", Survives.NOTHING, is_idempotent=True),
                _producer("durable by name", Survives.NOTHING, retries=False),
            ),
            consumers=(_consumer("reader by id"),),
            consumers_by_name=(_consumer("reader by name"),),
        ),
    ),
)


def test_topics_are_renewed_while_clients_write_and_read_them() -> None:
    trace = "\n".join(Simulation(replace(RENEWED, duration_us=30_000_000)).run().trace)
    for what in (
        "has renewed in life 5",
        "has deleted renewed, life 4: NONE",
        "exact by id uses renewed@",
        "is refused: UNKNOWN_TOPIC_ID",
        "is refused: UNKNOWN_TOPIC_OR_PARTITION",
        "reader by id reads renewed@",
        "reader by name reads renewed-0",
    ):
        assert what in trace, what


def test_a_log_that_is_taken_over_by_the_next_topic_of_its_name_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = Replicas._create

    def keep(replicas: Replicas, name: TopicPartition, topic: Topic) -> Log | None:
        return replicas.directory.logs.get(name) or create(replicas, name, topic)

    def forget(replicas: Replicas, name: TopicPartition) -> int:
        partition = replicas.partitions.pop(name, None)
        if partition is not None:
            replicas._forget(partition)
        return 1

    plant(monkeypatch, Replicas._create, keep)
    plant(monkeypatch, Replicas._drop, forget)
    assert_caught(RENEWED, first=1, by=LivesApart)


def test_a_topic_that_is_found_by_the_id_of_the_one_before_it_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve = Replicas._serve
    former: dict[tuple[Replicas, str], set[bytes]] = {}

    def serve_all(replicas: Replicas, partition: Partition, rules: Any) -> None:
        serve(replicas, partition, rules)
        ids = former.setdefault((replicas, partition.topic), set())
        ids.add(partition.topic_id)
        if partition.is_leader:
            replicas.by_key |= {(each, partition.number): partition for each in ids}

    plant(monkeypatch, Replicas._serve, serve_all)
    assert_caught(RENEWED, first=3, by=LivesApart)


@pytest.mark.long
def test_a_log_that_stays_when_its_topic_goes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its node forgets it, and it lies there for good."""
    drop = Replicas._drop

    def forget(replicas: Replicas, name: TopicPartition) -> int:
        if name.partition == 0:
            return drop(replicas, name)
        partition = replicas.partitions.pop(name, None)
        if partition is not None:
            replicas._forget(partition)
        return 1

    plant(monkeypatch, Replicas._drop, forget)
    plant(monkeypatch, Replicas.settle, lambda _: None)
    assert_caught(RENEWED, by="Progress")
