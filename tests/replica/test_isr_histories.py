"""Any history of a leader, its followers and the controller: what is committed is on all that may lead next."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.replica.leaders import LAG_MS, Led, Waiting

from penstock.base.errors import ErrorCode, KafkaError
from penstock.replica.delayed_operations import ALL_IN_SYNC, Durability

FOLLOWERS = st.sampled_from([2, 3])
REFUSALS = st.sampled_from(
    [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_UPDATE_VERSION]
)


class Leading(RuleBasedStateMachine):
    """A model beside it knows what each follower really has."""

    @initialize(min_isr=st.integers(1, 3), isr=st.sampled_from([(1,), (1, 2), (1, 2, 3)]))
    def begin(self, min_isr: int, isr: tuple[int, ...]) -> None:
        self.led = Led(isr=isr, min_isr=min_isr, durability=Durability.NEVER)
        self.has = {2: 0, 3: 0}
        """Where each follower's log ends."""
        self.said = {2: -1, 3: -1}
        """What each has asked for in this epoch."""
        self.waiting: list[Waiting] = []
        self.high_watermark = 0

    @rule(count=st.integers(1, 5), acks=st.sampled_from([1, ALL_IN_SYNC]))
    def produce(self, count: int, acks: int) -> None:
        if acks != ALL_IN_SYNC or self.led.partition.isr_size >= self.led.min_isr:
            waiting = self.led.written(count, acks=acks)
            if acks == ALL_IN_SYNC:
                self.waiting.append(waiting)
        else:
            with pytest.raises(KafkaError, match="replicas in sync"):
                self.led.produce(count)

    @rule(broker_id=FOLLOWERS, part=st.sampled_from([0.0, 0.5, 1.0, 1.0]))
    def fetch(self, broker_id: int, part: float) -> None:
        """A follower has come on by some of what it was behind."""
        more = self.led.partition.log.log_end - self.has[broker_id]
        self.has[broker_id] += int(more * part)
        self.said[broker_id] = self.has[broker_id]
        self.led.fetch(broker_id, self.has[broker_id])
        self.led.world.advance(0)

    @rule()
    def grant(self) -> None:
        self.led.decide()

    @rule(code=REFUSALS)
    def refuse(self, code: ErrorCode) -> None:
        self.led.decide(code)

    @rule(broker_id=FOLLOWERS, fenced=st.booleans())
    def fence(self, broker_id: int, fenced: bool) -> None:
        """The controller takes a dead broker out of the ISR, and the metadata log says so."""
        self.led.broker(broker_id, fenced=fenced)
        if fenced and broker_id in self.led.isr:
            self.led.lead(tuple(each for each in self.led.isr if each != broker_id))

    @rule()
    def tell_again(self) -> None:
        """The metadata log says what it has said before."""
        self.led.lead()

    @rule()
    def begin_an_epoch(self) -> None:
        self.led.epoch += 1
        self.led.partition_epoch += 1
        self.said = {2: -1, 3: -1}
        self.led.lead()

    @rule(part=st.sampled_from([0.3, 1.1]))
    def let_time_pass(self, part: float) -> None:
        self.led.world.advance(LAG_MS * part)

    @invariant()
    def the_high_watermark_never_goes_back(self) -> None:
        if not hasattr(self, "led"):
            return
        assert self.high_watermark <= self.led.high_watermark <= self.led.partition.log.log_end
        if self.led.high_watermark > self.high_watermark:
            # Whoever the controller has in the ISR may lead next, and so may whom it is about to take in.
            isr = set(self.led.isr) | {each for wish in self.led.desk.wishes for each in wish}
            for broker_id in isr - {1}:
                assert self.said[broker_id] >= self.led.high_watermark
            assert len(self.led.isr) >= min(self.led.min_isr, 3)
        self.high_watermark = self.led.high_watermark

    @invariant()
    def what_is_acknowledged_is_committed(self) -> None:
        if not hasattr(self, "led"):
            return
        for each in self.waiting:
            assert len(each.answers) <= 1
            if each.answers == [None]:
                assert each.appended.last_offset < self.led.high_watermark

    @invariant()
    def one_change_is_under_way_at_most_and_keeps_the_leader(self) -> None:
        if not hasattr(self, "led"):
            return
        assert len(self.led.desk.wishes) <= 1
        assert all(1 in wish for wish in self.led.desk.wishes)
        isr = self.led.partition.isr
        assert isr is not None
        assert isr.maximal >= set(isr.committed)

    def teardown(self) -> None:
        if not hasattr(self, "led"):
            return
        # Once faults are over all that was written is committed, and everybody is in sync.
        led = self.led
        for broker_id in (2, 3):
            led.broker(broker_id)
        led.lead(led.isr)
        for _ in range(6):
            for broker_id in (2, 3):
                led.fetch(broker_id)
            led.decide()
            led.world.advance(60)
        assert sorted(led.partition.isr.committed) == [1, 2, 3]  # type: ignore[union-attr]
        assert led.high_watermark == led.partition.log.log_end
        led.world.advance(20_000)
        assert all(len(each.answers) == 1 for each in self.waiting)


TestLeading = Leading.TestCase
TestLeading.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
