"""`penstock users` and `penstock tokens`, against a secured broker of Penstock's in this process."""

import io
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Command, Outcome

from penstock.cli.client_files import write_client_file
from penstock.cli.connecting import target_of
from penstock.testing import Broker, Security

PASSWORD = "planted-s3cret"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {
        "delegation.token.secret.key": "planted-key",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with Broker(settings=settings, security=Security(users={"admin": PASSWORD})) as made:
        yield made


@pytest.fixture
def admin(penstock: Command, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Commands of the user admin."""
    monkeypatch.setenv("PENSTOCK_CLIENT_CONFIG", broker.client().write(tmp_path / "admin.properties"))

    def command(*arguments: object, stdin: str = "") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        return penstock(*arguments)

    return command


def log_in(broker: Broker, file: Path, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> str:
    """A client.properties of a user."""
    own = {name: value for name, value in broker.client().properties.items() if name != "sasl.jaas.config"}
    own |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    file.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    return str(file)


def test_users_are_added_changed_and_removed(admin: Command, broker: Broker, tmp_path: Path) -> None:
    added = admin("users", "add", "alice", stdin="planted-one\n")
    assert (added.code, added.out) == (0, "user alice can log in with SCRAM-SHA-512\n")
    alice = log_in(broker, tmp_path / "alice", "alice", "planted-one")
    assert admin("topics", "list", "--client-config", alice).code == 0

    again = admin("users", "add", "alice", stdin="planted-two\n")
    assert again.code == 2
    assert (
        "has a password for SCRAM-SHA-512 already: change it with `penstock users set-password alice`"
        in again.err
    )

    secret = tmp_path / "secret"
    secret.write_text("planted-two\n")
    both = ("--mechanism", "scram-sha-256", "--iterations", 4096, "--password-file", secret)
    assert admin("users", "add", "alice", *both).code == 0
    listed = admin("users", "list", "alice", "--json").json()
    assert listed == [
        {
            "user": "alice",
            "mechanisms": [
                {"mechanism": "SCRAM-SHA-256", "iterations": 4096},
                {"mechanism": "SCRAM-SHA-512", "iterations": 8192},
            ],
        }
    ]
    assert [line.split() for line in admin("users", "list").out.splitlines()][1][0] == "admin"

    changed = admin("users", "set-password", "alice", "--password-file", "-", stdin="planted-three\n")
    assert changed.out == "the password of user alice is set for SCRAM-SHA-256 and SCRAM-SHA-512\n"
    assert admin("topics", "list", "--client-config", alice).code == 2
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        new = log_in(broker, tmp_path / "new", "alice", "planted-three", mechanism)
        assert admin("topics", "list", "--client-config", new).code == 0

    one = admin("users", "remove", "alice", "--mechanism", "SCRAM-SHA-256", "--yes")
    assert one.out == "user alice can no longer log in with SCRAM-SHA-256\n"
    rest = admin("users", "remove", "alice", "--yes", "--json").json()
    assert rest == {"user": "alice", "mechanisms": ["SCRAM-SHA-512"]}
    gone = admin("topics", "list", "--client-config", new)
    assert gone.code == 2
    assert "planted" not in gone.err


def test_what_a_user_can_do_is_explained(admin: Command) -> None:
    told = admin("users", "explain", "admin")
    assert (told.code, told.out) == (
        0,
        "admin can log in with SCRAM-SHA-512\nsuper.users has it: it may do everything\n",
    )
    admin("users", "add", "bob", stdin="planted\n")
    admin("acls", "allow", "bob", "read", "topic", "orders")
    bob = admin("users", "explain", "bob", "--json").json()
    assert (bob["canLogIn"], bob["isSuperUser"], bob["acls"]) == (True, False, 1)
    nobody = admin("users", "explain", "carol")
    assert nobody.code == 1
    assert "there is no SCRAM user carol" in nobody.out


def test_the_file_of_another_user_has_no_private_key_of_the_administrator(
    broker: Broker, tmp_path: Path
) -> None:
    own = broker.client().properties | {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/home/admin/admin.pem",
        "ssl.key.password": "planted-key-password",
    }
    file = tmp_path / "admin.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    write_client_file(
        tmp_path / "alice", target_of(None, str(file)), "SCRAM-SHA-512", {"username": "u", "password": "p"}
    )
    text = (tmp_path / "alice").read_text()
    assert "ssl.truststore.location" in text
    assert "keystore" not in text
    assert "planted" not in text


@pytest.mark.parametrize(
    ("words", "stdin", "sentence"),
    [
        (("set-password", "dave"), "x", "there is no user dave: add it with `penstock users add dave`"),
        (("remove", "dave", "--yes"), "", "there is no user dave"),
        (("list", "dave"), "", "there is no user dave"),
        (("add", "dave"), "", "the password on standard input is empty, expected one line"),
        (("add", "dave", "--password-file", "/nowhere"), "", "cannot read /nowhere"),
        (("add", "dave", "--mechanism", "MD5"), "x", "--mechanism is 'MD5', expected one of SCRAM-SHA-256"),
        (("add", ""), "x", "UNACCEPTABLE_CREDENTIAL"),
        (
            ("remove", "admin", "--mechanism", "SCRAM-SHA-256"),
            "",
            "has no password for SCRAM-SHA-256, it has one for",
        ),
        (("add", "dave", "--iterations", "1"), "x", "4096"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    admin: Command, words: tuple[str, ...], stdin: str, sentence: str
) -> None:
    done = admin("users", *words, stdin=stdin)
    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_a_password_is_asked_for_twice_at_a_terminal(admin: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["planted-a", "planted-b"])
    monkeypatch.setattr("getpass.getpass", lambda _: next(typed))
    monkeypatch.setattr("penstock.cli.passwords.input_is_terminal", lambda: True)
    done = admin("users", "add", "erin")
    assert done.code == 2
    assert done.err == "penstock: the two passwords differ, nothing was changed\n"


def test_tokens_are_created_used_renewed_and_expired(admin: Command, tmp_path: Path) -> None:
    file = tmp_path / "job.properties"
    created = admin(
        "tokens", "create", "--to", file, "--max-lifetime", "90m", "--renewer", "bob", "--json"
    ).json()
    assert (created["owner"], created["renewers"], created["file"]) == ("User:admin", ["User:bob"], str(file))
    assert "hmac" not in created
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
    assert admin("topics", "list", "--client-config", file).code == 0
    by_token = admin("tokens", "create", "--client-config", file)
    assert by_token.code == 2
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in by_token.err

    name = created["tokenId"]
    [listed] = admin("tokens", "list", "--owner", "admin", "--json").json()
    assert listed["tokenId"] == name
    table = admin("tokens", "list").out
    assert name in table
    assert "1h" in table
    renewed = admin("tokens", "renew", name, "--for", "30m", "--json").json()
    assert renewed["expiresMs"] < listed["expiresMs"]
    later = admin("tokens", "expire", name, "--for", "10m")
    assert later.out.startswith(f"token {name} expires ")
    assert admin("tokens", "expire", name, "--yes").out == f"token {name} is removed\n"
    refused = admin("topics", "list", "--client-config", file)
    assert refused.code == 2
    assert admin("tokens", "list").out == "no tokens\n"

    exists = admin("tokens", "create", "--to", file)
    assert (exists.code, exists.err) == (2, f"penstock: {file} exists already, expected a new file\n")
    unknown = admin("tokens", "renew", name)
    assert f"there is no token {name} that you may see" in unknown.err


def test_a_token_that_is_shown_logs_in(admin: Command, broker: Broker, tmp_path: Path) -> None:
    shown = dict(line.split(": ") for line in admin("tokens", "create").out.splitlines()[1:])
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{shown["user"]}" password="{shown["password"]}" tokenauth="true";'
    )
    own = broker.client().properties | {"sasl.jaas.config": jaas}
    file = tmp_path / "token.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    assert admin("topics", "list", "--client-config", file).code == 0
    admin("tokens", "expire", shown["user"], "--yes")
