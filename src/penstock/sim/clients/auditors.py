"""Reads the committed offsets of groups at the end of a run."""

from penstock.base.ids import TopicPartition
from penstock.sim.checkers.history import OffsetFetchSent, OffsetsFetched
from penstock.sim.clients import group_messages
from penstock.sim.clients.client import ClientContext, TopicClient, code_name
from penstock.sim.clients.group_messages import Membership
from penstock.wire import Api


class OffsetsAuditor(TopicClient):
    """Reads a group's offsets of a topic, once."""

    def __init__(self, group: str, topic: str, context: ClientContext) -> None:
        super().__init__(f"auditor of {group}", context, topic)
        self.group = group
        self.is_done = False
        self._requests = 0

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        return (max(low, group_messages.STABLE_FROM) if api is Api.OFFSET_FETCH else low), high

    def topic_ready(self) -> None:
        if not self.is_done:
            self.call(group_messages.find_coordinator(self.group, group_messages.GROUP), self._found)

    def _found(self, reply: group_messages.CoordinatorReply) -> None:
        if reply.code:
            self.again_soon(self.topic_ready)
            return
        self._requests += 1
        self.record(OffsetFetchSent((self.name, self._requests)))
        request = group_messages.offset_fetch(Membership(self.group), self.topic, self.partitions)
        self.call(request, self._fetched, to=reply.address)

    def _fetched(self, reply: group_messages.OffsetFetchReply) -> None:
        if reply.code:
            self.trace(f"OffsetFetch is refused: {code_name(reply.code)}")
            self.again_soon(self.topic_ready)
            return
        names = {
            TopicPartition(self.topic.name, index): (each.offset, each.metadata)
            for index, each in reply.positions.items()
        }
        self.trace(f"finds {', '.join(f'{offset} of {at}' for at, (offset, _) in names.items())}")
        self.record(OffsetsFetched((self.name, self._requests), self.group, names, is_stable=True))
        self.is_done = True
