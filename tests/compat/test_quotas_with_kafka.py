"""Quotas beside Apache Kafka's: the same answers, Kafka's own tool, and a directory that changes hands."""

import re
import socket
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.compat.kafka.peer import KafkaPeer
from tests.handlers.cluster import make_request
from tests.wire_requests import produce_body

from penstock.records import build_batch
from penstock.testing import Broker
from penstock.wire import Api, parse_response_header, read_response, request_frame, write_request

pytestmark = pytest.mark.kafka

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
Entity = dict[str, str | None]


class Client:
    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)

    def close(self) -> None:
        self._socket.close()

    def ask(self, api: Api, version: int, **values: Any) -> Any:
        return self.send(api, version, write_request(api, version, make_request(api, version, **values)))

    def send(self, api: Api, version: int, body: bytes) -> Any:
        self._socket.sendall(request_frame(api, version, 1, "billing", body))
        received = b""
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            came = self._socket.recv(1 << 16)
            assert came, f"the broker closed the connection at {api.label}"
            received += came
        frame = memoryview(received)[4:]
        _, start = parse_response_header(frame, api, version)
        return read_response(api, version, frame[start:])

    def alter(self, *entries: tuple[Entity, dict[str, float | None]], validate_only: bool = False) -> Any:
        told = [
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in limits.items()
                ],
            }
            for entity, limits in entries
        ]
        reply = self.ask(Api.ALTER_CLIENT_QUOTAS, 1, entries=told, validate_only=validate_only)
        return sorted(
            (each.error_code.name, sorted((part.entity_type, part.entity_name or "") for part in each.entity))
            for each in reply.entries
        )

    def describe(self, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
        wanted = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
        reply = self.ask(Api.DESCRIBE_CLIENT_QUOTAS, 1, components=wanted, strict=strict)
        rows = [
            (
                sorted((part.entity_type, part.entity_name or "<default>") for part in each.entity),
                sorted((value.key, value.value) for value in each.values),
            )
            for each in reply.entries or ()
        ]
        return reply.error_code.name, sorted(rows)

    def described_soon(self, count: int) -> Any:
        """Kafka's broker sees a change a moment after it was answered."""
        until = time.monotonic() + 20
        while len((found := self.describe())[1]) != count and time.monotonic() < until:
            pass
        return found


GOOD: list[tuple[Entity, dict[str, float | None]]] = [
    ({"user": "alice"}, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
    ({"user": None}, {"consumer_byte_rate": 2000.0}),
    ({"user": "alice", "client-id": "billing"}, {"controller_mutation_rate": 0.5}),
    ({"client-id": None}, {"producer_byte_rate": 7.0}),
    ({"user": None, "client-id": "x"}, {"producer_byte_rate": 9.0}),
    ({"ip": "10.0.0.7"}, {"connection_creation_rate": 5.0}),
    ({"ip": None}, {"connection_creation_rate": 50.0}),
]
BAD: list[tuple[Entity, dict[str, float | None]]] = [
    ({}, {"producer_byte_rate": 1.0}),
    ({"group": "g"}, {"producer_byte_rate": 1.0}),
    ({"user": ""}, {"producer_byte_rate": 1.0}),
    ({"user": "a", "ip": "10.0.0.7"}, {"producer_byte_rate": 1.0}),
    ({"ip": "300.1.1.1"}, {"connection_creation_rate": 1.0}),
    ({"ip": "10.0.0.8"}, {"producer_byte_rate": 1.0}),
    ({"user": "a"}, {"connection_creation_rate": 1.0}),
    ({"user": "b"}, {"speed": 1.0}),
    ({"user": "c"}, {"producer_byte_rate": 0.0}),
    ({"user": "d"}, {"producer_byte_rate": -1.0}),
    ({"user": "e"}, {"producer_byte_rate": 1.5}),
    ({"user": "f"}, {"producer_byte_rate": 1e20}),
    ({"ip": "10.0.0.9"}, {"connection_creation_rate": 3e9}),
    ({"user": "g"}, {"consumer_byte_rate": 5.0, "producer_byte_rate": -1.0}),
]
FILTERS: list[tuple[list[tuple[str, int, str | None]], bool]] = [
    ([], False),
    ([], True),
    ([("user", EXACT, "alice")], False),
    ([("user", EXACT, "alice")], True),
    ([("user", DEFAULT, None)], False),
    ([("user", SPECIFIED, None), ("client-id", SPECIFIED, None)], True),
    ([("ip", SPECIFIED, None)], False),
    ([("user", EXACT, "a"), ("user", EXACT, "b")], False),
    ([("", EXACT, "a")], False),
    ([("group", EXACT, "a")], False),
    ([("user", EXACT, None)], False),
    ([("user", DEFAULT, "a")], False),
    ([("user", 9, None)], False),
    ([("user", EXACT, "a"), ("ip", EXACT, "10.0.0.7")], False),
]


def conversation(bootstrap: str) -> dict[str, Any]:
    with closing(Client(bootstrap)) as client:
        seen: dict[str, Any] = {"good": client.alter(*GOOD)}
        client.described_soon(len(GOOD))
        for entry in BAD:
            seen[f"bad {entry}"] = client.alter(entry)
        seen["only looked at"] = client.alter(GOOD[0], validate_only=True)
        seen["twice"] = client.alter(
            ({"user": "t"}, {"producer_byte_rate": 1.0}), ({"user": "t"}, {"producer_byte_rate": 1.0})
        )
        client.alter(({"user": "t"}, {"producer_byte_rate": None}))
        client.described_soon(len(GOOD))
        for components, strict in FILTERS:
            seen[f"filter {components} {strict}"] = client.describe(*components, strict=strict)
        seen["removed"] = client.alter(*((entity, dict.fromkeys(limits)) for entity, limits in GOOD))
        seen["left"] = client.described_soon(0)
        return seen


@pytest.mark.long
def test_answers_are_kafkas(kafka: KafkaPeer, tmp_path: Path) -> None:
    kafka.format_storage(tmp_path / "kafka")
    with kafka.running_kafka(tmp_path / "kafka") as theirs:
        expected = conversation(theirs.bootstrap)
    with Broker() as ours:
        assert conversation(ours.bootstrap) == expected


SLOW: list[tuple[Entity, dict[str, float | None]]] = [
    ({"user": "ANONYMOUS", "client-id": "billing"}, {"producer_byte_rate": 10.0}),
    ({"ip": "10.0.0.7"}, {"connection_creation_rate": 5.0}),
]


@pytest.mark.long
def test_quotas_of_a_kafka_directory_are_enforced_here_and_go_back(kafka: KafkaPeer, tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    kafka.format_storage(data)
    with kafka.running_kafka(data) as theirs:
        with closing(Client(theirs.bootstrap)) as client:
            client.alter(*SLOW)
            expected = client.described_soon(len(SLOW))
        theirs.stop()
    with Broker(data=data) as ours, closing(Client(ours.bootstrap)) as client:
        assert client.describe() == expected
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        client.ask(Api.CREATE_TOPICS, 7, topics=[topic], timeout=timedelta(seconds=10), validate_only=False)
        body = produce_body(9, [("t", [(0, bytes(build_batch([(None, b"x" * 900, 0)])))])])
        assert client.send(Api.PRODUCE, 9, body).throttle_time > timedelta(seconds=60)
        with closing(Client(ours.bootstrap)) as other:
            other.alter(({"user": None}, {"request_percentage": 50.0}))
            expected = other.describe()
            assert len(expected[1]) == 3
    with kafka.running_kafka(data) as theirs:
        with closing(Client(theirs.bootstrap)) as client:
            assert client.described_soon(3) == expected
        theirs.stop()


def test_kafkas_tool_sets_shows_and_removes_quotas(kafka: KafkaPeer) -> None:
    with Broker() as ours:

        def tool(*arguments: str) -> str:
            return kafka.java("kafka.admin.ConfigCommand", "--bootstrap-server", ours.bootstrap, *arguments)

        limits = "producer_byte_rate=1024,request_percentage=25"
        alice = ("--entity-type", "users", "--entity-name", "alice")
        billing = ("--entity-type", "clients", "--entity-name", "billing")
        tool("--alter", "--add-config", limits, *alice, *billing)
        tool(
            "--alter",
            "--add-config",
            "connection_creation_rate=9",
            "--entity-type",
            "ips",
            "--entity-default",
        )
        shown = tool("--describe", *alice, *billing)
        assert re.search(r"user-principal 'alice', client-id 'billing' are .*producer_byte_rate=1024", shown)
        assert "request_percentage=25" in shown
        assert "connection_creation_rate=9" in tool("--describe", "--entity-type", "ips")
        tool("--alter", "--delete-config", "producer_byte_rate,request_percentage", *alice, *billing)
        with closing(Client(ours.bootstrap)) as client:
            assert client.describe()[1] == [([("ip", "<default>")], [("connection_creation_rate", 9.0)])]
