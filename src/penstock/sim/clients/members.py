"""Members of groups: join, read their partitions, commit offsets, and leave.

A member may crash and rejoin with a new member id; stall, and continue although the group has rebalanced without it;
or leave. The protocols differ in how a member joins (`classic_members`, `consumer_members`).

A member that gives up its partitions reports that to the checkers when it sends the request, not when the reply
arrives.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.sim.checkers.history import (
    Leased,
    OffsetCommit,
    OffsetFetchSent,
    OffsetsAcked,
    OffsetsFetched,
    OffsetsRefused,
    OffsetsSent,
    Owned,
    PositionMoved,
    Renewal,
    RequestRefused,
)
from penstock.sim.clients import group_messages
from penstock.sim.clients.client import ClientContext, code_name
from penstock.sim.clients.consumers import Consumer, ConsumerPlan
from penstock.sim.clients.group_messages import Membership, Position
from penstock.sim.clients.messages import R, Request
from penstock.sim.clients.txn_plan import ELSEWHERE, MEMBER_GONE
from penstock.sim.cluster_plan import CLOCK_RATE_MAX
from penstock.wire.peers import Address

PASSING = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
})  # fmt: skip
_NOTHING_DONE = MEMBER_GONE | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

TICK_US = 50_000


@dataclass(frozen=True)
class MemberPlan:
    name: str
    topic: str
    group: str
    is_consumer_protocol: bool = False
    session_timeout_ms: int = 1_000
    """For the consumer protocol, the value of the node's setting."""
    rebalance_timeout_ms: int = 1_500
    """At least the session timeout, so that a member is never removed before its session ends."""
    commits: float = 0.3
    crashes: float = 0.01
    stalls: float = 0.01
    leaves: float = 0.01
    """Probabilities per tick."""
    stall_ms_max: int = 3_000
    fetch: ConsumerPlan | None = None
    instance_id: str | None = None
    tick_us: int = TICK_US
    """Mean time between two ticks."""


class Member(Consumer):
    """Common base of members of both protocols."""

    def __init__(self, plan: MemberPlan, context: ClientContext) -> None:
        fetching = plan.fetch or ConsumerPlan(plan.name, plan.topic, max_wait_ms=50, isolation=1)
        super().__init__(fetching, context)
        self.member_plan = plan
        self.member = Membership(plan.group)
        self.commit_count = 0
        self.coordinator: Address | None = None
        self._is_looking = False
        """Whether a FindCoordinator request is open."""
        self._all: list[int] = []
        self._is_positioned = False
        """Whether it knows the positions of its partitions."""
        self._asleep_until_us = 0
        self._requests = 0
        self._names = 0
        self._turn = 0
        """Counts joins and losses of partitions. Replies to earlier requests are ignored."""

    def start(self) -> None:
        super().start()
        self.later(self.member_plan.tick_us, self._tick)

    @property
    def now_us(self) -> int:
        return self.context.schedule.now_us

    @property
    def is_asleep(self) -> bool:
        return self.now_us < self._asleep_until_us

    # -- getting there ---------------------------------------------------------------------------------

    def topic_ready(self) -> None:
        self._all, self.partitions = self.partitions, []
        self._turn += 1
        self._find()

    def disconnected(self) -> None:
        self.stop_fetching()
        self._turn += 1

    def _find(self) -> None:
        if self.link is None:
            return
        group = self.member_plan.group
        self.call(group_messages.find_coordinator(group, group_messages.GROUP), self._found)

    def _found(self, reply: group_messages.CoordinatorReply) -> None:
        if reply.code:
            self.denied("FindCoordinator", reply.code)
            self.again_soon(self._find)
        else:
            self.coordinator = reply.address
            self.enter()

    def _find_again(self) -> None:
        """Look for the group's coordinator, which may have moved, and continue meanwhile."""
        if self._is_looking or self.link is None:
            return
        self._is_looking = True

        def on_reply(reply: group_messages.CoordinatorReply) -> None:
            self._is_looking = False
            if not reply.code:
                self.coordinator = reply.address

        def on_lost() -> None:
            self._is_looking = False

        group = self.member_plan.group
        self.call(group_messages.find_coordinator(group, group_messages.GROUP), on_reply, on_lost)

    def call_coordinator(self, request: Request[R], on_reply: Callable[[R], None]) -> None:
        self.call(request, on_reply, to=self.coordinator)

    def enter(self) -> None:
        """Join the group; the coordinator is known."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Give up all partitions."""
        self.stop_fetching()
        self._turn += 1
        self._is_positioned = False
        self.partitions = []
        if self.member.member_id:
            self.lease([])

    def forget(self) -> None:
        """Give up all partitions and the member id."""
        self.give_up()
        self.member = Membership(self.member_plan.group)

    def denied(self, what: str, code: int) -> None:
        self.trace(f"{what} is refused: {code_name(code)}")
        is_due = code in MEMBER_GONE or code == ErrorCode.MEMBER_ID_REQUIRED
        if code in ELSEWHERE and what != "FindCoordinator":
            self._find_again()
        if code not in PASSING:
            self.record(RequestRefused(self.name, what, code, is_due))

    def renewal(self) -> Renewal:
        """Return the renewal that a heartbeat sent now gives, once it is answered."""
        assert self.coordinator is not None
        return Renewal(self.context.bootstrap.index(self.coordinator) + 1, self.now_us)

    def session_end_us(self, renewal: Renewal) -> int:
        """Return the earliest end of the session: the heartbeat arrived no earlier than it was sent, and the
        coordinator's clock may be fast."""
        return renewal.sent_us + int(1000 * self.member_plan.session_timeout_ms / CLOCK_RATE_MAX)

    def own(self, partitions: list[int]) -> None:
        """Record that it was assigned partitions."""
        group, member_id, generation = self.member
        self.record(Owned(group, generation, member_id, list(partitions), self.now_us))

    def lease(self, partitions: list[int], renewal: Renewal | None = None) -> None:
        """Record that it owns partitions at least until its session ends."""
        group, member_id, generation = self.member
        until_us = 0 if renewal is None else self.session_end_us(renewal)
        self.record(Leased(group, generation, member_id, list(partitions), until_us, renewal))

    # -- positions -------------------------------------------------------------------------------------

    def find_positions(self) -> None:
        """Fetch the group's offsets, and continue to read from there."""
        if self.link is None or self.is_asleep:
            return
        if not self.partitions:
            return
        self.stop_fetching()
        self._is_positioned = False
        turn, wanted = self._turn, list(self.partitions)
        self._requests += 1
        request = self.name, self._requests
        self.record(OffsetFetchSent(request))

        def on_reply(reply: group_messages.OffsetFetchReply) -> None:
            if turn != self._turn:
                return
            code, positions, is_stable = reply
            if code:
                self.denied("OffsetFetch", code)
                if code in MEMBER_GONE and code != ErrorCode.STALE_MEMBER_EPOCH:
                    self.forget()
                    self.again_soon(self.enter)
                else:
                    self.again_soon(self._find_positions_of(turn))
                return
            names = {self._at(index): (each.offset, each.metadata) for index, each in positions.items()}
            self.record(OffsetsFetched(request, self.member.group, names, is_stable))
            for partition in wanted:
                position = self.positions[partition] = max(0, positions[partition].offset)
                self.record(PositionMoved(self.name, self._at(partition), position, self.incarnation))
            self.trace(f"continues at {[self.positions[each] for each in wanted]} of {wanted}")
            self._is_positioned = True
            self.positioned()
            self.begin_fetching()

        self.call_coordinator(group_messages.offset_fetch(self.offsets_as(), self.topic, wanted), on_reply)

    def _find_positions_of(self, turn: int) -> Callable[[], None]:
        def again() -> None:
            if turn == self._turn:
                self.find_positions()

        return again

    def positioned(self) -> None:
        """The positions were reset to the group's offsets."""

    def offsets_as(self) -> Membership:
        """Return the membership to send with OffsetFetch."""
        return Membership(self.member.group)

    def commit(self) -> None:
        """Commit the current positions."""
        if self.link is None or not self.partitions or not self._is_positioned:
            return
        turn = self._turn
        commits = []
        for partition in self.partitions:
            self._names += 1
            name = f"{self.name}/{self._names}"
            at = TopicPartition(self.topic.name, partition)
            commits.append(OffsetCommit(name, self.member.group, at, self.positions[partition]))
        self.record(OffsetsSent(commits))
        positions = {each.at.partition: Position(each.offset, each.name) for each in commits}

        def on_reply(codes: dict[int, int]) -> None:
            fine = [each for each in commits if not codes[each.at.partition]]
            if fine:
                self.commit_count += 1
                self.trace(f"has committed {', '.join(map(str, fine))}")
                self.record(OffsetsAcked(fine))
            wrong = {each.at.partition: codes[each.at.partition] for each in commits if each not in fine}
            undone = [each for each in commits if wrong.get(each.at.partition) in _NOTHING_DONE]
            if undone:
                self.record(OffsetsRefused(undone))
            for code in sorted(set(wrong.values())):
                self.denied("OffsetCommit", code)
                if turn == self._turn and code in MEMBER_GONE:
                    self.expelled(code)
                    return

        self.call_coordinator(group_messages.offset_commit(self.member, self.topic, positions), on_reply)

    def expelled(self, code: int) -> None:
        """The group has rebalanced without this member: join again."""
        raise NotImplementedError

    # -- life ------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        tick_us = self.member_plan.tick_us
        self.later(self.rng.randrange(tick_us // 2, tick_us * 2), self._tick)
        if self.is_asleep or self.link is None or not self.is_working:
            return
        plan, drawn = self.member_plan, self.rng.random()
        if drawn < plan.crashes:
            self.crash()
        elif drawn < plan.crashes + plan.stalls:
            self.stall()
        elif drawn < plan.crashes + plan.stalls + plan.leaves:
            self.leave()
        elif self.rng.random() < plan.commits:
            self.commit()

    def crash(self) -> None:
        self.trace("crashes")
        # The coordinator still counts it as a member: it keeps its partitions until its session ends.
        self.stop_fetching()
        self._is_positioned = False
        self.partitions = []
        self.member = Membership(self.member_plan.group)
        self.disconnect()

    def stall(self) -> None:
        duration_us = self.rng.randrange(1, 1000 * self.member_plan.stall_ms_max)
        self.trace(f"stalls for {duration_us // 1000} ms")
        self._asleep_until_us = self.now_us + duration_us
        self.stop_fetching()
        self.later(duration_us, self._wake)

    def _wake(self) -> None:
        if self.link is None or self.is_asleep:
            return
        self.trace("wakes")
        self.commit()  # as if it had not stalled
        self.woken()

    def woken(self) -> None:
        if self._is_positioned:
            self.begin_fetching()
        else:
            self.find_positions()

    def leave(self) -> None:
        raise NotImplementedError

    def begin_fetching(self) -> None:
        if self.partitions:
            super().begin_fetching()
