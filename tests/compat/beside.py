"""The same requests to two brokers, one after the other, and their answers made comparable.

    two = (Side(kafka.bootstrap), Side(penstock.bootstrap))
    converse(two, script)        raises where they answer differently, with what was said before

A script is a list of steps, and a step is a line of what is asked together with a function that asks it of a side.
What brokers choose themselves (ids of members and producers) has a name on each side, given in the order in which it
was met; a step looks up on its side what it needs. A client has one request under way: one whose answer waits for
others is passed over until it has come. What an answer leaves open, such as times, is left out of the comparison.
"""

import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, NamedTuple

from tests.handlers.cluster import make_request

from penstock.records import iter_batches, parse_control
from penstock.wire import Api, parse_response_header, read_response, request_frame, write_request

QUIET_S = 0.05
"""An answer that does not wait for other members comes sooner, or the other side's has come and this is looked for:"""
LATE_S = 2.0

LEFT_OUT = {
    *("throttle_time", "error_message", "host", "port", "node_id", "coordinator_epoch", "log_start_offset"),
    *("last_timestamp", "log_append_time", "transaction_start_time", "transaction_timeout"),
}
UNORDERED = {
    *("groups", "topics", "results", "partitions", "members", "responses", "active_producers"),
    *("transaction_states", "topic_results", "results_by_topic_v3_and_below", "results_by_partition"),
}
SHRUG = "unknown_server_error"
"""Kafka's word for a case that it forgot: no example to follow."""

Learn = Callable[[Any], None]


class Answer(NamedTuple):
    label: str
    told: Any
    """The reply as plain data, or None where the connection ended."""


class _Client:
    """A connection, and the one request that is under way on it."""

    def __init__(self, bootstrap: str, name: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.name = name
        self.under_way: tuple[str, Api, int, Learn | None] | None = None
        self._received = b""

    def send(self, label: str, api: Api, version: int, body: bytes, learn: Learn | None) -> None:
        self.under_way = (label, api, version, learn)
        self.socket.sendall(request_frame(api, version, 1, self.name, body))

    def receive(self) -> Any:
        """The reply, once it is there whole."""
        assert self.under_way is not None
        came = self.socket.recv(1 << 20)
        if not came:
            raise ConnectionError(f"{self.under_way[0]}: the broker has closed the connection")
        self._received += came
        size = int.from_bytes(self._received[:4], "big")
        if len(self._received) < 4 or len(self._received) < 4 + size:
            return None
        _, api, version, _ = self.under_way
        frame = memoryview(self._received)[4:]
        _, start = parse_response_header(frame, api, version)
        body = bytes(frame[start:])
        if (
            api is Api.DESCRIBE_TRANSACTIONS
        ):  # -1 is how "none is open" is told, and kio takes no time before 1970
            body = body.replace(b"\xff" * 8, b"\0" * 8)
        self._received = b""
        return read_response(api, version, memoryview(body))


class Side:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._clients: dict[str, _Client] = {}
        self._names: dict[tuple[str, Any], str] = {}
        self.known: dict[str, dict[str, Any]] = {}
        """What each client has learnt, to be used in its next requests."""

    def begin(self) -> None:
        """Forget what was said before, and end all connections."""
        for client in self._clients.values():
            client.socket.close()
        self._clients, self._names, self.known = {}, {}, {}

    def is_waiting(self, client: str) -> bool:
        return client in self._clients and self._clients[client].under_way is not None

    def ask(
        self, label: str, client: str, api: Api, version: int, learn: Learn | None = None, **values: Any
    ) -> None:
        self.ask_body(
            label,
            client,
            api,
            version,
            write_request(api, version, make_request(api, version, **values)),
            learn,
        )

    def ask_body(
        self, label: str, client: str, api: Api, version: int, body: bytes, learn: Learn | None = None
    ) -> None:
        if client not in self._clients:
            self._clients[client] = _Client(self.bootstrap, client)
        self._clients[client].send(label, api, version, body, learn)

    def call(self, api: Api, version: int, **values: Any) -> Any:
        """For what belongs to no script."""
        found: list[Any] = []
        self.ask("call", "somebody", api, version, found.append, **values)
        while not found:
            self.answers(LATE_S)
        return found[0]

    def answers(self, wait_s: float) -> list[Answer]:
        """What has come until there was silence for a while."""
        found = []
        while waiting := [each for each in self._clients.values() if each.under_way is not None]:
            poll = select.poll()  # it takes any number of a file, select only those below 1024
            for each in waiting:
                poll.register(each.socket, select.POLLIN)
            ready = {number for number, _ in poll.poll(wait_s * 1000)}
            if not ready:
                break
            for client in waiting:
                if client.socket.fileno() in ready and (reply := client.receive()) is not None:
                    assert client.under_way is not None
                    label, _, _, learn = client.under_way
                    client.under_way = None
                    if learn is not None:
                        learn(reply)
                    found.append(Answer(label, reply))
        return sorted(found)

    # What a broker has chosen has a name here.

    def name(self, kind: str, value: Any) -> str:
        number = 1 + sum(each == kind for each, _ in self._names)
        return self._names.setdefault((kind, value), f"{kind} {number}")

    def meet(self, reply: Any) -> None:
        """Whom an answer is to has a name before those that it tells of."""
        if getattr(reply, "member_id", ""):
            self.name("member", reply.member_id)

    def plain(self, told: Any, field: str = "") -> Any:
        if is_dataclass(told):
            return {
                each.name: self.plain(getattr(told, each.name), each.name)
                for each in fields(told)
                if each.name not in LEFT_OUT
            }
        if isinstance(told, tuple):
            listed = [self.plain(each, field) for each in told]
            return sorted(listed, key=repr) if field in UNORDERED else listed
        if field == "records" and told is not None:
            return [self._batch(each) for each in iter_batches(memoryview(bytes(told)))]
        return self._value(told, field)

    def _value(self, told: Any, field: str) -> Any:
        if isinstance(told, Enum):
            return told.name
        if field in ("member_id", "leader") and told:
            return self.name("member", told)
        if field == "producer_id":
            return self.name("producer", told) if told > 0 else "nobody, or the first"
        if field == "producer_epoch":
            return max(told, 0)  # where there is an error, Kafka says now 0 and now -1
        return told

    def _batch(self, batch: Any) -> Any:
        kinds = [parse_control(each).type.name for each in batch.records()] if batch.is_control else None
        return (batch.base_offset, batch.last_offset, batch.producer_epoch, batch.base_sequence, kinds)


class Step(NamedTuple):
    line: str
    client: str
    ask: Callable[[Side], None]


def converse(
    two: tuple[Side, Side], script: Sequence[Step], before_each: Callable[[Side], None] | None = None
) -> int:
    """Go through a script with both; how many steps were compared."""
    said: list[str] = []
    for side in two:
        side.begin()
    count = 0
    for step in script:
        if any(side.is_waiting(step.client) for side in two):
            continue
        for side in two:
            if before_each is not None:
                before_each(side)
            step.ask(side)
        first, second = (side.answers(QUIET_S) for side in two)
        deadline = time.monotonic() + LATE_S
        while [each.label for each in first] != [
            each.label for each in second
        ] and time.monotonic() < deadline:
            first, second = (
                sorted(have + side.answers(QUIET_S)) for have, side in zip((first, second), two, strict=True)
            )
        told = []
        for side, have in zip(two, (first, second), strict=True):
            for each in have:
                side.meet(each.told)
            told.append([(each.label, side.plain(each.told)) for each in have])
        if SHRUG in repr(told[0]) or _leaders(told[0]) != _leaders(told[1]):
            break
        said.append(f"{step.line}\n      {told[0]}")
        assert told[1] == told[0], "\n".join(["answered differently:", *said[-12:], f"  and {told[1]}"])
        count += 1
    return count


def _leaders(told: list[tuple[str, Any]]) -> set[str]:
    """Of the generation that this begins. Who leads when the leader has gone is anybody's choice."""
    return {reply["leader"] for _, reply in told if reply.get("generation_id", -1) >= 0 and "leader" in reply}
