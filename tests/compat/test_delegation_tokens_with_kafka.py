"""Delegation tokens beside Apache Kafka's: the same answers, Kafka's own tool, and a directory that changes hands."""

import re
import socket
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.compat.kafka.peer import KafkaPeer
from tests.handlers.cluster import make_request
from tests.security.sasl.clients import ScramClient

from penstock.metadata.scram import ScramMechanism
from penstock.server.ports import free_ports
from penstock.testing import Broker
from penstock.wire import (
    KAFKA_RANGES,
    Api,
    parse_response_header,
    read_response,
    request_frame,
    write_request,
)

pytestmark = pytest.mark.kafka

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = ("admin", "alice", "bob", "carol")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
MECHANISM = ScramMechanism.SCRAM_SHA_256


def settings(ports: list[int]) -> dict[str, str]:
    """Of both brokers. Names are those of both; the addresses differ."""
    names = "".join(f' user_{name}="pw"' for name in USERS)
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},CLIENTS://127.0.0.1:{ports[1]},"
        f"CONTROLLER://127.0.0.1:{ports[2]}",
        "listener.security.protocol.map": ("PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"),
        "controller.quorum.voters": f"1@127.0.0.1:{ports[2]}",
        "controller.listener.names": "CONTROLLER",
        "process.roles": "broker,controller",
        "node.id": "1",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.clients.plain.sasl.jaas.config": f"{MODULE}{names};",
        "listener.name.clients.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        "delegation.token.secret.key": "planted-secret",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }


class Clients:
    """Clients of one broker, by user."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._sockets: dict[str, socket.socket] = {}

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()

    def ask(self, user: str, api: Api, version: int | None = None, **values: Any) -> Any:
        if user not in self._sockets:
            self._sockets[user] = client = self._connected()
            _ask(client, Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            done = _ask(client, Api.SASL_AUTHENTICATE, 2, auth_bytes=f"\0{user}\0pw".encode())
            assert not done.error_code.value
        version = KAFKA_RANGES[api].max if version is None else version
        return _ask(self._sockets[user], api, version, **values)

    def with_token(self, name: str, token_id: str, key: bytes) -> Any:
        """Log in with a token, as a client that is then called `name`."""
        if name in self._sockets:
            self._sockets[name].close()
        self._sockets[name] = client = self._connected()
        scram = ScramClient(MECHANISM, token_id, b64encode(key).decode(), extensions="tokenauth=true")
        _ask(client, Api.SASL_HANDSHAKE, 1, mechanism=MECHANISM.label)
        challenge = _ask(client, Api.SASL_AUTHENTICATE, 2, auth_bytes=scram.first)
        return _ask(client, Api.SASL_AUTHENTICATE, 2, auth_bytes=scram.final(challenge.auth_bytes))


def _ask(client: socket.socket, api: Api, version: int, **values: Any) -> Any:
    body = write_request(api, version, make_request(api, version, **values))
    client.sendall(request_frame(api, version, 1, "client", body))
    received = b""
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        came = client.recv(1 << 16)
        assert came, f"the broker closed the connection at {api.label}"
        received += came
    frame = memoryview(received)[4:]
    _, start = parse_response_header(frame, api, version)
    return read_response(api, version, frame[start:])


@contextmanager
def running(kafka: KafkaPeer, data: Path) -> Iterator[Clients]:
    ports = free_ports(3)
    with kafka.running_kafka(data, settings(ports)) as broker:
        with closing(Clients(ports[1])) as clients:
            yield clients
        broker.stop()


@contextmanager
def running_here(data: Path | None = None) -> Iterator[Clients]:
    ports = free_ports(3)
    with Broker(data=data, settings=settings(ports)), closing(Clients(ports[1])) as clients:
        yield clients


ACL = {"resource_pattern_type": 3, "host": "*", "permission_type": 3}


def conversation(clients: Clients) -> dict[str, Any]:
    """What a broker answers, without what it chooses itself."""
    seen: dict[str, Any] = {}

    def note(label: str, reply: Any) -> Any:
        times = {
            name: getattr(reply, name) if getattr(reply, name) <= 0 else "a time"
            for name in ("issue_timestamp", "expiry_timestamp", "max_timestamp")
            if hasattr(reply, name)
        }
        names = (
            getattr(reply, name, None)
            for name in (
                *("principal_type", "principal_name"),
                *("token_requester_principal_type", "token_requester_principal_name"),
            )
        )
        seen[label] = reply.error_code.name, times, *names
        return reply

    def create(user: str, renewers: Any = (), version: int = 3, kind: str = "User", **more: Any) -> Any:
        named = [{"principal_type": kind, "principal_name": each} for each in renewers]
        values = {"renewers": named, "max_lifetime": -1, **more}
        return clients.ask(user, Api.CREATE_DELEGATION_TOKEN, version, **values)

    def described(label: str, user: str, owners: Any) -> None:
        named = owners and [{"principal_type": "User", "principal_name": each} for each in owners]
        reply = clients.ask(user, Api.DESCRIBE_DELEGATION_TOKEN, owners=named)
        seen[label] = (
            reply.error_code.name,
            sorted(
                (
                    *(each.principal_name, each.token_requester_principal_name),
                    *(renewer.principal_name for renewer in each.renewers),
                )
                for each in reply.tokens
            ),
        )

    for_carol = {"owner_principal_type": "User", "owner_principal_name": "carol"}
    own = note("own", create("alice", ["bob"]))
    assert own.expiry_timestamp - own.issue_timestamp == 86_400_000
    note("own, version 2", create("alice", version=2))
    note("for another", create("bob", **for_carol))
    clients.ask(
        "admin",
        Api.CREATE_ACLS,
        creations=[
            {
                **ACL,
                "principal": "User:bob",
                "resource_type": 7,
                "resource_name": "User:carol",
                "operation": 13,
            }
        ],
    )
    others = note("for another, allowed", _until(lambda: create("bob", **for_carol)))
    while len(clients.ask("admin", Api.DESCRIBE_DELEGATION_TOKEN, owners=None).tokens) < 3:
        pass  # Kafka's broker sees them a moment later
    note("a group renews", create("alice", ["g"], kind="Group"))
    note("the renewer renews", clients.ask("bob", Api.RENEW_DELEGATION_TOKEN, hmac=own.hmac, renew_period=-1))
    for user in ("bob", "admin"):
        note(
            f"{user} renews carol's",
            clients.ask(user, Api.RENEW_DELEGATION_TOKEN, hmac=others.hmac, renew_period=5),
        )
    for api, field in (
        (Api.RENEW_DELEGATION_TOKEN, "renew_period"),
        (Api.EXPIRE_DELEGATION_TOKEN, "expiry_time_period"),
    ):
        note(f"{api.label} of nothing", clients.ask("alice", api, **{"hmac": b"none", field: -1}))
    described("alice sees", "alice", None)
    described("bob sees", "bob", None)
    described("carol sees", "carol", None)
    described("admin sees", "admin", None)
    described("of bob", "admin", ["bob"])
    described("of nobody", "admin", [])
    seen["log-in"] = _until(lambda: clients.with_token("token", own.token_id, own.hmac)).error_code.name
    note("with a token", create("token"))
    described("with a token sees", "token", None)
    note("removed", clients.ask("alice", Api.EXPIRE_DELEGATION_TOKEN, hmac=own.hmac, expiry_time_period=-1))
    return seen


def _until(ask: Callable[[], Any]) -> Any:
    """Kafka's broker may see what was made a moment later."""
    until = time.monotonic() + 20
    while (reply := ask()).error_code.value and time.monotonic() < until:
        pass
    return reply


@pytest.mark.long
def test_answers_are_kafkas(kafka: KafkaPeer, tmp_path: Path) -> None:
    kafka.format_storage(tmp_path / "kafka")
    with running(kafka, tmp_path / "kafka") as theirs:
        expected = conversation(theirs)
    with running_here() as ours:
        assert conversation(ours) == expected


@pytest.mark.long
def test_tokens_of_a_kafka_directory_log_in_here_and_again_there(kafka: KafkaPeer, tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    kafka.format_storage(data)
    values = {"renewers": [], "max_lifetime": -1}
    with running(kafka, data) as theirs:
        first = theirs.ask("alice", Api.CREATE_DELEGATION_TOKEN, **values)
    with running_here(data) as ours:
        assert not ours.with_token("t", first.token_id, first.hmac).error_code.value
        second = ours.ask("alice", Api.CREATE_DELEGATION_TOKEN, **values)
    with running(kafka, data) as theirs:
        assert not theirs.with_token("1", first.token_id, first.hmac).error_code.value
        assert not theirs.with_token("2", second.token_id, second.hmac).error_code.value


def test_kafkas_tool_makes_shows_renews_and_expires_tokens(kafka: KafkaPeer, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} username="alice" password="pw";\n'
    )
    with running_here() as ours:
        at = ("--bootstrap-server", f"127.0.0.1:{ours.port}", "--command-config", str(config))

        def tool(*arguments: str) -> str:
            return kafka.java("org.apache.kafka.tools.DelegationTokenCommand", *at, *arguments)

        made = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        token_id, key = re.search(r"(\S{22})\s+(\S{80,})", made).groups()  # type: ignore[union-attr]
        shown = tool("--describe", "--owner-principal", "User:alice")
        assert token_id in shown
        assert "User:alice" in shown
        assert "expiry" in tool("--renew", "--renew-time-period", "-1", "--hmac", key).lower()
        tool("--expire", "--expiry-time-period", "-1", "--hmac", key)
        assert token_id not in tool("--describe", "--owner-principal", "User:alice")
