"""Which rights each API needs: the one table that handlers are tested against and that the documentation shows.

An API without an entry fails a test, as does a handler that asks for another right than its entry has. The table in
`docs/security.md` is made from this one:

    python -m penstock.handlers.support.needed_rights
"""

from typing import Final, NamedTuple

from penstock.metadata.acls import AclResourceType, Operation
from penstock.wire import Api


class Right(NamedTuple):
    operation: Operation
    on: AclResourceType
    when: str = ""
    """Only in this case; empty for every request, and for every resource of this type that the request names."""

    def __str__(self) -> str:
        words = self.operation.name.title().replace("_", ""), _RESOURCES[self.on]
        return f"{words[0]} on {words[1]}{self.when and f' ({self.when})'}"


_RESOURCES: Final = {
    AclResourceType.TOPIC: "the topic",
    AclResourceType.GROUP: "the group",
    AclResourceType.CLUSTER: "the cluster",
    AclResourceType.TRANSACTIONAL_ID: "the transactional id",
    AclResourceType.DELEGATION_TOKEN: "the token",
    AclResourceType.USER: "the user",
}

_TOPIC, _GROUP, _CLUSTER = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER
_TRANSACTION = AclResourceType.TRANSACTIONAL_ID
_READ, _WRITE, _DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
_ALTER, _CREATE, _DELETE = Operation.ALTER, Operation.CREATE, Operation.DELETE

_OF_NODES: Final = (Right(Operation.CLUSTER_ACTION, _CLUSTER),)
_ADMINISTRATION: Final = (Right(_ALTER, _CLUSTER),)
_OVERVIEW: Final = (Right(_DESCRIBE, _CLUSTER),)
_MEMBER: Final = (Right(_READ, _GROUP),)
_NOTHING: Final = ()


def _configs(operation: Operation) -> tuple[Right, ...]:
    whose = {_TOPIC: "for its configs", _GROUP: "for its configs", _CLUSTER: "for those of brokers"}
    return tuple(Right(operation, on, when) for on, when in whose.items())


_INSTEAD = "instead"
_LEFT_OUT = "others are left out"

NEEDED: Final[dict[Api, tuple[Right, ...]]] = {
    Api.PRODUCE: (Right(_WRITE, _TOPIC), Right(_WRITE, _TRANSACTION, "for records of a transaction")),
    Api.FETCH: (Right(_READ, _TOPIC), Right(Operation.CLUSTER_ACTION, _CLUSTER, "as a replica, instead")),
    Api.LIST_OFFSETS: (Right(_DESCRIBE, _TOPIC),),
    Api.METADATA: (
        Right(_DESCRIBE, _TOPIC, "without names, others are left out"),
        Right(_CREATE, _CLUSTER, "if the topic is to be created"),
        Right(_CREATE, _TOPIC, "in that case, instead"),
    ),
    Api.OFFSET_COMMIT: (Right(_READ, _GROUP), Right(_READ, _TOPIC)),
    Api.OFFSET_FETCH: (
        Right(_DESCRIBE, _GROUP),
        Right(_DESCRIBE, _TOPIC, "without names, others are left out"),
    ),
    Api.FIND_COORDINATOR: (
        Right(_DESCRIBE, _GROUP, "for the coordinator of a group"),
        Right(_DESCRIBE, _TRANSACTION, "for that of a transactional id"),
    ),
    Api.JOIN_GROUP: _MEMBER,
    Api.HEARTBEAT: _MEMBER,
    Api.LEAVE_GROUP: _MEMBER,
    Api.SYNC_GROUP: _MEMBER,
    Api.DESCRIBE_GROUPS: (Right(_DESCRIBE, _GROUP),),
    Api.LIST_GROUPS: (
        Right(_DESCRIBE, _CLUSTER),
        Right(_DESCRIBE, _GROUP, f"instead; {_LEFT_OUT}"),
    ),
    Api.SASL_HANDSHAKE: _NOTHING,
    Api.API_VERSIONS: _NOTHING,
    Api.CREATE_TOPICS: (
        Right(_CREATE, _CLUSTER),
        Right(_CREATE, _TOPIC, _INSTEAD),
        Right(Operation.DESCRIBE_CONFIGS, _TOPIC, "to see its configs in the response"),
    ),
    Api.DELETE_TOPICS: (
        Right(_DELETE, _CLUSTER),
        Right(_DELETE, _TOPIC, _INSTEAD),
        Right(_DESCRIBE, _TOPIC, "to learn that it exists"),
    ),
    Api.DELETE_RECORDS: (Right(_DELETE, _TOPIC),),
    Api.INIT_PRODUCER_ID: (
        Right(_WRITE, _TRANSACTION, "with one"),
        Right(Operation.IDEMPOTENT_WRITE, _CLUSTER, "without one"),
        Right(_WRITE, _TOPIC, "any topic, instead"),
    ),
    Api.OFFSET_FOR_LEADER_EPOCH: (
        Right(_DESCRIBE, _TOPIC),
        Right(Operation.CLUSTER_ACTION, _CLUSTER, _INSTEAD),
    ),
    Api.ADD_PARTITIONS_TO_TXN: (
        Right(_WRITE, _TRANSACTION),
        Right(_WRITE, _TOPIC),
        Right(Operation.CLUSTER_ACTION, _CLUSTER, "for brokers, from version 4 on, instead"),
    ),
    Api.ADD_OFFSETS_TO_TXN: (Right(_WRITE, _TRANSACTION), Right(_READ, _GROUP)),
    Api.END_TXN: (Right(_WRITE, _TRANSACTION),),
    Api.WRITE_TXN_MARKERS: (Right(_ALTER, _CLUSTER), Right(Operation.CLUSTER_ACTION, _CLUSTER, _INSTEAD)),
    Api.TXN_OFFSET_COMMIT: (Right(_WRITE, _TRANSACTION), Right(_READ, _GROUP), Right(_READ, _TOPIC)),
    Api.DESCRIBE_ACLS: _OVERVIEW,
    Api.CREATE_ACLS: _ADMINISTRATION,
    Api.DELETE_ACLS: _ADMINISTRATION,
    Api.DESCRIBE_CONFIGS: _configs(Operation.DESCRIBE_CONFIGS),
    Api.ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS),
    Api.DESCRIBE_LOG_DIRS: _OVERVIEW,
    Api.SASL_AUTHENTICATE: _NOTHING,
    Api.CREATE_PARTITIONS: (Right(_ALTER, _TOPIC),),
    Api.CREATE_DELEGATION_TOKEN: (
        Right(Operation.CREATE_TOKENS, AclResourceType.USER, "for a token of another user"),
    ),
    Api.RENEW_DELEGATION_TOKEN: _NOTHING,
    Api.EXPIRE_DELEGATION_TOKEN: _NOTHING,
    Api.DESCRIBE_DELEGATION_TOKEN: (
        Right(_DESCRIBE, AclResourceType.DELEGATION_TOKEN, f"of another user; {_LEFT_OUT}"),
        Right(Operation.DESCRIBE_TOKENS, AclResourceType.USER, _INSTEAD),
    ),
    Api.DELETE_GROUPS: (Right(_DELETE, _GROUP),),
    Api.ELECT_LEADERS: _ADMINISTRATION,
    Api.INCREMENTAL_ALTER_CONFIGS: _configs(Operation.ALTER_CONFIGS),
    Api.DESCRIBE_CLIENT_QUOTAS: (Right(Operation.DESCRIBE_CONFIGS, _CLUSTER),),
    Api.ALTER_CLIENT_QUOTAS: (Right(Operation.ALTER_CONFIGS, _CLUSTER),),
    Api.ALTER_PARTITION_REASSIGNMENTS: _ADMINISTRATION,
    Api.LIST_PARTITION_REASSIGNMENTS: _OVERVIEW,
    Api.OFFSET_DELETE: (Right(_DELETE, _GROUP), Right(_READ, _TOPIC)),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: _OVERVIEW,
    Api.ALTER_USER_SCRAM_CREDENTIALS: _ADMINISTRATION,
    Api.VOTE: _OF_NODES,
    Api.BEGIN_QUORUM_EPOCH: _OF_NODES,
    Api.END_QUORUM_EPOCH: _OF_NODES,
    Api.DESCRIBE_QUORUM: _OVERVIEW,
    Api.ALTER_PARTITION: _OF_NODES,
    Api.UPDATE_FEATURES: _ADMINISTRATION,
    Api.ENVELOPE: _OF_NODES,
    Api.FETCH_SNAPSHOT: _OF_NODES,
    Api.DESCRIBE_CLUSTER: _NOTHING,
    Api.DESCRIBE_PRODUCERS: (Right(_READ, _TOPIC),),
    Api.BROKER_REGISTRATION: _OF_NODES,
    Api.BROKER_HEARTBEAT: _OF_NODES,
    Api.UNREGISTER_BROKER: _ADMINISTRATION,
    Api.DESCRIBE_TRANSACTIONS: (
        Right(_DESCRIBE, _TRANSACTION),
        Right(_DESCRIBE, _TOPIC, _LEFT_OUT),
    ),
    Api.LIST_TRANSACTIONS: (Right(_DESCRIBE, _TRANSACTION, _LEFT_OUT),),
    Api.ALLOCATE_PRODUCER_IDS: _OF_NODES,
    Api.CONSUMER_GROUP_HEARTBEAT: (Right(_READ, _GROUP), Right(_DESCRIBE, _TOPIC)),
    Api.CONSUMER_GROUP_DESCRIBE: (Right(_DESCRIBE, _GROUP), Right(_DESCRIBE, _TOPIC)),
    Api.CONTROLLER_REGISTRATION: _OF_NODES,
    Api.LIST_CONFIG_RESOURCES: (Right(Operation.DESCRIBE_CONFIGS, _CLUSTER),),
    Api.DESCRIBE_TOPIC_PARTITIONS: (Right(_DESCRIBE, _TOPIC, "without names, others are left out"),),
    Api.ADD_RAFT_VOTER: _ADMINISTRATION,
    Api.REMOVE_RAFT_VOTER: _ADMINISTRATION,
    Api.UPDATE_RAFT_VOTER: _OF_NODES,
}


def as_markdown() -> str:
    """The table of the documentation."""
    rows = ["| API | needs |", "|---|---|"]
    for api, rights in sorted(NEEDED.items(), key=lambda each: each[0].label):
        rows.append(f"| {api.label} | {'; '.join(map(str, rights)) or 'nothing'} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(as_markdown())
