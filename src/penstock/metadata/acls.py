"""ACLs: the operations that principals may do with resources, and filters that select ACLs.

The numbers are the protocol's. A number that it does not have reads as UNKNOWN.
"""

from enum import IntEnum
from typing import Any, NamedTuple

ANY_NAME = ANY_HOST = "*"
"""In an ACL of pattern type LITERAL the name of every resource; the host of every client."""

ANY_PRINCIPAL = "User:*"

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""


class _Code(IntEnum):
    @classmethod
    def _missing_(cls, _: object) -> "_Code":
        return cls(0)


class Operation(_Code):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResourceType(_Code):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Code):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    """In filters: every ACL that applies to the named resource."""
    LITERAL = 3
    PREFIXED = 4


class Permission(_Code):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    resource_type: AclResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def key(self) -> str:
        """Identifies the ACL."""
        return (
            f"{self.resource_type:d} {self.pattern_type:d} {self.operation:d} {self.permission:d} "
            f"{len(self.resource_name)} {self.resource_name} {len(self.principal)} {self.principal} {self.host}"
        )

    def __str__(self) -> str:
        pattern = "*" if self.pattern_type is PatternType.PREFIXED else ""
        return (
            f"{self.permission.name} {self.operation.name} on {self.resource_type.name} "
            f"{self.resource_name}{pattern} for {self.principal} from {self.host}"
        )


class AclFilter(NamedTuple):
    """Selects ACLs. None and ANY match everything."""

    resource_type: AclResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    @property
    def is_known(self) -> bool:
        """Whether it has no UNKNOWN element."""
        return bool(self.resource_type and self.pattern_type and self.operation and self.permission)

    @property
    def as_acl(self) -> Acl | None:
        """The only ACL that it can match; None if it can match several."""
        codes = self.resource_type, self.pattern_type, self.operation, self.permission
        if None in self or any(each.name in ("ANY", "MATCH") for each in codes):
            return None
        return Acl._make(self)

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (AclResourceType.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type is PatternType.PREFIXED:
            return self.resource_name.startswith(acl.resource_name)
        return acl.resource_name in (self.resource_name, ANY_NAME)


# -- in messages and metadata records ------------------------------------------------------------------


def acl_of(resource: Any, entry: Any) -> Acl:
    """The ACL of a message or record, which may have its resource and the rest in two structures."""
    return Acl(
        AclResourceType(resource.resource_type),
        resource.resource_name,
        PatternType(resource.pattern_type),
        entry.principal,
        entry.host,
        Operation(entry.operation),
        Permission(entry.permission_type),
    )


def acl_fields(acl: Acl) -> dict[str, Any]:
    """The fields of a message or record with an ACL."""
    return {
        "resource_type": acl.resource_type,
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }


def creation_fields(acl: Acl) -> dict[str, Any]:
    """The same of CreateAcls, which has another name for the pattern type."""
    fields = acl_fields(acl)
    return fields | {"resource_pattern_type": fields.pop("pattern_type")}


def filter_fields(acl_filter: AclFilter) -> dict[str, Any]:
    """The fields of a filter in DescribeAcls and DeleteAcls."""
    return {
        "resource_type_filter": acl_filter.resource_type,
        "resource_name_filter": acl_filter.resource_name,
        "pattern_type_filter": acl_filter.pattern_type,
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": acl_filter.operation,
        "permission_type": acl_filter.permission,
    }
