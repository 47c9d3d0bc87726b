"""TLS and log-ins between nodes in one process: all that nodes do with each other, and nodes that are not let in."""

import json
import logging
import threading
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.compat.clients.patient import wait_until
from tests.server.tls_nodes import issue, pem_of, write_ca, write_store

from penstock.server import file_watch
from penstock.server.ports import free_ports
from penstock.testing import Broker, BrokerFailed, Cluster

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
USERS = f'{PLAIN_MODULE} username="node" password="n" user_node="n" user_alice="a";'


@pytest.fixture(scope="module", autouse=True)
def look_often() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_watch, "LOOK_MS", 50)
        yield


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def stores(directory: Path, ca: trustme.CA, own: trustme.LeafCert | None = None) -> dict[str, str]:
    store = write_store(directory / "node.pem", own or issue(ca, common_name="node"))
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": write_ca(directory / "ca.pem", ca),
    }


# -- everything between nodes ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def cluster(ca: trustme.CA, directory: Path) -> Iterator[Cluster]:
    """Sessions between nodes are short: they log in again and again."""
    settings = {
        **stores(directory, ca),
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": USERS,
        "listener.name.controller.plain.sasl.jaas.config": USERS,
        "listener.name.plaintext.ssl.client.auth": "required",
        "connections.max.reauth.ms": "1200",
    }
    with Cluster(brokers=3, settings=settings, http=True) as cluster:
        yield cluster


def client(cluster: Cluster, directory: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "a",
        "ssl.ca.location": str(directory / "ca.pem"),
        "ssl.certificate.location": str(directory / "node.pem"),
        "ssl.key.location": str(directory / "node.pem"),
    }


def test_replicas_transactions_and_doors_work_while_nodes_log_in_again(
    cluster: Cluster, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Replication, transaction markers and coordinators of other brokers, forwarding to the controller, and the
    gateways' calls to each other."""
    caplog.set_level(logging.INFO)
    mine = client(cluster, directory)
    admin = AdminClient(mine)
    admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(30)
    producer = Producer({**mine, "acks": "all", "transactional.id": "t"})
    producer.init_transactions(30)
    count, began = 0, time.monotonic()
    while time.monotonic() < began + 2.5:
        producer.begin_transaction()
        for partition in range(3):
            producer.produce("orders", b"x", partition=partition)
        producer.commit_transaction(30)
        count += 3
    for broker in cluster.brokers:
        for key in range(6):
            document = {"topic": "orders", "key": _text(str(key)), "value": _text("x")}
            request = urllib.request.Request(
                f"{broker.http_url}/produce",
                json.dumps(document).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=30) as response:
                assert json.load(response)["topic"] == "orders"
            count += 1
    consumer = Consumer({**mine, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["orders"])
        for _ in range(count):
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    said = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert said == []
    assert "proposing ISRs" not in caplog.text, "no replica fell behind"


def _text(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_a_leader_that_is_killed_is_replaced_at_once(cluster: Cluster, directory: Path) -> None:
    """The probe of a broker's port needs neither TLS nor a log-in."""
    mine = client(cluster, directory)
    admin = AdminClient(mine)
    admin.create_topics([NewTopic("killed", 1, 3)])["killed"].result(30)
    producer = Producer({**mine, "acks": "all"})
    failed: list[object] = []

    def send() -> None:
        producer.produce("killed", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(30) == 0

    send()
    leader = cluster.brokers[admin.list_topics("killed", 30).topics["killed"].partitions[0].leader - 1]
    leader.kill()
    began = time.monotonic()
    send()
    assert time.monotonic() - began < 8, "less than the session of a broker"
    leader.start()
    wait_until(lambda: len(admin.list_topics("killed", 30).topics["killed"].partitions[0].isrs) == 3)
    assert failed == []


def test_certificates_and_their_authority_are_rotated_while_nodes_run(
    ca: trustme.CA,
    cluster: Cluster,
    directory: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """docs/security.md: trust both authorities, replace the certificates, trust only the new one."""
    caplog.set_level(logging.INFO)
    new, trusted = trustme.CA(), directory / "ca.pem"

    def all_have_read(count: int) -> bool:
        lines = [each.getMessage() for each in caplog.records]
        listeners = sum("listener PLAINTEXT has the certificate" in each for each in lines)
        return min(listeners, sum("new connections to brokers use" in each for each in lines)) >= count

    def replaced(path: Path, data: bytes) -> None:
        beside = path.with_suffix(".new")
        beside.write_bytes(data)
        caplog.clear()
        beside.replace(path)
        wait_until(lambda: all_have_read(3))

    both = ca.cert_pem.bytes() + new.cert_pem.bytes()
    replaced(trusted, both)
    replaced(directory / "node.pem", pem_of(issue(new, common_name="node")))
    replaced(trusted, new.cert_pem.bytes())
    admin = AdminClient(client(cluster, directory))
    admin.create_topics([NewTopic("rotated", 1, 3)])["rotated"].result(30)
    restarted = cluster.brokers[admin.list_topics("rotated", 30).topics["rotated"].partitions[0].leader - 1]
    restarted.kill()
    restarted.start()
    wait_until(lambda: len(admin.list_topics("rotated", 30).topics["rotated"].partitions[0].isrs) == 3)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


# -- nodes that are not let in ---------------------------------------------------------------------------


class Joining:
    """A node that starts on a thread, since it may wait for long."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.broker = Broker(settings=settings)
        self.failure: BrokerFailed | None = None
        self._thread = threading.Thread(target=self._start, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            self.broker.start()
        except BrokerFailed as error:
            self.failure = error

    @property
    def is_waiting(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        assert self.failure is None
        self.broker.close()


def pair(common: dict[str, str]) -> tuple[dict[str, str], dict[str, str], int]:
    """Settings of a node that is broker and controller, those of a broker, and the first one's client port."""
    first, inner, controller, second = free_ports(4)
    both = {
        "cluster.id": "a-pair-of-secured-node",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "inter.broker.listener.name": "INNER",
        **common,
    }
    return (
        {
            **both,
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{first},INNER://127.0.0.1:{inner},"
            f"CONTROLLER://127.0.0.1:{controller}",
        },
        {
            **both,
            "node.id": "2",
            "process.roles": "broker",
            "listeners": f"INNER://127.0.0.1:{second}",
        },
        first,
    )


def test_a_broker_whose_user_is_missing_joins_when_the_user_is_made(caplog: pytest.LogCaptureFixture) -> None:
    """Brokers may log in at controllers with SCRAM."""
    first, second, port = pair(
        {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": USERS,
            "listener.name.controller.scram-sha-256.sasl.jaas.config": f'{SCRAM_MODULE} username="late" '
            'password="planted-s3cret";',
        }
    )
    second["sasl.mechanism.controller.protocol"] = "SCRAM-SHA-256"
    with Broker(settings=first):
        joining = Joining(second)
        wait_until(lambda: "refused the log-in of late with SCRAM-SHA-256" in caplog.text)
        assert joining.is_waiting
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        user = UserScramCredentialUpsertion("late", info, b"planted-s3cret")
        for done in admin.alter_user_scram_credentials([user]).values():
            done.result(30)
        joining.join()
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(lines) == 1, lines
    assert "create this user, or correct username and password in sasl.jaas.config" in lines[0]
    assert "planted" not in caplog.text


def test_a_broker_with_a_certificate_of_a_strange_authority_joins_when_its_file_is_replaced(
    ca: trustme.CA,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Certificates name the nodes, and are their only way in."""
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    common = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:SSL,CONTROLLER:SSL",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:ANONYMOUS",
    }
    first, second, _ = pair(common)
    first |= stores(tmp_path / "1", ca)
    second |= stores(tmp_path / "2", ca, issue(trustme.CA(), common_name="node"))
    with Broker(settings=first):
        joining = Joining(second)
        wait_until(lambda: "refuses this client's certificate" in caplog.text)
        assert joining.is_waiting
        write_store(tmp_path / "2/node.pem", issue(ca, common_name="node"))
        joining.join()
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert len(lines) == 1, lines


def test_a_broker_without_cluster_action_says_so_and_joins_when_it_is_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second, port = pair(
        {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": USERS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:node;User:ANONYMOUS",
        }
    )
    alice = f'{PLAIN_MODULE} username="alice" password="a" user_node="n";'
    second["listener.name.controller.plain.sasl.jaas.config"] = alice
    with Broker(settings=first):
        joining = Joining(second)
        wait_until(lambda: "not allowed ClusterAction" in caplog.text)
        assert joining.is_waiting
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        acl = AclBinding(
            ResourceType.BROKER,
            "kafka-cluster",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for done in admin.create_acls([acl]).values():
            done.result(30)
        joining.join()
