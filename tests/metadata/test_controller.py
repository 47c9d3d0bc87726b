"""The controller: what it refuses and with which code, and what happens to partitions as brokers come and go."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.metadata.world import CLUSTER, TIMEOUT_MS, World, check_invariants, uuid

from penstock.base.errors import ErrorCode, KafkaError
from penstock.metadata import records as s
from penstock.metadata.bootstrap import bootstrap_records, default_features, feature_records
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller import requests as r
from penstock.metadata.controller.controller import Controller
from penstock.metadata.controller.placement import UsableBroker, place
from penstock.metadata.controller.topics import check_name
from penstock.metadata.image import ALL_BROKERS, Resource, ResourceType
from penstock.metadata.records import DIRECTORY_UNASSIGNED
from penstock.metadata.versions import SUPPORTED
from penstock.records import iter_batches
from penstock.records.structs import NO_UUID

GOLDEN = Path(__file__).parents[1] / "golden/kafka/logs"
T = Resource(ResourceType.TOPIC, "t")
B1 = Resource(ResourceType.BROKER, "1")


def test_a_new_cluster_starts_with_the_bytes_that_kafkas_does() -> None:
    """But for two features that nothing here serves, which Kafka turns on."""
    levels = {name: level or 1 for name, level in default_features().items()}
    assert set(levels) - {each.name for each in feature_records()} == {"share.version", "streams.version"}
    batches = list(iter_batches((GOLDEN / "__cluster_metadata-0/00000000000000000000.log").read_bytes()))
    assert [s.encode(each) for each in bootstrap_records(levels)] == [
        each.value for each in batches[1].records()
    ]
    batches = list(iter_batches((GOLDEN / "bootstrap.checkpoint").read_bytes()))
    assert [s.encode(each) for each in feature_records(levels)] == [
        each.value for each in batches[1].records()
    ]


# Refusals.


def new(name: str = "n", **fields: Any) -> r.CreateTopics:
    return r.CreateTopics((r.NewTopic(name, **fields),))


def assigned(*pairs: tuple[int, tuple[int, ...]]) -> r.CreateTopics:
    return new(assignments=pairs)


def isr(*members: int, epochs: tuple[int, int] = (0, 0), asker: int = 1, number: int = 0, **more: Any) -> Any:
    def ask(world: World) -> r.AlterPartition:
        topic_id = more.get("topic_id", world.image.topics["t"].id)
        changed = r.IsrChange(
            topic_id, number, *epochs, tuple(r.IsrMember(each, more.get("broker_epoch", -1)) for each in members),
            more.get("recovery", s.RECOVERED),
        )  # fmt: skip
        return r.AlterPartition(asker, world.broker(asker).epoch, (changed,))

    return ask


def more_partitions(topic: str, total: int, assignments: Any = None) -> r.CreatePartitions:
    return r.CreatePartitions((r.MorePartitions(topic, total, assignments),))


def set_config(resource: Resource, *changes: tuple[Any, ...]) -> r.IncrementalAlterConfigs:
    return r.IncrementalAlterConfigs({resource: tuple(r.ConfigChange(*each) for each in changes)})


def feature(name: str, level: int, kind: int = 1) -> r.UpdateFeatures:
    return r.UpdateFeatures((r.FeatureUpdate(name, level, kind),))


E = ErrorCode
REFUSALS: list[tuple[Any, ErrorCode]] = [
    (new("t"), E.TOPIC_ALREADY_EXISTS),
    (new("a_b"), E.INVALID_TOPIC_EXCEPTION),
    (new(""), E.INVALID_TOPIC_EXCEPTION),
    (new(".."), E.INVALID_TOPIC_EXCEPTION),
    (new("x" * 250), E.INVALID_TOPIC_EXCEPTION),
    (new("a/b"), E.INVALID_TOPIC_EXCEPTION),
    (new("__cluster_metadata"), E.TOPIC_AUTHORIZATION_FAILED),
    (new(partitions=0), E.INVALID_PARTITIONS),
    (new(partitions=-2), E.INVALID_PARTITIONS),
    (new(partitions=10_001), E.POLICY_VIOLATION),
    (new(replication_factor=0), E.INVALID_REPLICATION_FACTOR),
    (new(replication_factor=-2), E.INVALID_REPLICATION_FACTOR),
    (new(replication_factor=5), E.INVALID_REPLICATION_FACTOR),
    (new(configs={"nonsense": "1"}), E.INVALID_CONFIG),
    (new(configs={"retention.ms": None}), E.INVALID_CONFIG),
    (new(configs={"retention.ms": "x"}), E.INVALID_CONFIG),
    (new(partitions=1, assignments=((0, (1,)),)), E.INVALID_REQUEST),
    (new(replication_factor=1, assignments=((0, (1,)),)), E.INVALID_REQUEST),
    (assigned((0, (1,)), (2, (1,))), E.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, (1,)), (0, (1,))), E.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, (1,)), (1, (1, 2))), E.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, ())), E.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, (1, 1))), E.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, (1, 9))), E.INVALID_REPLICA_ASSIGNMENT),
    (assigned((0, (4,))), E.INVALID_REPLICA_ASSIGNMENT),
    (r.CreateTopics((r.NewTopic("n"), r.NewTopic("n"))), E.INVALID_REQUEST),
    (r.DeleteTopics(("none",)), E.UNKNOWN_TOPIC_OR_PARTITION),
    (r.DeleteTopics((), (uuid(77),)), E.UNKNOWN_TOPIC_ID),
    (r.DeleteTopics(("t", "t")), E.INVALID_REQUEST),
    (more_partitions("none", 5), E.UNKNOWN_TOPIC_OR_PARTITION),
    (more_partitions("t", 1), E.INVALID_PARTITIONS),
    (more_partitions("t", 0), E.INVALID_PARTITIONS),
    (more_partitions("t", 20_000), E.POLICY_VIOLATION),
    (more_partitions("t", 3, ((1, 2, 3),)), E.INVALID_REPLICA_ASSIGNMENT),
    (more_partitions("t", 2, ((1, 2),)), E.INVALID_REPLICA_ASSIGNMENT),
    (r.CreatePartitions((r.MorePartitions("t", 2), r.MorePartitions("t", 3))), E.INVALID_REQUEST),
    (set_config(T, ("retention.ms", 0, "x")), E.INVALID_CONFIG),
    (set_config(T, ("retention.ms", 0, None)), E.INVALID_CONFIG),
    (set_config(T, ("retention.ms", 2, "1")), E.INVALID_CONFIG),
    (set_config(T, ("cleanup.policy", 2, "shred")), E.INVALID_CONFIG),
    (set_config(T, ("retention.ms", 9, "1")), E.INVALID_REQUEST),
    (set_config(T, ("retention.ms", 0, "1"), ("retention.ms", 1)), E.INVALID_REQUEST),
    (set_config(T, ("record.validation", 0, "x" * 40_000)), E.INVALID_CONFIG),
    (
        set_config(Resource(ResourceType.TOPIC, "none"), ("retention.ms", 0, "1")),
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    (set_config(Resource(ResourceType.BROKER, "9"), ("max.connections", 0, "1")), E.BROKER_ID_NOT_REGISTERED),
    (set_config(Resource(ResourceType.BROKER, "x"), ("max.connections", 0, "1")), E.INVALID_REQUEST),
    (set_config(B1, ("node.id", 0, "1")), E.INVALID_REQUEST),
    (set_config(B1, ("min.insync.replicas", 0, "1")), E.INVALID_CONFIG),
    (set_config(ALL_BROKERS, ("min.insync.replicas", 1)), E.INVALID_CONFIG),
    (r.AlterConfigs({T: {"retention.ms": "x"}}), E.INVALID_CONFIG),
    (r.AlterConfigs({Resource(ResourceType.GROUP, "g"): {}}), E.INVALID_REQUEST),
    (feature("metadata.version", 31), E.INVALID_UPDATE_VERSION),
    (feature("metadata.version", 29, 2), E.INVALID_UPDATE_VERSION),
    (feature("metadata.version", 29, 3), E.INVALID_UPDATE_VERSION),
    (feature("group.version", 0), E.INVALID_UPDATE_VERSION),
    (feature("group.version", 2), E.INVALID_UPDATE_VERSION),
    (feature("group.version", -1), E.INVALID_UPDATE_VERSION),
    (feature("group.version", 1, 0), E.INVALID_UPDATE_VERSION),
    (feature("kraft.version", 1), E.INVALID_UPDATE_VERSION),
    (feature("unheard.of", 1), E.INVALID_UPDATE_VERSION),
    (r.AllocateProducerIds(1, 999), E.STALE_BROKER_EPOCH),
    (r.AllocateProducerIds(9, 1), E.STALE_BROKER_EPOCH),
    (r.BrokerHeartbeat(1, 999, 0), E.STALE_BROKER_EPOCH),
    (r.FenceBroker(1, 999), E.STALE_BROKER_EPOCH),
    (r.UnregisterBroker(9), E.BROKER_ID_NOT_REGISTERED),
    (r.RegisterController(1, uuid(1), (), ()), E.UNSUPPORTED_VERSION),
    (r.AlterPartition(1, 999, ()), E.STALE_BROKER_EPOCH),
    (isr(1, topic_id=uuid(77)), E.UNKNOWN_TOPIC_ID),
    (isr(1, number=7), E.UNKNOWN_TOPIC_OR_PARTITION),
    (isr(1, epochs=(1, 0)), E.NOT_CONTROLLER),
    (isr(1, epochs=(0, 1)), E.NOT_CONTROLLER),
    (isr(1, epochs=(-1, 0)), E.FENCED_LEADER_EPOCH),
    (isr(1, asker=2), E.INVALID_REQUEST),
    (isr(1, epochs=(0, -1)), E.INVALID_UPDATE_VERSION),
    (isr(1, 4), E.INVALID_REQUEST),
    (isr(1, 1), E.INVALID_REQUEST),
    (isr(2), E.INVALID_REQUEST),
    (isr(), E.INVALID_REQUEST),
    (isr(1, recovery=s.RECOVERING), E.INVALID_REQUEST),
    (isr(1, recovery=7), E.INVALID_REQUEST),
    (isr(1, broker_epoch=999), E.INELIGIBLE_REPLICA),
    (r.ElectLeaders(5, (("t", 0),)), E.INVALID_REQUEST),
    (r.ElectLeaders(0, (("t", 0),)), E.ELECTION_NOT_NEEDED),
    (r.ElectLeaders(1, (("t", 0),)), E.ELECTION_NOT_NEEDED),
    (r.ElectLeaders(0, (("t", 9),)), E.UNKNOWN_TOPIC_OR_PARTITION),
    (r.ElectLeaders(0, (("none", 0),)), E.UNKNOWN_TOPIC_OR_PARTITION),
]


def codes(reply: Any) -> list[ErrorCode]:
    if isinstance(reply, dict):
        return [result.code for result in reply.values()]
    return [each.result.code for each in reply]


@pytest.fixture
def world() -> World:
    """Brokers 1 to 3 and the fenced 4; topic t on 1, 2, 3 with one partition, and topic a.b."""
    made = World((1, 2, 3))
    made.register(4)
    made.create("t", (1, 2, 3))
    made.create("a.b")
    return made


@pytest.mark.parametrize(
    ("request_", "code"),
    REFUSALS,
    ids=lambda each: "asked of the world" if callable(each) else str(each)[:70],
)
def test_what_is_wrong_is_refused_with_kafkas_code_and_changes_nothing(
    world: World, request_: Any, code: ErrorCode
) -> None:
    asked = request_(world) if callable(request_) else request_
    before = world.image
    assert code in outcome_codes(world, asked)
    assert world.controller.image is before


def outcome_codes(world: World, asked: Any) -> list[ErrorCode]:
    try:
        outcome = world.controller.handle(asked, world.now_ms)
    except KafkaError as error:
        return [error.code]
    assert outcome.records == ()
    return codes(outcome.reply)


REGISTRATIONS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"cluster_id": "another"}, E.INCONSISTENT_CLUSTER_ID),
    ({"log_dirs": ()}, E.INVALID_REGISTRATION),
    ({"log_dirs": (NO_UUID,)}, E.INVALID_REGISTRATION),
    ({"log_dirs": (uuid(5), uuid(5))}, E.INVALID_REGISTRATION),
    ({"log_dirs": (uuid(1),)}, E.INVALID_REGISTRATION),
    ({"features": ()}, E.INVALID_REGISTRATION),
    ({"features": SUPPORTED[:1]}, E.UNSUPPORTED_VERSION),
    ({"broker_id": 2, "log_dirs": (uuid(2),)}, E.DUPLICATE_BROKER_REGISTRATION),
    ({"broker_id": -1}, E.INVALID_REGISTRATION),
]


@pytest.mark.parametrize(("changes", "code"), REGISTRATIONS, ids=str)
def test_a_registration_that_cannot_be_is_refused(
    world: World, changes: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(KafkaError) as refusal:
        world.register(5, **changes)
    assert refusal.value.code is code


# Topics.


def test_a_topic_is_written_with_its_settings_and_partitions_in_kafkas_order(world: World) -> None:
    (created,) = world.ask(new("fresh", configs={"retention.ms": "5", "min.insync.replicas": "2"}))
    assert (created.partitions, created.replication_factor) == (2, 1)
    kinds = [type(each).__name__ for each in world.log[-6:]]
    assert kinds == [
        "TopicRecord",
        "ConfigRecord",
        "ConfigRecord",
        "ClearElrRecord",
        *["PartitionRecord"] * 2,
    ]
    topic = world.image.topics["fresh"]
    assert topic.id == created.topic_id
    assert world.image.config(Resource(ResourceType.TOPIC, "fresh"))["retention.ms"] == "5"
    (partition, _) = topic.partitions.values()
    assert partition.directories == (uuid(partition.leader),)


def test_validating_answers_and_writes_nothing(world: World) -> None:
    before = world.image
    for asked in (
        r.CreateTopics((r.NewTopic("n"),), True),
        r.CreatePartitions((r.MorePartitions("t", 4),), True),
        r.AlterConfigs({T: {"retention.ms": "1"}}, True),
        r.IncrementalAlterConfigs({T: (r.ConfigChange("retention.ms", 0, "1"),)}, True),
        r.UpdateFeatures((r.FeatureUpdate("group.version", 0, 2),), True),
    ):
        assert codes(world.ask(asked)) == [E.NONE]
    assert world.image is before


def test_one_bad_topic_does_not_hinder_the_others(world: World) -> None:
    reply = world.ask(
        r.CreateTopics((r.NewTopic("x.y"), r.NewTopic("t"), r.NewTopic("x_y"), r.NewTopic("ok")))
    )
    assert codes(reply) == [E.NONE, E.TOPIC_ALREADY_EXISTS, E.INVALID_TOPIC_EXCEPTION, E.NONE]


def test_topics_are_deleted_by_name_and_by_id_with_their_settings(world: World) -> None:
    world.create("s", (1,), retention_ms="1")
    topic_id = world.image.topics["t"].id
    reply = world.ask(r.DeleteTopics(("s",), (topic_id,)))
    assert [(each.name, each.result.code) for each in reply] == [("s", E.NONE), ("t", E.NONE)]
    assert set(world.image.topics) == {"a.b"}
    assert list(world.image.configs) == [ALL_BROKERS]
    world.ask(r.DeleteTopics(("a.b",)))
    world.create("a_b")


def test_a_broker_with_a_new_directory_is_taken_where_the_log_tells_it_the_cluster() -> None:
    world = World((1,))
    with pytest.raises(KafkaError, match="broker 2 belongs to cluster unknown, not to ") as refusal:
        world.register(2, cluster_id="")
    assert refusal.value.code is E.INCONSISTENT_CLUSTER_ID
    world.controller.replay([s.NoOpRecord(cluster_id="drawn")], world.image.offset + 1, 1)
    world.register(2, cluster_id="")
    world.register(3, cluster_id="drawn")
    with pytest.raises(KafkaError, match="broker 4 belongs to cluster earlier, not to drawn"):
        world.register(4, cluster_id="earlier")


def test_a_broker_that_cannot_delete_says_so() -> None:
    world = World((1,))
    world.create("t", (1,))
    frozen = Controller(
        world.image,
        cluster_id=CLUSTER,
        rng=Random(0),
        now_ms=0,
        settings=BrokerSettings(1, {"delete.topic.enable": "false"}),
    )
    with pytest.raises(KafkaError) as refusal:
        frozen.handle(r.DeleteTopics(("t",)), 0)
    assert refusal.value.code is E.TOPIC_DELETION_DISABLED


def test_partitions_are_added_after_those_there_are(world: World) -> None:
    assert codes(world.ask(more_partitions("t", 4))) == [E.NONE]
    assert codes(world.ask(more_partitions("t", 5, ((3, 2, 1),)))) == [E.NONE]
    topic = world.image.topics["t"]
    assert sorted(topic.partitions) == [0, 1, 2, 3, 4]
    assert topic.partitions[4].replicas == (3, 2, 1)
    assert all(sorted(each.replicas) == [1, 2, 3] for each in topic.partitions.values())


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 249, "__consumer_offsets"])
def test_kafkas_names_are_taken(name: str) -> None:
    check_name(name)


# Placement.


class First(Random):
    """Chance that always takes the first."""

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return 0

    def shuffle(self, _: Any) -> None:
        pass


def usable(*brokers: int, racks: str = "", fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    named = racks or None
    return [
        UsableBroker(each, named[index] if named else None, each in fenced)
        for index, each in enumerate(brokers)
    ]


def test_three_partitions_of_three_replicas_over_three_brokers() -> None:
    """The worked example: 1,2,3 / 2,3,1 / 3,1,2."""
    assert place(usable(1, 2, 3), 3, 3, First()) == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]


@pytest.mark.parametrize("seed", range(5))
def test_a_clusters_first_topic_is_placed_from_the_first_broker_on(seed: int) -> None:
    """The worked example, whatever chance has in store; the topics after it begin anywhere."""
    world = World((1, 2, 3), seed=seed)
    made = world.ask(
        r.CreateTopics((r.NewTopic("a", 3, 3), *(r.NewTopic(f"t{each}", 1, 3) for each in range(20))))
    )
    assert all(each.result == r.OK for each in made)
    placed = world.image.topics["a"].partitions
    assert [placed[each].replicas for each in range(3)] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    assert {world.partition(f"t{each}").leader for each in range(20)} == {1, 2, 3}


def test_replicas_are_striped_over_racks() -> None:
    placed = place(usable(1, 2, 3, 4, racks="AABB"), 4, 2, First())
    assert placed == [(1, 3), (4, 2), (1, 3), (4, 2)]
    rack = {1: "A", 2: "A", 3: "B", 4: "B"}
    for seed in range(20):
        for first, second in place(usable(1, 2, 3, 4, racks="AABB"), 8, 2, Random(seed)):
            assert rack[first] != rack[second]


def test_leaders_and_replicas_are_spread_evenly() -> None:
    placed = place(usable(1, 2, 3, 4, 5), 50, 3, Random(1))
    for broker in range(1, 6):
        assert sum(replicas[0] == broker for replicas in placed) == 10
        assert 25 <= sum(broker in replicas for replicas in placed) <= 35


def test_a_fenced_broker_comes_last_and_leads_nothing_new() -> None:
    for replicas in place(usable(1, 2, 3, fenced=(1,)), 10, 3, Random(3)):
        assert sorted(replicas) == [1, 2, 3]
        assert replicas[2] == 1
    assert all(1 not in replicas for replicas in place(usable(1, 2, 3, fenced=(1,)), 10, 2, Random(3)))


def test_more_partitions_go_on_where_the_topic_ended() -> None:
    assert place(usable(1, 2, 3), 2, 3, First(), [(1, 2, 3)]) == [(2, 3, 1), (3, 1, 2)]


def test_an_uneven_rack_still_gets_every_replica_a_broker() -> None:
    for seed in range(30):
        for replicas in place(usable(1, 2, 3, 4, racks="AABC"), 9, 4, Random(seed)):
            assert sorted(replicas) == [1, 2, 3, 4]


# Settings, features, producer ids.


def test_settings_change_one_by_one_and_as_a_whole(world: World) -> None:
    world.ask(set_config(T, ("retention.ms", 0, "1"), ("cleanup.policy", 2, "compact")))
    assert world.image.config(T) == {"retention.ms": "1", "cleanup.policy": "delete,compact"}
    world.ask(set_config(T, ("cleanup.policy", 3, "delete"), ("retention.ms", 1)))
    assert world.image.config(T) == {"cleanup.policy": "compact"}
    world.ask(set_config(T, ("cleanup.policy", 3, "compact")))
    assert world.image.config(T) == {"cleanup.policy": ""}  # KIP-1161: everything stays
    world.ask(set_config(T, ("cleanup.policy", 2, "compact")))
    assert world.image.config(T) == {"cleanup.policy": "compact"}  # what was set counts, not the default
    world.ask(r.AlterConfigs({T: {"segment.ms": "9"}}))
    assert world.image.config(T) == {"segment.ms": "9"}
    before = len(world.log)
    world.ask(r.AlterConfigs({T: {"segment.ms": "9"}}))
    assert len(world.log) == before
    world.ask(r.AlterConfigs({T: {}}))
    assert T not in world.image.configs


def test_a_resource_that_is_refused_does_not_hinder_another(world: World) -> None:
    changes = {T: (r.ConfigChange("segment.ms", 0, "x"),), B1: (r.ConfigChange("max.connections", 0, "5"),)}
    assert codes(world.ask(r.IncrementalAlterConfigs(changes))) == [E.INVALID_CONFIG, E.NONE]
    assert world.image.config(B1) == {"max.connections": "5"}


def test_another_min_insync_replicas_clears_who_was_eligible(world: World) -> None:
    """Kafka 4.3 writes a ClearElrRecord with it."""
    world.ask(set_config(T, ("min.insync.replicas", 0, "2")))
    assert world.log[-1] == s.ClearElrRecord(topic_name="t")
    world.ask(set_config(ALL_BROKERS, ("min.insync.replicas", 0, "2")))
    assert world.log[-1] == s.ClearElrRecord(topic_name="")


def test_another_min_insync_replicas_forgets_nobody_who_is_waited_for(world: World) -> None:
    for broker in (3, 2, 1):
        world.fence(broker)
    assert world.partition("t").elr == (1,)
    world.ask(set_config(T, ("min.insync.replicas", 0, "2")))
    world.ask(set_config(ALL_BROKERS, ("min.insync.replicas", 0, "2")))
    assert world.partition("t").elr == (1,)
    world.beat(1)
    assert world.partition("t").leader == 1


def test_features_move_together_or_not_at_all(world: World) -> None:
    downs = (r.FeatureUpdate("group.version", 0, 2), r.FeatureUpdate("metadata.version", 99))
    assert codes(world.ask(r.UpdateFeatures(downs))) == [E.NONE, E.INVALID_UPDATE_VERSION]
    assert world.image.features["group.version"] == 1
    world.ask(feature("group.version", 0, 2))
    assert "group.version" not in world.image.features
    world.ask(feature("group.version", 1))
    assert world.image.features["group.version"] == 1


def test_a_feature_waits_for_the_metadata_version_that_it_needs() -> None:
    world = World((), features={"metadata.version": 22})
    assert codes(world.ask(feature("eligible.leader.replicas.version", 1))) == [E.INVALID_UPDATE_VERSION]
    assert codes(world.ask(feature("metadata.version", 29))) == [E.NONE]
    world.write([s.ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="2")])
    assert codes(world.ask(feature("eligible.leader.replicas.version", 1))) == [E.NONE]
    assert world.image.config(ALL_BROKERS) == {"min.insync.replicas": "1"}
    assert world.image.config(B1) == {}
    assert codes(world.ask(feature("metadata.version", 22, 2))) == [E.INVALID_UPDATE_VERSION]
    assert codes(world.ask(feature("metadata.version", 24, 2))) == [E.NONE]


def test_old_metadata_versions_get_records_that_they_can_read() -> None:
    world = World((1, 2), features={"metadata.version": 7})
    world.create("t", (1, 2))
    world.fence(1)
    assert {each.version for each in world.log if isinstance(each, s.PartitionRecord)} == {0}
    assert {each.version for each in world.log if isinstance(each, s.PartitionChangeRecord)} == {0}
    assert {each.version for each in world.log if isinstance(each, s.RegisterBrokerRecord)} == {1}
    assert world.partition("t").leader == 2


def test_producer_ids_come_in_blocks_that_no_other_gets(world: World) -> None:
    blocks = [world.ask(r.AllocateProducerIds(each, world.broker(each).epoch)) for each in (1, 2, 1)]
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    world.fail_over()
    assert world.ask(r.AllocateProducerIds(1, world.broker(1).epoch)) == (3000, 1000)


# Brokers and leaders.


def test_a_broker_is_unfenced_once_it_has_read_its_own_registration() -> None:
    world = World(())
    epoch = world.register(1)
    assert epoch == world.image.offset
    assert world.beat(1, metadata_offset=epoch - 1) == r.HeartbeatReply(False, True, False)
    assert world.beat(1, want_fence=True).is_fenced
    assert world.beat(1) == r.HeartbeatReply(True, False, False)
    assert world.broker(1).is_active
    assert world.beat(1, want_fence=True).is_fenced


def test_a_silent_broker_is_fenced_when_its_session_ends(world: World) -> None:
    assert world.controller.next_session_end_ms() == world.now_ms + TIMEOUT_MS
    world.now_ms += TIMEOUT_MS - 1
    world.beat(2)
    world.beat(3)
    world.tick()
    assert not world.broker(1).fenced
    world.tick(1)
    assert world.broker(1).fenced
    assert not world.broker(2).fenced
    held = world.partition("t")
    assert (held.leader, held.isr, held.leader_epoch) == (2, (2, 3), 1)
    check_invariants(world.image)


@pytest.mark.parametrize("fails_over", [False, True])
def test_a_broker_that_was_fenced_is_taken_back_once_it_has_read_of_it(
    world: World, fails_over: bool
) -> None:
    """Until then it goes on as the leader that it was, and clients that come by believe it."""
    known = world.image.offset
    world.now_ms += TIMEOUT_MS - 1
    world.beat(2)
    world.beat(3)
    world.tick(1)
    fenced_at = world.image.offset
    assert world.broker(1).fenced
    if fails_over:
        world.fail_over()
    for offset in (known, fenced_at - 1):
        assert world.beat(1, metadata_offset=offset).is_fenced
    world.create("meanwhile", (2, 3))
    assert not world.beat(1, metadata_offset=fenced_at).is_fenced, "what came after it came back can wait"
    assert world.broker(1).is_active


def test_a_new_controller_gives_everyone_the_time_of_a_session(world: World) -> None:
    world.now_ms += TIMEOUT_MS * 3
    world.fail_over()
    world.tick()
    assert not world.broker(1).fenced
    world.tick(TIMEOUT_MS)
    assert world.broker(1).fenced


def test_a_broker_that_was_cut_off_gives_way_to_one_at_its_own_address(world: World) -> None:
    elsewhere = (s.Endpoint(name="PLAINTEXT", host="elsewhere", port=9092),)
    epoch = world.broker(2).epoch
    with pytest.raises(KafkaError, match="registered and alive"):
        world.register(2)
    world.controller.cut(2, epoch - 1)
    with pytest.raises(KafkaError, match="registered and alive"):
        world.register(2)
    world.controller.cut(2, epoch)
    with pytest.raises(KafkaError, match="registered and alive"):
        world.register(2, endpoints=elsewhere)
    world.beat(2)
    with pytest.raises(KafkaError, match="registered and alive"):
        world.register(2)
    world.controller.cut(2, epoch)
    assert world.register(2) > epoch


def test_after_a_crash_of_all_a_broker_registers_without_waiting() -> None:
    """A single node that was killed is back at once: its controller has heard from nobody."""
    world = World((1,))
    world.create("t", (1,))
    world.fail_over()
    world.register(1, clean=False)
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr, held.last_known_elr) == (-1, (), (), (1,))
    world.beat(1)
    held = world.partition("t")
    assert (held.leader, held.isr, held.last_known_elr) == (1, (1,), ())
    assert held.recovery_state == s.RECOVERING
    assert world.shrink("t", 1).result == r.OK
    assert world.partition("t").recovery_state == s.RECOVERED


def test_a_clean_restart_of_a_single_node_keeps_its_partitions_whole() -> None:
    world = World((1,))
    world.create("t", (1,))
    assert not world.beat(1, want_shutdown=True).should_shut_down
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr) == (-1, (), (1,))
    assert world.beat(1, want_shutdown=True) == r.HeartbeatReply(True, True, True)
    world.start(1)
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr, held.recovery_state) == (1, (1,), (), s.RECOVERED)


def test_controlled_shutdown_moves_leaders_and_waits_until_all_know(world: World) -> None:
    known = world.image.offset
    reply = world.beat(1, want_shutdown=True)
    assert not reply.should_shut_down
    assert world.partition("t").leader == 2
    assert world.broker(1).in_controlled_shutdown
    world.beat(2)
    world.beat(3, metadata_offset=known)
    assert not world.beat(1, want_shutdown=True).should_shut_down
    world.beat(3)
    assert world.beat(1, want_shutdown=True).should_shut_down
    assert world.broker(1).fenced
    world.start(1)
    assert world.broker(1).is_active


def test_a_broker_that_leads_nothing_stops_at_once(world: World) -> None:
    world.ask(r.DeleteTopics(("t", "a.b")))
    assert world.beat(1, want_shutdown=True).should_shut_down


def test_the_last_in_sync_replica_stays_eligible_and_leads_again(world: World) -> None:
    """KIP-966: with min.insync.replicas 2, whoever was in the last ISR of two holds everything."""
    world.ask(set_config(T, ("min.insync.replicas", 0, "2")))
    for broker in (3, 2, 1):
        world.fence(broker)
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr, held.last_known_elr) == (-1, (), (2, 1), (1,))
    world.beat(3)
    assert world.partition("t").leader == -1
    world.beat(2)
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr, held.recovery_state) == (2, (2,), (1,), s.RECOVERED)
    world.beat(1)
    assert world.shrink("t", 2, 1).isr == (2, 1)
    assert world.partition("t").elr == ()


def test_a_replica_that_stopped_uncleanly_is_neither_in_sync_nor_eligible(world: World) -> None:
    world.ask(set_config(T, ("min.insync.replicas", 0, "2")))
    world.fence(3)
    world.fence(2)
    world.register(2, clean=False)
    assert world.partition("t").elr == ()
    assert world.partition("t").isr == (1,)
    world.register(1, clean=False, incarnation_id=world.broker(1).incarnation_id)
    assert world.partition("t").leader == 1
    world.fence(1)
    world.register(1, clean=False)
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr, held.last_known_elr) == (-1, (), (), (1,))
    world.beat(2)
    assert world.partition("t").leader == -1
    world.beat(1)
    assert world.partition("t").leader == 1


def test_a_broker_with_a_new_disk_has_nothing_and_may_lead_when_it_has_everything_again(world: World) -> None:
    """Kafka has its brokers tell (AssignReplicasToDirs); of one that has a single directory nothing is left to say."""
    new = uuid(777)
    before = world.partition("t")
    world.fence(1)
    world.register(1, log_dirs=(new,))
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr) == (2, (2, 3), ())
    assert held.directories == (new, *before.directories[1:])
    world.beat(1)
    assert world.shrink("t", 2, 3, 1).isr == (2, 3, 1)
    world.fence(2)
    world.fence(3)
    assert world.partition("t").leader == 1


def test_nobody_waits_for_a_last_leader_whose_disk_is_gone(world: World) -> None:
    """It would lead with an empty log, and what others have of the partition would be cut away."""
    world.ask(set_config(T, ("min.insync.replicas", 0, "2")))
    for broker in (3, 2, 1):
        world.fence(broker)
    for broker in (2, 3):
        world.register(broker, clean=False)
    world.register(1, clean=False, log_dirs=(uuid(777),))
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr, held.last_known_elr) == (-1, (), (), ())
    for broker in (1, 2, 3):
        world.beat(broker)
    assert world.partition("t").leader == -1
    world.ask(set_config(T, ("unclean.leader.election.enable", 0, "true")))
    world.tick()
    assert world.partition("t").leader != -1


def test_the_first_leader_that_was_lost_is_waited_for_whoever_leaves_after_it(world: World) -> None:
    """Kafka's PartitionChangeBuilder: only when the partition first becomes leaderless is its leader noted."""
    world.ask(set_config(T, ("min.insync.replicas", 0, "2")))
    for broker in (3, 2, 1):
        world.fence(broker)
    for broker in (2, 1, 3):
        world.register(broker, clean=False)
        assert world.partition("t").last_known_elr == (1,)
    assert world.partition("t").elr == ()
    for broker in (2, 3):
        world.beat(broker)
        assert world.partition("t").leader == -1
    world.beat(1)
    held = world.partition("t")
    assert (held.leader, held.last_known_elr, held.recovery_state) == (1, (), s.RECOVERING)


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_any_replica_leads_only_where_unclean_elections_are_allowed(world: World, allowed: str) -> None:
    world.shrink("t", 1)
    world.fence(1)
    assert world.partition("t").leader == -1
    world.ask(set_config(T, ("unclean.leader.election.enable", 0, allowed)))
    world.tick()
    held = world.partition("t")
    if allowed == "true":
        assert (held.leader, held.isr, held.recovery_state) == (2, (2,), s.RECOVERING)
    else:
        assert held.leader == -1
    check_invariants(world.image)


def test_an_operator_elects_the_preferred_leader_or_any(world: World) -> None:
    world.fence(1)
    assert world.partition("t").leader == 2
    reply = world.ask(r.ElectLeaders(r.Election.PREFERRED, (("t", 0),)))
    assert codes(reply) == [E.PREFERRED_LEADER_NOT_AVAILABLE]
    world.beat(1)
    world.shrink("t", 2, 3, 1)
    reply = world.ask(r.ElectLeaders(r.Election.PREFERRED))
    assert [(each.topic, each.result.code) for each in reply if each.topic == "t"] == [("t", E.NONE)]
    assert world.partition("t").leader == 1
    world.shrink("t", 1)
    for broker in (1, 2, 3):
        world.fence(broker)
    assert codes(world.ask(r.ElectLeaders(r.Election.UNCLEAN, (("t", 0),)))) == [
        E.ELIGIBLE_LEADERS_NOT_AVAILABLE
    ]
    world.beat(3)
    assert codes(world.ask(r.ElectLeaders(r.Election.UNCLEAN, (("t", 0),)))) == [E.NONE]
    assert (world.partition("t").leader, world.partition("t").recovery_state) == (3, s.RECOVERING)


def test_an_isr_grows_only_by_brokers_that_are_there(world: World) -> None:
    reply = world.shrink("t", 1, 2)
    assert (reply.leader, reply.leader_epoch, reply.isr, reply.partition_epoch) == (1, 0, (1, 2), 1)
    world.fence(3)
    assert world.shrink("t", 1, 2, 3).result.code is E.INELIGIBLE_REPLICA
    world.beat(3)
    assert world.shrink("t", 1, 2, 3).result == r.OK


def test_an_unregistered_broker_is_out_of_every_isr(world: World) -> None:
    world.ask(r.UnregisterBroker(1))
    assert 1 not in world.image.brokers
    assert world.partition("t").isr == (2, 3)
    check_invariants(world.image)


def test_a_broker_known_to_be_dead_is_fenced_before_its_session_ends(world: World) -> None:
    world.fence(1)
    assert world.partition("t").leader == 2
    world.start(1, clean=False)
    assert world.broker(1).is_active


def test_a_failed_directory_takes_its_replicas_along() -> None:
    world = World((2,))
    world.register(1, log_dirs=(uuid(1), uuid(101)))
    world.beat(1)
    world.create("t", (1, 2))
    topic_id = world.image.topics["t"].id
    world.write(
        [s.PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=(uuid(101), uuid(2)))]
    )
    world.beat(1, offline_dirs=(uuid(101),))
    assert world.broker(1).log_dirs == (uuid(1),)
    held = world.partition("t")
    assert (held.leader, held.isr) == (2, (2,))
    assert world.shrink("t", 2, 1).result == r.OK
    world.fence(2)
    assert world.partition("t").leader == -1


def test_a_reassignment_ends_when_the_added_are_in_sync(world: World) -> None:
    world.beat(4)
    topic_id = world.image.topics["t"].id
    world.write(
        [
            s.PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=0,
                replicas=(2, 3, 4, 1),
                adding_replicas=(4,),
                removing_replicas=(1,),
            )
        ]
    )
    reply = world.shrink("t", 1, 2, 3, 4)
    assert reply.result.code is E.NEW_LEADER_ELECTED
    held = world.partition("t")
    assert (held.replicas, held.adding, held.removing) == ((2, 3, 4), (), ())
    assert (held.leader, held.isr) == (2, (2, 3, 4))
    assert held.directories == (uuid(2), uuid(3), DIRECTORY_UNASSIGNED)
    check_invariants(world.image)


# A leader whose own replica is damaged.


def hand_over(world: World, *isr_wanted: int, asker: int = 1) -> r.IsrChanged:
    held = world.partition("t")
    epochs = held.leader_epoch, held.partition_epoch
    (reply,) = world.ask(isr(*isr_wanted, epochs=epochs, asker=asker, recovery=r.DAMAGED)(world))
    return reply


def test_a_leader_whose_replica_is_damaged_hands_over_and_is_not_eligible(world: World) -> None:
    """Else it would be elected again with what it lacks."""
    world.ask(set_config(T, ("min.insync.replicas", 0, "3")))
    assert hand_over(world, 2, 3).result.code is E.NEW_LEADER_ELECTED
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr) == (2, (2, 3), ())
    assert held.leader_epoch == 1


def test_where_nobody_is_in_sync_but_the_damaged_one_an_eligible_one_leads(world: World) -> None:
    world.ask(set_config(T, ("min.insync.replicas", 0, "2")))
    world.fence(3)
    world.fence(2)
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr) == (1, (1,), (2,))
    world.beat(2)
    assert hand_over(world).result.code is E.NEW_LEADER_ELECTED
    held = world.partition("t")
    assert (held.leader, held.isr, held.elr) == (2, (2,), ())


def test_a_damaged_leader_goes_on_where_nobody_else_may_lead(world: World) -> None:
    """What it can still give is all that there is."""
    world.fence(3)
    world.fence(2)
    before = world.partition("t")
    assert hand_over(world).result.code is E.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert world.partition("t") == before


def test_a_damaged_leader_can_add_nobody_to_the_isr_nor_stay_in_it(world: World) -> None:
    world.fence(3)
    assert hand_over(world, 2, 3).result.code is E.INVALID_REQUEST
    assert hand_over(world, 1, 2).result.code is E.INVALID_REQUEST
    assert world.partition("t").leader == 1


# A follower whose own replica is damaged, or whose disk fails.


def leave(world: World, follower: int, *others: int, state: int) -> r.IsrChanged:
    held = world.partition("t")
    epochs = held.leader_epoch, held.partition_epoch
    (reply,) = world.ask(isr(*others, epochs=epochs, asker=follower, recovery=state)(world))
    return reply


@pytest.mark.parametrize("state", [r.DAMAGED, r.UNWRITABLE])
def test_a_follower_whose_disk_fails_leaves_the_isr_by_itself(world: World, state: int) -> None:
    assert leave(world, 3, 1, 2, state=state).result.code is E.NONE
    held = world.partition("t")
    assert (held.leader, held.isr, held.leader_epoch) == (1, (1, 2), 0)
    assert leave(world, 3, 1, 2, state=state).result.code is E.NONE
    assert world.partition("t") == held, "once is enough"


@pytest.mark.parametrize(("state", "eligible"), [(r.DAMAGED, ()), (r.UNWRITABLE, (3,))])
def test_a_follower_that_leaves_too_few_is_eligible_if_it_has_what_it_had(
    world: World, state: int, eligible: tuple[int, ...]
) -> None:
    """KIP-966: what it lacks was never acknowledged. But who could not sync may lack what was."""
    world.ask(set_config(T, ("min.insync.replicas", 0, "3")))
    leave(world, 3, 1, 2, state=state)
    held = world.partition("t")
    assert (held.isr, held.elr) == ((1, 2), eligible)


def test_a_follower_can_take_nobody_but_itself_out_of_the_isr(world: World) -> None:
    before = world.partition("t")
    assert leave(world, 3, 1, 3, state=r.UNWRITABLE).result.code is E.INVALID_REQUEST
    assert leave(world, 4, 1, 2, state=r.UNWRITABLE).result.code is E.INVALID_REQUEST
    assert leave(world, 3, 1, 2, state=s.RECOVERED).result.code is E.INVALID_REQUEST
    assert world.partition("t") == before
    assert leave(world, 3, 1, state=r.UNWRITABLE).result.code is E.NONE
    assert world.partition("t").isr == (1, 2), "whoever else it leaves out stays"
