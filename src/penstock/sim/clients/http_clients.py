"""Clients of HTTP, and the base class that they share with clients of the line protocol (`line_clients`).

Each has one connection at a time, to a random node, and one open request. A request without a reply within
`ANSWER_US_MAX` is repeated on another connection.

    HttpProducer    POST /produce with an idempotency key, until it is answered; sometimes repeats an old record
    HttpMember      /join, then /consume and /commit for each of its partitions, sometimes /leave
"""

from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from penstock.base.ids import Offset, TopicPartition
from penstock.sim.checkers.history import (
    Acked,
    Batch,
    DoorCommitEnded,
    DoorCommitSent,
    DoorFetchReceived,
    DoorFetchSent,
    Event,
    KeyAnswered,
    ProducedRecord,
    ReadRecord,
    Sent,
    Survives,
)
from penstock.sim.clients.client import BadReply, ClientContext
from penstock.sim.clients.ports import Connection
from penstock.wire.peers import Address

ANSWER_US_MAX = 15_000_000
CONNECT_US_MAX = 4_000_000
ANY_PROCESS = 0
"""It is unknown which process acknowledged a record: the node that got the request may have forwarded it."""

AGAIN = frozenset({500, 503, 504, 404})
"""Temporary statuses. 404: the node does not know the topic yet; 500: its disk fails."""


@dataclass(frozen=True)
class DoorsPlan:
    """Clients of HTTP and of the line protocol."""

    topic: str
    partition_count: int
    producers: int = 2
    members: int = 2
    line_producers: int = 1
    line_consumers: int = 1
    pace_us: int = 300_000
    repeats: float = 0.1
    """Probability that a producer repeats a record that was answered before."""
    drops_link: float = 0.01
    leaves: float = 0.005


class DoorClient:
    """Implements `NetworkClient`. Counts successful operations."""

    def __init__(
        self, name: str, context: ClientContext, plan: DoorsPlan, doors: tuple[Address, ...]
    ) -> None:
        self.name = name
        self.context = context
        self.plan = plan
        self.rng = context.schedule.rng(f"client {name}")
        self.done_count = 0
        self.is_working = True
        self._doors = doors
        self._link: Connection | None = None
        self._commit: int | None = None
        """Number of the open commit of an offset."""
        self._turn = 0
        """Counts connections, attempts and requests. Timers of earlier ones are ignored."""
        self._is_over = False

    # -- for subclasses --------------------------------------------------------------------------------

    def ready(self) -> None:
        """The connection is open."""
        raise NotImplementedError

    def data_arrived(self, data: bytes) -> None:
        raise NotImplementedError

    def disconnected(self) -> None:
        """The connection is lost, and the open request with it."""

    @property
    def is_idle(self) -> bool:
        """Whether it has nothing left that must be finished."""
        return True

    # -- life ------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.later(self.rng.randrange(1, 100_000), self._dial)

    def finish(self) -> None:
        self.is_working = False

    def end(self) -> None:
        self._is_over = True
        self.disconnect()

    def _dial(self) -> None:
        if self._is_over or self._link is not None:
            return
        self._turn += 1
        self.context.network.connect(self, self.rng.choice(self._doors))
        self._give_up_after(CONNECT_US_MAX)

    def _give_up_after(self, delay_us: int) -> None:
        turn = self._turn

        def give_up() -> None:
            if turn == self._turn and not self._is_over:
                self.trace("is not answered")
                self.disconnect()

        self.later(delay_us, give_up)

    def disconnect(self) -> None:
        link, self._link = self._link, None
        self._turn += 1
        if link is not None:
            link.close()
            self.disconnected()
        if not self._is_over:
            self.later(self.context.patience * self.rng.randrange(5_000, 100_000), self._dial)

    # -- called by the network -------------------------------------------------------------------------

    def connected(self, link: Connection) -> None:
        if self._is_over or self._link is not None:
            link.close()
            return
        self._link = link
        self._turn += 1
        self.ready()

    def refused(self) -> None:
        if self._link is None:
            self.disconnect()

    def closed(self, link: Connection) -> None:
        if link is self._link:
            self.disconnect()

    def received(self, link: Connection, data: bytes) -> None:
        if link is self._link:
            self.data_arrived(data)

    # -- small things ----------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send a request; disconnect if it is not answered in time."""
        assert self._link is not None
        self._turn += 1
        self._link.send(data)
        self._give_up_after(ANSWER_US_MAX)

    def answered(self) -> None:
        self._turn += 1

    def later(self, delay_us: int, call: Callable[[], None]) -> None:
        self.context.schedule.later(delay_us, call)

    def soon(self, call: Callable[[], None], delay_us_max: int) -> None:
        """Call after a short pause, if the connection is still the same and no request was sent since."""
        turn = self._turn

        def go_on() -> None:
            if turn == self._turn and self._link is not None:
                call()

        self.later(self.rng.randrange(delay_us_max // 2, delay_us_max + 1), go_on)

    def _commit_begins(self, number: int, group: str, at: TopicPartition, offset: Offset) -> None:
        self._commit = number
        self.record(DoorCommitSent(number, group, at, offset, self.context.schedule.now_us))

    def _commit_ended(self, is_done: bool | None) -> None:
        number, self._commit = self._commit, None
        if number is not None:
            self.record(DoorCommitEnded(number, is_done))

    def record(self, event: Event) -> None:
        self.context.recorder.record(event)

    def trace(self, line: str) -> None:
        self.context.recorder.trace(f"{self.name} {line}")


class Reply(NamedTuple):
    status: int
    body: bytes
    is_last: bool
    """Whether the server closes the connection after it."""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class ReplyReader:
    """Parses HTTP/1.1 replies with a Content-Length, one at a time, as their bytes arrive."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> Reply | None:
        """Return the reply once it is complete."""
        self._data += data
        head, blank, rest = self._data.partition(b"\r\n\r\n")
        if not blank:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(fields["content-length"])
        if len(rest) < length:
            return None
        return Reply(int(first.split(" ")[1]), rest[:length], fields.get("connection", "").lower() == "close")


class HttpClient(DoorClient):
    def __init__(self, name: str, context: ClientContext, plan: DoorsPlan) -> None:
        super().__init__(name, context, plan, context.http)
        self._reader = ReplyReader()
        self._reply_handler: Callable[[Reply], None] | None = None

    def call(self, method: str, target: str, on_reply: Callable[[Reply], None], body: bytes = b"") -> None:
        kind = "Content-Type: application/json\r\n" if body else ""
        head = f"{method} {target} HTTP/1.1\r\nHost: penstock\r\n{kind}Content-Length: {len(body)}\r\n\r\n"
        self._reader = ReplyReader()
        self._reply_handler = on_reply
        self.send(head.encode() + body)

    def data_arrived(self, data: bytes) -> None:
        reply = self._reader.feed(data)
        if reply is None:
            return
        on_reply, self._reply_handler = self._reply_handler, None
        if on_reply is None:
            raise BadReply(f"{self.name} got {reply.status} without a request")
        self.answered()
        on_reply(reply)
        if reply.is_last:
            self.disconnect()

    def disconnected(self) -> None:
        self._reply_handler = None

    def strange(self, what: str, reply: Reply) -> BadReply:
        return BadReply(f"{self.name} got {reply.status} for {what}: {reply.body[:300]!r}")


class HttpProducer(HttpClient):
    def __init__(self, name: str, context: ClientContext, plan: DoorsPlan) -> None:
        super().__init__(name, context, plan)
        self._waiting: Batch | None = None
        """The batch that was sent and not answered yet."""
        self._answered: list[Batch] = []
        self._counts = [0] * plan.partition_count
        self._batch_count = 0

    @property
    def is_idle(self) -> bool:
        return self._waiting is None

    def ready(self) -> None:
        self._next()

    def _next(self) -> None:
        if self._waiting is None and not self.is_working:
            self.soon(self._next, self.plan.pace_us)
            return
        if self._waiting is None and self._answered and self.rng.random() < self.plan.repeats:
            self._send(self.rng.choice(self._answered[-200:]))
            return
        if self._waiting is None:
            self._waiting = self._make()
        self._send(self._waiting)

    def _make(self) -> Batch:
        partition = self.rng.randrange(self.plan.partition_count)
        number = self._counts[partition]
        self._counts[partition] += 1
        self._batch_count += 1
        value = f"{self.name}/{partition}/{number}".encode()
        at = TopicPartition(self.plan.topic, partition)
        batch = Batch(self.name, self._batch_count, at, -1, [ProducedRecord(None, value, number)])
        batch.identities.append((0, 0, number))  # stands for its key: the record must be in the log once
        return batch

    def _send(self, batch: Batch) -> None:
        batch.sends += 1
        self.record(Sent(batch))
        key = f"{self.name}-{batch.number}"
        self.trace(f"posts {key} to {batch.at}")
        body = {
            "topic": batch.at.topic,
            "partition": batch.at.partition,
            "value": b64encode(batch.records[0].value).decode(),
            "idempotency_key": key,
        }
        self.call(
            "POST", "/produce", lambda reply: self._on_reply(batch, key, reply), msgspec.json.encode(body)
        )

    def _on_reply(self, batch: Batch, key: str, reply: Reply) -> None:
        if reply.status in AGAIN:
            self.trace(f"gets {reply.status} for {key}: {reply.body[:200]!r}")
            self.soon(self._next, self.plan.pace_us)
            return
        if reply.status != 200:
            raise self.strange("POST /produce", reply)
        place: dict[str, Any] = reply.json()
        at, offset = TopicPartition(place["topic"], place["partition"]), int(place["offset"])
        self.trace(f"has written {key} to {at} at {offset}")
        self.record(KeyAnswered(self.name, key, at, offset))
        if batch is self._waiting:
            self._waiting = None
            self._answered.append(batch)
            self.done_count += 1
            self.record(Acked(batch, offset, Survives.POWER_CUT, ANY_PROCESS))
        if not self.context.network.is_calm and self.rng.random() < self.plan.drops_link:
            self.disconnect()
        else:
            self.soon(self._next, self.plan.pace_us)


class HttpMember(HttpClient):
    def __init__(
        self, name: str, context: ClientContext, plan: DoorsPlan, group: str, numbers: Callable[[], int]
    ) -> None:
        super().__init__(name, context, plan)
        self._group = group
        self._numbers = numbers
        self._query = f"group={group}&consumer={name}"
        self._owned: list[int] = []
        self._is_member = False
        self._turns = 0

    def ready(self) -> None:
        self._go_on()

    def disconnected(self) -> None:
        super().disconnected()
        self._commit_ended(None)

    def _go_on(self) -> None:
        if not self._is_member:
            self.call(
                "POST", f"/join?{self._query}&topic={self.plan.topic}&session_timeout_ms=30000", self._joined
            )
        elif not self._owned or (self.is_working and self.rng.random() < self.plan.leaves):
            # A member without partitions joins again: there may be fewer members now.
            self.call("POST", f"/leave?{self._query}", self._left)
        else:
            self._turns += 1
            self._consume(self._owned[self._turns % len(self._owned)])

    def _joined(self, reply: Reply) -> None:
        if reply.status == 200:
            self._is_member = True
            self._owned = reply.json()["assignments"].get(self.plan.topic, [])
            self.trace(f"has joined, and has {self._owned}")
        elif reply.status not in AGAIN:
            raise self.strange("POST /join", reply)
        self.soon(self._go_on, self.plan.pace_us)

    def _left(self, reply: Reply) -> None:
        if reply.status != 200 and reply.status not in AGAIN:
            raise self.strange("POST /leave", reply)
        if reply.status in (200, 404):
            self._is_member = False
        self.soon(self._go_on, 4 * self.plan.pace_us)

    def _consume(self, partition: int) -> None:
        at, number = TopicPartition(self.plan.topic, partition), self._numbers()
        self.record(DoorFetchSent(number, self._group, [at]))

        def on_reply(reply: Reply) -> None:
            if self._is_out("/consume", reply):
                return
            reply_json: dict[str, Any] = reply.json()
            seen = [
                ReadRecord(each["offset"], None, b64decode(each["value"] or ""))
                for each in reply_json["messages"]
            ]
            self.record(DoorFetchReceived(self.name, number, self._group, at, None, seen))
            if seen:
                self._commit_offset(at, reply_json["next_offset"])
            else:
                self.soon(self._go_on, self.plan.pace_us)

        self.call(
            "GET",
            f"/consume?{self._query}&topic={at.topic}&partition={partition}&max_messages=20&wait_ms=500",
            on_reply,
        )

    def _commit_offset(self, at: TopicPartition, offset: Offset) -> None:
        self._commit_begins(self._numbers(), self._group, at, offset)

        def on_reply(reply: Reply) -> None:
            # 409 means that the commit had no effect; after other errors it may have.
            self._commit_ended(True if reply.status == 200 else False if reply.status == 409 else None)
            if self._is_out("/commit", reply):
                return
            self.done_count += 1
            self.trace(f"has committed {offset} of {at}")
            self.soon(self._go_on, self.plan.pace_us)

        self.call(
            "POST",
            f"/commit?{self._query}&topic={at.topic}&partition={at.partition}&offset={offset}",
            on_reply,
        )

    def _is_out(self, what: str, reply: Reply) -> bool:
        """Return whether a request failed; if so, arrange the next step."""
        if reply.status == 200:
            return False
        if reply.status == 409:
            self._is_member = False  # its membership or its assignment has changed: join again
        elif reply.status not in AGAIN:
            raise self.strange(what, reply)
        self.trace(f"gets {reply.status} for {what}: {reply.body[:200]!r}")
        self.soon(self._go_on, self.plan.pace_us)
        return True
