"""Our clients at a secured Apache Kafka: each protocol and mechanism, users, tokens, and what must fail."""

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Command, Outcome, penstock
from tests.compat.kafka.peer import KafkaPeer

from penstock.base.properties import property_line
from penstock.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, jaas_text
from penstock.server.certificate_authority import CertificateAuthority
from penstock.server.ports import free_ports

__all__ = ["penstock"]

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PASSWORD = 'planted-"s3cret\\'
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
User = Callable[..., Outcome]


class Secured:
    """The ports of a Kafka broker by protocol, and the files of its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        names = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL", "CONTROLLER")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.authority = CertificateAuthority.create("of the test", days=1)
        (directory / "ca.pem").write_bytes(self.authority.certificate)
        (directory / "node.pem").write_bytes(self.authority.issue("kafka", ["localhost"], days=1).pem)
        (directory / "alice.pem").write_bytes(self.authority.issue("alice", days=1).pem)

    @property
    def settings(self) -> dict[str, str]:
        tls = {"type": "PEM", "location": str(self.directory / "node.pem")}
        secured = [each for each in self.ports if each.startswith("SASL")]
        return {
            "listeners": ",".join(f"{name}://localhost:{port}" for name, port in self.ports.items()),
            "advertised.listeners": ",".join(
                f"{name}://localhost:{port}" for name, port in self.ports.items() if name != "CONTROLLER"
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in self.ports
            ),
            "controller.quorum.voters": f"1@localhost:{self.ports['CONTROLLER']}",
            "controller.listener.names": "CONTROLLER",
            "process.roles": "broker,controller",
            "node.id": "1",
            "inter.broker.listener.name": "PLAINTEXT",
            **{f"ssl.keystore.{name}": value for name, value in tls.items()},
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.directory / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAMS)),
            **{
                f"listener.name.{each.lower()}.plain.sasl.jaas.config": jaas_text(
                    PLAIN_MODULE, {"user_admin": PASSWORD, "user_alice": PASSWORD}
                )
                for each in secured
            },
            **{
                f"listener.name.{each.lower()}.{scram.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;"
                for each in secured
                for scram in SCRAMS
            },
            "delegation.token.secret.key": "planted-key",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:alice;User:ANONYMOUS",
        }

    def file(
        self, name: str, protocol: str, mechanism: str = "PLAIN", user: str = "admin", **more: str
    ) -> Path:
        """A client.properties; in `more` _ stands for a dot, and an empty value removes a setting."""
        module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
        own = {"bootstrap.servers": f"localhost:{self.ports[protocol]}", "security.protocol": protocol}
        if protocol.endswith("SSL"):
            own |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.directory / "ca.pem")}
        if protocol == "SSL":
            own |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.directory / "alice.pem")}
        if protocol.startswith("SASL"):
            login = jaas_text(module, {"username": user, "password": PASSWORD})
            own |= {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
        own |= {key.replace("_", "."): value for key, value in more.items()}
        path = self.directory / f"{name}.properties"
        path.write_text("".join(property_line(key, value) for key, value in own.items() if value))
        return path


@pytest.fixture(scope="module")
def secured(kafka: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    made = Secured(directory)
    kafka.format_storage(directory / "logs")
    escaped = {name: value.replace("\\", "\\\\") for name, value in made.settings.items()}
    with kafka.running_kafka(directory / "logs", escaped):
        yield made


@pytest.fixture
def run(penstock: Command, monkeypatch: pytest.MonkeyPatch) -> User:
    def command(file: Path, *words: object, stdin: str = "") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        return penstock(*words, "--client-config", file)

    return command


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SSL", ""),
        *((protocol, each) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for each in ("PLAIN", *SCRAMS)),
    ],
)
def test_records_go_through_each_protocol_and_mechanism(
    secured: Secured, run: User, protocol: str, mechanism: str
) -> None:
    admin = secured.file("admin", "SASL_SSL")
    user = "admin"
    if mechanism in SCRAMS:
        user = f"user-{protocol}-{mechanism}".lower()
        added = run(admin, "users", "add", user, "--mechanism", mechanism, stdin=PASSWORD)
        assert (added.code, added.err) == (0, "")
        topic = f"letters-{protocol}-{mechanism}"
        for words in (("all", "topic", topic), ("create,idempotentwrite", "cluster")):
            assert run(admin, "acls", "allow", user, *words).code == 0
    file = secured.file("client", protocol, mechanism, user)
    topic = f"letters-{protocol}-{mechanism}"
    created = run(file, "topics", "create", topic, "--partitions", 1)
    assert (created.code, created.err) == (0, "")
    assert run(file, "produce", topic, stdin="hello\n").code == 0
    assert run(file, "consume", topic).out == "hello\n"


def test_users_are_listed_changed_and_removed(secured: Secured, run: User) -> None:
    admin = secured.file("admin", "SASL_SSL")
    assert run(admin, "users", "add", "carol", "--iterations", 4096, stdin=PASSWORD).code == 0
    again = run(admin, "users", "add", "carol", stdin=PASSWORD)
    assert "has a password for SCRAM-SHA-512 already" in again.err
    listed = run(admin, "users", "list", "carol", "--json").json()
    assert listed == [{"user": "carol", "mechanisms": [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]}]
    told = run(admin, "users", "explain", "carol")
    assert told.out.startswith("carol can log in with SCRAM-SHA-512\n0 ACLs of User:carol")
    assert run(admin, "users", "set-password", "carol", stdin="planted-new\n").code == 0
    assert run(admin, "users", "remove", "carol", "--yes").code == 0
    assert "there is no user carol" in run(admin, "users", "remove", "carol").err


def test_tokens_are_created_used_renewed_and_expired(secured: Secured, run: User) -> None:
    admin = secured.file("admin", "SASL_SSL")
    file = secured.directory / "token.properties"
    made = run(
        admin, "tokens", "create", "--to", file, "--max-lifetime", "3h", "--renewer", "alice", "--json"
    ).json()
    name = made["tokenId"]
    assert run(file, "topics", "list").code == 0
    assert name in run(admin, "tokens", "list", "--owner", "admin").out
    assert run(admin, "tokens", "renew", name, "--for", "1h").code == 0
    assert run(admin, "tokens", "expire", name, "--yes").out == f"token {name} is removed\n"
    assert run(admin, "tokens", "list").out == "no tokens\n"


def test_what_does_not_fit_is_a_sentence(secured: Secured, run: User) -> None:
    wrong = jaas_text(PLAIN_MODULE, {"username": "admin", "password": "planted-wrong"})
    stranger = secured.directory / "stranger.pem"
    stranger.write_bytes(CertificateAuthority.create("stranger", days=1).certificate)
    for protocol, more, sentence in (
        ("SASL_SSL", {"sasl_jaas_config": wrong}, "refused the log-in of admin with PLAIN"),
        (
            "SASL_SSL",
            {"ssl_truststore_location": str(stranger)},
            "signed by none of the authorities",
        ),
        ("SASL_SSL", {"bootstrap_servers": f"127.0.0.1:{secured.ports['SASL_SSL']}"}, "is of another host"),
        ("SASL_SSL", {"security_protocol": "SASL_PLAINTEXT"}, "asks for TLS"),
        (
            "SASL_PLAINTEXT",
            {"security_protocol": "PLAINTEXT", "sasl_jaas_config": ""},
            "asks for a log-in with",
        ),
        ("SSL", {"ssl_keystore_location": ""}, "asks for a certificate, and this client has none"),
    ):
        done = run(secured.file("wrong", protocol, **more), "topics", "list")
        assert done.code == 2
        assert sentence in done.err, done.err
        assert "planted" not in done.err


def test_kafkas_tools_take_the_files_of_secure_init(kafka: KafkaPeer, tmp_path: Path) -> None:
    """The client configs of `secure init` and `users add --to`, unchanged."""
    [port] = free_ports(1)
    command = [sys.executable, "-m", "penstock"]
    made = subprocess.run(
        [*command, "secure", "init", "secured", "--host", f"localhost:{port}"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    start = [*command, "up", "--config", "secured/node.properties"]
    with subprocess.Popen(start, cwd=tmp_path, stdout=subprocess.PIPE) as node:
        try:
            assert node.stdout is not None
            assert node.stdout.readline().startswith(b"penstock ready ")
            add = [
                "users",
                "add",
                "alice",
                "--to",
                "alice.properties",
                "--client-config",
                "secured/admin.properties",
            ]
            subprocess.run([*command, *add], cwd=tmp_path, check=True, capture_output=True)
            tool = ("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", f"localhost:{port}")
            admin, alice = tmp_path / "secured" / "admin.properties", tmp_path / "alice.properties"
            kafka.java(*tool, "--command-config", str(admin), "--create", "--topic", "orders")
            assert "orders" in kafka.java(*tool, "--command-config", str(admin), "--list")
            assert "orders" not in kafka.java(*tool, "--command-config", str(alice), "--list")
        finally:
            node.terminate()
            node.wait(60)
