"""Clients of the line protocol."""

from collections.abc import Callable

from penstock.base.hashing import partition_of_key
from penstock.base.ids import Offset, TopicPartition
from penstock.sim.checkers.history import (
    Acked,
    Batch,
    DoorFetchReceived,
    DoorFetchSent,
    ProducedRecord,
    ReadRecord,
    Sent,
    Survives,
)
from penstock.sim.clients.client import BadReply, ClientContext
from penstock.sim.clients.http_clients import ANSWER_US_MAX, ANY_PROCESS, DoorClient, DoorsPlan

KEYS = 20


class LineProducer(DoorClient):
    """Sends each message once: an unanswered one may or may not be in the log."""

    def __init__(self, name: str, context: ClientContext, plan: DoorsPlan) -> None:
        super().__init__(name, context, plan, context.line)
        self._open: Batch | None = None
        self._received = b""
        self._count = 0

    def ready(self) -> None:
        self._received = b""
        self._next()

    def disconnected(self) -> None:
        self._open = None

    def _next(self) -> None:
        if not self.is_working:
            self.soon(self._next, self.plan.pace_us)
            return
        key = b"k%d" % self.rng.randrange(KEYS)
        at = TopicPartition(self.plan.topic, partition_of_key(key, self.plan.partition_count))
        self._count += 1
        value = f"{self.name}/{self._count}".encode()
        batch = self._open = Batch(self.name, self._count, at, -1, [ProducedRecord(key, value, self._count)])
        batch.sends = 1
        self.record(Sent(batch))
        self.send(b"TOPIC %s %s %d\n%s" % (at.topic.encode(), key, len(value), value))

    def data_arrived(self, data: bytes) -> None:
        self._received += data
        line, end, rest = self._received.partition(b"\n")
        if not end:
            return
        self._received = rest
        batch, self._open = self._open, None
        if batch is None:
            raise BadReply(f"{self.name} got {line!r} without a request")
        self.answered()
        word, _, number = line.decode().partition(" ")
        if word == "+OFFSET":
            self.done_count += 1
            self.trace(f"has written #{batch.number} to {batch.at} at {number}")
            self.record(Acked(batch, int(number), Survives.POWER_CUT, ANY_PROCESS))
        elif word == "-ERR":
            self.trace(f"gets {line!r} for #{batch.number}")
        else:
            raise BadReply(f"{self.name} got {line!r} for TOPIC")
        self.soon(self._next, self.plan.pace_us)


class LineConsumer(DoorClient):
    """Reads all partitions as the only member of a group, and acknowledges each message."""

    def __init__(
        self, name: str, context: ClientContext, plan: DoorsPlan, group: str, numbers: Callable[[], int]
    ) -> None:
        super().__init__(name, context, plan, context.line)
        self._group = group
        self._numbers = numbers
        self._received = b""
        self._question = 0
        self._positions: dict[int, Offset] = {}
        """Next offset of this stream in each partition that it has read."""

    def ready(self) -> None:
        self._received = b""
        self._positions = {}
        self._question = self._numbers()
        places = [TopicPartition(self.plan.topic, each) for each in range(self.plan.partition_count)]
        self.record(DoorFetchSent(self._question, self._group, places))
        self.send(f"{self.plan.topic}:{self._group}:-1\n".encode())

    def disconnected(self) -> None:
        self._commit_ended(None)

    def data_arrived(self, data: bytes) -> None:
        self._received += data
        while self._link is not None:
            line, end, rest = self._received.partition(b"\n")
            if not end:
                return
            words = line.decode().split(" ")
            if words[0] == "+MSG":
                length = int(words[2])
                if len(rest) < length:
                    return
                self._received = rest[length:]
                self._message(int(words[1]), int(words[3]), rest[:length])
            else:
                self._received = rest
                self._on_reply(words[0], line)

    def _on_reply(self, word: str, line: bytes) -> None:
        if word == "+OK":
            self.done_count += 1
            self._commit_ended(True)
        elif word == "-ERR":
            # The error may concern the stream or the ACK; a new connection restarts both.
            self.trace(f"gets {line!r}")
            self.disconnect()
            return
        elif word != "+EMPTY":
            raise BadReply(f"{self.name} got {line!r} in its stream")
        # The server sends something on the stream every second.
        self.answered()
        self._give_up_after(ANSWER_US_MAX)

    def _message(self, offset: Offset, partition: int, value: bytes) -> None:
        at = TopicPartition(self.plan.topic, partition)
        start = self._positions.get(partition)
        self._positions[partition] = offset + 1
        self.record(
            DoorFetchReceived(
                self.name, self._question, self._group, at, start, [ReadRecord(offset, None, value)]
            )
        )
        self._commit_begins(self._numbers(), self._group, at, offset + 1)
        self.send(b"ACK\n")
