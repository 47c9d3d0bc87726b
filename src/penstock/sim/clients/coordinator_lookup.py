"""Finds the coordinators and partition leaders that a transactional producer talks to."""

from collections.abc import Callable

from penstock.sim.clients import group_messages, messages
from penstock.sim.clients.client import Client
from penstock.sim.clients.step_queue import StepQueue
from penstock.sim.clients.txn_plan import TxnSettings
from penstock.wire import Api
from penstock.wire.peers import Address


class CoordinatorLookup(StepQueue):
    def __init__(self, client: Client, terms: TxnSettings) -> None:
        super().__init__(client)
        self.terms = terms
        self.partitions: list[int] = []
        """Partitions of the topic; empty until known."""
        self._topic = messages.TopicName(terms.topic, None)
        self._leaders: dict[int, Address] = {}
        self._coordinator: Address | None = None
        self._group_coordinator: Address | None = None
        """Coordinator of the group whose offsets are committed in the transaction."""

    def _judge(self, what: str, code: int, find: Callable[[], None] | None = None) -> bool:
        """Return whether a step succeeded; if not, arrange what follows."""
        raise NotImplementedError

    def _find(self) -> None:
        version = self._version(Api.FIND_COORDINATOR)
        if version < 1:  # supports groups only
            self._done()
            return
        body = group_messages.find_coordinator(
            version, self.terms.transactional_id, group_messages.TRANSACTION
        )

        def heard(version: int, body: memoryview) -> None:
            code, address = group_messages.read_find_coordinator(version, body)
            if self._judge("FindCoordinator", code):
                self._coordinator = address
                self._done()

        self._ask(Api.FIND_COORDINATOR, body, heard)

    def _find_group(self, group: str) -> None:
        """Find the group's coordinator; the request creates `__consumer_offsets` if necessary."""
        version = self._version(Api.FIND_COORDINATOR)
        body = group_messages.find_coordinator(version, group, group_messages.GROUP)

        def heard(version: int, body: memoryview) -> None:
            code, address = group_messages.read_find_coordinator(version, body)
            if self._judge("FindCoordinator", code):
                self._group_coordinator = address
                self._done()

        self._ask(Api.FIND_COORDINATOR, body, heard)

    def _meet_topic(self) -> None:
        body = messages.metadata(self._version(Api.METADATA), [self.terms.topic], create=False)

        def heard(version: int, body: memoryview) -> None:
            (seen,) = messages.read_metadata(version, body)
            if seen.code or not seen.partitions:
                self._again()
                return
            self._topic, self.partitions, self._leaders = seen.topic, seen.partitions, seen.leaders
            self._done()

        self._ask(Api.METADATA, body, heard)
