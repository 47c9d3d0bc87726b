"""Represents members without a connection in their groups, on the broker that coordinates the group.

    heartbeats    sent every `group.consumer.heartbeat.interval.ms`, as a Kafka client does
    rebalances    after each change of a group: members revoke and take partitions until nothing changes
    sessions      a member without a call for its session timeout leaves

The members of a group are in the log only. A coordinator that has been loaded reports the HTTP members of its groups,
and each starts a new session, since the time of its last call is not known. The member's record marks it as an HTTP
member (client id and host), and has its session timeout (as its rebalance timeout, which a member that revokes at once
does not need).

A member's assignment is read from the coordinator, not from heartbeat replies. So heartbeats always have the current
epoch, and no reply can be lost.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import Steps, sleep
from penstock.base.world import Timer
from penstock.coordinator.groups.consumer.group import ConsumerGroup
from penstock.coordinator.groups.consumer.member import (
    HTTP_CLIENT_ID,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ConsumerMember,
    as_partitions,
)
from penstock.coordinator.groups.coordinator import GroupCoordinator
from penstock.coordinator.groups.requests import ConsumerGroupHeartbeat, ConsumerHeartbeatReply
from penstock.gateway.membership.rights import member_of
from penstock.gateway.shared.topics import ensure_offsets_topic
from penstock.handlers.support.context import Context
from penstock.metadata.configs import broker_setting

logger = logging.getLogger(__name__)

SESSION_MS: Final = 300_000
"""Default session timeout: scripts and cron jobs make a call every few minutes."""

LOADING_MS_MAX: Final = 10_000
"""How long a call waits for a coordinator that is loading, before it fails with a retriable error."""

MOVES_MAX: Final = 100
"""Members that are rebalanced in one tick: each takes a tenth of a millisecond."""

Reply = Promise[ConsumerHeartbeatReply]


class MemberSession:
    """The session of one member, between its calls."""

    __slots__ = ("calls", "group_id", "heartbeat", "name", "timeout_ms", "timer")

    def __init__(self, group_id: str, name: str) -> None:
        self.group_id = group_id
        self.name = name
        self.timeout_ms = SESSION_MS
        self.timer: Timer | None = None
        """Session timeout; not set during the member's calls."""
        self.heartbeat: Timer | None = None
        self.calls = 0
        """Calls of the member in progress."""

    def cancel(self) -> None:
        for timer in (self.timer, self.heartbeat):
            if timer is not None:
                timer.cancel()
        self.timer = self.heartbeat = None


class MemberState(NamedTuple):
    """The epochs of a member and its group at one moment."""

    epoch: int
    target_epoch: int
    member: ConsumerMember

    @property
    def is_settled(self) -> bool:
        return self.epoch == self.target_epoch and self.member.is_reconciled_to(self.epoch)


class HttpMembers:
    """A `GroupListener`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._groups: dict[str, dict[str, MemberSession]] = {}
        """By group and member name. Groups without members are not in it."""
        self.count = 0
        self._moved: dict[str, None] = {}
        """Groups that have changed in this tick."""
        self._loading: list[Promise[None]] = []
        """Calls that wait for a coordinator to load."""
        self._watches: dict[str, dict[Callable[[], None], None]] = {}
        """By group: callbacks for changes."""
        self._is_running = False

    # -- start and stop --------------------------------------------------------------------------------

    def start(self) -> None:
        self._is_running = True
        groups = self._context.groups
        groups.listeners[self] = None
        for shard in groups.shards:
            if shard.is_loaded:
                self.loaded(shard.coordinator)

    def stop(self) -> None:
        self._is_running = False
        self._context.groups.listeners.pop(self, None)
        for known in self._groups.values():
            for session in known.values():
                session.cancel()
        self._groups.clear()
        self.count = 0

    # -- coordinators ----------------------------------------------------------------------------------

    def coordinator(self, group_id: str) -> Steps[GroupCoordinator]:
        """The coordinator of a group, once it is loaded."""
        context = self._context
        yield from ensure_offsets_topic(context)
        shard = context.groups.shards.of(group_id)
        if shard.unavailable_error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            yield from self._wait_for_load(lambda: context.groups.shards.of(group_id).is_loaded)
            shard = context.groups.shards.of(group_id)
        if shard.unavailable_error is not None:
            raise KafkaError(
                f"the coordinator of group {group_id!r} is not available. Retry.", shard.unavailable_error
            )
        return shard.coordinator

    def find(self, group_id: str) -> GroupCoordinator | None:
        """The coordinator of a group, if it is loaded."""
        try:
            shard = self._context.groups.shards.of(group_id)
        except KafkaError:
            return None
        return shard.coordinator if shard.is_loaded else None

    def _wait_for_load(self, is_loaded: Callable[[], bool]) -> Steps[None]:
        is_late = False

        def late() -> None:
            nonlocal is_late
            is_late = True
            self._wake()

        timer = self._context.world.call_later(LOADING_MS_MAX, late)
        try:
            while not is_loaded() and not is_late:
                later: Promise[None] = Promise()
                self._loading.append(later)
                yield later
        finally:
            timer.cancel()

    def _wake(self) -> None:
        waiting, self._loading = self._loading, []
        for later in waiting:
            later.resolve(None)

    def loaded(self, coordinator: GroupCoordinator) -> None:
        for group in coordinator.groups:
            if isinstance(group, ConsumerGroup) and any(each.is_of_http for each in group.members.values()):
                self.moved(group.group_id)
        # The shard calls this while it loads, and serves requests only after it returns.
        self._context.world.call_soon(self._wake)

    # -- changes of groups -----------------------------------------------------------------------------

    def moved(self, group_id: str) -> None:
        if not self._moved:
            self._context.world.call_soon(self._handle_moved)
        self._moved[group_id] = None

    def _handle_moved(self) -> None:
        moved, self._moved = self._moved, {}
        if not self._is_running:
            return
        for group_id in moved:
            self.follow(group_id)
            if self._settle(group_id, []):
                self.moved(group_id)
            for call in list(self._watches.get(group_id, ())):
                call()

    @contextmanager
    def watching(self, group_id: str, call: Callable[[], None]) -> Iterator[None]:
        """Call this after each change of the group."""
        self._watches.setdefault(group_id, {})[call] = None
        try:
            yield
        finally:
            watches = self._watches[group_id]
            del watches[call]
            if not watches:
                del self._watches[group_id]

    def follow(self, group_id: str) -> None:
        """Keep exactly the HTTP members of the group."""
        coordinator = self.find(group_id)
        if coordinator is None:
            return  # `loaded` follows, on this broker or another
        group = coordinator.find(group_id)
        members = group.members if isinstance(group, ConsumerGroup) else {}
        ours = {name: member for name, member in members.items() if member.is_of_http}
        known = self._groups.get(group_id, {})
        for name in [*known]:
            if name not in ours:
                self._remove(known[name])
        for name, member in ours.items():
            if name not in known:
                self._add(group_id, member)
            else:
                known[name].timeout_ms = member.rebalance_timeout_ms

    def _add(self, group_id: str, member: ConsumerMember) -> None:
        session = MemberSession(group_id, member.member_id)
        session.timeout_ms = member.rebalance_timeout_ms
        self._groups.setdefault(group_id, {})[session.name] = session
        self.count += 1
        self._renew(session)
        self._schedule_heartbeat(session)

    def _remove(self, session: MemberSession) -> None:
        session.cancel()
        known = self._groups[session.group_id]
        del known[session.name]
        self.count -= 1
        if not known:
            del self._groups[session.group_id]

    def settled(self, group_id: str) -> Steps[list[Reply]]:
        """Rebalance the group's HTTP members as far as possible; return the replies to their heartbeats. The changes
        are committed once all replies are there. Members that wait for another client continue when it has acted."""
        replies: list[Reply] = []
        while self._settle(group_id, replies):
            yield sleep(self._context.world, 0)
        return replies

    def _settle(self, group_id: str, replies: list[Reply]) -> bool:
        """Rebalance up to `MOVES_MAX` members; return whether there are more."""
        count = moves = 0
        while True:  # each change brings a member closer to its target assignment, or computes that
            for name in sorted(self._groups.get(group_id, ())):
                before = self._state(group_id, name)
                if before is None or before.is_settled:
                    continue
                replies.append(self.send_heartbeat(group_id, before.member))
                moves += self._state(group_id, name) != before
                if moves >= MOVES_MAX:
                    return True
            if moves == count:
                return False
            count = moves

    def _state(self, group_id: str, name: str) -> MemberState | None:
        coordinator = self.find(group_id)
        group = None if coordinator is None else coordinator.find(group_id)
        member = member_of(group, name)
        if member is None:
            return None
        assert isinstance(group, ConsumerGroup)
        return MemberState(group.epoch, group.target_epoch, member)

    # -- heartbeats ------------------------------------------------------------------------------------

    def send_heartbeat(self, group_id: str, member: ConsumerMember, **more: Any) -> Reply:
        """Send a heartbeat for a member, with more fields if it joins or changes its subscription."""
        is_joining = member.epoch <= JOINING_EPOCH
        asked = ConsumerGroupHeartbeat(
            group_id,
            member.member_id,
            JOINING_EPOCH if is_joining else member.epoch,
            HTTP_CLIENT_ID,
            member.client_host,
            owned=() if is_joining else as_partitions(member.assigned),
        )
        if is_joining:
            asked = asked._replace(
                rebalance_timeout_ms=member.rebalance_timeout_ms, subscribed_names=member.names
            )
        return self._context.groups.handle(group_id, asked._replace(**more))

    def leave(self, group_id: str, member: ConsumerMember) -> Reply:
        reply = self.send_heartbeat(group_id, member, member_epoch=LEAVING_EPOCH, owned=None)
        self.follow(group_id)
        return reply

    def _schedule_heartbeat(self, session: MemberSession) -> None:
        session.heartbeat = self._context.world.call_later(
            self._interval_ms(), lambda: self._heartbeat_due(session)
        )

    def _heartbeat_due(self, session: MemberSession) -> None:
        state = self._state(session.group_id, session.name)
        if state is not None:
            self.send_heartbeat(session.group_id, state.member)
        elif not self._is_kept(session):
            return
        self._schedule_heartbeat(session)

    def _interval_ms(self) -> int:
        def setting(name: str) -> int:
            return int(broker_setting(name, self._context.image, self._context.settings) or 0)

        # Below the coordinator's session timeout, whatever the settings are.
        session_ms = setting("group.consumer.session.timeout.ms")
        return max(1, min(setting("group.consumer.heartbeat.interval.ms"), session_ms // 3))

    def _is_kept(self, session: MemberSession) -> bool:
        """Whether to keep the member: not if it has left, or if another broker coordinates the group and sends its
        heartbeats. While the coordinator loads, the member is kept."""
        try:
            self._context.groups.shards.of(session.group_id)
        except KafkaError:
            self._remove(session)
            return False
        self.follow(session.group_id)
        return self._groups.get(session.group_id, {}).get(session.name) is session

    # -- sessions --------------------------------------------------------------------------------------

    @contextmanager
    def in_call(self, group_id: str, name: str | None) -> Iterator[None]:
        """During a call of the member: its session timeout stops, and starts again after the call."""
        session = self._groups.get(group_id, {}).get(name or "")
        if session is None:
            yield
            return
        session.calls += 1
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None
        try:
            yield
        finally:
            session.calls -= 1
            if not session.calls and self._groups.get(group_id, {}).get(session.name) is session:
                self._renew(session)

    def renew(self, group_id: str, name: str | None) -> None:
        """Restart the member's session timeout."""
        session = self._groups.get(group_id, {}).get(name or "")
        if session is not None and not session.calls:
            self._renew(session)

    def _renew(self, session: MemberSession) -> None:
        if session.timer is not None:
            session.timer.cancel()
        session.timer = self._context.world.call_later(session.timeout_ms, lambda: self._timed_out(session))

    def _timed_out(self, session: MemberSession) -> None:
        session.timer = None
        state = self._state(session.group_id, session.name)
        if state is not None:
            logger.info(
                "consumer %r removed from group %r: no call for %d ms",
                session.name,
                session.group_id,
                session.timeout_ms,
            )
            self.leave(session.group_id, state.member)
        if self._is_kept(session):
            self._renew(session)  # the coordinator could not remove the member: try again later
