"""Renews a topic: creates it, keeps it for a while, deletes it, and creates it again.

Each request is repeated until it is known to be done, so that it is known after which deletion each life of the topic
began. Mostly the topic is deleted by id, which cannot hit the next life, however late it takes effect. An unanswered
deletion by name can, so at the end the renewer waits until it no longer can.
"""

from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.sim.checkers.history import RequestRefused
from penstock.sim.clients import messages
from penstock.sim.clients.client import Client, ClientContext, code_name
from penstock.sim.clients.consumers import ConsumerPlan
from penstock.sim.clients.producers import ProducerPlan
from penstock.sim.topic_lives import Deleted, DeletionLost, DeletionSent, LifeStarted, life_name
from penstock.wire import Api

IDS_FROM = {Api.CREATE_TOPICS: 7, Api.DELETE_TOPICS: 6}
"""First versions with topic ids."""

BY_NAME = 0.2
"""Probability that a topic is deleted by name."""

LATE_US_MAX = 40_000_000
"""After this time an unanswered request has no effect any more."""

PASSING = frozenset({
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.INVALID_REPLICATION_FACTOR,
})  # fmt: skip
"""Errors while nodes restart; the last one, while too few are up."""

GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


@dataclass(frozen=True)
class RenewalPlan:
    """A topic that is renewed, and its clients."""

    topic: str
    mean_us: int
    """Mean duration of a life."""
    replication: int = 3
    partitions_max: int = 3
    configs: dict[str, str] = field(default_factory=dict)
    producers: tuple[ProducerPlan, ...] = ()
    """Producers that use the topic id."""
    producers_by_name: tuple[ProducerPlan, ...] = ()
    consumers: tuple[ConsumerPlan, ...] = ()
    consumers_by_name: tuple[ConsumerPlan, ...] = ()


class Phase(Enum):
    CREATING = "creating"
    FINDING = "finding"
    """It exists, and its id is not known."""
    LIVING = "living"
    DELETING = "deleting"


class TopicRenewer(Client):
    def __init__(self, plan: RenewalPlan, context: ClientContext) -> None:
        super().__init__(f"renewer of {plan.topic}", context)
        self.plan = plan
        self.life_count = 0
        self._phase = Phase.CREATING
        self._life: UUID | None = None
        self._past: set[UUID] = set()
        """Deleted lives, which stale metadata may still contain."""
        self._by_name_us = -LATE_US_MAX
        """Time of the last unanswered deletion by name."""

    @property
    def is_idle(self) -> bool:
        return self._phase is Phase.LIVING and not self.is_working and not self._is_vague

    @property
    def _is_vague(self) -> bool:
        return self.context.schedule.now_us < self._by_name_us + LATE_US_MAX

    def finish(self) -> None:
        """Stop deleting the topic; if it is being deleted, create it once more."""
        super().finish()
        if self._is_vague:
            left_us = self._by_name_us + LATE_US_MAX - self.context.schedule.now_us
            self.later(left_us, self._make_sure)

    def _make_sure(self) -> None:
        if self._phase is Phase.LIVING:
            self._enter(Phase.CREATING)

    # -- one step after the other ----------------------------------------------------------------------

    def narrow(self, api: Api, low: int, high: int) -> tuple[int, int]:
        return max(low, IDS_FROM.get(api, 0)), high

    def ready(self) -> None:
        if self.link is None:
            return
        match self._phase:
            case Phase.CREATING:
                self._create()
            case Phase.FINDING:
                self._find()
            case Phase.DELETING:
                self._delete()
            case Phase.LIVING:
                pass

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self.ready()

    def _refused(self, what: str, code: int) -> None:
        self.trace(f"{what}: {code_name(code)}")
        if code not in PASSING:
            self.record(RequestRefused(self.name, what, code, is_due=False))
        self.again_soon(self.ready)

    def _create(self) -> None:
        plan = self.plan
        topic = messages.NewTopic(
            plan.topic, self.rng.randint(1, plan.partitions_max), plan.configs, plan.replication
        )
        self.call(messages.create_topics([topic]), self._created)

    def _created(self, created: dict[str, messages.TopicCreated]) -> None:
        code, topic_id = created[self.plan.topic]
        if code == ErrorCode.NONE:
            assert topic_id is not None
            self._live(topic_id)
        elif code == ErrorCode.TOPIC_ALREADY_EXISTS:
            self._enter(Phase.FINDING)
        else:
            self._refused(f"creates {self.plan.topic}", code)

    def _find(self) -> None:
        self.call(messages.metadata(self.plan.topic), self._found)

    def _found(self, seen: messages.TopicMetadata) -> None:
        if seen.code or seen.topic.id is None or seen.topic.id in self._past:
            # The node's metadata is stale; or a late deletion has removed the topic again.
            self._phase = Phase.CREATING
            self.again_soon(self.ready)
        else:
            self._live(seen.topic.id)

    def _live(self, life: UUID) -> None:
        self._phase = Phase.LIVING
        if life != self._life:
            if self._life is not None:
                self._past.add(self._life)
            self._life = life
            self.life_count += 1
            self.trace(f"has {self.plan.topic} in life {self.life_count}: {life}")
            self.record(LifeStarted(self.plan.topic, life_name(self.plan.topic, life)))
        self.later(round(self.rng.expovariate(1 / self.plan.mean_us)) + 1, self._end_life)

    def _end_life(self) -> None:
        if self.is_working and self._phase is Phase.LIVING:
            self._enter(Phase.DELETING)

    def _delete(self) -> None:
        assert self._life is not None
        life, topic = self._life, self.plan.topic
        scope = life_name(topic, life)
        is_by_name = self.rng.random() < BY_NAME
        request = messages.delete_topic(topic if is_by_name else None, None if is_by_name else life)

        def on_reply(code: int) -> None:
            if is_by_name and code in PASSING:
                on_lost()  # after a timeout the deletion may still take effect
            if code != ErrorCode.NONE and code not in GONE:
                self._refused(f"deletes {topic}", code)
                return
            self.trace(f"has deleted {topic}, life {self.life_count}: {code_name(code)}")
            self.record(Deleted(topic, scope))
            self._enter(Phase.CREATING)

        def on_lost() -> None:
            if is_by_name:
                self._by_name_us = self.context.schedule.now_us
                self.record(DeletionLost(topic))

        self.record(DeletionSent(topic, None if is_by_name else scope))
        self.call(request, on_reply, on_lost)
