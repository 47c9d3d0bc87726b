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
        if self._client.versions[Api.FIND_COORDINATOR] < 1:  # supports groups only
            self._done()
            return

        def on_reply(reply: group_messages.CoordinatorReply) -> None:
            if self._judge("FindCoordinator", reply.code):
                self._coordinator = reply.address
                self._done()

        key = self.terms.transactional_id
        self._call(group_messages.find_coordinator(key, group_messages.TRANSACTION), on_reply)

    def _find_group(self, group: str) -> None:
        """Find the group's coordinator; the request creates `__consumer_offsets` if necessary."""

        def on_reply(reply: group_messages.CoordinatorReply) -> None:
            if self._judge("FindCoordinator", reply.code):
                self._group_coordinator = reply.address
                self._done()

        self._call(group_messages.find_coordinator(group, group_messages.GROUP), on_reply)

    def _meet_topic(self) -> None:
        def on_reply(seen: messages.TopicMetadata) -> None:
            if seen.code or not seen.partitions:
                self._again()
                return
            self._topic, self.partitions, self._leaders = seen.topic, seen.partitions, seen.leaders
            self._done()

        self._call(messages.metadata(self.terms.topic), on_reply)
