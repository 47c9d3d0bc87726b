"""Decides from the ACLs what a principal may do, by the rules of Kafka's StandardAuthorizer:

- A super user may do everything.
- An ACL applies to a resource by its name, by a prefix of its name, or to all names (`*`).
- If an ACL that applies denies the operation to the principal and host, it is denied; otherwise one must allow it.
- Where it is allowed, READ, WRITE, DELETE and ALTER imply DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS.
- A resource without any ACL is denied, or allowed with `allow.everyone.if.no.acl.found`.
- Before the ACLs are read from the metadata log, super users alone may do anything.

An authorizer is immutable: another set of ACLs is another authorizer. It remembers its decisions.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from penstock.metadata.acls import (
    ANY_HOST,
    ANY_NAME,
    ANY_PRINCIPAL,
    Acl,
    AclResourceType,
    Operation,
    PatternType,
    Permission,
)
from penstock.metadata.maps import FrozenMap

DECISIONS_MAX: Final = 100_000
"""Decisions that are remembered. Names come from clients, so they are forgotten when there are more."""

REMEMBERED_NAME_MAX: Final = 255
"""Characters of the longest name with which a decision is remembered. Topics have 249 at most; a client may ask for
names of 32,767, and many of those would take gigabytes."""

_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}


_NONE: Final[dict[Any, Acl]] = {}


class Decision(NamedTuple):
    is_allowed: bool
    reason: str
    acl: Acl | None = None
    """The ACL that decided."""


SUPER_USER: Final = Decision(True, "the principal is a super user")
NOT_READ: Final = Decision(False, "the ACLs are not read from the metadata log yet")
NO_ACL_MATCHES: Final = Decision(False, "no ACL of the resource allows it")


class Authorizer:
    def __init__(
        self,
        acls: Iterable[Acl],
        super_users: frozenset[str] = frozenset(),
        *,
        allows_without_acl: bool = False,
        is_read: bool = True,
    ) -> None:
        """`is_read` is false until the ACLs are known."""
        self.super_users = super_users
        self._is_read = is_read
        self._allows_without_acl = allows_without_acl
        self.acls: FrozenMap[Any, Acl] = FrozenMap()
        """By their ids."""
        self._literal: dict[tuple[AclResourceType, str], dict[Any, Acl]] = {}
        self._prefixed: dict[AclResourceType, dict[str, dict[Any, Acl]]] = {}
        self._prefix_lengths: dict[AclResourceType, list[int]] = {}
        """Lengths of the prefixes in ACLs, the longest first: a long name costs no more than a short one."""
        self._decisions: dict[tuple[str, str, Operation, AclResourceType, str], bool] = {}
        self._any_decisions: dict[tuple[str, str, Operation, AclResourceType], bool] = {}
        self._change_to(FrozenMap(dict(enumerate(acls))))

    def with_acls(self, acls: FrozenMap[Any, Acl]) -> "Authorizer":
        """An authorizer with other ACLs. Takes time in proportion to the ACLs that differ: there may be 100,000."""
        other = Authorizer((), self.super_users, allows_without_acl=self._allows_without_acl)
        other.acls = self.acls
        other._literal = self._literal.copy()
        other._prefixed = {kind: prefixes.copy() for kind, prefixes in self._prefixed.items()}
        other._change_to(acls)
        return other

    def _change_to(self, acls: FrozenMap[Any, Acl]) -> None:
        """Apply other ACLs to a new authorizer. Dicts that it shares with another authorizer are copied before they
        change."""
        own: dict[int, dict[Any, Acl]] = {}

        def alike(acl: Acl) -> dict[Any, Acl]:
            """The ACLs with the same resource pattern."""
            table, key = self._place(acl)
            held = table.get(key)
            if held is None or id(held) not in own:
                held = table[key] = {} if held is None else held.copy()
                own[id(held)] = held
            return held

        before, self.acls = self.acls, acls
        if not before:
            for acl_id, acl in acls.entries():
                alike(acl)[acl_id] = acl
        else:
            for acl_id in before.differing(acls):
                old, new = before.get(acl_id), acls.get(acl_id)
                if old is not None:
                    rest = alike(old)
                    del rest[acl_id]
                    if not rest:
                        table, key = self._place(old)
                        del table[key]
                if new is not None:
                    alike(new)[acl_id] = new
        self._prefix_lengths = {
            kind: sorted(set(map(len, prefixes)), reverse=True) for kind, prefixes in self._prefixed.items()
        }

    def _place(self, acl: Acl) -> tuple[dict[Any, dict[Any, Acl]], Any]:
        """Where the ACLs with the same resource pattern are: a dict, and the key in it."""
        if acl.pattern_type is PatternType.PREFIXED:
            return self._prefixed.setdefault(acl.resource_type, {}), acl.resource_name
        return self._literal, (acl.resource_type, acl.resource_name)

    def allows(self, principal: str, host: str, operation: Operation, on: AclResourceType, name: str) -> bool:
        key = principal, host, operation, on, name
        if len(name) > REMEMBERED_NAME_MAX:
            return self.decide(*key).is_allowed
        allowed = self._decisions.get(key)
        if allowed is None:
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            allowed = self._decisions[key] = self.decide(*key).is_allowed
        return allowed

    def decide(
        self, principal: str, host: str, operation: Operation, on: AclResourceType, name: str
    ) -> Decision:
        if principal in self.super_users:
            return SUPER_USER
        if not self._is_read:
            return NOT_READ
        has_acls = False
        allowing: Acl | None = None
        for acl in self._of_resource(on, name):
            has_acls = True
            if _is_for(acl, principal, host) and _covers(acl, operation):
                if acl.permission is Permission.DENY:
                    return Decision(False, f"an ACL denies it: {acl}", acl)
                allowing = acl
        if allowing is not None:
            return Decision(True, f"an ACL allows it: {allowing}", allowing)
        return NO_ACL_MATCHES if has_acls else self._without_acl

    @property
    def _without_acl(self) -> Decision:
        setting = "allow.everyone.if.no.acl.found is " + ("true" if self._allows_without_acl else "false")
        return Decision(self._allows_without_acl, f"the resource has no ACL, and {setting}")

    def _of_resource(self, on: AclResourceType, name: str) -> Iterator[Acl]:
        yield from self._literal.get((on, name), _NONE).values()
        if name != ANY_NAME:
            yield from self._literal.get((on, ANY_NAME), _NONE).values()
        prefixed = self._prefixed.get(on)
        if prefixed:
            for length in self._prefix_lengths[on]:
                if length <= len(name):
                    yield from prefixed.get(name[:length], _NONE).values()

    def allows_any(self, principal: str, host: str, operation: Operation, on: AclResourceType) -> bool:
        """Whether the principal may do this with some resource of a type (KIP-679): an ACL allows it for a name or
        prefix, and none denies it for all names that fit."""
        key = principal, host, operation, on
        allowed = self._any_decisions.get(key)
        if allowed is None:
            if len(self._any_decisions) >= DECISIONS_MAX:
                self._any_decisions.clear()
            allowed = self._any_decisions[key] = self._decide_any(*key)
        return allowed

    def _decide_any(self, principal: str, host: str, operation: Operation, on: AclResourceType) -> bool:
        if principal in self.super_users:
            return True
        if not self._is_read:
            return False
        allowed: list[Acl] = []
        denied: set[tuple[PatternType, str]] = set()
        for acl in self._of_type(on):
            if not _is_for(acl, principal, host) or acl.operation not in (operation, Operation.ALL):
                continue
            if acl.permission is Permission.ALLOW:
                allowed.append(acl)
            elif acl.pattern_type is PatternType.LITERAL and acl.resource_name == ANY_NAME:
                return False
            else:
                denied.add((acl.pattern_type, acl.resource_name))
        if any(acl.pattern_type is PatternType.LITERAL and acl.resource_name == ANY_NAME for acl in allowed):
            return True
        if any(not _is_denied(acl, denied) for acl in allowed):
            return True
        return self._allows_without_acl and self.decide(principal, host, operation, on, _SOME_NAME).is_allowed

    def _of_type(self, on: AclResourceType) -> Iterator[Acl]:
        for (kind, _), acls in self._literal.items():
            if kind is on:
                yield from acls.values()
        for acls in self._prefixed.get(on, {}).values():
            yield from acls.values()


_SOME_NAME: Final = "hardcode"
"""The name with which Kafka tests whether everybody is allowed everything."""


def _is_for(acl: Acl, principal: str, host: str) -> bool:
    return acl.principal in (principal, ANY_PRINCIPAL) and acl.host in (host, ANY_HOST)


def _covers(acl: Acl, operation: Operation) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in _IMPLIED_BY.get(operation, ())


def _is_denied(acl: Acl, denied: set[tuple[PatternType, str]]) -> bool:
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:end]) in denied for end in range(1, len(name) + 1))
