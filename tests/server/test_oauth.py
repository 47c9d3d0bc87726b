"""A node whose clients log in with bearer tokens: keys from a file or a URL, sessions, settings."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.nodes import StillClient, StillNode
from tests.security.tokens import claims, jwk, jwks, signed, unsecured
from tests.worlds import StillWorld

from penstock.base.metrics import KeysMeter
from penstock.base.settings import BadSetting
from penstock.security.bearer import InvalidToken, KeysPending, TokenRules
from penstock.security.jwt import BadKeys
from penstock.server.config import config_from
from penstock.server.oauth import JWKS_BYTES_MAX, MISSING_MS, RefreshingKeys, RefreshingValidator, fetch
from penstock.server.oauth_config import UNSECURED, KeysConfig
from penstock.wire import Api

LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}
URL = "sasl.oauthbearer.jwks.endpoint.url"
OAUTH = "listener.name.outside.oauthbearer."


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_bytes(jwks())
    return path


def node(path: Path, **more: str) -> StillNode:
    named = {name.replace("_", "."): value for name, value in more.items()}
    made = StillNode(settings={**LISTENERS, URL: path.as_uri(), **named})
    made.world.advance(100)
    return made


def log_in(made: StillNode, token: str, client: StillClient | None = None) -> tuple[StillClient, Any]:
    client = client or made.client("OUTSIDE")
    assert client.call(Api.SASL_HANDSHAKE, 1, mechanism="OAUTHBEARER").error_code is ErrorCode.none
    return client, authenticate(client, b"n,,\x01auth=Bearer %s\x01\x01" % token.encode())


def authenticate(client: StillClient, message: bytes) -> Any:
    client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=message)
    client.node.world.advance(200)
    return client.reply()


def token_of(made: StillNode, **said: Any) -> str:
    return signed(claims(made.world.now_ms(), **said))


def is_served(client: StillClient) -> bool:
    client.ask(Api.METADATA, 1, topics=None)
    client.node.world.advance(100)
    return client.reply() is not None


# -- log-ins -------------------------------------------------------------------------------------------


def test_a_token_logs_in_and_bounds_the_session(keys_file: Path) -> None:
    made = node(keys_file, sasl_oauthbearer_clock_skew_seconds="0")
    client, done = log_in(made, token_of(made))
    assert (done.error_code, done.auth_bytes) == (ErrorCode.none, b"")
    assert client.connection.session.principal == "User:alice"
    assert 590_000 < done.session_lifetime.total_seconds() * 1000 <= 600_000
    made.world.advance(580_000)
    assert is_served(client)
    made.world.advance(25_000)
    assert not is_served(client)
    assert client.transport.is_closed


def test_connections_max_reauth_ms_shortens_the_session(keys_file: Path) -> None:
    made = node(keys_file, connections_max_reauth_ms="7000")
    assert log_in(made, token_of(made))[1].session_lifetime.total_seconds() == 7
    soon = token_of(made, exp=made.world.now_ms() // 1000 + 3, iat=0)
    assert log_in(made, soon)[1].session_lifetime.total_seconds() <= 33, "with the allowed skew"


def test_a_client_logs_in_again_with_a_new_token_of_the_same_user(keys_file: Path) -> None:
    made = node(keys_file)
    client, _ = log_in(made, token_of(made))
    made.world.advance(500_000)
    _, again = log_in(made, token_of(made), client)
    assert again.error_code is ErrorCode.none
    made.world.advance(500_000)
    assert is_served(client)
    made.world.advance(1000)
    other, _ = log_in(made, token_of(made, sub="bob"), client)
    assert other.transport.is_closed


@pytest.mark.parametrize(
    ("said", "rules", "why"),
    [
        ({"exp": 5, "iat": 0}, {}, "expired"),
        ({"iss": "evil"}, {"sasl_oauthbearer_expected_issuer": "good"}, "issuer"),
        ({"aud": "x"}, {"sasl_oauthbearer_expected_audience": "kafka, y"}, "audience"),
        ({}, {"sasl_oauthbearer_sub_claim_name": "email"}, "email"),
        ({"roles": ["a", "a"]}, {"sasl_oauthbearer_scope_claim_name": "roles"}, "roles"),
    ],
)
def test_a_refused_token_gets_kafkas_json_and_the_log_the_reason(
    keys_file: Path, caplog: pytest.LogCaptureFixture, said: dict[str, Any], rules: dict[str, str], why: str
) -> None:
    made = node(keys_file, **rules)
    token = token_of(made, **said)
    with caplog.at_level(logging.DEBUG):
        client, told = log_in(made, token)
        assert (told.error_code, told.auth_bytes) == (ErrorCode.none, b'{"status":"invalid_token"}')
        failed = authenticate(client, b"\x01")
    assert failed.error_code is ErrorCode.sasl_authentication_failed
    assert failed.error_message == '{"status":"invalid_token"}'
    assert client.transport.is_closed
    assert why in caplog.text
    assert not any(part in caplog.text for part in token.split(".")[1:])


def test_an_audience_and_an_issuer_that_are_expected(keys_file: Path) -> None:
    made = node(
        keys_file, sasl_oauthbearer_expected_audience="kafka, y", sasl_oauthbearer_expected_issuer="good"
    )
    client, _ = log_in(made, token_of(made, aud=["y"], iss="good"))
    assert client.connection.session.principal == "User:alice"


def test_the_clock_of_the_issuer_may_differ(keys_file: Path) -> None:
    made = node(keys_file, sasl_oauthbearer_clock_skew_seconds="120")
    late = token_of(made, exp=made.world.now_ms() // 1000 - 60, iat=0)
    assert log_in(made, late)[1].auth_bytes == b""


def test_unsecured_tokens_need_kafkas_class_by_name(keys_file: Path) -> None:
    made = node(keys_file)
    assert b"invalid_token" in log_in(made, unsecured(claims(made.world.now_ms())))[1].auth_bytes
    open_ = StillNode(
        settings={
            **LISTENERS,
            f"{OAUTH}sasl.server.callback.handler.class": UNSECURED,
            f"{OAUTH}sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
            'required unsecuredLoginStringClaim_sub="broker" unsecuredValidatorPrincipalClaimName="name";',
        }
    )
    client, _ = log_in(open_, unsecured(claims(open_.world.now_ms(), name="carol")))
    assert client.connection.session.principal == "User:carol"


# -- keys ----------------------------------------------------------------------------------------------


def test_new_keys_are_used_after_a_refresh_and_removed_ones_no_more(keys_file: Path) -> None:
    made = node(keys_file, sasl_oauthbearer_jwks_endpoint_refresh_ms="60000")
    keys_file.write_bytes(jwks(jwk("k2", number=1)))
    new = signed(claims(made.world.now_ms() + 60_000), key_id="k2", number=1)
    old = token_of(made)
    assert log_in(made, old)[1].auth_bytes == b""
    made.world.advance(60_000)
    assert log_in(made, new)[1].auth_bytes == b""
    assert b"invalid_token" in log_in(made, old)[1].auth_bytes


def test_an_unknown_key_has_them_fetched_and_the_client_try_again(keys_file: Path) -> None:
    """Kafka refuses such a token for good, and clients give up after a refusal."""
    made = node(keys_file)
    made.world.advance(MISSING_MS)
    keys_file.write_bytes(jwks(jwk("k2", number=1)))
    new = signed(claims(made.world.now_ms()), key_id="k2", number=1)
    client, told = log_in(made, new)
    assert told is None
    assert client.transport.is_closed
    assert log_in(made, new)[1].auth_bytes == b""


class Provider:
    """Keys that a test changes, and how often they were fetched."""

    def __init__(self, *keys: dict[str, Any]) -> None:
        self.answer: bytes | Exception = jwks(*keys)
        self.fetches = 0

    def fetch(self, url: str) -> bytes:
        self.fetches += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def refreshing(provider: Provider, **more: int) -> tuple[StillWorld, RefreshingKeys, KeysMeter]:
    world, meter = StillWorld(), KeysMeter()
    return world, RefreshingKeys(world, KeysConfig("https://keys", **more), meter, provider.fetch), meter


def test_tokens_with_unknown_keys_cost_one_fetch_in_ten_seconds() -> None:
    provider = Provider()
    world, keys, _ = refreshing(provider)
    own = RefreshingValidator(keys, TokenRules())
    unknown = signed(claims(world.now_ms()), key_id="x")
    with pytest.raises(KeysPending):
        own.validate(unknown, world.now_ms())
    world.advance(100)
    for _ in range(100):
        with pytest.raises(InvalidToken) as refused:
            own.validate(unknown, world.now_ms())
        assert not isinstance(refused.value, KeysPending)
    assert provider.fetches == 1
    world.advance(MISSING_MS)
    for _ in range(100):
        with pytest.raises(KeysPending):
            own.validate(unknown, world.now_ms())
    world.advance(100)
    assert provider.fetches == 2


def test_a_failed_fetch_is_repeated_with_longer_pauses_and_the_keys_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = Provider()
    world, keys, meter = refreshing(provider, refresh_ms=60_000, backoff_ms=1000, backoff_ms_max=4000)
    world.advance(100)
    assert (meter.keys, meter.is_stale) == (1, False)
    provider.answer = BadKeys("no route")
    world.advance(60_000)
    assert (len(keys.known), meter.is_stale, provider.fetches) == (1, True, 2)
    world.advance(1000 + 2000 + 4000 + 4000 + 500)
    assert provider.fetches == 6
    assert caplog.text.count("no route") == 1, "one line, not one for each try"
    provider.answer = jwks(jwk("a"), jwk("b"))
    world.advance(4000)
    assert (meter.keys, meter.is_stale, meter.errors) == (2, False, 5)
    keys.stop()
    world.advance(200_000)
    assert provider.fetches == 7


def test_without_any_keys_clients_try_again(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider()
    provider.answer = BadKeys("no route")
    world, keys, _ = refreshing(provider)
    world.advance(5000)
    with pytest.raises(KeysPending):
        RefreshingValidator(keys, TokenRules()).validate(signed(), world.now_ms())
    assert "clients cannot log in" in caplog.text


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/keys"
        finally:
            server.shutdown()
            thread.join()


def ok(handler: BaseHTTPRequestHandler, body: bytes) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def moved(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", "http://127.0.0.1:1/")
    handler.end_headers()


def test_keys_are_fetched_over_http() -> None:
    with answering(lambda handler: ok(handler, b"the keys")) as url:
        assert fetch(url) == b"the keys"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda handler: ok(handler, b"x" * (JWKS_BYTES_MAX + 1)), "more than"),
        (lambda handler: handler.send_error(500), "500"),
        (moved, "302"),
    ],
    ids=["huge", "error", "redirect"],
)
def test_other_answers_over_http_are_errors(
    answer: Callable[[BaseHTTPRequestHandler], None], why: str
) -> None:
    with answering(answer) as url, pytest.raises(BadKeys, match=why):
        fetch(url)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BadKeys, match="No such file"):
        fetch((tmp_path / "none.json").as_uri())


# -- settings ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "without keys, expected a file: or https: URL"),
        ({URL: "ftp://keys"}, "begins with file:, http: or https:"),
        ({URL: "https://user:planted@keys/"}, "has a user or a password"),
        ({URL: "file:///k", f"{OAUTH}sasl.server.callback.handler.class": "org.example.Own"}, "cannot load"),
        (
            {URL: "file:///k", "listener.name.outside.sasl.oauthbearer.clock.skew.seconds": "-1"},
            "expected 0 to",
        ),
        ({URL: "file:///k", f"{OAUTH}sasl.oauthbearer.nonsense": "1"}, "unknown setting"),
        (
            {
                f"{OAUTH}sasl.server.callback.handler.class": UNSECURED,
                f"{OAUTH}sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
                'required unsecuredValidatorAllowableClockSkewMs="x";',
            },
            "AllowableClockSkewMs",
        ),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, str], why: str) -> None:
    with pytest.raises(BadSetting, match=why) as refused:
        config_from("/data", {**LISTENERS, **settings})
    assert "planted" not in str(refused.value)


def test_a_listener_has_settings_of_its_own() -> None:
    config = config_from(
        "/data",
        {
            **LISTENERS,
            URL: "file:///all",
            f"{OAUTH}{URL}": "https://own/keys",
            "listener.name.outside.sasl.oauthbearer.expected.issuer": "me",
        },
    )
    own, everyone = config.sasl["OUTSIDE"].oauth, config.bearer
    assert own is not None
    assert own.keys is not None
    assert (own.keys.url, own.rules.issuer) == ("https://own/keys", "me")
    assert everyone is not None
    assert everyone.keys == KeysConfig("file:///all")
    assert everyone.rules == TokenRules()


def test_without_tokens_nothing_of_it_is_loaded() -> None:
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    look = (
        "import sys, penstock.server.logins, penstock.server.node; "
        "print({'jwt', 'cryptography'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
