"""Secured clusters: clients log in, and ACLs say what they may do.

Nodes log in to each other with PLAIN, as `node`, on listeners of their own. The clients of every run log in as `app`,
with PLAIN. Everything is open to everyone until the security
operator has created the standing ACLs, with which `app` may do everything and others nothing. Then guests come. They
log in with SCRAM and use one topic, and groups and transactional ids of their own; the operator changes their
passwords and ACLs all the time.
"""

from dataclasses import dataclass
from typing import Final

from penstock.metadata.acls import (
    ANY_HOST,
    ANY_NAME,
    Acl,
    AclResourceType,
    Operation,
    PatternType,
    Permission,
)
from penstock.security.sasl.client import PlainLogin

APP: Final = "app"
"""The user of all clients but the guests and their operator."""
ADMIN: Final = "admin"
"""The security operator, a super user."""
NODE: Final = "node"
"""The user of brokers and controllers among themselves, a super user."""

GUARDED: Final = "guarded"
"""The guests' topic; also begins the names of their groups and transactional ids."""

NODE_SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{NODE};User:{ADMIN};User:ANONYMOUS",  # clients of HTTP and lines do not log in
    "allow.everyone.if.no.acl.found": "true",
    "request.timeout.ms": "10000",  # changes of users, ACLs and quotas have no timeout of their own; clients wait 15 s
}
"""Of brokers and controllers."""


@dataclass(frozen=True)
class SecurityPlan:
    guests: int
    """How many guests there are at a time."""
    change_us_mean: int
    """Between two changes of users and ACLs."""
    pace_us: int
    """Between two requests of a guest, at most."""


def _password(user: str) -> str:
    return f"secret of {user}"


def jaas_config(*users: str, is_for_nodes: bool = False) -> str:
    """The users of PLAIN at a listener, and as whom nodes log in there."""
    own = f'username="{NODE}" password="{_password(NODE)}" ' if is_for_nodes else ""
    known = " ".join(f'user_{user}="{_password(user)}"' for user in users)
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {own}{known};"


def plain_login(user: str) -> PlainLogin:
    return PlainLogin(user, _password(user))


def acl(
    kind: AclResourceType,
    name: str,
    user: str,
    operation: Operation,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
) -> Acl:
    return Acl(kind, name, pattern, f"User:{user}", ANY_HOST, operation, permission)


STANDING_ACLS: Final = tuple(
    acl(kind, ANY_NAME, APP, Operation.ALL)
    for kind in (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID)
)
"""Never removed. A resource without ACLs is open, so these keep guests out until an ACL lets them in."""


def guest_acls(user: str) -> tuple[Acl, ...]:
    """The ACLs that come and go."""
    topic, group, txn = AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
    return (
        acl(topic, GUARDED, user, Operation.WRITE),
        acl(topic, GUARDED, user, Operation.READ),
        acl(topic, GUARDED[:3], user, Operation.ALL, pattern=PatternType.PREFIXED),
        acl(topic, GUARDED, user, Operation.WRITE, Permission.DENY),
        acl(topic, ANY_NAME, user, Operation.READ, Permission.DENY),
        acl(group, guest_group(user), user, Operation.READ),
        acl(txn, guest_transactional_id(user), user, Operation.WRITE),
        acl(txn, GUARDED, user, Operation.ALL, Permission.DENY, PatternType.PREFIXED),
    )


def guest_group(user: str) -> str:
    return f"{GUARDED} group of {user}"


def guest_transactional_id(user: str) -> str:
    return f"{GUARDED} transactions of {user}"
