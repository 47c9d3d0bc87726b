"""Random histories of a cluster: after every request the image holds together, and its log rebuilds it."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.metadata.world import TIMEOUT_MS, World, check_invariants, check_only_grows

from penstock.base.errors import KafkaError
from penstock.metadata import records as s
from penstock.metadata.controller import requests as r
from penstock.metadata.delta import delta
from penstock.metadata.image import ALL_BROKERS, EMPTY, Resource, ResourceType

BROKERS = (1, 2, 3, 4)
TOPICS = ("a", "b.c", "b_c", "d")


class History:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        elr = self.rng.random() < 0.7
        features = (
            {"metadata.version": 30, "eligible.leader.replicas.version": 1}
            if elr
            else {"metadata.version": 16}
        )
        self.world = World((1, 2), seed, features)

    def step(self) -> None:
        rare = [self.create, self.delete, self.grow, self.settings, self.features, self.register, self.elect]
        rare += [self.fence, self.silence, self.unregister, self.ids, self.move, self.move]
        step = self.rng.choice([*rare, *[self.beat] * 3, *[self.isr] * 3])
        with suppress(KafkaError):
            step()

    def create(self) -> None:
        configs: dict[str, str | None] = {}
        if self.rng.random() < 0.4:
            configs["unclean.leader.election.enable"] = self.rng.choice(["true", "false"])
        if self.rng.random() < 0.4:
            configs["min.insync.replicas"] = self.rng.choice("123")
        name = self.rng.choice(TOPICS)
        if self.rng.random() < 0.3:
            replicas = tuple(self.rng.sample(BROKERS, 2))
            topic = r.NewTopic(name, assignments=((0, replicas), (1, replicas[::-1])), configs=configs)
        else:
            topic = r.NewTopic(name, self.rng.randint(-1, 4), self.rng.randint(-1, 4), configs=configs)
        self.world.ask(r.CreateTopics((topic,), self.rng.random() < 0.1))

    def delete(self) -> None:
        if self.rng.random() < 0.4:
            self.world.ask(r.DeleteTopics((self.rng.choice(TOPICS),)))

    def grow(self) -> None:
        self.world.ask(
            r.CreatePartitions((r.MorePartitions(self.rng.choice(TOPICS), self.rng.randint(1, 6)),))
        )

    def settings(self) -> None:
        resource = self.rng.choice([ALL_BROKERS, Resource(ResourceType.TOPIC, self.rng.choice(TOPICS))])
        change = self.rng.choice(
            [
                r.ConfigChange("min.insync.replicas", r.ConfigOp.SET, self.rng.choice("123")),
                r.ConfigChange("unclean.leader.election.enable", self.rng.choice([0, 1]), "true"),
            ]
        )
        self.world.ask(r.IncrementalAlterConfigs({resource: (change,)}))

    def features(self) -> None:
        update = r.FeatureUpdate("group.version", self.rng.randint(-1, 2), self.rng.randint(0, 3))
        self.world.ask(r.UpdateFeatures((update,)))

    def register(self) -> None:
        self.world.register(
            self.rng.choice(BROKERS), self.rng.random() < 0.5, self.rng.choice([None, "x", "y"])
        )

    def beat(self) -> None:
        for broker in list(self.world.image.brokers):
            self.world.beat(
                broker,
                want_fence=self.rng.random() < 0.05,
                want_shutdown=self.rng.random() < 0.1,
                metadata_offset=self.world.image.offset - (self.rng.random() < 0.1),
            )

    def isr(self) -> None:
        for topic, number, held in list(self._partitions()):
            if held.leader == s.NO_LEADER:
                continue
            members = tuple(
                r.IsrMember(each) for each in held.replicas if each == held.leader or self.rng.random() < 0.6
            )
            stale = self.rng.random() < 0.1
            change = r.IsrChange(topic.id, number, held.leader_epoch, held.partition_epoch - stale, members)
            self.world.ask(r.AlterPartition(held.leader, self.world.broker(held.leader).epoch, (change,)))

    def _partitions(self) -> Any:
        for _, topic in sorted(self.world.image.topics.items()):
            for number, held in sorted(topic.partitions.items()):
                yield topic, number, held

    def elect(self) -> None:
        self.world.ask(r.ElectLeaders(self.rng.choice([0, 1])))

    def move(self) -> None:
        """Somewhere else, or, one time in four, back."""
        targets = []
        for topic, number, _ in list(self._partitions()):
            replicas = tuple(self.rng.sample(BROKERS, self.rng.randint(1, 3)))
            targets.append(
                r.PartitionTarget(topic.name, number, None if self.rng.random() < 0.25 else replicas)
            )
        self.world.ask(r.AlterReassignments(tuple(targets), self.rng.random() < 0.8))

    def fence(self) -> None:
        self.world.fence(self.rng.choice(BROKERS))

    def silence(self) -> None:
        if self.rng.random() < 0.3:
            self.world.fail_over()
        self.world.tick(self.rng.choice([0, 1000, TIMEOUT_MS]))

    def unregister(self) -> None:
        if self.rng.random() < 0.3:
            self.world.ask(r.UnregisterBroker(self.rng.choice(BROKERS)))

    def ids(self) -> None:
        broker = self.rng.choice(BROKERS)
        self.world.ask(r.AllocateProducerIds(broker, self.world.broker(broker).epoch))


@pytest.mark.parametrize("seed", range(40))
def test_the_image_holds_together_through_any_history(seed: int) -> None:
    history = History(seed)
    world = history.world
    for _ in range(120):
        before = world.image
        try:
            history.step()
        except KeyError:  # the broker that was to act is not registered
            continue
        check_invariants(world.image)
        check_only_grows(before, world.image)
        changed = {each.topic.name for each in delta(before, world.image).partitions}
        for name, topic in world.image.topics.items():
            held = before.topics.get(name)
            assert (name in changed) == (held is None or held != topic)
    end = world.image
    assert EMPTY.replay(world.log, end.offset, end.epoch) == end
    snapshot = [s.decode(s.encode(each)) for each in end.records()]
    assert EMPTY.replay(snapshot, end.offset, end.epoch) == end


def test_the_same_seed_gives_the_same_log() -> None:
    logs = []
    for _ in range(2):
        history = History(5)
        for _ in range(60):
            try:
                history.step()
            except KeyError:
                continue
        logs.append([s.encode(each) for each in history.world.log])
    assert logs[0] == logs[1]
