"""What this node does for members that have no connection: one seat for each of them.

    heartbeats   every `group.consumer.heartbeat.interval.ms`, as a Kafka client sends them
    settling     whenever a group has moved: give up what is to go, and take what is free, until nothing moves
    sessions     a member of which nothing was heard for too long leaves

Who is in a group is in the log and nowhere else. The seats follow it: a coordinator that has been loaded tells who was
there before, and each gets a whole session anew, since nobody knows when it was last heard of. That a seat is ours
and how long its session is stands in the member's record (its client id and address, and as its rebalance timeout,
of which a member that gives up at once has no other use).

What a member has is looked up where it is decided, in the coordinator. So its heartbeats always say the right epoch,
and there is no answer that could be lost on the way.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import Steps, sleep
from penstock.base.world import Timer
from penstock.coordinator.groups import GroupCoordinator
from penstock.coordinator.groups.consumer.group import ConsumerGroup
from penstock.coordinator.groups.consumer.member import (
    HTTP_CLIENT_ID,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    ConsumerMember,
    as_partitions,
)
from penstock.coordinator.groups.requests import ConsumerGroupHeartbeat, ConsumerHeartbeatReply
from penstock.gateway.membership.rights import member_of
from penstock.gateway.shared.topics import ensure_offsets_topic
from penstock.handlers.support.context import Context
from penstock.metadata.configs import broker_setting

logger = logging.getLogger(__name__)

SESSION_MS: Final = 300_000
"""Unless a member says otherwise: people and cron jobs think in minutes."""

LOADING_MS_MAX: Final = 10_000
"""How long a call waits for a coordinator that reads its partition, before the client is told to ask again."""

MOVES_MAX: Final = 100
"""How many members are moved before others of the node get their turn: each takes a tenth of a millisecond."""

Reply = Promise[ConsumerHeartbeatReply]


class HttpMember:
    """One member, and when it was last heard of."""

    __slots__ = ("calls", "group_id", "heartbeat", "name", "session", "session_ms")

    def __init__(self, group_id: str, name: str) -> None:
        self.group_id = group_id
        self.name = name
        self.session_ms = SESSION_MS
        self.session: Timer | None = None
        """Runs while none of its calls does."""
        self.heartbeat: Timer | None = None
        self.calls = 0
        """Of the member's, under way."""

    def cancel(self) -> None:
        for timer in (self.session, self.heartbeat):
            if timer is not None:
                timer.cancel()
        self.session = self.heartbeat = None


class MemberState(NamedTuple):
    """How far a member and its group are, at one moment."""

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
        self._groups: dict[str, dict[str, HttpMember]] = {}
        """By group and name. No group without any."""
        self.count = 0
        self._moved: dict[str, None] = {}
        """Groups to look at when everything that happens now has happened."""
        self._loading: list[Promise[None]] = []
        """Calls that wait for a coordinator."""
        self._watches: dict[str, dict[Callable[[], None], None]] = {}
        """By group, what is called when it has moved."""
        self._is_running = False

    # A `Part` of the gateway.

    def start(self) -> None:
        self._is_running = True
        groups = self._context.groups
        groups.listener = self
        for shard in groups.shards:
            if shard.is_loaded:
                self.loaded(shard.coordinator)

    def stop(self) -> None:
        self._is_running = False
        self._context.groups.listener = None
        for seats in self._groups.values():
            for seat in seats.values():
                seat.cancel()
        self._groups.clear()
        self.count = 0

    # Coordinators.

    def coordinator(self, group_id: str) -> Steps[GroupCoordinator]:
        """The coordinator of a group, once it can be asked."""
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
        """The same, if it can be asked now."""
        try:
            shard = self._context.groups.shards.of(group_id)
        except KafkaError:
            return None
        return shard.coordinator if shard.is_loaded else None

    def _wait_for_load(self, is_there: Callable[[], bool]) -> Steps[None]:
        is_late = False

        def late() -> None:
            nonlocal is_late
            is_late = True
            self._wake()

        timer = self._context.world.call_later(LOADING_MS_MAX, late)
        try:
            while not is_there() and not is_late:
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
        # Called from within the loading of the shard, which is not served before it returns.
        self._context.world.call_soon(self._wake)

    # Groups that move.

    def moved(self, group_id: str) -> None:
        if not self._moved:
            self._context.world.call_soon(self._look_at_moved)
        self._moved[group_id] = None

    def _look_at_moved(self) -> None:
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
        """Have something called whenever the group has moved."""
        self._watches.setdefault(group_id, {})[call] = None
        try:
            yield
        finally:
            watches = self._watches[group_id]
            del watches[call]
            if not watches:
                del self._watches[group_id]

    def follow(self, group_id: str) -> None:
        """Have a seat for each member of the group that is ours, and for nobody else."""
        coordinator = self.find(group_id)
        if coordinator is None:
            return  # it will be loaded, here or elsewhere
        group = coordinator.find(group_id)
        members = group.members if isinstance(group, ConsumerGroup) else {}
        ours = {name: member for name, member in members.items() if member.is_of_http}
        seats = self._groups.get(group_id, {})
        for name in [*seats]:
            if name not in ours:
                self._stand_up(seats[name])
        for name, member in ours.items():
            if name not in seats:
                self._sit_down(group_id, member)
            else:
                seats[name].session_ms = member.rebalance_timeout_ms

    def _sit_down(self, group_id: str, member: ConsumerMember) -> None:
        seat = HttpMember(group_id, member.member_id)
        seat.session_ms = member.rebalance_timeout_ms
        self._groups.setdefault(group_id, {})[seat.name] = seat
        self.count += 1
        self._renew(seat)
        self._beat_later(seat)

    def _stand_up(self, seat: HttpMember) -> None:
        seat.cancel()
        seats = self._groups[seat.group_id]
        del seats[seat.name]
        self.count -= 1
        if not seats:
            del self._groups[seat.group_id]

    def settled(self, group_id: str) -> Steps[list[Reply]]:
        """Have our members move as far as they can; what was asked for it. What they gave up and got is written,
        and committed when all of it is answered. Where somebody else must act first, they go on when that has."""
        replies: list[Reply] = []
        while self._settle(group_id, replies):
            yield sleep(self._context.world, 0)
        return replies

    def _settle(self, group_id: str, replies: list[Reply]) -> bool:
        """The same, for some time; whether there is more to do."""
        count = moves = 0
        while True:  # each move brings a member nearer to its target, or the target to the group
            for name in sorted(self._groups.get(group_id, ())):
                before = self._place(group_id, name)
                if before is None or before.is_settled:
                    continue
                replies.append(self.say(group_id, before.member))
                moves += self._place(group_id, name) != before
                if moves >= MOVES_MAX:
                    return True
            if moves == count:
                return False
            count = moves

    def _place(self, group_id: str, name: str) -> MemberState | None:
        coordinator = self.find(group_id)
        group = None if coordinator is None else coordinator.find(group_id)
        member = member_of(group, name)
        if member is None:
            return None
        assert isinstance(group, ConsumerGroup)
        return MemberState(group.epoch, group.target_epoch, member)

    # Heartbeats.

    def say(self, group_id: str, member: ConsumerMember, **more: Any) -> Reply:
        """A heartbeat in a member's name, with what else there is to be said."""
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
        reply = self.say(group_id, member, member_epoch=LEAVING_EPOCH, owned=None)
        self.follow(group_id)
        return reply

    def _beat_later(self, seat: HttpMember) -> None:
        seat.heartbeat = self._context.world.call_later(self._interval_ms(), lambda: self._beat_now(seat))

    def _beat_now(self, seat: HttpMember) -> None:
        place = self._place(seat.group_id, seat.name)
        if place is not None:
            self.say(seat.group_id, place.member)
        elif not self._is_taken(seat):
            return
        self._beat_later(seat)

    def _interval_ms(self) -> int:
        def setting(name: str) -> int:
            return int(broker_setting(name, self._context.image, self._context.settings) or 0)

        # In time for the session that the coordinator knows of, however the two are set.
        session_ms = setting("group.consumer.session.timeout.ms")
        return max(1, min(setting("group.consumer.heartbeat.interval.ms"), session_ms // 3))

    def _is_taken(self, seat: HttpMember) -> bool:
        """Whether the seat is still to be kept. While its coordinator is being loaded nobody knows, and it is; where
        another node coordinates the group, that one speaks for its members."""
        try:
            self._context.groups.shards.of(seat.group_id)
        except KafkaError:
            self._stand_up(seat)
            return False
        self.follow(seat.group_id)
        return self._groups.get(seat.group_id, {}).get(seat.name) is seat

    # Sessions.

    @contextmanager
    def heard(self, group_id: str, name: str | None) -> Iterator[None]:
        """The member makes a call: its session does not run while it lasts, and begins anew behind it."""
        seat = self._groups.get(group_id, {}).get(name or "")
        if seat is None:
            yield
            return
        seat.calls += 1
        if seat.session is not None:
            seat.session.cancel()
            seat.session = None
        try:
            yield
        finally:
            seat.calls -= 1
            if not seat.calls and self._groups.get(group_id, {}).get(seat.name) is seat:
                self._renew(seat)

    def renew(self, group_id: str, name: str | None) -> None:
        """Something was heard of the member."""
        seat = self._groups.get(group_id, {}).get(name or "")
        if seat is not None and not seat.calls:
            self._renew(seat)

    def _renew(self, seat: HttpMember) -> None:
        if seat.session is not None:
            seat.session.cancel()
        seat.session = self._context.world.call_later(seat.session_ms, lambda: self._is_over(seat))

    def _is_over(self, seat: HttpMember) -> None:
        seat.session = None
        place = self._place(seat.group_id, seat.name)
        if place is not None:
            logger.info(
                "consumer %r removed from group %r: no call for %d ms",
                seat.name,
                seat.group_id,
                seat.session_ms,
            )
            self.leave(seat.group_id, place.member)
        if self._is_taken(seat):
            self._renew(seat)  # it could not be written, or asked
