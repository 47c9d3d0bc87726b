"""Writes an image as records: features first, since they decide the versions of the rest, then brokers, controllers,
topics with their partitions, settings, quotas, producer ids, ACLs, SCRAM credentials, delegation tokens."""

from collections.abc import Iterator

from . import records as s
from . import versions as v
from .acls import Acl, acl_fields
from .image import Broker, ClusterImage, ControllerNode, PartitionRegistration, Topic
from .quotas import quota_record, sort_key

KEPT_AFTER_TOKENS = (s.ZkMigrationStateRecord,)


def snapshot_records(image: ClusterImage) -> Iterator[s.AnyRecord]:
    if image.transaction is not None:
        raise ValueError("a metadata transaction is open; a snapshot would lose its records")
    level = image.metadata_version
    for name in sorted(image.features, key=lambda name: (name != v.METADATA_VERSION, name)):
        yield s.FeatureLevelRecord(name=name, feature_level=image.features[name])
    if image.cluster_id:
        yield s.NoOpRecord(cluster_id=image.cluster_id)
    for _, broker in sorted(image.brokers.entries()):
        yield broker_record(broker, level)
    for _, controller in sorted(image.controllers.entries()):
        yield _controller_record(controller)
    for _, topic in sorted(image.topics.entries()):
        yield from _topic_records(topic, level)
    for resource in sorted(image.configs):
        for name, value in sorted(image.configs[resource].items()):
            yield s.ConfigRecord(
                resource_type=resource.type, resource_name=resource.name, name=name, value=value
            )
    yield from _quota_records(image)
    if image.next_producer_id:
        yield s.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for acl_id, acl in sorted(image.acls.entries()):
        yield acl_record(acl_id, acl)
    for _, user in sorted(image.scram_users.entries(), key=lambda each: each[0]):
        yield user
    for _, token in sorted(image.tokens.entries(), key=lambda each: each[0]):
        yield token
    yield from _kept(image, KEPT_AFTER_TOKENS)
    yield from image.unknown


def broker_record(broker: Broker, metadata_version: int) -> s.RegisterBrokerRecord:
    return s.RegisterBrokerRecord(
        version=v.register_broker_version(metadata_version),
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        endpoints=broker.endpoints,
        features=broker.features,
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs if v.has_directories(metadata_version) else (),
        cordoned_log_dirs=broker.cordoned_log_dirs if v.has_cordoned_dirs(metadata_version) else None,
    )


def partition_record(
    topic_id: bytes, number: int, partition: PartitionRegistration, metadata_version: int
) -> s.PartitionRecord:
    directories = partition.directories if v.has_directories(metadata_version) else ()
    with_elr = v.has_elr(metadata_version)
    return s.PartitionRecord(
        version=v.partition_version(metadata_version),
        partition_id=number,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing,
        adding_replicas=partition.adding,
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=directories,
        eligible_leader_replicas=(partition.elr or None) if with_elr else None,
        last_known_elr=(partition.last_known_elr or None) if with_elr else None,
    )


def _controller_record(controller: ControllerNode) -> s.RegisterControllerRecord:
    return s.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        endpoints=controller.endpoints,
        features=controller.features,
    )


def acl_record(acl_id: bytes, acl: Acl) -> s.AccessControlEntryRecord:
    return s.AccessControlEntryRecord(id=acl_id, **acl_fields(acl))


def _topic_records(topic: Topic, metadata_version: int) -> Iterator[s.AnyRecord]:
    yield s.TopicRecord(name=topic.name, topic_id=topic.id)
    for number, partition in sorted(topic.partitions.entries()):
        yield partition_record(topic.id, number, partition, metadata_version)


def _quota_records(image: ClusterImage) -> Iterator[s.AnyRecord]:
    for entity in sorted(image.quotas, key=sort_key):
        for key, limit in sorted(image.quotas[entity].items()):
            yield quota_record(entity, key, limit)


def _kept(image: ClusterImage, kinds: tuple[type[s.MetadataRecord], ...]) -> Iterator[s.AnyRecord]:
    for kind in kinds:
        held = [(repr(about), record) for about, record in image.kept.entries() if isinstance(record, kind)]
        for _, record in sorted(held, key=lambda each: each[0]):
            yield record
