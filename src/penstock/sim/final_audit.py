"""Reads all topics and group offsets at the end of a run, and passes them to the checkers.

audit = FinalAudit(scenario, context, has_transactions=True)
audit.start()
...                     until audit.is_done
for audited in audit.report(record, trace): ...
"""

from collections.abc import Callable, Iterator

from penstock.base.ids import TopicPartition
from penstock.sim.checkers.history import Audited, Closed, Event, OffsetFetchSent, OffsetsFetched
from penstock.sim.clients import group_messages
from penstock.sim.clients.client import ClientContext, TopicClient, code_name
from penstock.sim.clients.consumers import Auditor
from penstock.sim.clients.group_messages import Membership
from penstock.sim.clients.renewed_topic_clients import LifeAuditor
from penstock.sim.scenario import Scenario
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


class FinalAudit:
    def __init__(self, scenario: Scenario, context: ClientContext, *, has_transactions: bool) -> None:
        topics = [each.name for each in scenario.topics]
        self._auditors = [Auditor(each, context) for each in topics]
        self._auditors += [LifeAuditor(each.topic, context) for each in scenario.renewals]
        readers = [Auditor(each, context, isolation=1) for each in topics] if has_transactions else []
        offsets = [OffsetsAuditor(*each, context) for each in scenario.coordination.groups]
        self._clients: list[Auditor | OffsetsAuditor] = [*self._auditors, *readers, *offsets]

    def start(self) -> None:
        for client in self._clients:
            client.start()

    @property
    def is_done(self) -> bool:
        return not self.unfinished

    @property
    def record_count(self) -> int:
        """Records read so far."""
        return sum(each.record_count for each in self._clients if isinstance(each, Auditor))

    @property
    def unfinished(self) -> list[str]:
        """Names of clients that have not read everything."""
        return [each.name for each in self._clients if not each.is_done]

    def end(self) -> None:
        for client in self._clients:
            client.end()

    def report(self, record: Callable[[Event], None], trace: Callable[[str], None]) -> Iterator[Audited]:
        """Record what was read; yield each audit before the checkers see it."""
        record(Closed())
        for auditor in self._auditors:
            for audited in auditor.findings():
                yield audited
                trace(f"{audited.at} has {audited.start}..{audited.end}, {len(audited.records)} records")
                record(audited)
