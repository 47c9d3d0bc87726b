"""All clients of a run: admin, producers, consumers, group members, operators."""

from itertools import count

from penstock.sim.clients.classic_members import ClassicMember
from penstock.sim.clients.client import Admin, Client, ClientContext
from penstock.sim.clients.consumer_members import ConsumerMember
from penstock.sim.clients.consumers import Consumer, Rereader
from penstock.sim.clients.http_clients import DoorClient, DoorsPlan, HttpMember, HttpProducer
from penstock.sim.clients.line_clients import LineConsumer, LineProducer
from penstock.sim.clients.members import Member
from penstock.sim.clients.messages import NewTopic
from penstock.sim.clients.operator import Operator
from penstock.sim.clients.pipelined import pipelined_producer
from penstock.sim.clients.producers import Producer
from penstock.sim.clients.renewed_topic_clients import (
    ConsumerById,
    ConsumerByName,
    ProducerById,
    ProducerByName,
)
from penstock.sim.clients.security_operator import SecurityOperator
from penstock.sim.clients.slow_readers import SlowReader
from penstock.sim.clients.topic_renewer import TopicRenewer
from penstock.sim.clients.transactional import TransactionalProducer, Worker
from penstock.sim.clients.voter_changer import VoterChanger
from penstock.sim.scenario import Scenario
from penstock.sim.world.machine import CONTROLLER_PORT

DOORS_WAIT_US = 50_000
HTTP_GROUP = "web"


class AllClients:
    def __init__(self, scenario: Scenario, context: ClientContext) -> None:
        self._context = context
        self._admin = Admin(
            context,
            [
                NewTopic(each.name, each.partition_count, each.configs, each.replication)
                for each in scenario.topics
            ],
        )
        together = scenario.coordination
        self._producers = [Producer(plan, context) for plan in scenario.producers]
        self._producers += [pipelined_producer(plan, context) for plan in scenario.pipelined]
        self._consumers = [Consumer(plan, context) for plan in scenario.consumers]
        self._consumers += [Rereader(plan, context) for plan in scenario.rereaders]
        self._consumers += [SlowReader(plan, context) for plan in scenario.slow_readers]
        self._members: list[Member] = [
            (ConsumerMember if plan.is_consumer_protocol else ClassicMember)(plan, context)
            for plan in together.members
        ]
        self._transactional = [TransactionalProducer(plan, context) for plan in together.transactional]
        self._workers = [Worker(plan, context) for plan in together.workers]
        for renewal in scenario.renewals:
            self._producers += [ProducerById(each, context) for each in renewal.producers]
            self._producers += [ProducerByName(each, context) for each in renewal.producers_by_name]
            self._consumers += [ConsumerById(each, context) for each in renewal.consumers]
            self._consumers += [ConsumerByName(each, context) for each in renewal.consumers_by_name]
        self._renewers = [TopicRenewer(each, context) for each in scenario.renewals]
        self._door_members, self._other_doors = _make_door_clients(scenario.doors, context)
        plan = scenario.cluster
        self._operators = (
            [Operator(context, plan.operate_us_mean, scenario.topics, plan.nodes, plan.replicas_min)]
            if plan.operate_us_mean
            else []
        )
        self._security = [SecurityOperator(scenario.security, context)] if scenario.security else []
        self._voter_changers = (
            [VoterChanger(context, plan.voter_changes_us_mean, plan.voting, CONTROLLER_PORT)]
            if plan.voter_changes_us_mean
            else []
        )

    @property
    def _clients(self) -> list[Client]:
        return [
            self._admin,
            *self._producers,
            *self._consumers,
            *self._members,
            *self._transactional,
            *self._workers,
            *self._operators,
            *self._renewers,
            *self._voter_changers,
            *self._security,
            *(guest for each in self._security for guest in each.guests),
        ]

    @property
    def _doors(self) -> list[DoorClient]:
        return [*self._door_members, *self._other_doors]

    @property
    def _everyone(self) -> list[Client | DoorClient]:
        return [*self._clients, *self._doors]

    def start(self) -> None:
        for client in self._clients:
            client.start()
        for operator in self._security:
            operator.wait_for_topics(lambda: self._admin.is_idle)
        if self._doors:
            self._start_doors()

    def _start_doors(self) -> None:
        """Start HTTP and line clients once the topics exist: otherwise a produce over HTTP would create them."""
        if not self._admin.is_idle:
            self._context.schedule.later(DOORS_WAIT_US, self._start_doors)
            return
        for doors in self._doors:
            doors.start()

    def finish(self) -> None:
        """Start nothing new, and finish what was started."""
        for client in self._everyone:
            client.finish()

    def end(self) -> None:
        for client in self._everyone:
            client.end()

    @property
    def is_admin_done(self) -> bool:
        """Whether every topic was created."""
        return self._admin.is_idle

    @property
    def is_idle(self) -> bool:
        return all(each.is_idle for each in self._everyone)

    # -- what they have done ---------------------------------------------------------------------------

    def progress(self) -> dict[str, int]:
        """Return a counter per client or group, which rises as long as its requests succeed."""
        counts = {each.name: each.acked_count for each in self._producers}
        counts |= {each.name: each.record_count for each in self._consumers}
        for member in self._members:
            group = f"group {member.member_plan.group}"
            counts[group] = counts.get(group, 0) + member.commit_count
        for transactional in self._transactional:
            counts[transactional.name] = transactional.transactor.committed_count
        if self._workers:
            counts["workers"] = sum(each.transactor.committed_count for each in self._workers)
        counts |= {each.name: each.done_count for each in self._other_doors}
        if self._door_members:
            counts[f"group {HTTP_GROUP}"] = sum(each.done_count for each in self._door_members)
        return counts

    @property
    def has_transactions(self) -> bool:
        return bool(self._transactional or self._workers)

    @property
    def acked_count(self) -> int:
        return sum(each.acked_count for each in self._producers)

    @property
    def transaction_count(self) -> int:
        transactors = [each.transactor for each in self._transactional]
        transactors += [each.transactor for each in self._workers]
        return sum(each.committed_count for each in transactors)

    @property
    def commit_count(self) -> int:
        return sum(each.commit_count for each in self._members)


def _make_door_clients(
    plan: DoorsPlan | None, context: ClientContext
) -> tuple[list[HttpMember], list[DoorClient]]:
    """Make the members of the group over HTTP, and all other clients of HTTP and of the line protocol."""
    if plan is None:
        return [], []
    numbers = count(1).__next__
    members = [
        HttpMember(f"web-{number}", context, plan, HTTP_GROUP, numbers)
        for number in range(1, plan.members + 1)
    ]
    others: list[DoorClient] = [
        *(HttpProducer(f"poster-{each}", context, plan) for each in range(1, plan.producers + 1)),
        *(LineProducer(f"liner-{each}", context, plan) for each in range(1, plan.line_producers + 1)),
        *(
            LineConsumer(f"tail-{each}", context, plan, f"tail-{each}", numbers)
            for each in range(1, plan.line_consumers + 1)
        ),
    ]
    return members, others
