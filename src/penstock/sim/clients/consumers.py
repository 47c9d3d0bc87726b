"""Consumers: read a topic from its beginning, with one open fetch at a time, from each leader in turn.

Some use incremental fetch sessions, others send full fetches. The limits of each fetch are random: maximum wait,
minimum and maximum bytes. If its offset is out of range, a consumer looks up the ends of the log with ListOffsets and
continues at the nearer one.

The auditor reads everything once, at the end of a run.
"""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TopicPartition
from penstock.records import ControlType, RecordBatch, iter_batches, parse_control
from penstock.sim.checkers.history import (
    Audited,
    Delivered,
    FetchReceived,
    FetchSent,
    PositionMoved,
    ReadRecord,
)
from penstock.sim.clients import messages
from penstock.sim.clients.client import NOT_THERE, BadReply, ClientContext, TopicClient, code_name
from penstock.sim.clients.producers import UNKNOWN_TOPIC
from penstock.wire import Api
from penstock.wire.peers import Address

SESSIONS_FROM = 7
NO_SESSION = (0, -1)
NEW_SESSION = (0, 0)
SESSION_LOST = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)

FORGETS_NEAR = 0.02
"""Probability that a consumer goes back to its leaders for a preferred replica, as clients do after some minutes."""

NEAR_PAUSE_US = 2_000_000
"""How long a consumer stays with its leaders after a preferred replica has failed."""


@dataclass(frozen=True)
class ConsumerPlan:
    name: str
    topic: str
    uses_session: bool = False
    max_wait_ms: int = 200
    min_bytes: int = 1
    bytes_max: int = 4096
    pause_us_max: int = 20_000
    drops_link: float = 0.005
    """Probability that it disconnects instead of fetching again."""
    isolation: int | None = None
    """1 for read_committed, 0 for read_uncommitted, None to draw it for each fetch."""
    rack: str = ""
    """Its rack: it reads from the leader's preferred read replica (KIP-392), until that one fails."""


class Consumer(TopicClient):
    def __init__(self, plan: ConsumerPlan, context: ClientContext) -> None:
        super().__init__(plan.name, context, plan.topic)
        self.plan = plan
        self.positions: dict[int, Offset] = {}
        self.record_count = 0
        self._fetches = 0
        self._sessions: dict[Address, tuple[int, int]] = {}
        """Session id and next epoch by leader."""
        self._session_partitions: dict[Address, dict[int, messages.PartitionFetch]] = {}
        """Partitions in each leader's session."""
        self._near: dict[int, Address] = {}
        """Preferred read replica by partition."""
        self._near_from_us = 0
        """Until then it does not send its rack: a preferred replica has failed."""
        self._round = 0
        """Counts starts of fetching. Replies and timers of earlier rounds are ignored."""

    def topic_ready(self) -> None:
        for partition in self.partitions:
            self.positions.setdefault(partition, 0)
        self.begin_fetching()

    def begin_fetching(self) -> None:
        self._round += 1
        self._sessions.clear()
        self._near.clear()
        self._fetch()

    def stop_fetching(self) -> None:
        self._round += 1

    def _begin_session(self, leader: Address) -> None:
        wants = self.plan.uses_session and self.versions[Api.FETCH] >= SESSIONS_FROM
        self._sessions[leader] = NEW_SESSION if wants else NO_SESSION
        self._session_partitions[leader] = {}

    def _next_leader(self) -> Address | None:
        """Return the next leader to fetch from, in round robin."""
        leaders = sorted({found for each in self.partitions if (found := self._source(each)) is not None})
        return leaders[self._fetches % len(leaders)] if leaders else None

    def _source(self, partition: int) -> Address | None:
        """Return the preferred replica or the leader of a partition."""
        return self._near.get(partition) or self.leaders.get(partition)

    # -- fetching --------------------------------------------------------------------------------------

    def _fetch_soon(self) -> None:
        link, number = self.link, self._round

        def go_on() -> None:
            if link is not self.link or link is None or number != self._round:
                return
            if not self.context.network.is_calm and self.rng.random() < self.plan.drops_link:
                self.trace("hangs up")
                self.disconnect()
                return
            self._fetch()

        self.later(self.rng.randrange(self.plan.pause_us_max + 1), go_on)

    def _fetch(self) -> None:
        if self.link is None:
            return
        if self._near and self.rng.random() < FORGETS_NEAR:
            self._near.clear()
        leader = self._next_leader()
        if leader is None:
            self.refresh_leaders()
            self._fetch_soon()
            return
        if leader not in self._sessions:
            self._begin_session(leader)
        session, in_session = self._sessions[leader], self._session_partitions[leader]
        asked = [each for each in self.partitions if self._source(each) == leader]
        if session[1] > 0 and any(each not in asked for each in in_session):
            # A partition of the session has another leader now.
            self._begin_session(leader)
            session, in_session = self._sessions[leader], self._session_partitions[leader]
        plan, rng = self.plan, self.rng
        isolation = rng.randrange(2)
        limits = messages.FetchLimits(
            rng.randint(0, plan.max_wait_ms),
            rng.randint(0, plan.min_bytes),
            rng.randint(1, 4 * plan.bytes_max),
            isolation if plan.isolation is None else plan.isolation,
        )
        requested = [
            messages.PartitionFetch(partition, self.positions[partition], rng.randint(1, plan.bytes_max))
            for partition in asked
        ]
        rng.shuffle(requested)  # a fetch that is full before the last partition starves another one each time
        if session[1] > 0:
            # Partitions with a new offset must be sent; of the rest, sometimes one with another limit.
            requested = [
                partition_fetch
                for partition_fetch in requested
                if partition_fetch.partition not in in_session
                or partition_fetch.offset != in_session[partition_fetch.partition].offset
                or rng.random() < 0.2
            ]
        if session != NO_SESSION:
            in_session |= {partition_fetch.partition: partition_fetch for partition_fetch in requested}
        self._fetches += 1
        request = self.name, self._fetches
        self.record(FetchSent(request, [self._at(partition) for partition in asked]))
        asked_from, number = dict(self.positions), self._round
        rack = plan.rack if self.context.schedule.now_us >= self._near_from_us else ""

        def on_reply(reply: messages.FetchReply) -> None:
            if number == self._round:
                self._fetched(leader, request, asked_from, limits.isolation_level, reply)

        self.call(messages.fetch(limits, session, self.topic, requested, rack), on_reply, to=leader)

    def _at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.scope, partition)

    def _fetched(
        self,
        leader: Address,
        request: tuple[str, int],
        asked_from: dict[int, Offset],
        isolation: int,
        reply: messages.FetchReply,
    ) -> None:
        code, session_id, partitions = reply
        if code:
            self.trace(f"cannot fetch: {code_name(code)}")
            if code not in SESSION_LOST:
                self.again_soon(self.ready)
                return
            self._begin_session(leader)
            self._fetch_soon()
            return
        if self._sessions[leader] != NO_SESSION:
            self._follow_session(leader, session_id)
        astray = []
        for each in partitions:
            if self._goes_elsewhere(each):
                continue
            if each.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                astray.append(each.partition)
            elif each.code:
                self.trace(f"cannot fetch {self._at(each.partition)}: {code_name(each.code)}")
                if each.code in UNKNOWN_TOPIC:
                    self.again_soon(self.ready)
                    return
                if each.code in NOT_THERE:
                    self.refresh_leaders()
            else:
                self._view(request, asked_from[each.partition], isolation, each)
        if astray:
            self._find_way(astray)
        else:
            self._fetch_soon()

    def _goes_elsewhere(self, fetched: messages.PartitionFetched) -> bool:
        """Return whether a partition is read from another replica from now on: a preferred replica, or the leader
        again if the preferred replica failed."""
        at = self._at(fetched.partition)
        if fetched.code and self._near.pop(fetched.partition, None) is not None:
            self.trace(f"reads {at} at its leader again: {code_name(fetched.code)}")
            self._near_from_us = self.context.schedule.now_us + NEAR_PAUSE_US
            return True
        if fetched.preferred >= 0:
            self.trace(f"reads {at} at node {fetched.preferred} from now on")
            self._near[fetched.partition] = self.context.bootstrap[fetched.preferred - 1]
            return True
        return False

    def _follow_session(self, leader: Address, session_id: int) -> None:
        if session_id == 0:
            # The node has no room for a session: fetches must be full.
            self._begin_session(leader)
        else:
            self._sessions[leader] = session_id, self._sessions[leader][1] + 1

    def _view(
        self, request: tuple[str, int], position: Offset, isolation: int, fetched: messages.PartitionFetched
    ) -> None:
        partition = fetched.partition
        stop, seen, hidden = position, list[ReadRecord](), list[ReadRecord]()
        aborted = AbortedBatches(fetched.aborted)
        for batch in iter_batches(fetched.records):
            batch.check_crc()
            stop = batch.next_offset
            is_hidden = aborted.hides(batch)
            if batch.is_control:
                continue
            records = [
                ReadRecord(record.offset, record.key, record.value or b"")
                for record in batch.records()
                if record.offset >= position
            ]
            seen += records
            if is_hidden:
                hidden += records
        if fetched.records and stop <= position:
            raise BadReply(
                f"{self.name} fetched {self._at(partition)} from {position} and got only earlier records"
            )
        self.positions[partition] = stop
        self.record_count += len(seen)
        if stop > position:
            self.trace(f"reads {self._at(partition)} {position}..{stop}")
        event = FetchReceived(
            self.name,
            self._at(partition),
            request,
            position,
            stop,
            seen,
            fetched.high_watermark,
            fetched.log_start,
            self.incarnation,
        )
        self.record(event)
        if isolation:
            given = [each for each in seen if each not in hidden] if hidden else seen
            self.record(Delivered(self.name, self._at(partition), given, hidden))
            self.delivered(partition, given)
        self.viewed(event)

    def viewed(self, event: FetchReceived) -> None:
        """A fetch response for a partition was handled."""

    def delivered(self, partition: int, records: list[ReadRecord]) -> None:
        """Committed records were read, perhaps none."""

    # -- when an offset is out of range ----------------------------------------------------------------

    def _find_way(self, astray: list[int]) -> None:
        partition, *rest = astray

        number = self._round

        def go_on() -> None:
            if number != self._round:
                return
            if rest:
                self._find_way(rest)
            else:
                self._fetch_soon()

        def got_earliest(earliest: Offset) -> None:
            def got_latest(latest: Offset) -> None:
                if number != self._round:
                    return
                position = self.positions[partition]
                position = min(max(position, earliest), max(earliest, latest))
                self.trace(f"continues in {self._at(partition)} at {position}")
                self.positions[partition] = position
                self.record(PositionMoved(self.name, self._at(partition), position, self.incarnation))
                go_on()

            self._look_up(partition, messages.LATEST, got_latest)

        self._look_up(partition, messages.EARLIEST, got_earliest)

    def _look_up(self, partition: int, timestamp: int, got: Callable[[Offset], None]) -> None:
        def on_reply(reply: tuple[int, Offset]) -> None:
            code, offset = reply
            if code:
                self.trace(f"cannot list offsets of {self._at(partition)}: {code_name(code)}")
                self.again_soon(self.ready)
            else:
                got(offset)

        request = messages.list_offsets(TopicPartition(self.topic.name, partition), timestamp)
        self.call(request, on_reply, to=self.leaders.get(partition))


class Rereader(Consumer):
    """Reads everything again and again, so that later changes to the log show."""

    def viewed(self, event: FetchReceived) -> None:
        if event.stop >= event.high_watermark:
            start = max(0, event.log_start)
            self.positions[event.at.partition] = start
            self.record(PositionMoved(self.name, event.at, start, self.incarnation))


class AbortedBatches:
    """Finds the batches of aborted transactions in a fetch, as Kafka's clients do."""

    def __init__(self, transactions: list[tuple[int, Offset]]) -> None:
        self._coming = sorted(transactions, key=lambda each: each[1])
        self._open: set[int] = set()
        """Producers with an aborted transaction at the current position in the log."""

    def hides(self, batch: RecordBatch) -> bool:
        while self._coming and self._coming[0][1] <= batch.last_offset:
            self._open.add(self._coming.pop(0)[0])
        if batch.is_control:
            if any(parse_control(each).type is ControlType.ABORT for each in batch.records()):
                self._open.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._open


class Auditor(Consumer):
    """Reads a topic to its end, and reports its records.

    The end is what ListOffsets replies: a new leader rejects it until its high watermark has reached the start of its
    epoch. The high watermark of a fetch may still be behind acknowledged records."""

    def __init__(self, topic: str, context: ClientContext, *, isolation: int = 0) -> None:
        name = f"{'committed records' if isolation else 'auditor'} of {topic}"
        plan = ConsumerPlan(
            name, topic, max_wait_ms=10, bytes_max=1 << 16, pause_us_max=100, isolation=isolation
        )
        super().__init__(plan, context)
        self._records: dict[int, list[ReadRecord]] = {}
        self._starts: dict[int, Offset] = {}
        self._stops: dict[int, Offset] = {}
        self._ends: dict[int, Offset] = {}

    def topic_ready(self) -> None:
        unknown = [each for each in self.partitions if each not in self._ends]
        if not unknown:
            super().topic_ready()
            return

        def got_end(end: Offset) -> None:
            self._ends[unknown[0]] = end
            self.topic_ready()

        self._look_up(unknown[0], messages.LATEST, got_end)

    @property
    def is_done(self) -> bool:
        return bool(self.partitions) and all(
            each in self._stops and self.positions[each] >= self._ends[each] for each in self.partitions
        )

    def viewed(self, event: FetchReceived) -> None:
        partition = event.at.partition
        if event.start != self._stops.get(partition):
            # The first fetch; or retention deleted the next records, and everything before them.
            self._starts[partition] = event.start
            self._records[partition] = []
        self._stops[partition] = event.stop
        self._records[partition] += event.records
        self._ends[partition] = max(self._ends[partition], event.high_watermark)

    def findings(self) -> list[Audited]:
        return [
            Audited(self._at(each), self._starts[each], self._ends[each], self._records[each])
            for each in self.partitions
        ]
