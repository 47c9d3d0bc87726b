"""Listeners with TLS, from outside: real clients, certificates that are wrong, changed and expired, and clients that
do not finish their handshake."""

import asyncio
import logging
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from tests.server.raw import (
    FETCH,
    METADATA,
    PRODUCE,
    RawClient,
    batch,
    create_topics_request,
    fetch_request,
    metadata_request,
    produce_request,
)
from tests.server.tls_nodes import (
    TlsRawClient,
    client_context,
    issue,
    pem_of,
    tls_broker,
    tls_settings,
    write_ca,
    write_store,
)

from penstock.server import file_watch, tls
from penstock.server.ports import free_ports
from penstock.testing import Broker
from penstock.testing.broker import BrokerFailed
from penstock.wire import Api, request_frame, write_request

WAIT_S_MAX = 30.0
TOPIC = "letters"


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def stranger() -> trustme.CA:
    """An authority that nobody here trusts."""
    return trustme.CA(organization_name="Elsewhere")


@pytest.fixture(scope="module")
def files(ca: trustme.CA, stranger: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tls")
    write_store(path / "node.pem", issue(ca))
    write_ca(path / "ca.pem", ca)
    write_ca(path / "stranger-ca.pem", stranger)
    for name, cert in (("alice", alice(ca)), ("stranger", alice(stranger))):
        cert.private_key_pem.write_to_path(path / f"{name}.key")
        for each in cert.cert_chain_pems:
            each.write_to_path(path / f"{name}.crt", append=True)
    return path


def alice(ca: trustme.CA, **more: datetime) -> trustme.LeafCert:
    return ca.issue_cert("alice@example.org", common_name="alice", organization_name="Example, Inc", **more)


@pytest.fixture(scope="module")
def broker(files: Path) -> Iterator[Broker]:
    with tls_broker(files / "node.pem", {"auto.create.topics.enable": "true"}, http=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def guarded(files: Path) -> Iterator[Broker]:
    """It wants certificates of its clients, and ACLs that let only alice in."""
    settings = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),OU=.*$/$1/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    with tls_broker(files / "node.pem", settings) as broker:
        yield broker


def wait_for(is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < end, f"not within {WAIT_S_MAX:.0f} s: {what}"
        time.sleep(0.02)


def is_served(port: int, context: ssl.SSLContext) -> bool:
    with TlsRawClient(port, context) as client:
        return bool(client.ask(Api.METADATA, METADATA, metadata_request()).brokers)


def is_refused(port: int, context: ssl.SSLContext) -> bool:
    """In TLS 1.3 a client learns of a refusal when it reads."""
    try:
        with TlsRawClient(port, context) as client:
            client.send_request(Api.METADATA, METADATA, metadata_request())
            return client.receive_frame() is None
    except (ssl.SSLError, ConnectionError):
        return True


def metric(broker: Broker, name: str) -> float:
    with urlopen(f"{broker.http_url}/metrics") as page:
        found = re.search(rf"^{name}\S* (\S+)$", page.read().decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


# -- real clients --------------------------------------------------------------------------------------


def of_librdkafka(files: Path, name: str | None = None, authority: str = "ca") -> dict[str, str]:
    own = {
        "ssl.certificate.location": str(files / f"{name}.crt"),
        "ssl.key.location": str(files / f"{name}.key"),
    }
    return {
        "security.protocol": "SSL",
        "ssl.ca.location": str(files / f"{authority}.pem"),
        **(own if name is not None else {}),
    }


def write_and_read_with_confluent(broker: Broker, settings: dict[str, str], topic: str) -> bytes:
    common = {"bootstrap.servers": f"localhost:{broker.port}", **settings}
    producer = confluent_kafka.Producer(common)
    producer.produce(topic, b"hello " * 20_000)
    assert producer.flush(WAIT_S_MAX) == 0
    consumer = confluent_kafka.Consumer(
        {**common, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    with closing(consumer):
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_S_MAX)
        assert message is not None
        assert message.error() is None
        return bytes(message.value())


KAFKA_PYTHON = """
import kafka, sys
port, files, name, topic = sys.argv[1:]
common = {
    "bootstrap_servers": f"localhost:{port}",
    "security_protocol": "SSL",
    "ssl_cafile": f"{files}/ca.pem",
    "ssl_certfile": f"{files}/{name}.crt" if name else None,
    "ssl_keyfile": f"{files}/{name}.key" if name else None,
}
producer = kafka.KafkaProducer(**common)
producer.send(topic, b"hello " * 20_000).get(30)
producer.close()
consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **common)
sys.stdout.buffer.write(next(consumer).value)
"""
"""A process of its own: the library warns when it is imported."""


def write_and_read_with_kafka_python(broker: Broker, files: Path, name: str | None, topic: str) -> bytes:
    command = [sys.executable, "-c", KAFKA_PYTHON, str(broker.port), str(files), name or "", topic]
    return subprocess.run(command, check=True, capture_output=True, timeout=2 * WAIT_S_MAX).stdout


def write_and_read_with_aiokafka(broker: Broker, context: ssl.SSLContext, topic: str) -> bytes:
    common = {
        "bootstrap_servers": f"localhost:{broker.port}",
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def run() -> bytes:
        async with aiokafka.AIOKafkaProducer(**common) as producer:
            await producer.send_and_wait(topic, b"hello " * 20_000)
        async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **common) as consumer:
            return bytes((await asyncio.wait_for(consumer.getone(), WAIT_S_MAX)).value)

    return asyncio.run(run())


@pytest.mark.parametrize("name", [None, "alice"])
def test_real_clients_write_and_read(
    ca: trustme.CA, files: Path, broker: Broker, guarded: Broker, name: str | None
) -> None:
    at, cert = (broker, None) if name is None else (guarded, alice(ca))
    read = [
        write_and_read_with_confluent(at, of_librdkafka(files, name), "one"),
        write_and_read_with_kafka_python(at, files, name, "two"),
        write_and_read_with_aiokafka(at, client_context(ca, cert), "three"),
    ]
    assert read == [b"hello " * 20_000] * 3


@pytest.mark.parametrize(
    ("name", "authority", "why"),
    [
        (
            None,
            "stranger-ca",
            "certificate verify failed|unknown ca|broker certificate could not be verified",
        ),
        (None, "ca", "certificate required|handshake failure|Disconnected|peer did not return"),
        ("stranger", "ca", "unknown ca|handshake|Disconnected"),
    ],
)
def test_a_client_that_is_not_trusted_gets_an_error(
    files: Path, guarded: Broker, name: str | None, authority: str, why: str
) -> None:
    errors: list[str] = []
    client = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"localhost:{guarded.port}",
            **of_librdkafka(files, name, authority),
            "error_cb": lambda error: errors.append(error.str()),
            "log_level": 0,
        }
    )
    with pytest.raises(confluent_kafka.KafkaException):
        client.list_topics(timeout=3)
    client.poll(1)
    assert re.search(why, " ".join(errors)), errors


def test_a_client_checks_the_nodes_name(ca: trustme.CA, tmp_path: Path) -> None:
    store = write_store(tmp_path / "node.pem", ca.issue_cert("elsewhere.example"))
    with tls_broker(store) as broker, pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        TlsRawClient(broker.port, client_context(ca))


def test_clients_reach_every_broker_of_a_cluster_with_tls(ca: trustme.CA, files: Path) -> None:
    """Brokers use their listener without TLS among themselves."""
    plain, secure, controller, other_plain, other_secure = free_ports(5)
    common = {
        "cluster.id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(files / "node.pem"),
        "auto.create.topics.enable": "true",
        "default.replication.factor": "2",
    }
    first = {
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}",
    }
    second = {
        "node.id": "2",
        "process.roles": "broker",
        "listeners": f"PLAINTEXT://127.0.0.1:{other_plain},SSL://127.0.0.1:{other_secure}",
    }
    with Broker(settings={**common, **first}), Broker(settings={**common, **second}):
        with TlsRawClient(secure, client_context(ca)) as client:
            brokers = client.ask(Api.METADATA, METADATA, metadata_request()).brokers
            assert {each.port for each in brokers} == {secure, other_secure}
            topic = create_topics_request({"letters": 1})
            client.ask(Api.CREATE_TOPICS, 7, topic)
        settings = {"bootstrap.servers": f"localhost:{other_secure}", **of_librdkafka(files), "acks": "all"}
        producer = confluent_kafka.Producer(settings)
        producer.produce("letters", b"hello")
        assert producer.flush(WAIT_S_MAX) == 0


# -- log-ins -------------------------------------------------------------------------------------------

PASSWORD = "planted-s3cret"
SASL_SSL = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="{PASSWORD}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice;User:scram",
}


def log_in(files: Path, user: str, password: str, mechanism: str = "PLAIN") -> dict[str, str]:
    return {
        **of_librdkafka(files),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def test_clients_log_in_over_tls(ca: trustme.CA, files: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tls_broker(files / "node.pem", {**SASL_SSL, "ssl.client.auth": "required"}) as broker:
        alice_in = log_in(files, "alice", PASSWORD)
        assert write_and_read_with_confluent(broker, alice_in, "one") == b"hello " * 20_000
        address = {"bootstrap.servers": f"localhost:{broker.port}"}
        admin = confluent_kafka.admin.AdminClient({**address, **alice_in})
        made = confluent_kafka.admin.UserScramCredentialUpsertion(
            "scram",
            confluent_kafka.admin.ScramCredentialInfo(
                confluent_kafka.admin.ScramMechanism.SCRAM_SHA_256, 4096
            ),
            b"other",
        )
        [done] = admin.alter_user_scram_credentials([made]).values()
        done.result(WAIT_S_MAX)
        scram = log_in(files, "scram", "other", "SCRAM-SHA-256")
        assert write_and_read_with_confluent(broker, scram, "two") == b"hello " * 20_000
        errors: list[str] = []
        wrong = confluent_kafka.Producer(
            {**address, **log_in(files, "alice", "wrong"), "error_cb": lambda each: errors.append(each.str())}
        )
        with pytest.raises(confluent_kafka.KafkaException):
            wrong.list_topics(timeout=3)
        wrong.poll(1)
        assert "uthentication failed" in " ".join(errors)
        with TlsRawClient(broker.port, client_context(ca)) as outside:
            outside.send_request(Api.METADATA, METADATA, metadata_request())
            assert outside.receive_frame() is None, "not before the log-in"
    assert PASSWORD not in caplog.text


def test_a_listener_with_log_ins_may_want_certificates_too(ca: trustme.CA, files: Path) -> None:
    """The principal is that of the log-in, whatever the rules for certificates say."""
    settings = {
        **SASL_SSL,
        "listener.name.plaintext.ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=nobody$/nobody/",
    }
    with tls_broker(files / "node.pem", settings) as broker:
        own = {**of_librdkafka(files, "alice"), **log_in(files, "alice", PASSWORD)}
        assert write_and_read_with_confluent(broker, own, "one") == b"hello " * 20_000
        assert is_refused(broker.port, client_context(ca))


# -- who a client is -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        ("DEFAULT", r"User:CN=alice,OU=Testing cert \S+,O=Example\\, Inc"),
        ("RULE:^CN=([^,]+),.*$/$1@example/U", "User:ALICE@EXAMPLE"),
    ],
)
def test_the_principal_is_the_subject_of_the_certificate(
    ca: trustme.CA, files: Path, rules: str, principal: str
) -> None:
    settings = {
        "ssl.client.auth": "requested",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files / "ca.pem"),
        "ssl.principal.mapping.rules": rules,
    }
    with tls_broker(files / "node.pem", settings) as broker:
        assert re.fullmatch(principal, principal_of(broker, client_context(ca, alice(ca))))
        assert principal_of(broker, client_context(ca)) == "User:ANONYMOUS"


def principal_of(broker: Broker, context: ssl.SSLContext) -> str:
    with TlsRawClient(broker.port, context) as client:
        client.ask(Api.METADATA, METADATA, metadata_request())
        assert broker._faulty is not None
        [session] = [each.session for each in broker._faulty.node._connections._of_kafka()]
        principal = session.principal
    wait_for(lambda: not len(broker._faulty.node._connections), "the connection is gone")
    return principal


def test_a_client_whose_name_no_rule_gives_is_not_let_in(
    ca: trustme.CA, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(files / "ca.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=bob,.*$/bob/",
    }
    with tls_broker(files / "node.pem", settings) as broker:
        assert is_refused(broker.port, client_context(ca, alice(ca)))
    assert "no rule of ssl.principal.mapping.rules matches the client's certificate, CN=alice," in caplog.text


def test_acls_are_by_the_principal_of_the_certificate(ca: trustme.CA, guarded: Broker) -> None:
    bob = ca.issue_cert("bob@example.org", common_name="bob")
    names = []
    for cert in (alice(ca), bob):
        with TlsRawClient(guarded.port, client_context(ca, cert)) as client:
            client.ask(Api.CREATE_TOPICS, 7, create_topics_request({"secrets": 1}))
            response = client.ask(Api.METADATA, METADATA, metadata_request("secrets"))
            names.append(response.topics[0].error_code.name)
    assert names == ["none", "topic_authorization_failed"]


def test_expired_and_foreign_certificates_and_none_are_refused(
    ca: trustme.CA, stranger: trustme.CA, guarded: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    past = datetime.now(UTC) - timedelta(days=1)
    expired = alice(ca, not_before=past - timedelta(days=9), not_after=past)
    for cert in (expired, alice(stranger), None):
        assert is_refused(guarded.port, client_context(ca, cert))
    assert is_served(guarded.port, client_context(ca, alice(ca)))
    assert caplog.text.count("a TLS handshake failed") <= 1, "one line in ten seconds"


def test_a_resumed_session_does_not_outlive_its_certificate(
    ca: trustme.CA, guarded: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TLS 1.2 resumes sessions, and OpenSSL then does not check the certificate again."""
    context = client_context(ca, alice(ca))
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def connected(session: ssl.SSLSession | None) -> tuple[bool, ssl.SSLSession | None, bool]:
        with (
            socket.create_connection(("127.0.0.1", guarded.port), timeout=WAIT_S_MAX) as raw,
            context.wrap_socket(raw, server_hostname="localhost", session=session) as client,
        ):
            frame = request_frame(Api.API_VERSIONS, 0, 1, "test", b"")
            try:
                client.sendall(frame)
                is_answered = bool(client.recv(4))
            except ConnectionError:
                is_answered = False
            return is_answered, client.session, bool(client.session_reused)

    is_answered, session, is_resumed = connected(None)
    assert (is_answered, is_resumed) == (True, False)
    is_answered, _, is_resumed = connected(session)
    assert (is_answered, is_resumed) == (True, True)
    monkeypatch.setattr(tls, "not_after", lambda _: datetime.now(UTC) - timedelta(seconds=1))
    is_answered, _, is_resumed = connected(session)
    assert (is_answered, is_resumed) == (False, True)
    assert connected(None)[0], "a full handshake, in which OpenSSL looks at the certificate"


# -- rotation ------------------------------------------------------------------------------------------


def serial_of(port: int, context: ssl.SSLContext) -> str:
    with TlsRawClient(port, context) as client:
        assert isinstance(client.socket, ssl.SSLSocket)
        return str((client.socket.getpeercert() or {})["serialNumber"])


def test_a_changed_certificate_is_used_for_new_connections(
    ca: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(file_watch, "LOOK_MS", 50)
    store = write_store(tmp_path / "node.pem", issue(ca))
    with tls_broker(store, http=True) as broker:
        context = client_context(ca)
        with TlsRawClient(broker.port, context) as connected:
            before = serial_of(broker.port, context)
            soon = datetime.now(UTC) + timedelta(days=30, minutes=1)
            write_store(store, issue(ca, not_after=soon))
            wait_for(lambda: serial_of(broker.port, context) != before, "the new certificate")
            assert connected.ask(Api.METADATA, METADATA, metadata_request()).brokers
        assert 29.9 < metric(broker, "penstock_tls_certificate_expiry_days") < 30.1
        assert metric(broker, "penstock_tls_reloads_total") == 1
        new = serial_of(broker.port, context)

        cert, other = issue(ca), issue(ca)
        broken = {
            "nothing": (b"", "has no BEGIN line, expected PEM"),
            "half": (pem_of(cert)[:-400], ""),
            "mismatched": (
                cert.private_key_pem.bytes() + other.cert_chain_pems[0].bytes(),
                "has a private key that does not fit its first certificate",
            ),
        }
        for count, (data, why) in enumerate(broken.values(), 1):
            store.write_bytes(data)
            wait_for(lambda: metric(broker, "penstock_tls_reload_errors_total") >= count, why)  # noqa: B023
            assert why in caplog.records[-1].getMessage()
            assert serial_of(broker.port, context) == new
        assert metric(broker, "penstock_tls_certificate_stale") == 1
        assert {each.levelno for each in caplog.records if "keeps its old key" in each.getMessage()} == {
            logging.ERROR
        }
        store.unlink()
        wait_for(lambda: "cannot read" in caplog.text, "an error for the missing file")
        assert serial_of(broker.port, context) == new

        write_store(store, cert)
        wait_for(lambda: serial_of(broker.port, context) != new, "the certificate after the broken ones")
        assert metric(broker, "penstock_tls_certificate_stale") == 0


def test_a_changed_trust_store_is_used_for_new_connections(
    ca: trustme.CA, stranger: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "LOOK_MS", 50)
    settings = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": write_ca(tmp_path / "clients.pem", ca),
    }
    with tls_broker(write_store(tmp_path / "node.pem", issue(ca)), settings) as broker:
        known, unknown = client_context(ca, alice(ca)), client_context(ca, alice(stranger))
        assert is_served(broker.port, known)
        assert is_refused(broker.port, unknown)
        write_ca(tmp_path / "clients.pem", stranger)
        wait_for(lambda: is_refused(broker.port, known), "the old authority is not trusted")
        assert is_served(broker.port, unknown)


# -- clients that do not do as they should -------------------------------------------------------------


def test_clients_that_mix_up_the_ports_are_reported_in_the_log(
    ca: trustme.CA, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with RawClient(broker.port) as plain:
        plain.send_request(Api.METADATA, METADATA, metadata_request())
        with suppress(ConnectionError):
            while plain.socket.recv(1000):
                pass
    with Broker() as without:
        for _ in range(3):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                TlsRawClient(without.port, client_context(ca))
    wait_for(lambda: "the client uses TLS, but the listener PLAINTEXT has none" in caplog.text, "a line")
    assert caplog.text.count("the client uses TLS, but") == 1
    assert is_served(broker.port, client_context(ca))


def test_a_client_that_stops_in_its_handshake_is_closed(
    ca: trustme.CA, files: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKE_MS_MAX", 1000)
    with tls_broker(files / "node.pem", http=True) as broker:
        silent, halfway = (socket.create_connection(("127.0.0.1", broker.port)) for _ in range(2))
        with closing(silent), closing(halfway):
            halfway.sendall(hello_of(client_context(ca))[:100])
            assert is_served(broker.port, client_context(ca))
            for each in (silent, halfway):
                each.settimeout(WAIT_S_MAX)
                assert each.recv(1) == b""
        assert "the handshake took longer than 1 s" in caplog.text
        assert metric(broker, "penstock_tls_handshakes_failed_total") == 1
        assert metric(broker, "penstock_tls_handshakes_total") == 1


def hello_of(context: ssl.SSLContext) -> bytes:
    """The first bytes of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@given(st.data())
def test_no_bytes_disturb_others(ca: trustme.CA, broker: Broker, data: st.DataObject) -> None:
    """Random bytes, a damaged start of a handshake, and damaged records after it."""
    context = client_context(ca)
    kind = data.draw(st.sampled_from(["random", "hello", "records"]))
    junk = data.draw(st.binary(min_size=1, max_size=2000))
    with socket.create_connection(("127.0.0.1", broker.port), timeout=WAIT_S_MAX) as raw:
        if kind == "random":
            raw.sendall(junk)
        elif kind == "hello":
            hello = bytearray(hello_of(context))
            at = data.draw(st.integers(0, len(hello) - 1))
            hello[at : at + len(junk)] = junk
            raw.sendall(hello)
        else:
            with context.wrap_socket(raw, server_hostname="localhost") as client:
                client.sendall(b"\0\0\0\x10")
                with suppress(OSError):
                    socket.socket.send(client, junk)
    assert is_served(broker.port, context)


def test_a_crowd_that_shakes_hands_does_not_stop_the_loop(ca: trustme.CA, files: Path) -> None:
    with tls_broker(files / "node.pem") as broker:
        hello = hello_of(client_context(ca))
        crowd = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(100)]
        for each in crowd:
            each.sendall(hello)
        assert is_served(broker.port, client_context(ca))
        for each in crowd:
            each.settimeout(WAIT_S_MAX)
            assert each.recv(1), "every hello is answered"
            each.close()


# -- large requests and replies ------------------------------------------------------------------------


def test_large_requests_and_replies_pass_whole(ca: trustme.CA, broker: Broker) -> None:
    with TlsRawClient(broker.port, client_context(ca)) as client:
        client.ask(Api.CREATE_TOPICS, 7, create_topics_request({"big": 1}))
        values = [bytes([number]) * 900_000 for number in range(8)]
        for value in values:
            client.ask(Api.PRODUCE, PRODUCE, produce_request("big", batch(value)))
        for _ in range(2):  # pipelined
            client.send_request(Api.FETCH, FETCH, fetch_request("big", 0, bytes_max=50 << 20))
        for _ in range(2):
            _, response = client.receive(Api.FETCH, FETCH)
            [partition] = response.responses[0].partitions
            records = bytes(partition.records)
            assert len(records) > 8 * 900_000
            assert all(value in records for value in values)
        assert client.ask(Api.METADATA, METADATA, metadata_request()).brokers


def test_requests_in_any_pieces_are_answered_in_order(ca: trustme.CA, broker: Broker) -> None:
    body = write_request(Api.METADATA, METADATA, metadata_request())
    frames = b"".join(request_frame(Api.METADATA, METADATA, number, "c", body) for number in range(300))
    with TlsRawClient(broker.port, client_context(ca)) as client:
        for size in (1, 7, 300, 20_000):
            client.send(frames[:size])
            frames = frames[size:]
        client.send(frames)
        assert [client.receive(Api.METADATA, METADATA)[0] for _ in range(300)] == list(range(300))


def test_a_client_may_close_whenever_it_likes(ca: trustme.CA, broker: Broker) -> None:
    assert broker._faulty is not None
    connections = broker._faulty.node._connections
    for is_clean in (True, False):
        with TlsRawClient(broker.port, client_context(ca)) as client:
            client.ask(Api.METADATA, METADATA, metadata_request())
            if is_clean:
                assert isinstance(client.socket, ssl.SSLSocket)
                with suppress(OSError):
                    client.socket.unwrap()
    wait_for(lambda: not list(connections._of_kafka()), "all connections are gone")


# -- secrets -------------------------------------------------------------------------------------------


def test_no_secret_is_shown(ca: trustme.CA, files: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not by DescribeConfigs with synonyms, over HTTP, or in the log."""
    secret = "correct-horse-battery"
    caplog.set_level(logging.DEBUG)
    settings = {"ssl.key.password": secret, "ssl.truststore.certificates": "", "http.hosts": "*"}
    with tls_broker(files / "node.pem", settings, http=True) as broker:
        admin = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": f"localhost:{broker.port}", **of_librdkafka(files)}
        )
        resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.BROKER, "1")
        [described] = admin.describe_configs([resource]).values()
        entry = described.result(WAIT_S_MAX)["ssl.key.password"]
        assert (entry.value, entry.is_sensitive, entry.is_read_only) == (None, True, True)
        assert [each.value for each in entry.synonyms.values()] == [None]
        with urlopen(f"{broker.http_url}/cluster/configs") as page:
            shown = page.read().decode()
        assert "ssl.key.password" in shown
        assert secret not in shown
    assert secret not in caplog.text


# -- what cannot be started ----------------------------------------------------------------------------


def refusal_of(settings: dict[str, str]) -> str:
    with pytest.raises(BrokerFailed) as refused:
        Broker(settings=settings).start()
    return str(refused.value)


def test_a_node_says_what_is_wrong_with_its_files(ca: trustme.CA, files: Path, tmp_path: Path) -> None:
    missing = refusal_of(tls_settings(tmp_path / "none.pem"))
    assert "cannot read" in missing
    assert "No such file" in missing
    only_key = tmp_path / "key.pem"
    only_key.write_bytes((files / "alice.key").read_bytes())
    assert "has no certificate, expected PEM with BEGIN CERTIFICATE" in refusal_of(tls_settings(only_key))
    jks = tmp_path / "node.jks"
    jks.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    told = refusal_of({**tls_settings(jks), "ssl.keystore.type": "JKS"})
    assert f"keytool -importkeystore -srckeystore {jks} -destkeystore {tmp_path}/node.p12" in told
    assert "expected a suite of TLS 1.2" in refusal_of(
        {**tls_settings(files / "node.pem"), "ssl.cipher.suites": "TLS_RSA_WITH_NOTHING"}
    )
