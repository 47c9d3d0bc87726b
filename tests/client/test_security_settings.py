"""Kafka's settings of a client's security: what is understood, what is refused, and that no secret is shown."""

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from penstock.base.settings import BadSetting
from penstock.client.bearer_tokens import TokenEndpoint
from penstock.client.errors import LoginFailed, Unreachable
from penstock.client.security import PLAINTEXT, ClientSecurity
from penstock.client.security_settings import ClientProperties, parse_security

PLAIN_JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="alice" password=\'planted-"x\';'
)
SCRAM_JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="id" password="planted-hmac" tokenauth="true";'
)
OAUTH_JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'clientId="me" clientSecret="planted-secret" scope="kafka" extension_logicalCluster="lkc-1";'
)


def parse(**settings: str) -> ClientSecurity:
    """In names _ stands for a dot."""
    return parse_security({name.replace("_", "."): value for name, value in settings.items()})


def first_token(security: ClientSecurity) -> bytes:
    assert security.login is not None
    return security.login.begin().first()


def test_without_settings_there_is_no_security() -> None:
    assert parse_security({}) == PLAINTEXT
    assert parse_security({"client.id": "x", "max.poll.records": "5", "ssl.protocol": "TLSv1.3"}) == PLAINTEXT


def test_plain_takes_its_user_from_jaas_or_from_the_names_of_librdkafka() -> None:
    jaas = parse(security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_jaas_config=PLAIN_JAAS)
    assert first_token(jaas) == b'\0alice\0planted-"x'
    assert jaas.protocol == "SASL_PLAINTEXT"
    short = parse(
        security_protocol="sasl_ssl", sasl_mechanism="PLAIN", sasl_username="bob", sasl_password="planted"
    )
    assert first_token(short) == b"\0bob\0planted"
    assert short.protocol == "SASL_SSL"


def test_scram_takes_delegation_tokens() -> None:
    security = parse(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=SCRAM_JAAS
    )
    assert security.login is not None
    assert security.login.mechanism == "SCRAM-SHA-512"
    assert first_token(security).startswith(b"n,,n=id,r=")
    assert first_token(security).endswith(b",tokenauth=true")
    assert first_token(security) != first_token(security), "a nonce is used once"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"security.protocol": "TLS"},
            "security.protocol .* is 'TLS', expected one of PLAINTEXT, SSL, SASL_PLAI",
        ),
        (
            {"security.protocol": "SASL_SSL"},
            "sasl.mechanism is 'GSSAPI', its default, expected one of PLAIN, SCRAM",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
            "has no user to log in with, expected sasl.us",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "alice"},
            "SASL_SSL has no password to log in with, expected sasl.username and sasl.password, or sasl.jaas.config",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM_JAAS},
            "has a login module that is not of sasl.mechanism PLAIN, expected org.apache.*PlainLoginModule",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "planted"},
            "sasl.jaas.config .* does not end with a semicolon",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": PLAIN_JAAS,
                "sasl.password": "planted",
            },
            "is set together with sasl.username or sasl.password, expected one of both ways",
        ),
        (
            {"sasl.password": "planted"},
            "sasl.password .* is set, but security.protocol is PLAINTEXT, expected SASL",
        ),
        ({"ssl.engine.factory.class": "planted"}, "ssl.engine.factory.class .* is not supported: remove it"),
        ({"sasl.pasword": "planted"}, "sasl.pasword .* is not supported"),
        ({"security.providers": "planted"}, "security.providers .* is not supported"),
        (
            {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldaps"},
            "ssl.endpoint.identification.algorithm .* is 'ldaps', expected https, or nothing",
        ),
        (
            {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.1"},
            "ssl.enabled.protocols .* is 'TLSv1.1', expected TLSv1.2, TLSv1.3 or both",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.key": "planted"},
            "ssl.keystore.certificate.chain is not set",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": OAUTH_JAAS,
            },
            "sasl.oauthbearer.token.endpoint.url is '', expected the URL of a token endpoint",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
            },
            "has no client id or no client secret, expected sasl.oauthbearer.client.credentials.client.id and",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.login.callback.handler.class": "org.example.Planted",
            },
            "sasl.login.callback.handler.class .* is a class of Java's, expected none",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_without_a_secret(settings: dict[str, str], why: str) -> None:
    with pytest.raises(BadSetting, match=why) as refused:
        parse_security(settings)
    assert "planted" not in str(refused.value)


def test_a_file_is_overridden_by_the_environment_and_errors_say_where(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# a client\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism: PLAIN\nsasl.username=alice\n"
        "sasl.password = planted-\\u0066ile\nacks=all\n"
    )
    found = ClientProperties.from_file(str(path))
    assert first_token(parse_security(found)) == b"\0alice\0planted-file"
    variables = {"PENSTOCK_CLIENT_SASL_PASSWORD": "planted-env", "PENSTOCK_CLIENT_CONFIG": "x", "HOME": "/"}
    assert first_token(parse_security(found.with_environment(variables))) == b"\0alice\0planted-env"
    assert "planted" not in repr(found.with_environment(variables))
    with pytest.raises(
        BadSetting, match=r"security\.protocol \(the environment's PENSTOCK_CLIENT_SECURITY_PROTOCOL\)"
    ):
        parse_security(found.with_environment({"PENSTOCK_CLIENT_SECURITY_PROTOCOL": "TLS"}))
    with pytest.raises(BadSetting, match="the environment's PENSTOCK_CLIENT_SASL_PASSWROD is not a setting"):
        found.with_environment({"PENSTOCK_CLIENT_SASL_PASSWROD": "planted"})
    path.write_text("\nsasl.foo=planted\n")
    with pytest.raises(BadSetting, match=r"^sasl\.foo \(.*client\.properties line 2\) is not supported"):
        parse_security(ClientProperties.from_file(str(path)))


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match=r"cannot read .*none: No such file"):
        ClientProperties.from_file(str(tmp_path / "none"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(BadSetting, match="is not UTF-8 text"):
        ClientProperties.from_file(str(tmp_path / "binary"))


def test_security_can_be_sent_to_other_processes_and_shows_no_secret() -> None:
    """Spark sends a reader's settings to its executors."""
    for security in (
        parse(security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=SCRAM_JAAS),
        parse(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url="http://127.0.0.1:1/token",
            sasl_jaas_config=OAUTH_JAAS,
        ),
        parse(security_protocol="SSL", ssl_truststore_type="PEM", ssl_truststore_certificates="planted"),
    ):
        received = pickle.loads(pickle.dumps(security))
        assert (received.tls, repr(received.login)) == (security.tls, repr(security.login))
        assert "planted" not in repr(security)


# -- OAUTHBEARER ---------------------------------------------------------------------------------------


class Provider(BaseHTTPRequestHandler):
    """A token endpoint that answers as a test says."""

    status, reply = 200, b"{}"
    asked: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.headers["Authorization"], body))
        self.send_response(self.status)
        self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(self.reply)))
        self.end_headers()
        self.wfile.write(self.reply)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def provider(status: int, reply: Any) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A token endpoint: its URL, and what it was asked."""
    made = type("Made", (Provider,), {"status": status, "reply": json.dumps(reply).encode(), "asked": []})
    with HTTPServer(("127.0.0.1", 0), made) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", made.asked  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()


def test_a_token_comes_from_the_endpoint_and_is_used_until_it_is_nearly_over() -> None:
    with provider(200, {"access_token": "a.b.c", "expires_in": 300}) as (url, asked):
        security = parse(
            security_protocol="SASL_SSL",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_endpoint_url=url,
            sasl_jaas_config=OAUTH_JAAS,
        )
        for _ in range(2):
            assert first_token(security) == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01\x01"
    assert asked == [("Basic bWU6cGxhbnRlZC1zZWNyZXQ=", b"grant_type=client_credentials&scope=kafka")]


def test_a_token_without_a_lifetime_is_fetched_for_each_log_in() -> None:
    with provider(200, {"access_token": "a.b.c"}) as (url, asked):
        endpoint = TokenEndpoint(url, "m e", "p&", is_urlencoded=True)
        assert [endpoint(), endpoint()] == ["a.b.c", "a.b.c"]
    assert asked == [("Basic bStlOnAlMjY=", b"grant_type=client_credentials")] * 2


@pytest.mark.parametrize(
    ("status", "reply", "error", "why"),
    [
        (401, {"error": "invalid_client"}, LoginFailed, "answered 401 Unauthorized to the client id 'me'"),
        (302, {}, LoginFailed, "answered 302 Found"),
        (503, {}, Unreachable, "answered 503 Service Unavailable"),
        (200, {"token": "planted"}, LoginFailed, "has no token"),
        (200, {"access_token": "planted\x01x=y"}, LoginFailed, "has no token"),
        (200, ["planted"], LoginFailed, "did not answer with an object"),
    ],
)
def test_an_endpoint_that_gives_no_token_is_reported(
    status: int, reply: Any, error: type[Exception], why: str
) -> None:
    with provider(status, reply) as (url, _), pytest.raises(error, match=why) as refused:
        TokenEndpoint(url, "me", "planted-secret")()
    assert "planted" not in str(refused.value)


def test_an_endpoint_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(
        Unreachable, match=r"cannot reach the token endpoint http://127\.0\.0\.1:1/token: connection ref"
    ):
        TokenEndpoint("http://127.0.0.1:1/token", "me", "planted")()


def test_a_token_file_is_read_for_each_log_in(tmp_path: Path) -> None:
    file = tmp_path / "to ken"
    security = parse(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=file.as_uri(),
    )
    with pytest.raises(LoginFailed, match=r"cannot read a token from .*to ken, .*No such file"):
        first_token(security)
    for token in ("one", "two"):
        file.write_text(token + "\n")
        assert first_token(security) == f"n,,\x01auth=Bearer {token}\x01\x01".encode()
