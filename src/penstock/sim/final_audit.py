"""Reads all topics and group offsets at the end of a run, and passes them to the checkers.

audit = FinalAudit(scenario, context, has_transactions=True)
audit.start()
...                     until audit.is_done
for audited in audit.report(record, trace): ...
"""

from collections.abc import Callable, Iterator

from penstock.sim.checkers.history import Audited, Closed, Event
from penstock.sim.clients.auditors import OffsetsAuditor
from penstock.sim.clients.client import Client, ClientContext
from penstock.sim.clients.consumers import Auditor
from penstock.sim.clients.renewed_topic_clients import LifeAuditor
from penstock.sim.scenario import Scenario


class FinalAudit:
    def __init__(self, scenario: Scenario, context: ClientContext, *, has_transactions: bool) -> None:
        topics = [each.name for each in scenario.topics]
        self._auditors = [Auditor(each, context) for each in topics]
        self._auditors += [LifeAuditor(each.topic, context) for each in scenario.renewals]
        self._readers = [Auditor(each, context, isolation=1) for each in topics] if has_transactions else []
        self._offsets = [OffsetsAuditor(*each, context) for each in scenario.coordination.groups]

    @property
    def _clients(self) -> list[Client]:
        return [*self._auditors, *self._readers, *self._offsets]

    def start(self) -> None:
        for client in self._clients:
            client.start()

    @property
    def is_done(self) -> bool:
        return all(each.is_done for each in (*self._auditors, *self._readers)) and all(
            each.is_done for each in self._offsets
        )

    @property
    def unfinished(self) -> list[str]:
        """Names of clients that have not read everything."""
        open_ones = [each.name for each in (*self._auditors, *self._readers) if not each.is_done]
        return open_ones + [each.name for each in self._offsets if not each.is_done]

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
