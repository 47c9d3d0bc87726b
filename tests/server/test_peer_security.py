"""Connections to other nodes with TLS and log-ins: who is refused, what is said about it, and what mends it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from tests.server.test_peers import CLUSTER, answered
from tests.server.tls_nodes import issue, write_ca, write_store

from penstock.client.security import ClientSecurity
from penstock.client.security_settings import parse_security
from penstock.metadata.bootstrap_users import parse_users
from penstock.server import file_watch
from penstock.server.config import config_from
from penstock.server.peer_security import PAUSE_MS_MAX, PeerSecurity
from penstock.server.peers import PeerConnections
from penstock.server.world import LoopWorld
from penstock.testing import Broker
from penstock.wire.peers import Address, PeerFailed

PASSWORD = "planted-s3cret"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "LOOK_MS", 30)


def peers_with(
    security: ClientSecurity, scene: Callable[[PeerConnections], Awaitable[None]], name: str = "brokers"
) -> None:
    async def main() -> None:
        world = LoopWorld(asyncio.get_running_loop())
        peers = PeerConnections(world, "test", PeerSecurity(world, security, name))
        peers.start()
        try:
            await scene(peers)
        finally:
            peers.close()
            world.close()

    uvloop.run(main())


async def ask(peers: PeerConnections, broker: Broker, host: str = "127.0.0.1") -> Any:
    return await answered(peers.ask(Address(host, broker.port), CLUSTER, timeout_ms=10_000))


async def served(peers: PeerConnections, broker: Broker) -> None:
    """Ask again and again, as nodes do, until there is an answer."""
    for _ in range(500):
        reply = await ask(peers, broker)
        if not isinstance(reply, PeerFailed):
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"not served: {reply}")


def tls_of(tmp_path: Path, **more: str) -> ClientSecurity:
    return parse_security(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "ca.pem"),
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def broker_with(cert: trustme.LeafCert, tmp_path: Path, settings: Mapping[str, str] | None = None) -> Broker:
    return Broker(
        settings={
            "listener.security.protocol.map": "PLAINTEXT:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(write_store(tmp_path / "node.pem", cert)),
            **(settings or {}),
        }
    )


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.ERROR and each.name == "penstock.server.peer_security"
    ]


# -- TLS -----------------------------------------------------------------------------------------------


def test_an_unknown_authority_is_refused_and_the_file_that_is_replaced_mends_it(
    ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_ca(tmp_path / "ca.pem", trustme.CA())

    async def scene(peers: PeerConnections) -> None:
        failed = await ask(peers, broker)
        assert isinstance(failed, PeerFailed)
        assert not failed.refused
        assert peers.is_refused
        for _ in range(20):
            assert isinstance(await ask(peers, broker), PeerFailed)
        write_ca(tmp_path / "ca.pem", ca)
        await served(peers, broker)
        assert not peers.is_refused

    with broker_with(issue(ca), tmp_path) as broker:
        peers_with(tls_of(tmp_path), scene)
    (line,) = errors(caplog)
    assert f"the certificate of node 127.0.0.1:{broker.port} is signed by none of the authorities" in line
    assert "ssl.truststore.location" in line
    assert "goes on trying" in line


def test_a_certificate_of_another_host_is_refused_unless_hosts_are_not_checked(
    ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_ca(tmp_path / "ca.pem", ca)

    async def refused(peers: PeerConnections) -> None:
        assert isinstance(await ask(peers, broker), PeerFailed)

    async def accepted(peers: PeerConnections) -> None:
        assert (await ask(peers, broker)).brokers

    with broker_with(ca.issue_cert("other.example.org"), tmp_path) as broker:
        peers_with(tls_of(tmp_path), refused)
        peers_with(tls_of(tmp_path, ssl_endpoint_identification_algorithm=""), accepted)
    assert "is of another host" in errors(caplog)[0]


def test_an_expired_certificate_is_refused(
    ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_ca(tmp_path / "ca.pem", ca)
    past = datetime.now(UTC) - timedelta(days=1)

    async def scene(peers: PeerConnections) -> None:
        assert isinstance(await ask(peers, broker), PeerFailed)
        write_store(tmp_path / "node.pem", issue(ca))
        await served(peers, broker)

    with broker_with(issue(ca, not_before=past - timedelta(days=1), not_after=past), tmp_path) as broker:
        peers_with(tls_of(tmp_path), scene)
    assert "has expired" in errors(caplog)[0]


@pytest.mark.parametrize("versions", ["TLSv1.2", "TLSv1.3"])
def test_a_node_shows_its_certificate_and_a_changed_one_at_the_next_connection(
    ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture, versions: str
) -> None:
    """With TLS 1.3 the other side refuses a certificate only after the handshake."""
    write_ca(tmp_path / "ca.pem", ca)
    own = write_store(tmp_path / "own.pem", issue(trustme.CA()))
    settings = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "ssl.enabled.protocols": versions,
    }

    async def scene(peers: PeerConnections) -> None:
        assert isinstance(await ask(peers, broker), PeerFailed)
        write_store(own, issue(ca))
        await served(peers, broker)

    security = tls_of(tmp_path, ssl_keystore_type="PEM", ssl_keystore_location=str(own))
    with broker_with(issue(ca), tmp_path, settings) as broker:
        peers_with(security, scene)
    assert "refuses this client's certificate" in errors(caplog)[0]


def test_broken_files_leave_the_old_ones_in_use(
    ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_ca(tmp_path / "ca.pem", ca)

    async def scene(peers: PeerConnections) -> None:
        (tmp_path / "ca.pem").write_text("nothing")
        while not errors(caplog):
            await asyncio.sleep(0.02)
        assert (await ask(peers, broker)).brokers

    with broker_with(issue(ca), tmp_path) as broker:
        peers_with(tls_of(tmp_path), scene, "controllers")
    assert "connections to controllers keep the old key and certificates" in errors(caplog)[0]


def test_a_node_without_tls_is_named_as_such(
    ca: trustme.CA, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_ca(tmp_path / "ca.pem", ca)

    async def scene(peers: PeerConnections) -> None:
        assert isinstance(await ask(peers, broker), PeerFailed)

    with Broker() as broker:
        peers_with(tls_of(tmp_path), scene)
    assert f"node 127.0.0.1:{broker.port} has ended the connection during the TLS" in caplog.text
    assert "its listener has no TLS" in caplog.text


# -- log-ins -------------------------------------------------------------------------------------------


def sasl_broker(**more: str) -> Broker:
    return Broker(
        settings={
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_node="{PASSWORD}";',
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def login_of(mechanism: str, user: str = "node", password: str = PASSWORD) -> ClientSecurity:
    return parse_security(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }
    )


def test_a_wrong_password_is_refused_in_one_line_and_not_tried_all_the_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(peers: PeerConnections) -> None:
        began = asyncio.get_running_loop().time()
        attempts = 0
        while asyncio.get_running_loop().time() < began + 1:
            attempts += isinstance(await ask(peers, broker), PeerFailed)
            await asyncio.sleep(0.005)
        assert attempts > 20
        assert peers.is_refused

    with sasl_broker() as broker:
        peers_with(login_of("PLAIN", password="wrong-planted"), scene)
    (line,) = errors(caplog)
    assert "refused the log-in of node with PLAIN" in line
    refusals = [each for each in caplog.records if "log-in" in each.getMessage() and each.levelno < 40]
    assert len(refusals) < 10, "pauses between attempts grow"
    assert "planted" not in caplog.text


def test_a_user_that_is_made_later_lets_the_node_in(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(peers: PeerConnections) -> None:
        assert isinstance(await ask(peers, broker), PeerFailed)
        await asyncio.to_thread(add_user, broker)
        await asyncio.wait_for(served(peers, broker), PAUSE_MS_MAX / 1000 + 20)

    with sasl_broker() as broker:
        peers_with(login_of("SCRAM-SHA-256", user="late"), scene)
    assert "connected to node" in caplog.text or len(errors(caplog)) == 1


def add_user(broker: Broker) -> None:
    from confluent_kafka.admin import (  # noqa: PLC0415
        AdminClient,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = AdminClient(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "node",
            "sasl.password": PASSWORD,
        }
    )
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("late", info, PASSWORD.encode())
    for each in admin.alter_user_scram_credentials([change]).values():
        each.result(20)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_connection_logs_in_again_and_no_request_fails(mechanism: str) -> None:
    """KIP-368: sessions of 1.2 s, requests for longer, on one connection."""

    async def scene(peers: PeerConnections) -> None:
        await ask(peers, broker)
        (first,) = peers._open.values()
        began = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < began + 1.6:
            replies = await asyncio.gather(*(ask(peers, broker) for _ in range(5)))
            assert all(each.brokers for each in replies)
            await asyncio.sleep(0.02)
        assert list(peers._open.values()) == [first]

    users = f"SCRAM-SHA-256=[name=node,password={PASSWORD}]"
    with sasl_broker(connections_max_reauth_ms="1200", bootstrap_scram_users=users) as broker:
        peers_with(login_of(mechanism), scene)


# -- secrets -------------------------------------------------------------------------------------------


def test_no_secret_is_shown() -> None:
    config = config_from(
        "/data",
        {
            "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:9093,2@127.0.0.1:9193",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM_MODULE} username="node" password="{PASSWORD}";',
            "bootstrap.scram.users": f"SCRAM-SHA-256=[name=node,password={PASSWORD}]",
        },
    )
    users = parse_users(f"SCRAM-SHA-256=[name=node,password={PASSWORD}]", "test", lambda size: b"s" * size)
    assert PASSWORD not in f"{config!r} {config.to_brokers!r} {config.first_users!r} {users!r}"
