"""Members of the consumer protocol (KIP-848): a heartbeat sends the owned partitions and returns the assigned ones.

A member stops reading revoked partitions at once and reports it in the next heartbeat; only then may another member
get them.
"""

from penstock.base.errors import ErrorCode
from penstock.sim.checkers.history import Renewal
from penstock.sim.clients import group_messages
from penstock.sim.clients.client import ClientContext
from penstock.sim.clients.group_messages import ConsumerHeartbeat, ConsumerHeartbeatReply, Membership
from penstock.sim.clients.members import Member, MemberPlan
from penstock.sim.clients.txn_plan import MEMBER_GONE
from penstock.wire import Api

LEAVING = -1
JOINING = 0
OFFSET_COMMIT_MIN = 9
"""First version with a member epoch."""


class ConsumerMember(Member):
    def __init__(self, plan: MemberPlan, context: ClientContext) -> None:
        super().__init__(plan, context)
        self._incarnations = 0
        self._is_full = True
        """Whether the next heartbeat contains all fields."""
        self._interval_us = 100_000
        self._renewal: Renewal | None = None
        """The last renewal of its session."""
        self._new_id()

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        if api in (Api.OFFSET_COMMIT, Api.OFFSET_FETCH):
            low = max(low, OFFSET_COMMIT_MIN)
        return low, high

    def _new_id(self) -> None:
        self._incarnations += 1
        self.member = Membership(self.member_plan.group, f"{self.name}-{self._incarnations}", JOINING)

    def forget(self) -> None:
        self.give_up()
        self._new_id()
        self._renewal = None

    def crash(self) -> None:
        super().crash()
        self._new_id()
        self._renewal = None

    def offsets_as(self) -> Membership:
        return self.member

    def enter(self) -> None:
        """Join, or continue after a lost connection, with a full heartbeat."""
        self._is_full = True
        self._beat()

    # -- heartbeats ------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self.link is None:
            return
        if self.is_asleep:
            self._beat_soon()
            return
        is_joining = self.member.generation == JOINING
        is_full = self._is_full or is_joining
        if is_joining and self.partitions:
            self.give_up()
        self._turn += 1
        turn, renewal, owned = self._turn, self.renewal(), list(self.partitions)
        # It has given up the partitions that it no longer sends.
        self._shrink_lease(owned)
        beat = ConsumerHeartbeat(
            self.member, self.member_plan.rebalance_timeout_ms, self.topic, is_full, owned
        )
        self._is_full = False

        def on_reply(reply: ConsumerHeartbeatReply) -> None:
            if turn == self._turn:
                self._beat_answered(renewal, owned, reply)

        self.call_coordinator(group_messages.consumer_group_heartbeat(beat), on_reply)

    def _shrink_lease(self, owned: list[int]) -> None:
        if self._renewal is not None and self.session_end_us(self._renewal) > self.now_us:
            self.lease(owned, self._renewal)

    def _beat_answered(self, renewal: Renewal, owned: list[int], reply: ConsumerHeartbeatReply) -> None:
        if reply.code:
            self.denied("ConsumerGroupHeartbeat", reply.code)
            if reply.code in MEMBER_GONE:
                self.forget()
            self._is_full = True
            self.again_soon(self._beat)
            return
        self.member = self.member._replace(
            member_id=reply.member_id or self.member.member_id, generation=reply.epoch
        )
        self._interval_us = 1000 * reply.interval_ms
        self._renewal = renewal
        self.lease(owned, renewal)
        if reply.assigned is not None and reply.assigned != owned:
            self._take(owned, reply.assigned)
            return
        if self.partitions and not self._is_positioned:
            self.find_positions()
        self._beat_soon()

    def _take(self, owned: list[int], assigned: list[int]) -> None:
        self.trace(f"owns {assigned} in epoch {self.member.generation}, after {owned}")
        self.stop_fetching()
        if self._is_positioned and self.rng.random() < 0.5:
            self.commit()
        self._is_positioned = False
        self.partitions = list(assigned)
        self.own(assigned)
        # Until the next heartbeat is sent, it still owns what it gives up.
        self.lease(sorted({*owned, *assigned}), self._renewal)
        self._beat()

    def _beat_soon(self) -> None:
        turn = self._turn

        def beat() -> None:
            if turn == self._turn and self.link is not None:
                self._beat()

        self.later(self._interval_us, beat)

    def expelled(self, code: int) -> None:
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            return  # the next heartbeat returns the epoch
        self.forget()
        self.again_soon(self.enter)

    def leave(self) -> None:
        if self.member.generation <= JOINING:
            return
        self.trace("leaves")
        member = self.member._replace(generation=LEAVING)
        self.forget()
        beat = ConsumerHeartbeat(member, -1, self.topic, is_full=False, owned=None)

        def on_reply(reply: ConsumerHeartbeatReply) -> None:
            if reply.code:
                self.denied("ConsumerGroupHeartbeat", reply.code)
            self.again_soon(self.enter)

        self.call_coordinator(group_messages.consumer_group_heartbeat(beat), on_reply)
