"""The operator of a cluster: creates and deletes topics, moves partitions, elects preferred leaders.

No client uses the topics that it creates and deletes; they matter by their effect on other topics. The run's own
topics keep their records wherever they are moved. Any of these requests may fail, and is not repeated.
"""

from collections.abc import Container
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.sim.checkers.history import RequestRefused
from penstock.sim.clients import messages
from penstock.sim.clients.client import Client, ClientContext, code_name
from penstock.sim.scenario import TopicPlan
from penstock.wire import Api

PASSING = frozenset({
    ErrorCode.NONE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_REPLICATION_FACTOR,
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ErrorCode.ELECTION_NOT_NEEDED,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
})  # fmt: skip
"""Errors that an operator may get while nodes restart."""


class RandomOperator(Client):
    """Does something at random times while it is connected. Errors that are not in `passing` are recorded."""

    def __init__(self, name: str, context: ClientContext, mean_us: int, passing: Container[int]) -> None:
        super().__init__(name, context)
        self.is_ready = False
        self._mean_us = mean_us
        self._passing = passing

    def act(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        super().start()
        self._plan()

    def ready(self) -> None:
        self.is_ready = True

    def disconnected(self) -> None:
        self.is_ready = False

    def _plan(self) -> None:
        self.later(round(self.rng.expovariate(1 / self._mean_us)) + 1, self._act)

    def _act(self) -> None:
        if not self.is_working:
            return
        self._plan()
        if self.is_ready:
            self.act()

    def note_reply(self, what: str, codes: list[int], why: str = "") -> None:
        self.trace(f"{what}: {', '.join(code_name(code) for code in codes)}{why}")
        for code in codes:
            if code not in self._passing:
                self.record(RequestRefused(self.name, what, code, is_due=False))


class Operator(RandomOperator):
    def __init__(
        self,
        context: ClientContext,
        mean_us: int,
        topics: tuple[TopicPlan, ...],
        nodes: int,
        replicas_min: int = 1,
    ) -> None:
        """Created topics have at least `replicas_min` replicas, so that other disks have what one loses."""
        super().__init__("operator", context, mean_us, PASSING)
        self._topics = topics
        self._nodes = nodes
        self._replicas_min = replicas_min
        self._temporary: list[str] = []
        """Topics that it created and has not deleted yet."""
        self._created = 0

    def act(self) -> None:
        self.rng.choice((self._create, self._delete, self._reassign, self._reassign, self._elect))()

    # -- topics ----------------------------------------------------------------------------------------

    def _create(self) -> None:
        self._created += 1
        name = f"passing-{self._created}"
        self._temporary.append(name)
        replication = self.rng.randint(self._replicas_min, min(3, self._nodes))
        topic = messages.NewTopic(name, self.rng.randint(1, 3), {}, replication)
        self.call(
            messages.create_topics([topic]),
            lambda created: self.note_reply(f"creates {name}", [each.code for each in created.values()]),
        )

    def _delete(self) -> None:
        if not self._temporary:
            return
        name = self._temporary.pop(self.rng.randrange(len(self._temporary)))
        self.call(messages.delete_topic(name), lambda code: self.note_reply(f"deletes {name}", [code]))

    # -- where partitions are --------------------------------------------------------------------------

    def _reassign(self) -> None:
        """Move a topic's partitions to other nodes, in another order, or to fewer of them. A replicated topic keeps at
        least two replicas, so that `min.insync.replicas=2` can be met."""
        topic = self.rng.choice(self._topics)
        nodes = list(range(1, self._nodes + 1))
        moves = {
            number: self.rng.sample(nodes, self.rng.randint(min(2, topic.replication), topic.replication))
            for number in range(topic.partition_count)
        }

        def build(make: messages.RequestClasses) -> Any:
            partitions = tuple(
                make.ReassignablePartition(partition_index=number, replicas=tuple(replicas))
                for number, replicas in moves.items()
            )
            return make.AlterPartitionReassignmentsRequest(
                topics=(make.ReassignableTopic(name=topic.name, partitions=partitions),),
                timeout=messages.ms(5_000),
                allow_replication_factor_change=True,
            )

        def on_reply(response: Any) -> None:
            codes = [int(each.error_code) for one in response.responses for each in one.partitions]
            self.note_reply(f"moves {topic.name} to {moves}", [int(response.error_code), *codes])

        self.call(messages.whole_reply(Api.ALTER_PARTITION_REASSIGNMENTS, build), on_reply)

    def _elect(self) -> None:
        def build(make: messages.RequestClasses) -> Any:
            return make.ElectLeadersRequest(
                election_type=0, topic_partitions=None, timeout=messages.ms(5_000)
            )

        def on_reply(response: Any) -> None:
            results = response.replica_election_results
            codes = [int(each.error_code) for one in results for each in one.partition_result]
            self.note_reply("elects preferred leaders", [int(getattr(response, "error_code", 0)), *codes])

        self.call(messages.whole_reply(Api.ELECT_LEADERS, build), on_reply)
