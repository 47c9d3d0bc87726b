"""The APIs: their keys, first flexible versions, listeners, and the versions that Kafka serves.

All of Kafka's API keys are here, so that log lines can name requests that are not supported. The handlers determine
which APIs a node serves (`Served`). The data is that of the schemas of Apache Kafka 4.3.1; the four ZooKeeper APIs,
which Kafka 4 removed, are as in 3.9.
"""

from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from penstock.base.errors import ErrorCode

from .primitives import INT16, INT32, INT64, count, string, tags


class Api(IntEnum):
    """An API by its key."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def label(self) -> str:
        """The API's name in Kafka, such as OffsetForLeaderEpoch."""
        return self.name.title().replace("_", "")


class VersionRange(NamedTuple):
    """Versions from min to max, both included."""

    min: int
    max: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.min <= version <= self.max


Served: TypeAlias = Mapping[Api, VersionRange]
"""The APIs that a node serves."""

NEVER: Final = 2**15
"""The first flexible version of an API without one: above any int16."""

PRODUCE_ADVERTISED_MIN: Final = 0
"""Produce 0 to 2 are advertised and refused, as Kafka does (KAFKA-18659): an older librdkafka (its issue 4956)
looks for version 0 to tell whether a broker takes compressed batches, and sends them plain otherwise."""


class _Facts(NamedTuple):
    first_flexible: int
    versions: VersionRange | None = None
    """None for an API that Kafka 4 removed."""
    listeners: str = ""


_BROKER, _CONTROLLER, _BOTH = "broker", "controller", "broker controller"

_FACTS: Final[Mapping[Api, _Facts]] = {
    Api.PRODUCE: _Facts(9, VersionRange(3, 13), _BROKER),
    Api.FETCH: _Facts(12, VersionRange(4, 18), _BOTH),
    Api.LIST_OFFSETS: _Facts(6, VersionRange(1, 11), _BROKER),
    Api.METADATA: _Facts(9, VersionRange(0, 13), _BROKER),
    Api.LEADER_AND_ISR: _Facts(4),
    Api.STOP_REPLICA: _Facts(2),
    Api.UPDATE_METADATA: _Facts(6),
    Api.CONTROLLED_SHUTDOWN: _Facts(3),
    Api.OFFSET_COMMIT: _Facts(8, VersionRange(2, 10), _BROKER),
    Api.OFFSET_FETCH: _Facts(6, VersionRange(1, 10), _BROKER),
    Api.FIND_COORDINATOR: _Facts(3, VersionRange(0, 6), _BROKER),
    Api.JOIN_GROUP: _Facts(6, VersionRange(0, 9), _BROKER),
    Api.HEARTBEAT: _Facts(4, VersionRange(0, 4), _BROKER),
    Api.LEAVE_GROUP: _Facts(4, VersionRange(0, 5), _BROKER),
    Api.SYNC_GROUP: _Facts(4, VersionRange(0, 5), _BROKER),
    Api.DESCRIBE_GROUPS: _Facts(5, VersionRange(0, 6), _BROKER),
    Api.LIST_GROUPS: _Facts(3, VersionRange(0, 5), _BROKER),
    Api.SASL_HANDSHAKE: _Facts(NEVER, VersionRange(0, 1), _BOTH),
    Api.API_VERSIONS: _Facts(3, VersionRange(0, 4), _BOTH),
    Api.CREATE_TOPICS: _Facts(5, VersionRange(2, 7), _BOTH),
    Api.DELETE_TOPICS: _Facts(4, VersionRange(1, 6), _BOTH),
    Api.DELETE_RECORDS: _Facts(2, VersionRange(0, 2), _BROKER),
    Api.INIT_PRODUCER_ID: _Facts(2, VersionRange(0, 5), _BROKER),
    Api.OFFSET_FOR_LEADER_EPOCH: _Facts(4, VersionRange(2, 4), _BROKER),
    Api.ADD_PARTITIONS_TO_TXN: _Facts(3, VersionRange(0, 5), _BROKER),
    Api.ADD_OFFSETS_TO_TXN: _Facts(3, VersionRange(0, 4), _BROKER),
    Api.END_TXN: _Facts(3, VersionRange(0, 5), _BROKER),
    Api.WRITE_TXN_MARKERS: _Facts(1, VersionRange(1, 2), _BROKER),
    Api.TXN_OFFSET_COMMIT: _Facts(3, VersionRange(0, 5), _BROKER),
    Api.DESCRIBE_ACLS: _Facts(2, VersionRange(1, 3), _BOTH),
    Api.CREATE_ACLS: _Facts(2, VersionRange(1, 3), _BOTH),
    Api.DELETE_ACLS: _Facts(2, VersionRange(1, 3), _BOTH),
    Api.DESCRIBE_CONFIGS: _Facts(4, VersionRange(1, 4), _BOTH),
    Api.ALTER_CONFIGS: _Facts(2, VersionRange(0, 2), _BOTH),
    Api.ALTER_REPLICA_LOG_DIRS: _Facts(2, VersionRange(1, 2), _BROKER),
    Api.DESCRIBE_LOG_DIRS: _Facts(2, VersionRange(1, 5), _BROKER),
    Api.SASL_AUTHENTICATE: _Facts(2, VersionRange(0, 2), _BOTH),
    Api.CREATE_PARTITIONS: _Facts(2, VersionRange(0, 3), _BOTH),
    Api.CREATE_DELEGATION_TOKEN: _Facts(2, VersionRange(1, 3), _BOTH),
    Api.RENEW_DELEGATION_TOKEN: _Facts(2, VersionRange(1, 2), _BOTH),
    Api.EXPIRE_DELEGATION_TOKEN: _Facts(2, VersionRange(1, 2), _BOTH),
    Api.DESCRIBE_DELEGATION_TOKEN: _Facts(2, VersionRange(1, 3), _BOTH),
    Api.DELETE_GROUPS: _Facts(2, VersionRange(0, 2), _BROKER),
    Api.ELECT_LEADERS: _Facts(2, VersionRange(0, 2), _BOTH),
    Api.INCREMENTAL_ALTER_CONFIGS: _Facts(1, VersionRange(0, 1), _BOTH),
    Api.ALTER_PARTITION_REASSIGNMENTS: _Facts(0, VersionRange(0, 1), _BOTH),
    Api.LIST_PARTITION_REASSIGNMENTS: _Facts(0, VersionRange(0, 0), _BOTH),
    Api.OFFSET_DELETE: _Facts(NEVER, VersionRange(0, 0), _BROKER),
    Api.DESCRIBE_CLIENT_QUOTAS: _Facts(1, VersionRange(0, 1), _BROKER),
    Api.ALTER_CLIENT_QUOTAS: _Facts(1, VersionRange(0, 1), _BOTH),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: _Facts(0, VersionRange(0, 0), _BOTH),
    Api.ALTER_USER_SCRAM_CREDENTIALS: _Facts(0, VersionRange(0, 0), _BOTH),
    Api.VOTE: _Facts(0, VersionRange(0, 2), _CONTROLLER),
    Api.BEGIN_QUORUM_EPOCH: _Facts(1, VersionRange(0, 1), _CONTROLLER),
    Api.END_QUORUM_EPOCH: _Facts(1, VersionRange(0, 1), _CONTROLLER),
    Api.DESCRIBE_QUORUM: _Facts(0, VersionRange(0, 2), _BOTH),
    Api.ALTER_PARTITION: _Facts(2, VersionRange(2, 3), _CONTROLLER),
    Api.UPDATE_FEATURES: _Facts(0, VersionRange(0, 2), _BOTH),
    Api.ENVELOPE: _Facts(0, VersionRange(0, 0), _CONTROLLER),
    Api.FETCH_SNAPSHOT: _Facts(0, VersionRange(0, 1), _CONTROLLER),
    Api.DESCRIBE_CLUSTER: _Facts(0, VersionRange(0, 2), _BOTH),
    Api.DESCRIBE_PRODUCERS: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.BROKER_REGISTRATION: _Facts(0, VersionRange(0, 4), _CONTROLLER),
    Api.BROKER_HEARTBEAT: _Facts(0, VersionRange(0, 2), _CONTROLLER),
    Api.UNREGISTER_BROKER: _Facts(0, VersionRange(0, 0), _BOTH),
    Api.DESCRIBE_TRANSACTIONS: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.LIST_TRANSACTIONS: _Facts(0, VersionRange(0, 2), _BROKER),
    Api.ALLOCATE_PRODUCER_IDS: _Facts(0, VersionRange(0, 0), _CONTROLLER),
    Api.CONSUMER_GROUP_HEARTBEAT: _Facts(0, VersionRange(0, 1), _BROKER),
    Api.CONSUMER_GROUP_DESCRIBE: _Facts(0, VersionRange(0, 1), _BROKER),
    Api.CONTROLLER_REGISTRATION: _Facts(0, VersionRange(0, 0), _CONTROLLER),
    Api.GET_TELEMETRY_SUBSCRIPTIONS: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.PUSH_TELEMETRY: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.ASSIGN_REPLICAS_TO_DIRS: _Facts(0, VersionRange(0, 0), _CONTROLLER),
    Api.LIST_CONFIG_RESOURCES: _Facts(0, VersionRange(0, 1), _BROKER),
    Api.DESCRIBE_TOPIC_PARTITIONS: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.SHARE_GROUP_HEARTBEAT: _Facts(1, VersionRange(1, 1), _BROKER),
    Api.SHARE_GROUP_DESCRIBE: _Facts(1, VersionRange(1, 1), _BROKER),
    Api.SHARE_FETCH: _Facts(1, VersionRange(1, 2), _BROKER),
    Api.SHARE_ACKNOWLEDGE: _Facts(1, VersionRange(1, 2), _BROKER),
    Api.ADD_RAFT_VOTER: _Facts(0, VersionRange(0, 1), _BOTH),
    Api.REMOVE_RAFT_VOTER: _Facts(0, VersionRange(0, 0), _BOTH),
    Api.UPDATE_RAFT_VOTER: _Facts(0, VersionRange(0, 0), _CONTROLLER),
    Api.INITIALIZE_SHARE_GROUP_STATE: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.READ_SHARE_GROUP_STATE: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.WRITE_SHARE_GROUP_STATE: _Facts(0, VersionRange(0, 1), _BROKER),
    Api.DELETE_SHARE_GROUP_STATE: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.READ_SHARE_GROUP_STATE_SUMMARY: _Facts(0, VersionRange(0, 1), _BROKER),
    Api.STREAMS_GROUP_HEARTBEAT: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.STREAMS_GROUP_DESCRIBE: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: _Facts(0, VersionRange(0, 1), _BROKER),
    Api.ALTER_SHARE_GROUP_OFFSETS: _Facts(0, VersionRange(0, 0), _BROKER),
    Api.DELETE_SHARE_GROUP_OFFSETS: _Facts(0, VersionRange(0, 0), _BROKER),
}

FIRST_FLEXIBLE: Final[dict[int, int]] = {int(api): facts.first_flexible for api, facts in _FACTS.items()}
"""The first flexible version of each API."""

KAFKA_RANGES: Final[Served] = {api: facts.versions for api, facts in _FACTS.items() if facts.versions}
"""The versions that Kafka 4.3.1 serves, and so those that are served here. InitProducerId 6 exists (two-phase
commit, KIP-939) but is unstable, so Kafka does not advertise it."""

BROKER_APIS: Final = frozenset(api for api, facts in _FACTS.items() if "broker" in facts.listeners)
CONTROLLER_APIS: Final = frozenset(api for api, facts in _FACTS.items() if "controller" in facts.listeners)


_LABELS: Final = {int(api): api.label for api in Api}


def api_name(key: int) -> str:
    """The API's name for a log line, or its key if it is unknown."""
    return _LABELS.get(key) or f"unknown API {key}"


def is_flexible(key: int, version: int) -> bool:
    return version >= FIRST_FLEXIBLE.get(key, NEVER)


_RANGE = Struct(">hhh")
NO_EPOCH: Final = -1
"""The epoch of finalized features that are not known."""


def api_versions_reply(
    served: Served,
    features: Mapping[str, VersionRange],
    finalized_features: Mapping[str, int],
    version: int,
    *,
    finalized_epoch: int = NO_EPOCH,
    throttle_time_ms: int = 0,
) -> bytes:
    """The body of an ApiVersions response, 0 to 4. Written by hand, because every connection begins with it.

    Supported features with a minimum level of 0 are left out below version 4, where clients reject a 0 (KAFKA-17011).
    A feature finalized at level 0 is disabled, and always left out.
    """
    if version not in served[Api.API_VERSIONS]:
        return api_versions_error(served, version, ErrorCode.UNSUPPORTED_VERSION)
    flexible = is_flexible(Api.API_VERSIONS, version)
    body = [INT16.pack(0), count(len(served), flexible)]
    for api, (low, high) in sorted(served.items()):
        body.append(_RANGE.pack(api, PRODUCE_ADVERTISED_MIN if api is Api.PRODUCE else low, high))
        if flexible:
            body.append(b"\0")
    if version >= 1:
        body.append(INT32.pack(throttle_time_ms))
    if flexible:
        body.append(_feature_tags(features, finalized_features, finalized_epoch, version))
    return b"".join(body)


def api_versions_error(served: Served, version: int, code: ErrorCode) -> bytes:
    """An error response. For an unsupported version it has the format of version 0, which every client can parse, and
    lists the versions of ApiVersions itself, so that the client can retry (KIP-511)."""
    low, high = served[Api.API_VERSIONS]
    if not low <= version <= high:
        return (
            INT16.pack(ErrorCode.UNSUPPORTED_VERSION)
            + INT32.pack(1)
            + _RANGE.pack(Api.API_VERSIONS, low, high)
        )
    flexible = is_flexible(Api.API_VERSIONS, version)
    body = INT16.pack(code) + count(0, flexible)
    if version >= 1:
        body += INT32.pack(0)
    return body + b"\0" if flexible else body


def _feature_tags(
    features: Mapping[str, VersionRange], finalized: Mapping[str, int], epoch: int, version: int
) -> bytes:
    supported = {name: each for name, each in features.items() if each.min > 0 or version >= 4}
    active = {name: level for name, level in finalized.items() if level}
    fields = {}
    if supported:
        fields[0] = count(len(supported), True) + b"".join(
            string(name, True) + INT16.pack(low) + INT16.pack(high) + b"\0"
            for name, (low, high) in sorted(supported.items())
        )
    if epoch != NO_EPOCH:
        fields[1] = INT64.pack(epoch)
    if active:
        fields[2] = count(len(active), True) + b"".join(
            string(name, True) + INT16.pack(level) + INT16.pack(level) + b"\0"
            for name, level in sorted(active.items())
        )
    return tags(fields)
