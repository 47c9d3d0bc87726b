"""Members of the classic protocol: JoinGroup, then SyncGroup; the group's leader assigns the partitions."""

from penstock.base.errors import ErrorCode
from penstock.sim.clients import group_messages
from penstock.sim.clients.client import ClientContext
from penstock.sim.clients.group_messages import JoinTerms, Membership
from penstock.sim.clients.members import Member, MemberPlan
from penstock.sim.clients.txn_plan import MEMBER_GONE


class ClassicMember(Member):
    def __init__(self, plan: MemberPlan, context: ClientContext) -> None:
        super().__init__(plan, context)
        self._is_joining = False

    def disconnected(self) -> None:
        super().disconnected()
        self._is_joining = False

    def enter(self) -> None:
        if self.link is None or self._is_joining:
            return
        if self.is_asleep:
            self.again_soon(self.enter)
            return
        self.give_up()
        self._is_joining = True
        plan, turn = self.member_plan, self._turn
        terms = JoinTerms(plan.session_timeout_ms, plan.rebalance_timeout_ms, plan.instance_id)
        self.trace(f"joins {plan.group} as {self.member.member_id or 'a new member'}")

        def on_reply(reply: group_messages.JoinReply) -> None:
            self._is_joining = False
            if turn == self._turn:
                self._joined(reply)

        self.call_coordinator(group_messages.join_group(self.member, terms, self.topic.name), on_reply)

    def _joined(self, reply: group_messages.JoinReply) -> None:
        if reply.code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member = self.member._replace(member_id=reply.member_id)
            self.enter()
            return
        if reply.code:
            self.denied("JoinGroup", reply.code)
            if reply.code in MEMBER_GONE:
                self.forget()
            self.again_soon(self._find)
            return
        self.member = Membership(self.member.group, reply.member_id, reply.generation)
        assigned = {}
        if reply.leader == reply.member_id:
            assigned = share_out(self._all, sorted(reply.members))
        self.trace(f"is {reply.member_id} in generation {reply.generation}; gives {assigned}")
        turn = self._turn

        def on_reply(reply: tuple[int, list[int]]) -> None:
            if turn == self._turn:
                self._synced(*reply)

        self.call_coordinator(group_messages.sync_group(self.member, self.topic.name, assigned), on_reply)

    def _synced(self, code: int, partitions: list[int]) -> None:
        if code:
            self.denied("SyncGroup", code)
            if code in MEMBER_GONE and code != ErrorCode.REBALANCE_IN_PROGRESS:
                self.forget()
            self.again_soon(self._find)
            return
        self.partitions = partitions
        self.trace(f"owns {partitions} in generation {self.member.generation}")
        self.own(partitions)  # no lease yet: only a heartbeat certainly renews the session
        self.find_positions()
        self._beat_soon()

    # -- staying ---------------------------------------------------------------------------------------

    def _beat_soon(self) -> None:
        turn = self._turn

        def beat() -> None:
            if turn != self._turn or self.link is None:
                return
            if self.is_asleep:
                self._beat_soon()
            else:
                self._beat()

        self.later(1000 * self.member_plan.session_timeout_ms // 5, beat)

    def _beat(self) -> None:
        turn, renewal = self._turn, self.renewal()

        def on_reply(code: int) -> None:
            if turn != self._turn:
                return
            if code == ErrorCode.NONE:
                self.lease(self.partitions, renewal)
            elif code in MEMBER_GONE:
                self.denied("Heartbeat", code)
                self.expelled(code)
                return
            else:
                self.denied("Heartbeat", code)
            self._beat_soon()

        self.call_coordinator(group_messages.heartbeat(self.member), on_reply)

    def expelled(self, code: int) -> None:
        if self._is_joining:
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rebalancing()
        else:
            self.forget()
        self.again_soon(self.enter)

    def rebalancing(self) -> None:
        """The group is about to rebalance: commit offsets while that is still allowed."""
        if self.rng.random() < 0.5:
            self.commit()
        self.give_up()

    def leave(self) -> None:
        if self._is_joining or not self.member.member_id:
            return
        self.trace("leaves")
        request = group_messages.leave_group(self.member)
        self.forget()

        def on_reply(code: int) -> None:
            if code:
                self.denied("LeaveGroup", code)
            self.again_soon(self.enter)

        self.call_coordinator(request, on_reply)


def share_out(partitions: list[int], members: list[str]) -> dict[str, list[int]]:
    """Assign the partitions round robin."""
    return {member: partitions[index :: len(members)] for index, member in enumerate(members)}
