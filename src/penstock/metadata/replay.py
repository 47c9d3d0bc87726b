"""Applies metadata records to an image.

A draft takes the records of a batch in order, and then freezes into an image. A record that contradicts the image (a
partition of an unknown topic, a change of an unknown broker) means that the log or this code is wrong. It raises an
error instead of being skipped: otherwise images of different nodes would diverge.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.base.errors import KafkaError
from penstock.base.ids import LeaderEpoch, Offset, Uuid

from . import records as s
from .acls import acl_of
from .image import (
    Broker,
    ClusterImage,
    ControllerNode,
    PartitionRegistration,
    Resource,
    ResourceType,
    ScramUser,
    Topic,
    collision_key,
)
from .maps import Draft
from .quotas import entity_of
from .records import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED


class ReplayError(KafkaError):
    """The log and the image disagree."""


class ImageDraft:
    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._features = Draft(image.features)
        self._brokers = Draft(image.brokers)
        self._controllers = Draft(image.controllers)
        self._topics = Draft(image.topics)
        self._names = Draft(image.topic_names)
        self._collisions = Draft(image.collisions)
        self._partitions: dict[Uuid, Draft[int, PartitionRegistration]] = {}
        self._configs = Draft(image.configs)
        self._scram_users = Draft(image.scram_users)
        self._quotas = Draft(image.quotas)
        self._acls = Draft(image.acls)
        self._acl_ids = Draft(image.acl_ids)
        self._tokens = Draft(image.tokens)
        self._kept = Draft(image.kept)
        self._unknown = list(image.unknown)
        self._next_producer_id = image.next_producer_id
        self._cluster_id = image.cluster_id
        self._transaction = None if image.transaction is None else list(image.transaction)

    def replay(self, record: s.AnyRecord) -> None:
        if isinstance(record, s.BeginTransactionRecord):
            if self._transaction is not None:
                raise ReplayError("a metadata transaction begins within another")
            self._transaction = []
        elif isinstance(record, s.EndTransactionRecord | s.AbortTransactionRecord):
            if self._transaction is None:
                raise ReplayError("a metadata transaction ends that did not begin")
            held, self._transaction = self._transaction, None
            if isinstance(record, s.EndTransactionRecord):
                for each in held:
                    self._apply(each)
        elif self._transaction is not None:
            self._transaction.append(record)
        else:
            self._apply(record)

    def freeze(self, offset: Offset, epoch: LeaderEpoch) -> ClusterImage:
        for topic_id, partitions in self._partitions.items():
            name = self._names.get(topic_id)
            topic = None if name is None else self._topics.get(name)
            if topic is not None:
                self._topics.set(topic.name, replace(topic, partitions=partitions.freeze()))
        self._partitions = {}
        return ClusterImage(
            offset=offset,
            epoch=epoch,
            features=self._features.freeze(),
            brokers=self._brokers.freeze(),
            controllers=self._controllers.freeze(),
            topics=self._topics.freeze(),
            topic_names=self._names.freeze(),
            collisions=self._collisions.freeze(),
            configs=self._configs.freeze(),
            quotas=self._quotas.freeze(),
            acls=self._acls.freeze(),
            acl_ids=self._acl_ids.freeze(),
            next_producer_id=self._next_producer_id,
            cluster_id=self._cluster_id,
            scram_users=self._scram_users.freeze(),
            tokens=self._tokens.freeze(),
            kept=self._kept.freeze(),
            unknown=tuple(self._unknown),
            transaction=None if self._transaction is None else tuple(self._transaction),
        )

    def _apply(self, record: s.AnyRecord) -> None:
        _APPLY[type(record)](self, record)

    # Features, producer ids.

    def _feature_level(self, record: s.FeatureLevelRecord) -> None:
        if record.feature_level:
            self._features.set(record.name, record.feature_level)
        else:
            self._features.remove(record.name)

    def _producer_ids(self, record: s.ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _no_op(self, record: s.NoOpRecord) -> None:
        if record.cluster_id:
            self._cluster_id = record.cluster_id

    def _nothing(self, record: s.AnyRecord) -> None:
        """A record that only moves the offset."""

    # Brokers and controllers.

    def _register_broker(self, record: s.RegisterBrokerRecord) -> None:
        self._brokers.set(
            record.broker_id,
            Broker(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=record.endpoints,
                features=record.features,
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                log_dirs=record.log_dirs,
                cordoned_log_dirs=record.cordoned_log_dirs,
            ),
        )

    def _broker(self, broker_id: int, epoch: int, record: s.AnyRecord) -> Broker:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise ReplayError(f"{type(record).__name__} for broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise ReplayError(
                f"{type(record).__name__} for broker {broker_id} has epoch {epoch}, expected {broker.epoch}"
            )
        return broker

    def _unregister_broker(self, record: s.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch, record)
        self._brokers.remove(record.broker_id)

    def _fence_broker(self, record: s.FenceBrokerRecord) -> None:
        self._brokers.set(record.id, replace(self._broker(record.id, record.epoch, record), fenced=True))

    def _unfence_broker(self, record: s.UnfenceBrokerRecord) -> None:
        self._brokers.set(record.id, replace(self._broker(record.id, record.epoch, record), fenced=False))

    def _change_broker(self, record: s.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch, record)
        changes: dict[str, Any] = {}
        if record.fenced:
            changes["fenced"] = record.fenced > 0
        if record.in_controlled_shutdown:
            changes["in_controlled_shutdown"] = True
        if record.log_dirs:
            changes["log_dirs"] = record.log_dirs
        if record.cordoned_log_dirs is not None:
            changes["cordoned_log_dirs"] = record.cordoned_log_dirs
        self._brokers.set(broker.id, replace(broker, **changes))

    def _register_controller(self, record: s.RegisterControllerRecord) -> None:
        self._controllers.set(
            record.controller_id,
            ControllerNode(
                id=record.controller_id,
                incarnation_id=record.incarnation_id,
                endpoints=record.endpoints,
                features=record.features,
                zk_migration_ready=record.zk_migration_ready,
            ),
        )

    # Topics and partitions.

    def _topic(self, record: s.TopicRecord) -> None:
        if self._topics.get(record.name) is not None:
            raise ReplayError(f"topic {record.name} is created twice")
        self._topics.set(record.name, Topic(record.name, record.topic_id))
        self._names.set(record.topic_id, record.name)
        key = collision_key(record.name)
        if key is not None:
            self._collisions.set(key, record.name)

    def _remove_topic(self, record: s.RemoveTopicRecord) -> None:
        name = self._names.get(record.topic_id)
        if name is None:
            raise ReplayError(f"a record removes a topic with the unknown id {record.topic_id.hex()}")
        self._topics.remove(name)
        self._names.remove(record.topic_id)
        key = collision_key(name)
        if key is not None:
            self._collisions.remove(key)
        self._partitions.pop(record.topic_id, None)
        self._configs.remove(Resource(ResourceType.TOPIC, name))

    def _partitions_of(self, topic_id: Uuid) -> Draft[int, PartitionRegistration]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            name = self._names.get(topic_id)
            topic = None if name is None else self._topics.get(name)
            if topic is None:
                raise ReplayError(
                    f"a record creates a partition of a topic with the unknown id {topic_id.hex()}"
                )
            partitions = self._partitions[topic_id] = Draft(topic.partitions)
        return partitions

    def _partition(self, record: s.PartitionRecord) -> None:
        self._partitions_of(record.topic_id).set(
            record.partition_id,
            PartitionRegistration(
                replicas=record.replicas,
                directories=record.directories or (DIRECTORY_MIGRATING,) * len(record.replicas),
                isr=record.isr,
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
                recovery_state=record.leader_recovery_state,
                elr=record.eligible_leader_replicas or (),
                last_known_elr=record.last_known_elr or (),
                adding=record.adding_replicas,
                removing=record.removing_replicas,
            ),
        )

    def _change_partition(self, record: s.PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        partition = partitions.get(record.partition_id)
        if partition is None:
            raise ReplayError(
                f"a record changes partition {record.partition_id} of topic {self._names.get(record.topic_id)}, "
                f"which has no such partition"
            )
        partitions.set(record.partition_id, merge(partition, record))

    def _clear_elr(self, record: s.ClearElrRecord) -> None:
        for name in [record.topic_name] if record.topic_name else self._topics.keys():
            topic = self._topics.get(name)
            if topic is None:
                raise ReplayError(f"a record clears the eligible leader replicas of the unknown topic {name}")
            partitions = self._partitions_of(topic.id)
            for number in partitions.keys():  # noqa: SIM118  (not a mapping)
                partition = partitions.get(number)
                if partition is not None and (partition.elr or partition.last_known_elr):
                    cleared = s.PartitionChangeRecord(eligible_leader_replicas=(), last_known_elr=())
                    partitions.set(number, merge(partition, cleared))

    # ACLs.

    def _acl(self, record: s.AccessControlEntryRecord) -> None:
        acl = acl_of(record, record)
        self._acls.set(record.id, acl)
        self._acl_ids.set(acl.key, record.id)

    def _remove_acl(self, record: s.RemoveAccessControlEntryRecord) -> None:
        acl = self._acls.get(record.id)
        if acl is None:
            raise ReplayError(f"a record removes an ACL with the unknown id {record.id.hex()}")
        self._acls.remove(record.id)
        if self._acl_ids.get(acl.key) == record.id:
            self._acl_ids.remove(acl.key)

    # Settings, users, and what is only kept.

    def _config(self, record: s.ConfigRecord) -> None:
        resource = Resource(record.resource_type, record.resource_name)
        values = dict(self._configs.get(resource) or {})
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self._configs.set(resource, values)
        else:
            self._configs.remove(resource)

    def _scram_user(self, record: s.UserScramCredentialRecord) -> None:
        self._scram_users.set(ScramUser(record.mechanism, record.name), record)

    def _remove_scram_user(self, record: s.RemoveUserScramCredentialRecord) -> None:
        self._scram_users.remove(ScramUser(record.mechanism, record.name))

    def _token(self, record: s.DelegationTokenRecord) -> None:
        self._tokens.set(record.token_id, record)

    def _remove_token(self, record: s.RemoveDelegationTokenRecord) -> None:
        self._tokens.remove(record.token_id)

    def _keep(self, record: s.AnyRecord) -> None:
        self._kept.set((type(record).__name__,), record)

    def _quota(self, record: s.ClientQuotaRecord) -> None:
        entity = entity_of({each.type: each.name for each in record.entity})
        limits = {key: value for key, value in (self._quotas.get(entity) or {}).items() if key != record.key}
        if not record.remove:
            limits[record.key] = record.value
        if limits:
            self._quotas.set(entity, limits)
        else:
            self._quotas.remove(entity)

    def _keep_unknown(self, record: s.UnknownRecord) -> None:
        self._unknown.append(record)


def merge(partition: PartitionRegistration, change: s.PartitionChangeRecord) -> PartitionRegistration:
    """Return the partition after a change. This is the only place that raises its epochs."""
    replicas, directories = partition.replicas, partition.directories
    if change.replicas is not None:
        held = dict(zip(replicas, directories, strict=False))
        replicas = change.replicas
        # Metadata versions without directories: unknown until the cluster is upgraded.
        new = DIRECTORY_MIGRATING if DIRECTORY_MIGRATING in directories else DIRECTORY_UNASSIGNED
        directories = tuple(held.get(replica, new) for replica in replicas)
    if change.directories is not None:
        directories = change.directories
    led = change.leader != s.NO_LEADER_CHANGE
    recovery = change.leader_recovery_state
    return PartitionRegistration(
        replicas=replicas,
        directories=directories,
        isr=_new(change.isr, partition.isr),
        leader=change.leader if led else partition.leader,
        leader_epoch=partition.leader_epoch + led,
        partition_epoch=partition.partition_epoch + 1,
        recovery_state=partition.recovery_state if recovery == s.NO_RECOVERY_CHANGE else recovery,
        elr=_new(change.eligible_leader_replicas, partition.elr),
        last_known_elr=_new(change.last_known_elr, partition.last_known_elr),
        adding=_new(change.adding_replicas, partition.adding),
        removing=_new(change.removing_replicas, partition.removing),
    )


def _new(changed: s.Ids | None, held: s.Ids) -> s.Ids:
    return held if changed is None else changed


_APPLY: dict[type, Callable[[ImageDraft, Any], None]] = {
    s.FeatureLevelRecord: ImageDraft._feature_level,
    s.ProducerIdsRecord: ImageDraft._producer_ids,
    s.NoOpRecord: ImageDraft._no_op,
    s.RegisterBrokerRecord: ImageDraft._register_broker,
    s.UnregisterBrokerRecord: ImageDraft._unregister_broker,
    s.FenceBrokerRecord: ImageDraft._fence_broker,
    s.UnfenceBrokerRecord: ImageDraft._unfence_broker,
    s.BrokerRegistrationChangeRecord: ImageDraft._change_broker,
    s.RegisterControllerRecord: ImageDraft._register_controller,
    s.TopicRecord: ImageDraft._topic,
    s.RemoveTopicRecord: ImageDraft._remove_topic,
    s.PartitionRecord: ImageDraft._partition,
    s.PartitionChangeRecord: ImageDraft._change_partition,
    s.ClearElrRecord: ImageDraft._clear_elr,
    s.ConfigRecord: ImageDraft._config,
    s.AccessControlEntryRecord: ImageDraft._acl,
    s.RemoveAccessControlEntryRecord: ImageDraft._remove_acl,
    s.UserScramCredentialRecord: ImageDraft._scram_user,
    s.RemoveUserScramCredentialRecord: ImageDraft._remove_scram_user,
    s.ClientQuotaRecord: ImageDraft._quota,
    s.DelegationTokenRecord: ImageDraft._token,
    s.RemoveDelegationTokenRecord: ImageDraft._remove_token,
    s.ZkMigrationStateRecord: ImageDraft._keep,
    s.UnknownRecord: ImageDraft._keep_unknown,
}
