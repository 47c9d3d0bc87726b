"""All clients of a run: admin, producers, consumers, group members, operators."""

from penstock.sim.clients.all_door_clients import AllDoorClients
from penstock.sim.clients.classic_members import ClassicMember
from penstock.sim.clients.client import Admin, Client, ClientContext
from penstock.sim.clients.consumer_members import ConsumerMember
from penstock.sim.clients.consumers import Consumer, Rereader
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
from penstock.sim.clients.slow_readers import SlowReader
from penstock.sim.clients.topic_renewer import TopicRenewer
from penstock.sim.clients.transactional import TransactionalProducer, Worker
from penstock.sim.clients.voter_changer import VoterChanger
from penstock.sim.scenario import Scenario
from penstock.sim.world.machine import CONTROLLER_PORT

DOORS_WAIT_US = 50_000


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
        self._doors = [] if scenario.doors is None else [AllDoorClients(scenario.doors, context)]
        plan = scenario.cluster
        self._operators = (
            [Operator(context, plan.operate_us_mean, scenario.topics, plan.nodes, plan.replicas_min)]
            if plan.operate_us_mean
            else []
        )
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
        ]

    def start(self) -> None:
        for client in self._clients:
            client.start()
        if self._doors:
            self._start_doors()

    def _start_doors(self) -> None:
        """Start HTTP and line clients once the topics exist: otherwise a produce over HTTP would create them."""
        if not self._admin.is_done:
            self._context.schedule.later(DOORS_WAIT_US, self._start_doors)
            return
        for doors in self._doors:
            doors.start()

    def finish(self) -> None:
        """Start nothing new, and finish what was started."""
        for producer in self._producers:
            producer.is_making = False
        for transactional in self._transactional:
            transactional.is_making = False
        for member in (*self._members, *self._workers):
            member.is_working = False
        for operator in (*self._operators, *self._voter_changers):
            operator.is_working = False
        for renewer in self._renewers:
            renewer.finish()
        for doors in self._doors:
            doors.finish()

    def end(self) -> None:
        for client in self._clients:
            client.end()
        for doors in self._doors:
            doors.end()

    @property
    def is_admin_done(self) -> bool:
        """Whether every topic was created."""
        return self._admin.is_done

    @property
    def is_idle(self) -> bool:
        return (
            self._admin.is_done
            and all(each.is_idle for each in self._producers)
            and all(each.is_idle for each in self._transactional)
            and all(each.is_idle for each in self._workers)
            and all(each.is_idle for each in self._renewers)
            and all(each.is_idle for each in self._doors)
        )

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
        for doors in self._doors:
            counts |= doors.progress()
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
