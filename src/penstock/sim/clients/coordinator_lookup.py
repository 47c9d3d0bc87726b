"""Whom a transactional producer talks to: coordinators, of transactions and of groups, and leaders of partitions."""

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
        """Of the topic; empty until it is known."""
        self._topic = messages.TopicName(terms.topic, None)
        self._leaders: dict[int, Address] = {}
        self._coordinator: Address | None = None
        self._group_coordinator: Address | None = None
        """Of the group whose offsets go with a transaction."""

    def _judge(self, what: str, code: int, find: Callable[[], None] | None = None) -> bool:
        """Whether a step was done; if not, see to what comes instead."""
        raise NotImplementedError

    def _find(self) -> None:
        version = self._version(Api.FIND_COORDINATOR)
        if version < 1:  # it knows of groups only
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
        """Offsets can be committed where their coordinator is known, and there is one from when it was asked for."""
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
