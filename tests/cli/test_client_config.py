"""Commands at secured brokers: `--client-config`, the environment, and what is said where they do not fit."""

import datetime
import io
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.cli.conftest import Command
from tests.security.tokens import claims, jwks, signed
from tests.server.tls_nodes import issue, tls_broker, write_ca, write_store
from typer.main import get_command

from penstock.cli.app import app
from penstock.cli.connecting import target_of
from penstock.cli.spark_jobs import client_options
from penstock.spark.archiving.archive_table import Archive, write_archive
from penstock.spark.options import OptionValues
from penstock.testing import Broker, Security

PASSWORD = "planted-s3cret"
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
USERS = {"admin": PASSWORD, "alice": PASSWORD}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(security=Security(users=USERS)) as made:
        made.create_topic("orders")
        yield made


@pytest.fixture(autouse=True)
def one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On standard input, for those who read it."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))


@pytest.fixture
def admin(broker: Broker, tmp_path: Path) -> str:
    return broker.client().write(tmp_path / "admin.properties")


def changed(broker: Broker, path: Path, **settings: str) -> str:
    """The file of admin with other values; in names _ stands for a dot, and an empty value removes a setting."""
    own = broker.client().properties | {name.replace("_", "."): value for name, value in settings.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in own.items() if value))
    return str(path)


def parameters(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Each command with its options."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from parameters(command.get_command(None, name), (*path, name))
    else:
        yield " ".join(path), {option for each in command.params for option in each.opts}


def test_every_command_that_takes_a_server_takes_a_client_config() -> None:
    found = dict(parameters(get_command(app)))
    servers = {name for name, options in found.items() if "--server" in options}
    assert {"topics list", "produce", "consume", "pipeline run", "archive", "audit", "replay"} <= servers
    assert {name for name in servers if "--client-config" not in found[name]} == set()


def test_commands_log_in(penstock: Command, admin: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert penstock("topics", "list", "--client-config", admin).out.split()[:2] == ["topic", "partitions"]
    monkeypatch.setenv("PENSTOCK_CLIENT_CONFIG", admin)
    assert penstock("produce", "orders").code == 0
    assert penstock("consume", "orders").out == "x\n"
    for words in (
        ("groups", "list"),
        ("transactions", "list"),
        ("configs", "describe", "topic", "orders"),
        ("acls", "list"),
        ("quorum", "describe"),
        ("reassign", "status"),
    ):
        done = penstock(*words)
        assert (done.code, done.err) == (0, ""), words


def test_the_environment_has_the_server_and_the_password(
    penstock: Command, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = changed(broker, tmp_path / "c", bootstrap_servers="", sasl_jaas_config="", sasl_username="admin")
    monkeypatch.setenv("PENSTOCK_CLIENT_CONFIG", file)
    monkeypatch.setenv("PENSTOCK_CLIENT_SASL_PASSWORD", PASSWORD)
    monkeypatch.setenv("PENSTOCK_SERVER", broker.bootstrap)
    assert penstock("topics", "list", "--json").code == 0
    monkeypatch.setenv("PENSTOCK_CLIENT_SASL_PASSWORD", "planted-wrong")
    refused = penstock("topics", "list")
    assert refused.code == 2
    assert f"{broker.bootstrap} refused the log-in of admin with SCRAM-SHA-512" in refused.err
    assert "planted" not in refused.err


JAAS = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"sasl_jaas_config": f'{JAAS} username="admin" password="planted-wrong";'},
            "refused the log-in of admin",
        ),
        ({"sasl_jaas_config": f'{JAAS} username="bob" password="planted-x";'}, "refused the log-in of bob"),
        (
            {"sasl_mechanism": "SCRAM-SHA-256"},
            "does not take the SASL mechanism SCRAM-SHA-256, it takes SCRAM-SHA-512",
        ),
        (
            {"ssl_truststore_location": "", "ssl_truststore_type": ""},
            "none of the authorities that the system trusts",
        ),
        ({"ssl_truststore_location": "/nowhere.pem"}, "/nowhere.pem"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "asks for TLS, and this client does not use it"),
        ({"security_protocol": "SSL", "sasl_jaas_config": ""}, "asks for a log-in with SCRAM-SHA-512"),
        (
            {"sasl_jaas_confg": "planted"},
            "sasl.jaas.confg (FILE line 7) is no setting of a client, did you mean",
        ),
        (
            {"sasl_password": "${env:PENSTOCK_TEST_NOWHERE}", "sasl_jaas_config": "", "sasl_username": "a"},
            "NOWHERE",
        ),
    ],
)
@pytest.mark.parametrize("command", [("topics", "list"), ("consume", "orders"), ("produce", "orders")])
def test_what_does_not_fit_is_one_sentence_at_once(
    penstock: Command,
    broker: Broker,
    tmp_path: Path,
    settings: dict[str, str],
    sentence: str,
    command: tuple[str, ...],
) -> None:
    file = changed(broker, tmp_path / "client.properties", **settings)
    done = penstock(*command, "--client-config", file)
    assert done.code == 2
    assert sentence.replace("FILE", file) in done.err
    assert len(done.err.splitlines()) == 1
    assert "planted" not in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("command", [("topics", "list"), ("consume", "orders", "--follow")])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SSL"])
def test_without_a_client_config_the_command_says_what_the_listener_asks_for(
    penstock: Command, protocol: str, command: tuple[str, ...]
) -> None:
    with Broker(security=Security(protocol, "PLAIN")) as secured:
        done = penstock(*command, "--server", secured.bootstrap)
    asks = "asks for a log-in with PLAIN" if protocol == "SASL_PLAINTEXT" else "asks for TLS"
    assert done.code == 2
    assert f"{secured.bootstrap} {asks}" in done.err
    assert done.err.endswith(", in a file that --client-config names\n")


def test_a_certificate_of_another_host_or_an_expired_one_is_refused(
    penstock: Command, tmp_path: Path
) -> None:
    ca = trustme.CA()
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={write_ca(tmp_path / 'ca', ca)}\n"
    )
    for cert, words in (
        (ca.issue_cert("elsewhere.example.org"), "is of another host; connect by a name in the certificate"),
        (issue(ca, not_before=PAST, not_after=PAST + datetime.timedelta(days=1)), "has expired"),
    ):
        with tls_broker(write_store(tmp_path / "node.pem", cert)) as made:
            done = penstock("topics", "list", "-s", made.bootstrap, "--client-config", str(file))
        assert done.code == 2
        assert words in done.err


def test_spark_gets_the_file_and_references_to_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No secret is in the options of `penstock archive`, `audit`, `replay` and `pipeline`."""
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=one:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=a\n"
    )
    assert client_options(target_of(None, None)) == {}
    monkeypatch.setenv("PENSTOCK_CLIENT_SASL_PASSWORD", PASSWORD)
    monkeypatch.chdir(tmp_path)
    target = target_of(None, "client.properties")
    assert target.server == "one:9092"
    options = client_options(target)
    assert options == {
        "clientConfig": str(file),
        "kafka.sasl.password": "${env:PENSTOCK_CLIENT_SASL_PASSWORD}",
    }
    login = OptionValues(options).security().login
    assert login is not None
    assert login.begin().first() == f"\0a\0{PASSWORD}".encode()


@pytest.mark.parametrize("command", [("archive", "orders", "--to", "t"), ("replay", "t", "--to", "orders")])
def test_a_spark_command_says_what_the_listener_asks_for(
    penstock: Command,
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    """Before Spark starts."""
    monkeypatch.chdir(tmp_path)
    if command[0] == "replay":
        write_archive(str(tmp_path / "t"), Archive("orders", "id", 1, "read_committed"))
    done = penstock(*command, "--server", broker.bootstrap)
    assert done.code == 2
    assert "asks for TLS" in done.err


def test_bearer_tokens_log_in_until_they_expire(penstock: Command, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_bytes(jwks())
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
    }
    token, file = tmp_path / "token", tmp_path / "client.properties"
    now_s = int(time.time())
    with Broker(settings=settings) as made:
        file.write_text(
            f"bootstrap.servers={made.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.oauthbearer.token.endpoint.url={token.as_uri()}\n"
        )
        token.write_text(signed(claims(iat=now_s, exp=now_s + 3600)))
        assert penstock("topics", "list", "--client-config", file).code == 0
        token.write_text(signed(claims(iat=now_s - 7200, exp=now_s - 3600)))
        refused = penstock("topics", "list", "--client-config", file)
    assert refused.code == 2
    assert "refused the log-in" in refused.err
    assert token.read_text() not in refused.err


def test_a_command_without_security_loads_nothing_of_it() -> None:
    program = (
        "import sys; from penstock.cli.connecting import target_of; target_of(None, None); "
        "assert not {'ssl', 'hashlib', 'penstock.client.security_settings'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
