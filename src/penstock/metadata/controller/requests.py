"""Requests and replies of the controller: plain data, independent of API versions.

A reply about several resources has a `Result` for each. A `KafkaError` is raised if the whole request is rejected.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Uuid
from penstock.metadata.acls import Acl, AclFilter
from penstock.metadata.image import Resource
from penstock.metadata.quotas import QuotaEntity
from penstock.metadata.records import (
    RECOVERED,
    DelegationTokenRecord,
    Endpoint,
    Ids,
    SupportedFeature,
    Uuids,
)
from penstock.records.structs import NO_UUID

R_co = TypeVar("R_co", covariant=True)


class Result(NamedTuple):
    code: ErrorCode = ErrorCode.NONE
    message: str | None = None


OK = Result()


def refused(error: KafkaError) -> Result:
    return Result(error.code, str(error))


# Topics and partitions.


class NewTopic(NamedTuple):
    name: str
    partitions: int = -1
    """-1 for the default, or if assignments are given."""
    replication_factor: int = -1
    assignments: tuple[tuple[int, Ids], ...] = ()
    """Replicas by partition, if the client chooses them."""
    configs: Mapping[str, str | None] = MappingProxyType({})


class CreateTopics(NamedTuple):
    topics: tuple[NewTopic, ...]
    validate_only: bool = False


class CreatedTopic(NamedTuple):
    name: str
    result: Result
    topic_id: Uuid = NO_UUID
    partitions: int = -1
    replication_factor: int = -1


class DeleteTopics(NamedTuple):
    names: tuple[str, ...] = ()
    ids: Uuids = ()


class DeletedTopic(NamedTuple):
    name: str | None
    topic_id: Uuid
    result: Result


class MorePartitions(NamedTuple):
    topic: str
    total: int
    """New number of partitions, including existing ones."""
    assignments: tuple[Ids, ...] | None = None


class CreatePartitions(NamedTuple):
    topics: tuple[MorePartitions, ...]
    validate_only: bool = False


class TopicResult(NamedTuple):
    topic: str
    result: Result


class IsrMember(NamedTuple):
    broker_id: int
    broker_epoch: int = -1
    """-1 if the leader does not know it."""


DAMAGED = 3
"""A recovery state that Kafka does not have, and that Kafka's controllers reject: the replica has found damaged data,
or its disk fails. It requests an ISR without itself; a leader, also another leader from that ISR. It is not eligible
to lead (KIP-966) until it is in sync again."""

UNWRITABLE = 4
"""The same for a replica whose disk takes no more writes: it keeps its records, and stays eligible."""


class IsrChange(NamedTuple):
    topic_id: Uuid
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]
    recovery_state: int = RECOVERED


class AlterPartition(NamedTuple):
    """A leader's request for another ISR, or a replica's request for one without itself."""

    broker_id: int
    broker_epoch: int
    changes: tuple[IsrChange, ...]


class IsrChanged(NamedTuple):
    topic_id: Uuid
    partition: int
    result: Result
    leader: int = -1
    leader_epoch: int = -1
    isr: Ids = ()
    recovery_state: int = RECOVERED
    partition_epoch: int = -1


class Election(IntEnum):
    """The protocol's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectLeaders(NamedTuple):
    election: int
    partitions: tuple[tuple[str, int], ...] | None = None
    """None for all partitions that need an election."""


class ElectionResult(NamedTuple):
    topic: str
    partition: int
    result: Result


class PartitionTarget(NamedTuple):
    """Target replicas of a partition, in order of preference."""

    topic: str
    partition: int
    replicas: Ids | None
    """None cancels an ongoing reassignment."""


class AlterReassignments(NamedTuple):
    """Reassignments of partitions (KIP-455)."""

    targets: tuple[PartitionTarget, ...]
    allow_factor_change: bool = True
    """Whether a reassignment may change the replication factor."""


class ReassignmentResult(NamedTuple):
    topic: str
    partition: int
    result: Result


class ListReassignments(NamedTuple):
    partitions: tuple[tuple[str, int], ...] | None = None
    """None for all partitions that move."""


class Reassignment(NamedTuple):
    """A partition that moves."""

    topic: str
    partition: int
    replicas: Ids
    """All current replicas, including those being added and removed."""
    adding: Ids
    removing: Ids


# Settings and features.


class AlterConfigs(NamedTuple):
    """All settings of a resource: settings that are not named are removed."""

    resources: Mapping[Resource, Mapping[str, str | None]]
    validate_only: bool = False


class ConfigOp(IntEnum):
    """The protocol's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    name: str
    op: int
    value: str | None = None


class IncrementalAlterConfigs(NamedTuple):
    resources: Mapping[Resource, tuple[ConfigChange, ...]]
    validate_only: bool = False


class UpgradeType(IntEnum):
    """The protocol's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


class UpdateFeatures(NamedTuple):
    """All updates are applied, or none if one is rejected."""

    updates: tuple[FeatureUpdate, ...]
    validate_only: bool = False


# ACLs.


class CreateAcls(NamedTuple):
    """Answered with a `Result` for each."""

    acls: tuple[Acl, ...]


class DeleteAcls(NamedTuple):
    """Answered with a `DeletedAcls` for each filter."""

    filters: tuple[AclFilter, ...]


class DeletedAcls(NamedTuple):
    acls: tuple[Acl, ...]


# Quotas.


class QuotaAlteration(NamedTuple):
    entity: QuotaEntity
    changes: tuple[tuple[str, float | None], ...]
    """New values by key; None removes a quota."""


class AlterClientQuotas(NamedTuple):
    """Answered with a `Result` for each. An alteration is made as a whole or not at all."""

    alterations: tuple[QuotaAlteration, ...]
    validate_only: bool = False


# Brokers and controllers.


class RegisterBroker(NamedTuple):
    broker_id: int
    cluster_id: str
    """Empty for a broker with a new directory, which reads it from the metadata log."""
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]
    log_dirs: Uuids
    rack: str | None = None
    previous_epoch: int = -1
    """From the clean-shutdown file. Any other value than the last known epoch means an unclean stop."""


class BrokerHeartbeat(NamedTuple):
    broker_id: int
    broker_epoch: int
    metadata_offset: int
    """Last metadata offset that the broker has replayed."""
    want_fence: bool = False
    want_shutdown: bool = False
    offline_dirs: Uuids = ()
    cordoned_dirs: Uuids | None = None


class HeartbeatReply(NamedTuple):
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool


class FenceBroker(NamedTuple):
    """The broker is known to be dead before its session has expired."""

    broker_id: int
    broker_epoch: int


class UnregisterBroker(NamedTuple):
    broker_id: int


class ScramDeletion(NamedTuple):
    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """A new password of a user, as SCRAM's salted password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


class AlterScramUsers(NamedTuple):
    """The reply is a `Result` for each user. A user may be named once."""

    deletions: tuple[ScramDeletion, ...] = ()
    upsertions: tuple[ScramUpsertion, ...] = ()

    @property
    def users(self) -> tuple[str, ...]:
        """Each user once."""
        named = [*(each.user for each in self.deletions), *(each.user for each in self.upsertions)]
        return tuple(dict.fromkeys(named))


# Delegation tokens.


class CreateDelegationToken(NamedTuple):
    """Answered with a `DelegationToken`."""

    owner: str
    """A principal, as User:alice."""
    requester: str
    """The principal of the client."""
    renewers: tuple[str, ...]
    max_lifetime_ms: int
    """At most as long as the settings allow; -1 for that."""
    client_host: str
    """The client's address."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    record: DelegationTokenRecord
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RenewDelegationToken:
    """Answered with the time of the new expiry."""

    requester: str
    client_host: str
    key: bytes = field(repr=False)
    period_ms: int
    token_id: str | None = None
    """The token with this key, if the broker knows it."""


@dataclass(frozen=True, slots=True)
class ExpireDelegationToken:
    """Answered with the time of the new expiry."""

    requester: str
    client_host: str
    key: bytes = field(repr=False)
    period_ms: int
    """Negative to remove the token at once."""
    token_id: str | None = None


class RegisterController(NamedTuple):
    controller_id: int
    incarnation_id: Uuid
    endpoints: tuple[Endpoint, ...]
    features: tuple[SupportedFeature, ...]


class AllocateProducerIds(NamedTuple):
    broker_id: int
    broker_epoch: int


class ProducerIdBlock(NamedTuple):
    first: int
    size: int
