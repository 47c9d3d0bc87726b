"""Log-ins at the console through an identity provider, as a browser does them; the provider is real."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from time import time
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from tests.gateway.http.test_session import PAGE, told
from tests.security.oidc_provider import CLIENT_ID, CLIENT_SECRET, OidcServer, oidc_server
from tests.server.test_door_security import ask, code_of

from penstock.base.settings import BadSetting
from penstock.server.config import config_from
from penstock.testing import Broker


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcServer]:
    with oidc_server() as server:
        yield server


@pytest.fixture(scope="module")
def broker(provider: OidcServer) -> Iterator[Broker]:
    settings = {**provider.settings(), "connection.failed.authentication.delay.ms": "10"}
    with Broker(http=True, settings=settings) as made:
        provider.now_ms = lambda: int(time() * 1000) + made.clock.ahead_ms
        yield made


class Browser:
    """Keeps cookies, and follows redirects one at a time."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.cookies: dict[str, str] = {}

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}

    def visit(self, path: str) -> str:
        """Where a page of the node leads."""
        response = ask(self.broker, path, headers=self.headers)
        assert response.status == 303, (response.status, response.data)  # type: ignore[attr-defined]
        for cookie in response.headers.get_all("Set-Cookie") or ():
            pair, *attributes = cookie.split("; ")
            name, _, value = pair.partition("=")
            assert {"HttpOnly", "Path=/"} <= set(attributes)
            assert ("SameSite=Lax" if "oidc" in name else "SameSite=Strict") in attributes
            if "Max-Age=0" in attributes:
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = value
        return str(response.headers["Location"])

    def log_in_at(self, url: str, user: str) -> str:
        """Where the provider leads after its form."""
        parts = urlsplit(url)
        connection = HTTPConnection(parts.netloc, timeout=20)
        connection.request("POST", f"{parts.path}?{parts.query}", urlencode({"user": user}))
        response = connection.getresponse()
        response.read()
        connection.close()
        back = urlsplit(str(response.headers["Location"]))
        assert f"http://{back.netloc}" == self.broker.http_url
        return f"{back.path}?{back.query}"


def log_in(browser: Browser, user: str = "alice", back_to: str = "/console/topics/orders?a=b&c=d") -> str:
    begun = browser.visit("/session/oidc?" + urlencode({"return": back_to}))
    return browser.visit(browser.log_in_at(begun, user))


def test_the_provider_logs_the_user_in_for_as_long_as_the_token_holds(broker: Broker) -> None:
    assert told(ask(broker, "/session"))["schemes"] == ["oidc"]
    browser = Browser(broker)
    assert log_in(browser) == "/console/topics/orders?a=b&c=d"
    found = told(ask(broker, "/session", headers=browser.headers))
    assert found["principal"] == "User:alice"
    assert 0 < found["expires_in_ms"] <= 630_000, "that of the token and the allowed difference of clocks"
    assert [name for name in browser.cookies if "oidc" in name] == [], "an attempt is used once"
    assert ask(broker, "/topics", headers=browser.headers).status == 200
    renewed = ask(broker, "/session", method="PUT", headers={**PAGE, **browser.headers})
    assert told(renewed)["expires_in_ms"] <= 630_000
    broker.clock.advance(minutes=11)
    assert code_of(ask(broker, "/topics", headers=browser.headers)) == (401, "session_over")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"nonce": "other"}, "another log-in"),
        ({"nonce": None}, "another log-in"),
        ({"aud": "kafka"}, "the audience of the API is not the console"),
        ({"aud": [CLIENT_ID, "x"], "azp": "x"}, "another client"),
        ({"iss": "https://evil.example"}, "issuer"),
        ({"exp": 5, "iat": 0}, "expired"),
        ({"sub": ""}, "no user"),
    ],
)
def test_an_id_token_that_is_not_for_this_log_in_is_refused(
    broker: Broker, provider: OidcServer, claims: dict[str, Any], why: str
) -> None:
    browser = Browser(broker)
    provider.claims = claims
    try:
        assert log_in(browser, back_to="/console/topics") == (
            "/console/login?failed=refused&then=%2Ftopics"
        ), why
    finally:
        provider.claims = {}
    assert told(ask(broker, "/session", headers=browser.headers))["principal"] is None


def test_a_user_whom_the_provider_refuses_is_not_logged_in(broker: Broker) -> None:
    assert log_in(Browser(broker), "nobody").startswith("/console/login?failed=refused")


def test_only_the_browser_that_began_can_finish_and_once(broker: Broker, provider: OidcServer) -> None:
    victim, other = Browser(broker), Browser(broker)
    back = other.log_in_at(other.visit("/session/oidc"), "mallory")
    assert victim.visit(back).startswith("/console/login?failed=expired"), "no attempt of its own"
    victim.visit("/session/oidc")
    assert victim.visit(back).startswith("/console/login?failed=expired"), "another state"
    asked = len(provider.asked)
    assert victim.visit("/session/oidc/callback?code=x").startswith("/console/login?failed=expired")
    assert len(provider.asked) == asked, "and the provider was not asked"
    assert other.visit(back) == "/console/"
    again = Browser(broker)
    state = parse_qs(urlsplit(again.visit("/session/oidc")).query)["state"][0]
    used = parse_qs(urlsplit(back).query)["code"][0]
    failed = again.visit(f"/session/oidc/callback?{urlencode({'code': used, 'state': state})}")
    assert failed.startswith("/console/login?failed=refused"), "the provider takes a code once"


def test_an_attempt_has_ten_minutes(broker: Broker) -> None:
    browser = Browser(broker)
    back = browser.log_in_at(browser.visit("/session/oidc"), "alice")
    broker.clock.advance(minutes=11)
    assert browser.visit(back).startswith("/console/login?failed=expired")


@pytest.mark.parametrize(
    "back_to",
    [
        "https://evil.example/",
        "//evil.example",
        "/consoleevil",
        "/topics",
        "/console/\\evil",
        "/console/\r\nX: y",
    ],
)
def test_nobody_is_sent_to_other_sites(broker: Broker, back_to: str) -> None:
    refused = ask(broker, "/session/oidc?" + urlencode({"return": back_to}))
    assert code_of(refused) == (400, "bad_parameter")


def test_a_provider_that_is_away_is_told_by_the_log_in_page(provider: OidcServer) -> None:
    with Broker(http=True, settings=provider.settings()) as broker:
        browser = Browser(broker)
        provider.is_broken = True
        try:
            assert browser.visit("/session/oidc").startswith("/console/login?failed=unreachable")
            provider.is_broken = False
            back = browser.log_in_at(browser.visit("/session/oidc"), "alice")
            provider.is_broken = True
            assert browser.visit(back).startswith("/console/login?failed=unreachable")
        finally:
            provider.is_broken = False
        assert log_in(browser) == "/console/topics/orders?a=b&c=d"
        assert provider.asked.count("/.well-known/openid-configuration") > 1


def test_behind_a_proxy_the_provider_sends_the_browser_to_the_proxy(provider: OidcServer) -> None:
    url = "https://console.example.org/session/oidc/callback"
    with Broker(http=True, settings={**provider.settings(), "console.oidc.redirect.url": url}) as broker:
        asked = parse_qs(urlsplit(Browser(broker).visit("/session/oidc")).query)
        assert asked["redirect_uri"] == [url]


def test_passwords_are_refused_where_there_are_none(broker: Broker) -> None:
    refused = ask(broker, "/session", method="POST", body={"user": "a", "password": "b"}, headers=PAGE)
    assert code_of(refused) == (409, "no_passwords")


def test_without_a_provider_there_is_nowhere_to_go() -> None:
    with Broker(http=True) as broker:
        assert code_of(ask(broker, "/session/oidc")) == (409, "no_log_in")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"console.oidc.client.id": ""}, "console.oidc.issuer is set without console.oidc.client.id"),
        ({"console.oidc.issuer": ""}, "console.oidc.client.id is set without console.oidc.issuer"),
        ({"console.oidc.issuer": "login.example"}, "console.oidc.issuer is 'login.example', expected a URL"),
        (
            {"console.oidc.redirect.url": "https://a:b@c/"},
            "console.oidc.redirect.url has a user or a password",
        ),
        ({"console.oidc.scopes": "email"}, "console.oidc.scopes is 'email', expected openid among them"),
        ({"http.security.protocol": "PLAINTEXT"}, "the HTTP port has no OAUTHBEARER with keys"),
    ],
)
def test_settings_that_cannot_work_stop_the_start(
    provider: OidcServer, changed: dict[str, str], message: str
) -> None:
    with pytest.raises(BadSetting, match=message.replace(".", r"\.")) as error:
        config_from("/data", {**provider.settings(), **changed}, http="127.0.0.1:0")
    assert CLIENT_SECRET not in str(error.value)


def test_the_secret_is_shown_nowhere(broker: Broker) -> None:
    config = config_from("/data", broker.settings, http="127.0.0.1:0")
    assert config.oidc is not None
    assert CLIENT_SECRET not in repr(config)
    assert CLIENT_SECRET not in json.dumps(repr(config.oidc))
