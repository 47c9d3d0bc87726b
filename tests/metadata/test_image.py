"""The image: Kafka's own log replayed, snapshots that rebuild it, deltas, transactions."""

from pathlib import Path

import pytest
from tests.metadata.world import World, uuid

from penstock.metadata import records as s
from penstock.metadata.controller import requests as r
from penstock.metadata.delta import delta
from penstock.metadata.image import EMPTY, ClusterImage, Resource, ResourceType
from penstock.metadata.replay import ReplayError
from penstock.records import iter_batches

GOLDEN = Path(__file__).parents[1] / "golden/kafka/logs"


@pytest.fixture(scope="module")
def golden() -> ClusterImage:
    image = EMPTY
    log = (GOLDEN / "__cluster_metadata-0/00000000000000000000.log").read_bytes()
    for batch in iter_batches(log):
        if not batch.is_control:
            records = [s.decode(bytes(each.value or b"")) for each in batch.records()]
            image = image.replay(records, batch.base_offset + batch.last_offset_delta, batch.leader_epoch)
    return image


def test_kafkas_log_gives_the_cluster_that_kafka_had(golden: ClusterImage) -> None:
    assert golden.offset == 212
    assert golden.epoch == 2
    assert golden.metadata_version == 30
    assert golden.elr_enabled
    assert golden.next_producer_id == 2000
    broker = golden.brokers[1]
    assert broker.epoch == 148
    assert (broker.fenced, broker.in_controlled_shutdown) == (True, True)
    assert list(golden.controllers) == [1]
    on_disk = {path.name.rpartition("-")[0] for path in GOLDEN.iterdir() if path.name.endswith(("-0", "-1"))}
    assert set(golden.topics) == on_disk - {"__cluster_metadata"}
    assert golden.config(Resource(ResourceType.TOPIC, "__transaction_state"))["cleanup.policy"] == "compact"
    stopped = golden.topics["codec-none"].partitions[0]
    assert (stopped.leader, stopped.isr, stopped.elr, stopped.last_known_elr) == (-1, (), (1,), (1,))


def test_a_snapshot_of_kafkas_cluster_rebuilds_it(golden: ClusterImage) -> None:
    encoded = [s.encode(record) for record in golden.records()]
    assert EMPTY.replay(map(s.decode, encoded), golden.offset, golden.epoch) == golden


def everything() -> list[s.AnyRecord]:
    """A record of every kind that leaves something behind."""
    entity = (s.QuotaEntity(type="user", name=None), s.QuotaEntity(type="client-id", name="c"))
    return [
        s.FeatureLevelRecord(name="metadata.version", feature_level=30),
        s.FeatureLevelRecord(name="gone", feature_level=1),
        s.FeatureLevelRecord(name="gone", feature_level=0),
        s.RegisterBrokerRecord(
            broker_id=1, broker_epoch=5, log_dirs=(uuid(1),), rack="r", cordoned_log_dirs=()
        ),
        s.UnfenceBrokerRecord(id=1, epoch=5),
        s.FenceBrokerRecord(id=1, epoch=5),
        s.BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1, in_controlled_shutdown=1),
        s.RegisterBrokerRecord(broker_id=2, broker_epoch=6),
        s.UnregisterBrokerRecord(broker_id=2, broker_epoch=6),
        s.RegisterControllerRecord(controller_id=3, incarnation_id=uuid(3)),
        s.TopicRecord(name="a.b", topic_id=uuid(10)),
        s.PartitionRecord(
            partition_id=0,
            topic_id=uuid(10),
            replicas=(1, 2),
            isr=(1,),
            adding_replicas=(2,),
            leader=1,
            leader_recovery_state=1,
            leader_epoch=3,
            partition_epoch=4,
            directories=(uuid(1), uuid(2)),
            eligible_leader_replicas=(2,),
            last_known_elr=(1,),
        ),
        s.PartitionChangeRecord(partition_id=0, topic_id=uuid(10), isr=(1, 2), leader=2, last_known_elr=()),
        s.TopicRecord(name="gone", topic_id=uuid(11)),
        s.ConfigRecord(resource_type=2, resource_name="gone", name="retention.ms", value="1"),
        s.RemoveTopicRecord(topic_id=uuid(11)),
        s.ConfigRecord(resource_type=2, resource_name="a.b", name="retention.ms", value="1"),
        s.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        s.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value=None),
        s.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=3000),
        s.AccessControlEntryRecord(id=uuid(20), principal="User:a"),
        s.AccessControlEntryRecord(id=uuid(21), principal="User:b"),
        s.RemoveAccessControlEntryRecord(id=uuid(20)),
        s.UserScramCredentialRecord(name="u", mechanism=1, salt=b"s"),
        s.UserScramCredentialRecord(name="u", mechanism=2, salt=b"s"),
        s.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        s.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.5),
        s.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=1.5),
        s.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", remove=True),
        s.DelegationTokenRecord(token_id="t", owner="o"),
        s.DelegationTokenRecord(token_id="v", owner="o"),
        s.RemoveDelegationTokenRecord(token_id="v"),
        s.ZkMigrationStateRecord(zk_migration_state=1),
        s.UnknownRecord(99, 3, b"later"),
        s.NoOpRecord(cluster_id="the cluster"),
        s.NoOpRecord(),
    ]


def test_a_snapshot_of_every_kind_of_record_rebuilds_the_image() -> None:
    image = EMPTY.replay(everything(), 40, 7)
    assert len(image.kept) == 1
    assert dict(image.quotas) == {(("client-id", "c"), ("user", None)): {"producer_byte_rate": 1.5}}
    assert list(image.tokens) == ["t"]
    assert list(image.scram_users) == [(2, "u")]
    assert [acl.principal for acl in image.acls.values()] == ["User:b"]
    assert image.unknown == (s.UnknownRecord(99, 3, b"later"),)
    assert list(image.configs) == [Resource(ResourceType.TOPIC, "a.b")]
    assert image.brokers[1].in_controlled_shutdown
    assert image.cluster_id == "the cluster"
    partition = image.topics["a.b"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (2, 4, 5)
    records = list(image.records())
    assert EMPTY.replay([s.decode(s.encode(each)) for each in records], 40, 7) == image
    kinds = [type(each).__name__ for each in records]
    assert kinds[0] == "FeatureLevelRecord"
    assert kinds[-1] == "UnknownRecord"


def test_records_one_by_one_give_the_same_image_as_together() -> None:
    together, one_by_one = EMPTY.replay(everything(), 40, 7), EMPTY
    for record in everything():
        one_by_one = one_by_one.replay([record], 40, 7)
    assert one_by_one == together


def test_a_transaction_holds_only_once_it_ends() -> None:
    """KIP-868: records of a transaction are not part of any image before its end record."""
    topic = s.TopicRecord(name="t", topic_id=uuid(1))
    begun = EMPTY.replay([s.BeginTransactionRecord(name="x"), topic], 1, 1)
    assert not begun.topics
    with pytest.raises(ValueError, match="transaction is open"):
        list(begun.records())
    assert list(begun.replay([s.EndTransactionRecord()], 2, 1).topics) == ["t"]
    aborted = begun.replay([s.AbortTransactionRecord(reason="no")], 2, 1)
    assert not aborted.topics
    assert aborted.transaction is None


@pytest.mark.parametrize(
    "record",
    [
        s.PartitionRecord(partition_id=0, topic_id=uuid(9)),
        s.PartitionChangeRecord(partition_id=7, topic_id=uuid(10)),
        s.RemoveTopicRecord(topic_id=uuid(9)),
        s.TopicRecord(name="a.b", topic_id=uuid(12)),
        s.ClearElrRecord(topic_name="none"),
        s.UnregisterBrokerRecord(broker_id=1, broker_epoch=4),
        s.FenceBrokerRecord(id=9, epoch=4),
        s.EndTransactionRecord(),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_record_that_contradicts_the_image_is_refused(record: s.AnyRecord) -> None:
    with pytest.raises(ReplayError):
        EMPTY.replay(everything(), 40, 7).replay([record], 41, 7)


def test_eligible_leaders_are_cleared_of_one_topic_or_of_all() -> None:
    image = EMPTY.replay(everything(), 40, 7)
    for name in ("", "a.b"):
        partition = image.replay([s.ClearElrRecord(topic_name=name)], 41, 7).topics["a.b"].partitions[0]
        assert partition.elr == ()
        assert partition.partition_epoch == 6


def test_a_delta_names_what_changed_and_nothing_else() -> None:
    world = World()
    world.create("kept")
    world.create("doomed")
    world.create("again")
    before = world.image
    world.ask(r.DeleteTopics(("doomed", "again")))
    world.create("again")
    world.create("fresh", retention_ms="1")
    world.shrink("kept", world.partition("kept").leader)
    change = delta(before, world.image)
    assert [topic.name for topic in change.topics_deleted] == ["again", "doomed"]
    assert [topic.name for topic in change.topics_created] == ["again", "fresh"]
    assert [(each.topic.name, each.old is None) for each in change.partitions] == [
        ("again", True),
        ("fresh", True),
        ("kept", False),
    ]
    assert change.configs == {Resource(ResourceType.TOPIC, "fresh")}
    assert not change.brokers
    assert delta(world.image, world.image).is_empty


def test_what_a_record_does_not_touch_is_shared() -> None:
    world = World()
    for number in range(200):
        world.create(f"t{number}")
    before = world.image
    world.shrink("t7", world.partition("t7").leader)
    same = [name for name in before.topics if world.image.topics[name] is before.topics[name]]
    assert len(same) == 199
    assert world.image.brokers is before.brokers
    assert world.image.configs is before.configs
