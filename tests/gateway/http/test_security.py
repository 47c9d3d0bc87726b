"""Users, ACLs, quotas, delegation tokens and the audit over HTTP, on a secured node and on an open one."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient
from tests.gateway.http.rest import client_of, error_of
from tests.server.test_door_security import ALICE, GUARDED, ROOT

from penstock.base.steps import Steps
from penstock.base.world import World
from penstock.coordinator.groups.requests import ListedGroup, ListReply
from penstock.coordinator.transactions.requests import Listed
from penstock.gateway.http import events as events_routes
from penstock.gateway.http import groups as groups_routes
from penstock.gateway.http import transactions as transactions_routes
from penstock.gateway.observing.event import Event, Kind, Severity
from penstock.handlers.support import ticks
from penstock.testing import Broker, Cluster
from penstock.testing.security import Security

pytestmark = pytest.mark.xdist_group("http-security")

PLANTED = "planted-0f3a9c secret"
TOPIC_ACL = {
    "resource_type": "topic",
    "resource_name": "orders",
    "principal": "User:alice",
    "operation": "read",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {**GUARDED, "audit.log": "all", "delegation.token.secret.key": PLANTED + "-tokens"}
    with Broker(http=True, settings=settings) as started:
        yield started


@pytest.fixture(scope="module")
def http(broker: Broker) -> Iterator[httpx.Client]:
    """As a super user."""
    with httpx.Client(base_url=broker.http_url, timeout=30, auth=ROOT) as client:
        yield client


@pytest.fixture(scope="module")
def alice(broker: Broker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.http_url, timeout=30, auth=ALICE) as client:
        yield client


# -- users ---------------------------------------------------------------------------------------------


def test_a_user_is_added_logs_in_gets_another_password_and_is_removed(
    broker: Broker, http: httpx.Client
) -> None:
    def status(password: str) -> int:
        return httpx.get(f"{broker.http_url}/topics", auth=("carol", password), timeout=30).status_code

    added = http.post("/users", json={"user": "carol", "password": PLANTED})
    assert (added.status_code, added.json()) == (
        201,
        {"user": "carol", "mechanisms": [{"mechanism": "SCRAM-SHA-512", "iterations": 8192}]},
    )
    assert status(PLANTED) == 200
    again = http.post("/users", json={"user": "carol", "password": "x"})
    assert error_of(again, 409)["code"] == "user_exists"
    second = {"user": "carol", "password": PLANTED, "mechanism": "SCRAM-SHA-256", "iterations": 4096}
    assert http.post("/users", json=second).status_code == 201
    [carol] = [each for each in http.get("/users").json()["users"] if each["user"] == "carol"]
    assert [each["mechanism"] for each in carol["mechanisms"]] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert http.put("/users/carol/password", json={"password": "another " + PLANTED}).status_code == 200
    assert (status(PLANTED), status("another " + PLANTED)) == (401, 200)
    assert http.delete("/users/carol?mechanism=SCRAM-SHA-256").json() == {"status": "deleted"}
    assert error_of(http.delete("/users/carol?mechanism=SCRAM-SHA-256"), 404)["code"] == "unknown_user"
    assert http.delete("/users/carol").json() == {"status": "deleted"}
    assert status("another " + PLANTED) == 401
    assert error_of(http.delete("/users/carol"), 404)["message"] == "no such user: 'carol'"
    assert error_of(http.put("/users/carol/password", json={"password": "x"}), 404)


@pytest.mark.parametrize(
    "body",
    [
        {"user": "", "password": PLANTED},
        {"user": "dora", "password": ""},
        {"user": "dora", "password": 7},
        {"user": "dora", "password": [PLANTED]},
        {"user": "dora", "password": PLANTED, "mechanism": "PLAIN"},
        {"user": "dora", "password": PLANTED, "iterations": 1},
        {"user": "dora", "password": PLANTED, "iterations": 10**6},
        {"user": "dora", "password": PLANTED, "more": PLANTED},
        {"user": "dora", "password": PLANTED * 100},
        {"user": "dora"},
    ],
)
def test_a_user_that_is_not_right_is_refused_without_its_password(
    http: httpx.Client, body: dict[str, Any]
) -> None:
    response = http.post("/users", json=body)
    assert error_of(response, 400)["code"] == "invalid_body"
    assert PLANTED not in response.text


def test_no_password_is_logged_audited_or_answered(
    broker: Broker, http: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        answers = [
            http.post("/users", json={"user": "erin", "password": PLANTED}),
            http.put("/users/erin/password", json={"password": PLANTED}),
            http.post("/users", content=b'{"user": "erin", "password": "' + PLANTED.encode()),
            http.get("/users"),
            http.delete("/users/erin"),
            http.get("/audit?limit=500"),
            http.get("/brokers/1/configs"),
            http.get("/security"),
        ]
    assert PLANTED not in "".join(each.text for each in answers)
    assert PLANTED not in caplog.text
    changes = [each for each in answers[5].json()["lines"] if each["event"] == "change"]
    operations = [each["operation"] for each in changes if each["resource_name"] == "erin"]
    assert operations == ["DeleteUserCredential", "ChangeUserCredential", "CreateUserCredential"]
    assert changes[0]["principal"] == "User:root"


# -- ACLs ----------------------------------------------------------------------------------------------


def test_acls_are_added_listed_explained_and_removed(http: httpx.Client, alice: httpx.Client) -> None:
    assert http.post("/topics", json={"name": "orders"}).status_code == 201
    assert error_of(alice.get("/topics/orders"), 403)
    added = http.post("/acls", json={"acls": [TOPIC_ACL]})
    whole = {**TOPIC_ACL, "permission": "allow", "pattern": "literal", "host": "*"}
    assert (added.status_code, added.json()) == (201, {"acls": [whole]})
    assert alice.get("/topics/orders").status_code == 200
    prefixed = {
        **TOPIC_ACL,
        "principal": "User:*",
        "resource_name": "ord",
        "operation": "describe",
        "pattern": "prefixed",
    }
    denied = {**TOPIC_ACL, "principal": "User:bob", "operation": "all", "permission": "deny"}
    assert http.post("/acls", json={"acls": [prefixed, denied]}).status_code == 201
    assert http.get("/acls?principal=User:alice").json() == {"acls": [whole], "total": 1}
    matching = http.get("/acls?resource_type=topic&resource_name=orders&pattern=match").json()
    assert matching["total"] == 3
    assert len(http.get("/acls?limit=1").json()["acls"]) == 1

    asked = {"operation": "read", "resource_type": "topic", "resource_name": "orders"}
    may = http.get("/acls/explain", params={**asked, "principal": "User:alice"}).json()
    assert (may["is_allowed"], may["acl"]) == (True, whole)
    not_bob = http.get("/acls/explain", params={**asked, "principal": "User:bob"}).json()
    assert not not_bob["is_allowed"]
    assert "an ACL denies it" in not_bob["reason"]
    root = http.get("/acls/explain", params={**asked, "principal": "User:root"}).json()
    assert (root["is_allowed"], root["acl"]) == (True, None)

    who = http.get("/acls/who", params=asked).json()
    assert [each["principal"] for each in who["allowed"]] == ["User:ANONYMOUS", "User:alice", "User:root"]
    assert [each["principal"] for each in who["denied"]] == ["User:bob"]
    assert not who["everyone"]
    described = http.get("/acls/who", params={**asked, "operation": "describe"}).json()
    assert described["everyone"]

    removed = http.delete("/acls", params=whole).json()
    assert removed == {"acls": [whole]}
    assert error_of(alice.get("/topics/orders/records"), 403)
    assert http.delete("/acls", params=whole).json() == {"acls": []}
    assert len(http.delete("/acls?resource_type=topic").json()["acls"]) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "alice"},
        {"operation": "look"},
        {"operation": "any"},
        {"resource_type": "table"},
        {"resource_type": "cluster"},
        {"resource_name": ""},
        {"pattern": "match"},
        {"permission": "maybe"},
    ],
)
def test_an_acl_that_is_not_right_is_refused(http: httpx.Client, change: dict[str, str]) -> None:
    assert (
        error_of(http.post("/acls", json={"acls": [{**TOPIC_ACL, **change}]}), 400)["code"] == "invalid_body"
    )


def test_all_acls_are_not_removed_by_a_forgotten_parameter(http: httpx.Client) -> None:
    assert error_of(http.delete("/acls"), 400)["code"] == "missing_parameter"
    assert error_of(http.get("/acls/who?operation=read"), 400)["code"] == "missing_parameter"
    wrong = "/acls/explain?principal=User:a&operation=look&resource_type=topic"
    assert error_of(http.get(wrong), 400)["code"] == "bad_parameter"


# -- quotas --------------------------------------------------------------------------------------------


def test_quotas_are_set_listed_and_removed(http: httpx.Client) -> None:
    entity = {"user": "alice", "client_id": None}
    limits = {"producer_byte_rate": 1_000_000, "request_percentage": 12.5}
    dry = {"entity": entity, "limits": limits}
    assert http.post("/quotas?dry_run=true", json=dry).json()["limits"] == {}
    assert http.post("/quotas", json={"entity": entity, "limits": limits}).json() == {
        "entity": entity,
        "limits": limits,
    }
    ip = {"entity": {"ip": "10.0.0.7"}, "limits": {"connection_creation_rate": 50}}
    assert http.post("/quotas", json=ip).status_code == 200
    assert http.get("/quotas").json()["quotas"] == [{"entity": entity, "limits": limits}, ip]
    gone = {"entity": entity, "limits": {"producer_byte_rate": None, "request_percentage": None}}
    assert http.post("/quotas", json=gone).json()["limits"] == {}
    assert http.post(
        "/quotas", json={"entity": {"ip": "10.0.0.7"}, "limits": {"connection_creation_rate": None}}
    )
    assert http.get("/quotas").json()["quotas"] == []


@pytest.mark.parametrize(
    ("entity", "limits", "status"),
    [
        ({}, {"request_percentage": 1}, 409),
        ({"user": "a", "ip": None}, {"request_percentage": 1}, 409),
        ({"user": "a"}, {"connection_creation_rate": 1}, 409),
        ({"ip": "here"}, {"connection_creation_rate": 1}, 409),
        ({"user": "a"}, {}, 409),
        ({"user": "a"}, {"request_percentage": 0}, 400),
        ({"user": "a"}, {"request_percentage": -1}, 400),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, 400),
        ({"user": "a"}, {"speed": 1}, 400),
        ({"user": ""}, {"request_percentage": 1}, 400),
        ({"topic": "a"}, {"request_percentage": 1}, 400),
    ],
)
def test_a_quota_that_is_not_right_is_refused(
    http: httpx.Client, entity: dict[str, Any], limits: dict[str, Any], status: int
) -> None:
    assert error_of(http.post("/quotas", json={"entity": entity, "limits": limits}), status)["message"]


# -- tokens --------------------------------------------------------------------------------------------


def test_a_token_is_created_logs_in_is_renewed_and_removed(
    broker: Broker, http: httpx.Client, alice: httpx.Client
) -> None:
    made = alice.post("/tokens", json={"renewers": ["User:root"], "max_lifetime_ms": 3_600_000})
    assert made.status_code == 201, made.text
    token, password = made.json()["token"], made.json()["password"]
    assert (token["owner"], token["renewers"]) == ("User:alice", ["User:root"])
    assert token["renewable_until_ms"] == token["issued_ms"] + 3_600_000

    def as_token(path: str) -> httpx.Response:
        return httpx.get(broker.http_url + path, auth=(token["token_id"], password), timeout=30)

    assert as_token("/security").json()["principal"] == "User:alice"
    assert error_of(as_token("/tokens"), 403)["code"] == "delegation_token_request_not_allowed"
    for client in (alice, http):
        shown = client.get("/tokens")
        assert token["token_id"] in [each["token_id"] for each in shown.json()["tokens"]]
        assert password not in shown.text
    path = f"/tokens/{token['token_id']}"
    renewed = http.post(f"{path}/renew", json={"period_ms": 60_000}).json()
    assert renewed["expires_ms"] < token["expires_ms"]
    with httpx.Client(base_url=broker.http_url, timeout=30, auth=("ivan", "ivan-secret")) as ivan:
        assert error_of(ivan.delete(path), 404)["code"] == "delegation_token_not_found"
        other = ivan.post("/tokens", json={"owner": "User:alice"})
        assert error_of(other, 403)["code"] == "delegation_token_authorization_failed"
    assert alice.delete(path).json() == {"status": "deleted"}
    assert as_token("/security").status_code == 401
    assert error_of(alice.delete(path), 404)
    assert error_of(alice.post("/tokens", json={"renewers": ["alice"]}), 400)["code"] == "invalid_body"


# -- the audit -----------------------------------------------------------------------------------------


def test_the_audit_shows_denials_to_those_who_may_alter_the_cluster(
    http: httpx.Client, alice: httpx.Client
) -> None:
    assert error_of(alice.get("/topics/secret-plans"), 403)
    assert error_of(alice.get("/audit"), 403)["message"].endswith("alter on the cluster")
    denied = {"event": "operation", "result": "denied", "principal": "User:alice"}
    lines = http.get("/audit", params=denied).json()["lines"]
    assert all(each["result"] == "denied" for each in lines)
    [line] = [each for each in lines if each["resource_name"] == "secret-plans"]
    assert (line["request"], line["operation"], line["resource_type"]) == (
        "GET /topics/{topic}",
        "Describe",
        "Topic",
    )
    assert [each["time"] for each in lines] == sorted((each["time"] for each in lines), reverse=True)
    status = http.get("/security").json()
    assert (status["authorizer"], status["audit"], status["tokens"]) == (True, True, True)
    assert status["login"] == ["basic"]


# -- without security ----------------------------------------------------------------------------------


def test_a_node_without_security_says_so() -> None:
    with Broker(http=True) as broker, client_of(broker) as http:
        status = http.get("/security").json()
        assert (status["authorizer"], status["login"], status["audit"], status["tokens"]) == (
            False,
            [],
            False,
            False,
        )
        for path in (
            "/acls",
            "/acls/who?operation=read&resource_type=cluster",
            "/acls/explain?principal=User:a&operation=read&resource_type=cluster",
        ):
            assert error_of(http.get(path), 409)["code"] == "security_disabled"
        assert error_of(http.post("/acls", json={"acls": [TOPIC_ACL]}), 409)["code"] == "security_disabled"
        assert error_of(http.get("/tokens"), 403)["code"] == "delegation_token_request_not_allowed"
        assert http.get("/audit").json() == {"is_on": False, "lines": [], "unavailable": []}
        # Users can be made before log-ins are turned on.
        assert http.post("/users", json={"user": "first", "password": "p"}).status_code == 201
        assert [each["user"] for each in http.get("/users").json()["users"]] == ["first"]


# -- a cluster -----------------------------------------------------------------------------------------


def test_a_user_made_at_one_broker_logs_in_at_every_broker_at_once() -> None:
    security = Security(protocol="SASL_PLAINTEXT", acls=False)
    with Cluster(
        3, http=True, security=security, settings={"http.security.protocol": "PLAINTEXT"}
    ) as cluster:
        made = httpx.post(
            f"{cluster.brokers[1].http_url}/users", json={"user": "grace", "password": "g"}, timeout=30
        )
        assert made.status_code == 201, made.text
        for broker in cluster.brokers:
            login = {
                **broker.client().confluent_kafka,
                "sasl.username": "grace",
                "sasl.password": "g",
                "bootstrap.servers": broker.bootstrap,
            }
            assert AdminClient(login).list_topics(timeout=20).brokers.keys() == {1, 2, 3}


# -- long lists ----------------------------------------------------------------------------------------


def test_rights_on_long_lists_are_decided_in_portions(
    http: httpx.Client, alice: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each decision takes microseconds: all of them at once would hold up other clients."""
    many = [ListedGroup(f"g{number:04}", "consumer", "Empty", "classic") for number in range(3500)]
    transactions = {each.group: (1, Listed(each.group, 1, "Ongoing", 0)) for each in many}
    pauses: list[int] = []
    tick = ticks.next_tick

    def paused(world: World) -> Any:
        pauses.append(1)
        return tick(world)

    monkeypatch.setattr(ticks, "next_tick", paused)
    monkeypatch.setattr(groups_routes, "list_groups", lambda *_: steps(ListReply(groups=tuple(many))))
    monkeypatch.setattr(transactions_routes, "list_transactions", lambda *_: steps(transactions))
    assert alice.get("/groups").json()["groups"] == []
    assert len(pauses) >= 3
    assert [each["group"] for each in http.get("/groups?limit=2").json()["groups"]] == ["g0000", "g0001"]
    pauses.clear()
    assert alice.get("/transactions").json()["transactions"] == []
    assert len(pauses) >= 3
    shown = http.get("/transactions?limit=2&after=g0001").json()["transactions"]
    assert [each["transactional_id"] for each in shown] == ["g0002", "g0003"]


@pytest.mark.parametrize("query", ["limit=1000", "limit=1000&after=c:1"])
def test_rights_on_events_are_decided_in_portions(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    made = [Event(each, each, Kind.TOPIC_CREATED, Severity.INFO, f"{each}", topic="t") for each in range(400)]
    pauses: list[int] = []
    tick = events_routes.next_tick

    def paused(world: World) -> Any:
        pauses.append(1)
        return tick(world)

    def all_of_them(_: Any, *, is_backwards: bool = False) -> Iterator[tuple[str, Event]]:
        return ((events_routes.CLUSTER, each) for each in (made[::-1] if is_backwards else made))

    monkeypatch.setattr(events_routes, "next_tick", paused)
    monkeypatch.setattr(events_routes, "_in_order", all_of_them)
    shown = http.get(f"/cluster/events?{query}").json()["events"]
    assert [each["text"] for each in shown] == [str(each) for each in range(400)]
    assert len(pauses) >= 400 // events_routes.EVENTS_A_TICK - 1


def steps(value: Any) -> Steps[Any]:
    """Steps that end at once."""
    yield from ()
    return value
