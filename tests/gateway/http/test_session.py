"""Who a caller is, what the console may do, and its log-ins: /session."""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.server.test_door_security import (
    ALICE,
    BOB,
    GUARDED,
    ROOT,
    SECONDS_MAX,
    acl,
    ask,
    code_of,
    create_acls,
    create_topic,
    remove_user,
    set_password,
    until,
    with_tls,
)
from tests.server.tls_nodes import client_context

from penstock import __version__
from penstock.gateway.shared import console_sessions
from penstock.gateway.shared.signed_text import sign, verified
from penstock.testing import Broker, BrokerFailed

PAGE = {"X-Penstock-Console": "1"}
MINUTE_MS = 60_000


def told(response: Any) -> dict[str, Any]:
    assert response.status == 200, response.data
    found: dict[str, Any] = json.loads(response.data)
    return found


def log_in(broker: Broker, user: str, password: str, **more: Any) -> Any:
    body = {"user": user, "password": password}
    headers = {**PAGE, **more.pop("headers", {})}
    return ask(broker, "/session", method="POST", body=body, headers=headers, **more)


def cookie_of(response: Any) -> str:
    """As a browser sends it back."""
    assert response.status == 200, response.data
    return str(response.headers["Set-Cookie"].partition(";")[0])


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with Broker(http=True, settings=GUARDED) as broker:
        create_topic(broker, "orders")
        create_acls(broker, acl("alice", "ALL", "TOPIC", "orders"))
        yield broker


@pytest.fixture(scope="module")
def alice(guarded: Broker) -> dict[str, str]:
    """The headers of a page at which alice has logged in."""
    return {**PAGE, "Cookie": cookie_of(log_in(guarded, *ALICE))}


# -- who the caller is ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["full", "read-only", "off"])
def test_the_session_says_the_consoles_mode(mode: str) -> None:
    with Broker(http=True, settings={"console.mode": mode}) as broker:
        found = told(ask(broker, "/session"))
        assert found["mode"] == mode
        assert (found["principal"], found["login_required"], found["schemes"]) == (
            "User:ANONYMOUS",
            False,
            [],
        )
        assert (found["node_id"], found["version"]) == (1, __version__)
        assert found["cluster_id"]
        without = log_in(broker, "alice", "x")
        assert code_of(without) == ((403, "console_off") if mode == "off" else (409, "no_log_in"))


def test_before_a_log_in_the_session_says_only_how_to_log_in(guarded: Broker) -> None:
    assert told(ask(guarded, "/session")) == {
        "principal": None,
        "mode": "full",
        "login_required": True,
        "schemes": ["password"],
        "expires_in_ms": None,
        "node_id": None,
        "cluster_id": None,
        "version": None,
    }
    assert told(ask(guarded, "/session", as_user=ALICE))["principal"] == "User:alice"


def test_with_a_certificate_no_log_in_is_needed(tmp_path: Path) -> None:
    ca = trustme.CA()
    tls = with_tls(
        tmp_path, ca, ssl_client_auth="required", ssl_principal_mapping_rules="RULE:.*CN=(\\w+).*/$1/"
    )
    with Broker(http=True, settings=tls) as broker:
        known = client_context(ca, ca.issue_cert("carol@example.org", common_name="carol"))
        found = told(ask(broker, "/session", context=known))
        assert (found["principal"], found["login_required"], found["schemes"]) == (
            "User:carol",
            False,
            ["certificate"],
        )


# -- log-ins -------------------------------------------------------------------------------------------


def test_a_cookie_stands_for_the_user_until_the_log_out(guarded: Broker) -> None:
    made = log_in(guarded, *ALICE)
    found = told(made)
    assert (found["principal"], found["node_id"]) == ("User:alice", 1)
    assert 29 * MINUTE_MS < found["expires_in_ms"] <= 30 * MINUTE_MS
    port = guarded.http_url.rpartition(":")[2]
    [(name, morsel)] = SimpleCookie(made.headers["Set-Cookie"]).items()
    assert name == f"penstock-session-{port}"
    assert (morsel["path"], morsel["samesite"]) == ("/", "Strict")
    assert 1740 < int(morsel["max-age"]) <= 1800
    assert morsel["httponly"] is True
    assert morsel["domain"] == morsel["secure"] == ""
    assert ALICE[1] not in made.headers["Set-Cookie"]
    headers = {**PAGE, "Cookie": f"theme=dark; {cookie_of(made)}"}
    shown = told(ask(guarded, "/session", headers=headers))
    assert shown["principal"] == "User:alice"
    assert 0 < shown["expires_in_ms"] <= 30 * MINUTE_MS
    assert ask(guarded, "/topics/orders", headers=headers).status == 200
    denied = ask(guarded, "/topics/payroll", headers=headers)
    assert code_of(denied) == (403, "topic_authorization_failed")
    assert "User:alice" in json.loads(denied.data)["error"]["message"]  # type: ignore[attr-defined]
    gone = ask(guarded, "/session", method="DELETE", headers=headers)
    assert gone.status == 204
    assert "Max-Age=0" in gone.headers["Set-Cookie"]
    over = ask(guarded, "/topics/orders", headers=headers)
    assert code_of(over) == (401, "session_over")
    assert over.headers["WWW-Authenticate"].startswith("Session")
    assert told(ask(guarded, "/session", headers=headers))["principal"] is None


def test_wrong_passwords_are_refused_like_those_of_other_clients() -> None:
    with Broker(http=True, settings={**GUARDED, "audit.log": "all", "audit.topic": "audit"}) as broker:
        set_password(broker, "carol", "right")
        for user, password in (("carol", "wrong"), ("nobody", "x"), ("alice", "x")):
            refused = log_in(broker, user, password)
            assert code_of(refused) == (401, "login_failed")
            assert refused.headers["WWW-Authenticate"].startswith("Session"), (
                "the browser asks nothing itself"
            )
            assert refused.headers["Set-Cookie"] is None
        assert told(log_in(broker, "carol", "right"))["principal"] == "User:carol"

        def audited() -> set[tuple[str, str, str]]:
            found = ask(broker, "/topics/audit/records?decode=json&limit=1000", as_user=ROOT)
            rows = [each["value"] for each in json.loads(found.data).get("records", [])]  # type: ignore[attr-defined]
            return {
                (row["event"], row["principal"], row["result"]) for row in rows if row["event"] == "login"
            }

        until(lambda: ("login", "User:carol", "allowed") in audited())
        assert ("login", "User:carol", "denied") in audited()
        statuses = {log_in(broker, "bob", f"guess {number}").status for number in range(22)}
        assert statuses == {401, 429}
        assert code_of(log_in(broker, "bob", "guess")) == (429, "too_many_log_ins")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (None, (400, "no_body")),
        ({}, (400, "invalid_body")),
        ({"user": "", "password": "x"}, (400, "invalid_body")),
        ({"user": "alice", "password": ["x"]}, (400, "invalid_body")),
        ({"user": "alice", "password": "x" * 5000}, (400, "invalid_body")),
        ({"user": "alice", "password": "x" * 20_000}, (413, "body_too_large")),
    ],
)
def test_a_log_in_that_is_none_gets_a_sentence(guarded: Broker, body: Any, code: tuple[int, str]) -> None:
    assert code_of(ask(guarded, "/session", method="POST", body=body, headers=PAGE)) == code


def test_a_session_ends_with_its_user_and_with_its_password(guarded: Broker) -> None:
    set_password(guarded, "dora", "one")
    create_acls(guarded, acl("dora", "READ", "TOPIC", "orders"))
    headers = {"Cookie": cookie_of(log_in(guarded, "dora", "one"))}
    assert ask(guarded, "/topics/orders", headers=headers).status == 200
    port = int(guarded.http_url.rpartition(":")[2])
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)) as connection:
        connection.request("GET", "/topics/orders/tail", headers=headers)
        tail = connection.getresponse()
        assert tail.readline().startswith(b"retry:")
        set_password(guarded, "dora", "two")
        with suppress(OSError, HTTPException):
            tail.read()
    assert code_of(ask(guarded, "/topics/orders", headers=headers)) == (401, "session_over")
    headers = {"Cookie": cookie_of(log_in(guarded, "dora", "two"))}
    assert ask(guarded, "/topics/orders", headers=headers).status == 200
    remove_user(guarded, "dora")
    assert code_of(ask(guarded, "/topics/orders", headers=headers)) == (401, "session_over")
    set_password(guarded, "dora", "two")
    assert code_of(ask(guarded, "/topics/orders", headers=headers)) == (401, "session_over")


def test_a_log_out_ends_the_users_streams(guarded: Broker) -> None:
    headers = {**PAGE, "Cookie": cookie_of(log_in(guarded, *ALICE))}
    port = int(guarded.http_url.rpartition(":")[2])
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)) as connection:
        connection.request("GET", "/topics/orders/tail", headers=headers)
        tail = connection.getresponse()
        assert tail.readline().startswith(b"retry:")
        assert ask(guarded, "/session", method="DELETE", headers=headers).status == 204
        with suppress(OSError, HTTPException):
            tail.read()


def test_a_session_ends_when_nobody_is_there_and_after_its_longest_time() -> None:
    times = {"console.session.idle.ms": 10 * MINUTE_MS, "console.session.max.ms": 25 * MINUTE_MS}
    with Broker(http=True, settings={**GUARDED, **times}) as broker:
        first = cookie_of(log_in(broker, *ALICE))
        broker.clock.advance(9 * 60)
        assert ask(broker, "/topics", headers={"Cookie": first}).status == 200
        renewed = ask(broker, "/session", method="PUT", headers={**PAGE, "Cookie": first})
        second = cookie_of(renewed)
        assert 9 * MINUTE_MS < told(renewed)["expires_in_ms"] <= 10 * MINUTE_MS
        broker.clock.advance(2 * 60)
        assert code_of(ask(broker, "/topics", headers={"Cookie": first})) == (401, "session_over")
        broker.clock.advance(7 * 60)
        last = ask(broker, "/session", method="PUT", headers={**PAGE, "Cookie": second})
        left_ms = told(last)["expires_in_ms"]
        assert 6 * MINUTE_MS < left_ms <= 7 * MINUTE_MS, "what is left of 25 minutes"
        broker.clock.advance(8 * 60)
        third = {**PAGE, "Cookie": cookie_of(last)}
        assert code_of(ask(broker, "/topics", headers=third)) == (401, "session_over")
        assert code_of(ask(broker, "/session", method="PUT", headers=third)) == (401, "session_over")


def test_a_secret_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(
        BrokerFailed, match=r"console\.session\.secret has 5 characters, expected at least 16"
    ):
        Broker(http=True, settings={**GUARDED, "console.session.secret": "short"}).start()


def test_nodes_with_one_secret_take_each_others_sessions() -> None:
    """Also users of PLAIN, whose passwords each node knows by a hash."""
    shared = {**GUARDED, "console.session.secret": "a secret of all nodes"}
    with Broker(http=True, settings=shared) as one, Broker(http=True, settings=shared) as other:
        value = cookie_of(log_in(one, *ALICE)).partition("=")[2]
        cookie = f"penstock-session-{other.http_url.rpartition(':')[2]}={value}"
        assert told(ask(other, "/session", headers={"Cookie": cookie}))["principal"] == "User:alice"
        other.restart()
        assert told(ask(other, "/session", headers={"Cookie": cookie}))["principal"] == "User:alice"
    changed = {name: value.replace(ALICE[1], "changed") for name, value in shared.items()}
    with Broker(http=True, settings=changed) as third:
        cookie = f"penstock-session-{third.http_url.rpartition(':')[2]}={value}"
        assert code_of(ask(third, "/topics", headers={"Cookie": cookie})) == (401, "session_over")


def test_without_a_common_secret_a_session_is_that_of_one_node(guarded: Broker) -> None:
    with Broker(http=True, settings=GUARDED) as other:
        value = cookie_of(log_in(guarded, *ALICE)).partition("=")[2]
        cookie = f"penstock-session-{other.http_url.rpartition(':')[2]}={value}"
        assert code_of(ask(other, "/topics", headers={"Cookie": cookie})) == (401, "session_over")


def test_when_too_many_have_logged_out_all_log_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_sessions, "ENDED_MAX", 2)
    with Broker(http=True, settings=GUARDED) as broker:
        kept = {**PAGE, "Cookie": cookie_of(log_in(broker, *BOB))}
        for _ in range(3):
            assert ask(broker, "/topics", headers=kept).status == 200
            leaving = {**PAGE, "Cookie": cookie_of(log_in(broker, *BOB))}
            assert ask(broker, "/session", method="DELETE", headers=leaving).status == 204
            assert ask(broker, "/topics", headers=leaving).status == 401
        assert code_of(ask(broker, "/topics", headers=kept)) == (401, "session_over")


def test_with_tls_the_cookie_is_the_hosts_and_secure(tmp_path: Path) -> None:
    ca = trustme.CA()
    tls = {**GUARDED, **with_tls(tmp_path, ca), "http.security.protocol": "SASL_SSL"}
    del tls["line.security.protocol"]
    with Broker(http=True, settings=tls) as broker:
        trusting = client_context(ca)
        made = log_in(broker, *ALICE, context=trusting)
        name, _, value = cookie_of(made).partition("=")
        assert name.startswith("__Host-penstock-session")
        assert "; Secure" in made.headers["Set-Cookie"]
        good = {"Cookie": f"{name}={value}"}
        assert told(ask(broker, "/session", headers=good, context=trusting))["principal"] == "User:alice"
        planted = {"Cookie": f"{name.removeprefix('__Host-')}={value}"}
        assert told(ask(broker, "/session", headers=planted, context=trusting))["principal"] is None


def test_behind_a_proxy_with_tls_the_cookie_is_secure_too(guarded: Broker) -> None:
    port = guarded.http_url.rpartition(":")[2]
    made = log_in(guarded, *ALICE, headers={"Origin": f"https://127.0.0.1:{port}"})
    assert made.headers["Set-Cookie"].startswith("__Host-penstock-session")
    assert ask(guarded, "/topics", headers={"Cookie": cookie_of(made)}).status == 200


# -- requests of other sites, and both kinds of credentials ---------------------------------------------


def test_a_cookie_changes_nothing_without_the_pages_header(guarded: Broker, alice: dict[str, str]) -> None:
    body = {"topic": "orders", "value": "aGk="}
    without = {"Cookie": alice["Cookie"]}
    for method, path, given_body in (
        ("POST", "/produce", body),
        ("PATCH", "/topics/orders/configs", {"configs": {}}),
        ("DELETE", "/topics/orders", None),
        ("PUT", "/session", None),
        ("DELETE", "/session", None),
    ):
        refused = ask(guarded, path, method=method, headers=without, body=given_body)
        assert code_of(refused) == (403, "console_header_missing"), path
    assert ask(guarded, "/produce", method="POST", headers=alice, body=body).status == 200
    for headers, code in (
        ({"Origin": "http://evil.example"}, "cross_origin"),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "empty"}, "cross_origin"),
    ):
        refused = ask(guarded, "/produce", method="POST", headers={**alice, **headers}, body=body)
        assert code_of(refused) == (403, code)
    login = {"user": ALICE[0], "password": ALICE[1]}
    refused = ask(guarded, "/session", method="POST", body=login)
    assert code_of(refused) == (403, "console_header_missing"), "nor does another site log its victim in"
    assert ask(guarded, "/session", headers=alice).status == 200


def test_the_authorization_header_decides_if_there_is_a_cookie_too(
    guarded: Broker, alice: dict[str, str]
) -> None:
    assert told(ask(guarded, "/session", headers=alice, as_user=BOB))["principal"] == "User:bob"
    wrong = ask(guarded, "/session", headers=alice, as_user=("bob", "wrong"))
    assert code_of(wrong) == (401, "login_failed")


def test_the_browser_is_asked_for_a_password_only_outside_the_page(guarded: Broker) -> None:
    assert ask(guarded, "/topics").headers["WWW-Authenticate"].startswith("Basic")
    for headers in (PAGE, {"Sec-Fetch-Dest": "empty", "Sec-Fetch-Site": "same-origin"}):
        refused = ask(guarded, "/topics", headers=headers)
        assert code_of(refused) == (401, "login_required")
        assert refused.headers["WWW-Authenticate"] == 'Session realm="penstock"'


# -- modes ---------------------------------------------------------------------------------------------


def test_a_read_only_console_changes_nothing_and_other_clients_do() -> None:
    with Broker(http=True, settings={**GUARDED, "console.mode": "read-only"}) as broker:
        create_topic(broker, "orders")
        headers = {**PAGE, "Cookie": cookie_of(log_in(broker, *ROOT))}
        assert told(ask(broker, "/session", headers=headers))["mode"] == "read-only"
        body = {"topic": "orders", "value": "aGk="}
        for given in ({"headers": headers}, {"headers": PAGE, "as_user": ROOT}):
            refused = ask(broker, "/produce", method="POST", body=body, **given)
            assert code_of(refused) == (403, "console_read_only")
            refused = ask(broker, "/topics/orders", method="DELETE", **given)
            assert code_of(refused) == (403, "console_read_only")
        assert ask(broker, "/topics/orders/records", headers=headers).status == 200
        assert ask(broker, "/produce", method="POST", body=body, as_user=ROOT).status == 200
        assert ask(broker, "/session", method="DELETE", headers=headers).status == 204


def test_a_read_only_console_without_log_ins_changes_nothing_either() -> None:
    with Broker(http=True, settings={"console.mode": "read-only"}) as broker:
        refused = ask(broker, "/topics", method="POST", headers=PAGE, body={"name": "orders"})
        assert code_of(refused) == (403, "console_read_only")
        assert ask(broker, "/topics", method="POST", body={"name": "orders"}).status == 201


def test_with_the_console_off_there_are_no_sessions() -> None:
    with Broker(http=True, settings={**GUARDED, "console.session.secret": "a secret of all nodes"}) as broker:
        value = cookie_of(log_in(broker, *ALICE)).partition("=")[2]
    off = {**GUARDED, "console.session.secret": "a secret of all nodes", "console.mode": "off"}
    with Broker(http=True, settings=off) as broker:
        assert code_of(log_in(broker, *ALICE)) == (403, "console_off")
        cookie = {"Cookie": f"penstock-session-{broker.http_url.rpartition(':')[2]}={value}"}
        assert code_of(ask(broker, "/topics", headers=cookie)) == (401, "login_required")
        assert told(ask(broker, "/session", headers=cookie))["schemes"] == []
        gone = ask(broker, "/console/topics")
        assert gone.status == 404
        assert "console.mode=off" in json.loads(gone.data)["error"]["message"]  # type: ignore[attr-defined]
        front = ask(broker, "/")
        assert (front.status, front.headers["Location"]) == (307, "/docs")


# -- hostile cookies -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.text(
            st.sampled_from([chr(each) for each in (*range(0x20, 0x7F), *range(0xA0, 0x100)) if each != 0x3B])
        ),
        st.text("abcdefABCDEF012345._-=", max_size=5000),
    )
)
def test_every_cookie_is_a_session_or_401(guarded: Broker, text: str) -> None:
    port = guarded.http_url.rpartition(":")[2]
    headers = {"Cookie": f"penstock-session-{port}={text}"}
    assert code_of(ask(guarded, "/topics", headers=headers)) == (401, "session_over")


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        JSONS.map(lambda value: json.dumps(value).encode()),
        st.fixed_dictionaries({"user": st.text(max_size=30), "password": JSONS}).map(
            lambda value: json.dumps(value).encode()
        ),
    )
)
def test_every_body_is_a_log_in_or_an_error(easy: Broker, body: bytes) -> None:
    port = int(easy.http_url.rpartition(":")[2])
    with closing(HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)) as connection:
        connection.request("POST", "/session", body, PAGE)
        response = connection.getresponse()
        assert response.status in (400, 401, 429), response.read()
        assert set(json.loads(response.read())) == {"error"}
        assert response.headers["Set-Cookie"] is None


@pytest.fixture(scope="module")
def easy() -> Iterator[Broker]:
    """Does not delay those who fail."""
    with Broker(http=True, settings={**GUARDED, "connection.failed.authentication.delay.ms": "0"}) as broker:
        yield broker


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100), st.data())
def test_a_signed_text_is_read_and_a_changed_one_is_not(content: bytes, data: st.DataObject) -> None:
    key = b"k" * 32
    text = sign(key, "session", content)
    assert verified(key, "session", text) == content
    assert verified(key, "oidc", text) is None
    assert verified(b"l" * 32, "session", text) is None
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(exclude_characters=text[at]))
    assert verified(key, "session", text[:at] + other + text[at + 1 :]) is None
