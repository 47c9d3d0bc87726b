"""What users and ACLs must mean to every broker, while they change and nodes fail.

Of each change of a guest, to its password or its ACLs, the rules know when it was sent and when it was answered. In
between either state may hold. A change without an answer, or with an error, may take effect at any later time:
nothing is expected of its guest any more.

    RevokedDenied     What was revoked, and answered, is not granted to a request or log-in that starts later.
    GrantedAllowed    What was granted, and answered, is not denied. A refused log-in is final, so a right password is
                      refused by no broker, in touch or not.
    NotThrottled      A guest without a quota, or whose quota was removed, and answered, is not throttled.
    DeniedNotWritten  No record of a denied Produce request is ever in the log.

A broker learns a change from the metadata log. So the first two rules hold for a request at a broker

- whose metadata has the change when the request is sent, or
- that is in touch with its controller: it has its lease (`BrokerLifecycle.has_lease`), its heartbeats are answered.
  A change of ACLs is answered when all such brokers have it. For a password or a quota the broker must have been in
  touch for `KNOWN_US` since the answer, without a gap.

Log-ins wait for the controller's latest metadata, so where the network delivers everything at once and no node has
failed for `CALM_US`, they follow the last answered change immediately.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.metadata.acls import ANY_NAME, Acl, AclResourceType, Operation, PatternType, Permission
from penstock.metadata.image import ClusterImage, ScramUser
from penstock.metadata.quotas import USER, entity_of
from penstock.metadata.scram import ScramMechanism
from penstock.sim.checkers.history import Audited, Event
from penstock.sim.checkers.node_watch import WatchedNode
from penstock.sim.checkers.violation import Violation
from penstock.sim.world.machine import Machine, State

KNOWN_US: Final = 5_000_000
"""More than a leader of the quorum without a majority takes to resign, and than a lost packet delays a fetch."""

CALM_US: Final = 5_000_000


class Password(NamedTuple):
    mechanism: ScramMechanism
    salt: bytes
    """Identifies the password: each has its own."""


class Access(NamedTuple):
    """What a request needs."""

    operation: Operation
    kind: AclResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.kind.name} {self.name!r}"


class FullSpeed(NamedTuple):
    """To produce without being throttled. A guest without a quota must be."""


Right = Password | Access | FullSpeed


class Quota(NamedTuple):
    bytes_per_second: float | None
    """None for no quota."""


# -- events -------------------------------------------------------------------------------------------------


class ChangeSent(NamedTuple):
    """A change of a guest: a new password, no password (None), an ACL that is created or deleted, or a quota."""

    user: str
    change: Password | Acl | Quota | None
    is_created: bool = True
    """Of an ACL."""


class ChangeEnded(NamedTuple):
    user: str
    is_done: bool
    """Otherwise it may have effect at any later time."""


class RightTried(NamedTuple):
    """A guest logs in, or sends a request."""

    number: int
    host: str
    user: str
    needs: Right


class RightAnswered(NamedTuple):
    number: int
    is_granted: bool | None
    """None if the answer, or its absence, says nothing."""


class ProduceDenied(NamedTuple):
    user: str
    values: tuple[bytes, ...]


# -- what must hold -----------------------------------------------------------------------------------------


@dataclass
class _Guest:
    """What was answered, and what may hold besides."""

    password: Password | None = None
    acls: frozenset[Acl] = frozenset()
    bytes_per_second: float | None = None
    """Its quota."""
    changing: "ChangeSent | None" = None
    """Sent, and not answered yet."""
    is_certain: bool = True
    changes: Counter[str] = field(default_factory=Counter)
    """How often it was changed, by `_kind_of` the change."""
    answered_us: dict[str, int] = field(default_factory=dict)
    """When the last such change was answered."""

    def expects(self, needs: Right) -> bool | None:
        """Whether it must be granted; None if either may be."""
        if not self.is_certain:
            return None
        changing = self.changing
        is_open = changing is not None and _kind_of(changing.change) == _kind_of(needs)
        if isinstance(needs, Password):
            return None if is_open else needs == self.password
        if isinstance(needs, FullSpeed):
            return None if is_open or self.bytes_per_second is not None else True
        if changing is None or not isinstance(changing.change, Acl):
            return allows(self.acls, needs)
        with_it = allows(self.acls | {changing.change}, needs)
        return with_it if allows(self.acls - {changing.change}, needs) is with_it else None


class _Tried(NamedTuple):
    tried: RightTried
    expected: bool
    changes: int
    is_known: bool
    """Whether the broker's metadata decided as expected when the request was sent."""
    is_in_touch: bool
    informed_us: int
    """How long the broker had been in touch since the last change was answered."""
    is_calm: bool


def allows(acls: frozenset[Acl], needs: Access) -> bool:
    """Decide by ACLs of one principal, some of which apply. The engine's authorizer is what is tested, so this is not
    it."""
    on = [
        each
        for each in acls
        if each.resource_type is needs.kind
        and (
            each.resource_name in (needs.name, ANY_NAME)
            if each.pattern_type is PatternType.LITERAL
            else needs.name.startswith(each.resource_name)
        )
    ]
    implied = {Operation.READ, Operation.WRITE} if needs.operation is Operation.DESCRIBE else set()
    if any(
        each.permission is Permission.DENY and each.operation in (needs.operation, Operation.ALL)
        for each in on
    ):
        return False
    return any(
        each.permission is Permission.ALLOW and each.operation in {needs.operation, Operation.ALL, *implied}
        for each in on
    )


class RightsWatch:
    """Sees every event, and looks at the machines between events."""

    def __init__(
        self, machines: Sequence[Machine], now_us: Callable[[], int], is_network_calm: Callable[[], bool]
    ) -> None:
        """`is_network_calm` says whether everything arrives at once."""
        self._machines = {each.host: each for each in machines}
        self._now_us = now_us
        self._is_network_calm = is_network_calm
        self._guests: dict[str, _Guest] = {}
        self._tried: dict[int, _Tried] = {}
        self._in_touch_us: dict[str, tuple[int, int]] = {}
        """By host, the process that is in touch, and since when."""
        self._calm_us = 0
        """When something last failed."""
        self._denied: set[bytes] = set()

    # -- between events --------------------------------------------------------------------------------

    def look(self) -> None:
        now_us = self._now_us()
        for host, machine in self._machines.items():
            self._look_at(host, machine, now_us)
        if not self._is_network_calm() or not all(_is_well(each) for each in self._machines.values()):
            self._calm_us = now_us

    def _look_at(self, host: str, machine: Machine, now_us: int) -> None:
        node = machine.node
        if not _is_well(machine) or not isinstance(node, WatchedNode) or not node.has_lease:
            self._in_touch_us.pop(host, None)
        elif self._in_touch_us.get(host, (0, 0))[0] != machine.incarnation:
            self._in_touch_us[host] = machine.incarnation, now_us

    # -- events ----------------------------------------------------------------------------------------

    def see(self, event: Event) -> None:
        match event:
            case ChangeSent(user):
                guest = self._guests.setdefault(user, _Guest())
                guest.changing = event
                guest.changes[_kind_of(event.change)] += 1
            case ChangeEnded(user, is_done):
                self._ended(self._guests[user], is_done)
            case RightTried():
                self._try(event)
            case RightAnswered(number, is_granted):
                tried = self._tried.pop(number, None)
                if tried is not None and is_granted is not None and is_granted is not tried.expected:
                    self._check(tried)
            case ProduceDenied(_, values):
                self._denied.update(values)
            case Audited(at, _, _, records):
                for record in records:
                    if record.value in self._denied:
                        raise Violation(
                            f"DeniedNotWritten: {at} has {record.value!r} at {record.offset}, "
                            "whose producer was told that it is not authorized"
                        )

    def _ended(self, guest: _Guest, is_done: bool) -> None:
        sent, guest.changing = guest.changing, None
        assert sent is not None
        guest.is_certain &= is_done
        guest.answered_us[_kind_of(sent.change)] = self._now_us()
        if isinstance(sent.change, Quota):
            guest.bytes_per_second = sent.change.bytes_per_second
        elif not isinstance(sent.change, Acl):
            guest.password = sent.change
        elif sent.is_created:
            guest.acls |= {sent.change}
        else:
            guest.acls -= {sent.change}

    def _try(self, tried: RightTried) -> None:
        guest = self._guests.get(tried.user)
        expected = guest.expects(tried.needs) if guest is not None else None
        if guest is None or expected is None:
            return
        now_us = self._now_us()
        machine = self._machines[tried.host]
        self._look_at(tried.host, machine, now_us)
        node = machine.node
        is_known = (
            isinstance(node, WatchedNode) and node.is_composed and self._decides(node, tried) is expected
        )
        _, since_us = self._in_touch_us.get(tried.host, (0, now_us))
        self._tried[tried.number] = _Tried(
            tried,
            expected,
            guest.changes[_kind_of(tried.needs)],
            is_known,
            tried.host in self._in_touch_us,
            now_us - max(since_us, guest.answered_us.get(_kind_of(tried.needs), 0)),
            now_us - self._calm_us > CALM_US,
        )

    def _decides(self, node: WatchedNode, tried: RightTried) -> bool:
        """What a broker's metadata says."""
        image: ClusterImage = node.context.image
        needs = tried.needs
        if isinstance(needs, Password):
            found = image.scram_users.get(ScramUser(needs.mechanism, tried.user))
            return found is not None and found.salt == needs.salt
        if isinstance(needs, FullSpeed):
            return entity_of({USER: tried.user}) not in image.quotas
        principal = f"User:{tried.user}"
        return allows(
            frozenset(each for _, each in image.acls.entries() if each.principal == principal), needs
        )

    def _check(self, it: _Tried) -> None:
        """The answer is not the expected one."""
        tried = it.tried
        if self._guests[tried.user].changes[_kind_of(tried.needs)] != it.changes:
            return
        is_login = isinstance(tried.needs, Password)
        if is_login and it.expected:
            why = "a refusal is final, wherever the broker has its metadata from"
        elif it.is_known:
            why = "the broker's metadata has that change"
        elif it.is_in_touch and isinstance(tried.needs, Access):
            why = "the broker is in touch with its controller"
        elif it.informed_us > KNOWN_US:
            why = f"the broker has been in touch with its controller for {it.informed_us // 1000} ms since"
        elif is_login and it.is_calm:
            why = "log-ins wait for the latest metadata, and nothing fails"
        else:
            return
        if isinstance(tried.needs, FullSpeed):
            raise Violation(
                f"NotThrottled: {tried.user} has no quota, but was throttled at {tried.host}; {why}"
            )
        what = "log in" if is_login else str(tried.needs)
        if it.expected:
            text = f"GrantedAllowed: {tried.user} may {what}, but was denied it at {tried.host}"
        else:
            text = f"RevokedDenied: {tried.user} may not {what} any more, but was granted it at {tried.host}"
        raise Violation(f"{text}; {why}")


def _kind_of(what: Right | Acl | Quota | None) -> str:
    """Of a right, or of a change: a change matters to rights of its kind."""
    if isinstance(what, Access):
        return what.kind.name
    if isinstance(what, Acl):
        return what.resource_type.name
    return "quota" if isinstance(what, FullSpeed | Quota) else "password"


def _is_well(machine: Machine) -> bool:
    return machine.state is State.UP and not machine.is_paused
