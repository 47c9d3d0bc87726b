"""Secrets are planted wherever a node takes one; then everything that it shows is searched for them.

The node has a log at DEBUG, an audit of everything, metrics, health, an HTTP API and files. Clients log in rightly and
wrongly with every mechanism, send halves of messages, and ask for everything that can be described.
"""

import json
import logging
import re
import socket
import subprocess
import sys
import time
import traceback
from base64 import b64decode, b64encode, urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from tests.compat.beside import Side
from tests.security.sasl.clients import ScramClient
from tests.security.tokens import claims, jwks, signed
from tests.server.raw import RawClient

from penstock.base.settings import BadSetting
from penstock.metadata.scram import ScramMechanism, salted_password
from penstock.server.config import load
from penstock.server.ports import free_ports
from penstock.testing import Broker
from penstock.testing.broker import BrokerFailed
from penstock.wire import Api, request_frame, request_module, write_request

PLAIN, SCRAM = "plainly-planted-password", "scram-planted-password"
KEY_PASSWORD, TOKEN_SECRET = "planted-key-password", "planted-token-secret"
UNKNOWN_USERS = b64encode(b"planted-unknown-users-secret-32b").decode()
WRONG = "wrongly-planted-password"
MECHANISM = ScramMechanism.SCRAM_SHA_256
SALT = b"a salt of some bytes"
SALTED = salted_password(MECHANISM, SCRAM, SALT, 4096)
METADATA = {"resource_type": 4, "configuration_keys": None}


def forms(secret: bytes) -> dict[str, bytes]:
    """How a secret may show up."""
    found = {
        "as it is": secret,
        "in hex": secret.hex().encode(),
        "in base64": b64encode(secret).rstrip(b"="),
        "in base64 of URLs": urlsafe_b64encode(secret).rstrip(b"="),
        "as Python writes bytes": repr(secret)[2:-1].encode(),
    }
    return {how: text for how, text in found.items() if text}


class Shown:
    """Everything that the node has shown, by where."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.secrets: dict[str, bytes] = {}

    def add(self, where: str, text: str | bytes) -> None:
        self.texts[where] = self.texts.get(where, b"") + (text.encode() if isinstance(text, str) else text)

    def leaks(self) -> list[str]:
        return [
            f"{what} {how}, in {where}"
            for what, secret in self.secrets.items()
            for how, form in forms(secret).items()
            for where, text in self.texts.items()
            if form in text
        ]


def key_store(path: Path) -> Path:
    """A private key with a password, in PEM."""
    cert = trustme.CA().issue_cert("localhost")
    key = load_pem_private_key(cert.private_key_pem.bytes(), None)
    locked = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode())
    )
    path.write_bytes(locked + b"".join(each.bytes() for each in cert.cert_chain_pems))
    return path


def settings_of(path: Path) -> dict[str, str]:
    keys = path / "keys.json"
    keys.write_bytes(jwks())
    plain, sasl, tls = free_ports(3)
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},OUTSIDE://127.0.0.1:{sasl},SSL://127.0.0.1:{tls}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT,SSL:SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.outside.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule "
        f'required user_alice="{PLAIN}";',
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "delegation.token.secret.key": TOKEN_SECRET,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key_store(path / "node.pem")),
        "ssl.key.password": KEY_PASSWORD,
        "connection.failed.authentication.delay.ms": "0",
        "audit.log": "all",
        "audit.file": str(path / "audit.json"),
    }


def exchange(shown: Shown, port: int, mechanism: str, *tokens: Any) -> bytes:
    """Send tokens; a callable makes the next one of the last answer. Returns the last answer."""
    shake, auth = request_module(Api.SASL_HANDSHAKE, 1), request_module(Api.SASL_AUTHENTICATE, 2)
    answer = b""
    with RawClient(port) as client:
        client.ask(Api.SASL_HANDSHAKE, 1, shake.SaslHandshakeRequest(mechanism=mechanism))
        for token in tokens:
            data = token(answer) if callable(token) else token
            reply = client.ask(Api.SASL_AUTHENTICATE, 2, auth.SaslAuthenticateRequest(auth_bytes=data))
            shown.add("answers to clients", repr(reply))
            answer = reply.auth_bytes
    return answer


def log_in_as_all(shown: Shown, port: int, bearer: str, token_id: str, key: str) -> None:
    exchange(shown, port, "PLAIN", f"\0alice\0{PLAIN}".encode())
    exchange(shown, port, "PLAIN", f"\0alice\0{WRONG}".encode())
    exchange(shown, port, "PLAIN", f"{PLAIN}\0alice\0{PLAIN}".encode())
    for user, password, extensions in (
        ("carol", SCRAM, ""),
        ("carol", WRONG, ""),
        ("nobody", WRONG, ""),
        (token_id, key, "tokenauth=true"),
    ):
        scram = ScramClient(MECHANISM, user, password, extensions=extensions)
        exchange(shown, port, MECHANISM.label, scram.first, scram.final)
    for token in (bearer, f"{bearer[:-8]}AAAAAAAA"):
        with suppress(AssertionError):
            exchange(shown, port, "OAUTHBEARER", f"n,,\x01auth=Bearer {token}\x01\x01".encode(), b"\x01")


def send_halves(port: int, *secrets: str) -> None:
    """Requests of log-ins that are cut, too long, or at the wrong time."""
    auth = request_module(Api.SASL_AUTHENTICATE, 2)
    for secret in secrets:
        body = write_request(
            Api.SASL_AUTHENTICATE, 2, auth.SaslAuthenticateRequest(auth_bytes=f"\0a\0{secret}".encode())
        )
        frame = request_frame(Api.SASL_AUTHENTICATE, 2, 1, secret, body)
        for data in (frame, frame[:4] + frame[5:], frame[:-3], frame * 2, secret.encode()):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client, suppress(OSError):
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass


def pages(shown: Shown, broker: Broker, bearer: str) -> None:
    asked = ("/metrics", "/health", "/health/ready", "/cluster/configs", "/cluster", "/openapi.json", "/docs")
    basic = b64encode(f"alice:{PLAIN}".encode()).decode()
    for path in asked:
        for scheme in ("", f"Basic {basic}", f"Bearer {bearer}", f"Basic {bearer}"):
            request = Request(f"{broker.http_url}{path}", headers={"Authorization": scheme} if scheme else {})
            try:
                with urlopen(request, timeout=20) as page:
                    shown.add(f"GET {path}", page.read() + str(page.headers).encode())
            except HTTPError as error:
                shown.add(f"GET {path}", error.read() + str(error.headers).encode())


def everything_described(shown: Shown, side: Side) -> None:
    for name in ("1", ""):
        described = side.call(
            Api.DESCRIBE_CONFIGS,
            4,
            resources=[{"resource_name": name, **METADATA}],
            include_synonyms=True,
            include_documentation=True,
        )
        shown.add("DescribeConfigs", repr(described))
    shown.add(
        "DescribeUserScramCredentials", repr(side.call(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None))
    )


def dumps(shown: Shown, data: Path) -> None:
    files = [
        *data.rglob("__cluster_metadata-0/*.log"),
        *data.rglob("__cluster_metadata-0/*.checkpoint"),
    ]
    assert files
    for more in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "log", "dump", "--records", *more, *map(str, files)],
            capture_output=True,
            check=True,
        )
        assert done.stdout
        shown.add("penstock log dump", done.stdout + done.stderr)


def test_no_planted_secret_is_shown_anywhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown, data = Shown(), tmp_path / "data"
    settings = settings_of(tmp_path)
    bearer = signed(claims(int(time.time() * 1000)))
    with Broker(settings=settings, data=str(data), http=True) as broker:
        ports = dict(re.findall(r"(\w+)://127.0.0.1:(\d+)", settings["listeners"]))
        outside = int(ports["OUTSIDE"])
        side = Side(f"127.0.0.1:{ports['PLAINTEXT']}")
        upsertion = {
            "name": "carol",
            "mechanism": 1,
            "iterations": 4096,
            "salt": SALT,
            "salted_password": SALTED,
        }
        side.call(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=[upsertion])
        secret = {"name": "scram.unknown.users.secret", "config_operation": 0, "value": UNKNOWN_USERS}
        changed = {"resource_type": 4, "resource_name": "", "configs": [secret]}
        side.call(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[changed], validate_only=False)
        token_id, key = made_token(outside)
        shown.secrets = {
            "a password of PLAIN": PLAIN.encode(),
            "a password of SCRAM": SCRAM.encode(),
            "a salted password": SALTED,
            "a wrong password": WRONG.encode(),
            "the password of the key store": KEY_PASSWORD.encode(),
            "the secret of delegation tokens": TOKEN_SECRET.encode(),
            "the key of a delegation token": key,
            "a bearer token": bearer.encode(),
            "the signature of a bearer token": bearer.rpartition(".")[2].encode(),
            "the secret of unknown users": UNKNOWN_USERS.encode(),
            "the same, decoded": b64decode(UNKNOWN_USERS),
        }
        log_in_as_all(shown, outside, bearer, token_id, b64encode(key).decode())
        send_halves(outside, PLAIN, WRONG)
        send_halves(int(ports["SSL"]), PLAIN)
        pages(shown, broker, bearer)
        everything_described(shown, side)
        side.begin()
        assert broker._faulty is not None
        node = broker._faulty.node
        for what in (node._config, node._config.sasl, node._config.tls, node.context.image, node.context):
            shown.add("repr of what the node holds", repr(what))
    shown.add("the log", caplog.text)
    shown.add("the audit", (tmp_path / "audit.json").read_bytes())
    dumps(shown, data)
    assert {"User:alice", "User:carol"} <= {
        json.loads(each)["principal"] for each in (tmp_path / "audit.json").read_text().splitlines()
    }
    assert "logged in as User:carol" in caplog.text, "the log is at DEBUG"
    assert not shown.leaks()


def made_token(port: int) -> tuple[str, bytes]:
    shake, auth = request_module(Api.SASL_HANDSHAKE, 1), request_module(Api.SASL_AUTHENTICATE, 2)
    make = request_module(Api.CREATE_DELEGATION_TOKEN, 3)
    with RawClient(port) as client:
        client.ask(Api.SASL_HANDSHAKE, 1, shake.SaslHandshakeRequest(mechanism="PLAIN"))
        token = auth.SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PLAIN}".encode())
        client.ask(Api.SASL_AUTHENTICATE, 2, token)
        made = client.ask(
            Api.CREATE_DELEGATION_TOKEN,
            3,
            make.CreateDelegationTokenRequest(
                owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime=-1
            ),
        )
    assert not made.error_code
    return made.token_id, made.hmac


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.key.password", WRONG),
        ("listener.name.outside.plain.sasl.jaas.config", f'org.example.Other required user_a="{PLAIN}";'),
        ("listener.name.outside.plain.sasl.jaas.config", f'PlainLoginModule required user_a="{PLAIN}'),
        ("listener.name.nowhere.plain.sasl.jaas.config", f'PlainLoginModule required user_a="{PLAIN}";'),
    ],
)
def test_a_refused_start_shows_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    """Not in the error, in its causes, or in a traceback with all of them."""
    caplog.set_level(logging.DEBUG)
    shown = Shown()
    secrets = {
        "a password": PLAIN,
        "a wrong password": WRONG,
        "another": KEY_PASSWORD,
        "one more": TOKEN_SECRET,
    }
    shown.secrets = {what: secret.encode() for what, secret in secrets.items()}
    broker = Broker(settings={**settings_of(tmp_path), name: value})
    with pytest.raises((BadSetting, BrokerFailed)) as refused:
        broker.start()
    shown.add("the traceback", "".join(traceback.format_exception(refused.value)))
    shown.add("the log", caplog.text)
    assert not shown.leaks()


def test_a_configuration_of_properties_shows_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings_of(tmp_path).items()))
    config = load(file=str(file), environment={}, data=str(tmp_path / "data"))
    for secret in (PLAIN, KEY_PASSWORD, TOKEN_SECRET):
        assert secret not in repr(config)
        assert secret not in str(config)
