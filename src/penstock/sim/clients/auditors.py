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
            version = self.versions[Api.FIND_COORDINATOR]
            self.ask(
                Api.FIND_COORDINATOR,
                group_messages.find_coordinator(version, self.group, group_messages.GROUP),
                self._found,
            )

    def _found(self, version: int, body: memoryview) -> None:
        code, coordinator = group_messages.read_find_coordinator(version, body)
        if code:
            self.again_soon(self.topic_ready)
            return
        self._requests += 1
        self.record(OffsetFetchSent((self.name, self._requests)))
        version = self.versions[Api.OFFSET_FETCH]
        asked = group_messages.offset_fetch(version, Membership(self.group), self.topic, self.partitions)
        self.ask(Api.OFFSET_FETCH, asked, self._heard, to=coordinator)

    def _heard(self, version: int, body: memoryview) -> None:
        code, positions = group_messages.read_offset_fetch(version, body)
        if code:
            self.trace(f"OffsetFetch is refused: {code_name(code)}")
            self.again_soon(self.topic_ready)
            return
        names = {
            TopicPartition(self.topic.name, index): (each.offset, each.metadata)
            for index, each in positions.items()
        }
        self.trace(f"finds {', '.join(f'{offset} of {at}' for at, (offset, _) in names.items())}")
        self.record(OffsetsFetched((self.name, self._requests), self.group, names, is_stable=True))
        self.is_done = True
