"""HTTP and the line protocol with TLS, log-ins and ACLs, from outside: real sockets and real certificates."""

import json
import re
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import admin
from tests.server.tls_nodes import client_context, issue, write_ca, write_store

from penstock.client.errors import ClientError
from penstock.client.line import LineClient, LineError
from penstock.gateway.http.protocol.messages import Route
from penstock.gateway.http.routes import all_routes
from penstock.gateway.shared.access import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID
from penstock.server import file_watch
from penstock.testing import Broker

SECONDS_MAX = 90.0
"""A bound for tests that hang. A simulation has low priority, and waits on a busy machine."""
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required {};"
ALICE, BOB, ROOT, IVAN = (
    ("alice", "alice-secret"),
    ("bob", "bob secret%"),
    ("root", "root-secret"),
    ("ivan", "ivan-secret"),
)

LOGINS = {
    "http.security.protocol": "SASL_PLAINTEXT",
    "line.security.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    **{
        f"listener.name.{door}.plain.sasl.jaas.config": JAAS.format(
            " ".join(f'user_{name}="{password}"' for name, password in (ALICE, BOB, ROOT, IVAN))
        )
        for door in ("http", "line")
    },
}
GUARDED = {
    **LOGINS,
    "authorizer.class.name": STANDARD,
    "super.users": "User:ANONYMOUS;User:root",
    "connection.failed.authentication.delay.ms": "10",
}
"""Kafka's port on loopback asks for no log-in, and its clients may do everything."""


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def ask(
    broker: Broker,
    path: str,
    *,
    method: str = "GET",
    as_user: tuple[str, str] | None = None,
    headers: dict[str, str] | None = None,
    body: Any = None,
    context: ssl.SSLContext | None = None,
    reads: bool = True,
) -> HTTPResponse:
    """The response, read; unless `reads` is false, since some never end."""
    port = int(broker.http_url.rpartition(":")[2])
    connection = (
        HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
        if context is None
        else HTTPSConnection("localhost", port, timeout=SECONDS_MAX, context=context)
    )
    with closing(connection):
        given = dict(headers or {})
        if as_user is not None:
            given["Authorization"] = basic(*as_user)
        connection.request(method, path, None if body is None else json.dumps(body), given)
        response = connection.getresponse()
        response.data = response.read() if reads else b""  # type: ignore[attr-defined]
        response.close()
        return response


def code_of(response: Any) -> tuple[int, str]:
    return response.status, json.loads(response.data)["error"]["code"]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def change(broker: Broker, call: str, *arguments: Any) -> None:
    """Call an admin client, which is kept until all is answered."""
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    for each in getattr(client, call)(*arguments).values():
        each.result(SECONDS_MAX)


def create_topic(broker: Broker, name: str) -> None:
    change(broker, "create_topics", [admin.NewTopic(name, 1)])


def set_password(broker: Broker, user: str, password: str, iterations: int = 4096) -> None:
    info = admin.ScramCredentialInfo(admin.ScramMechanism.SCRAM_SHA_256, iterations)
    asked = admin.UserScramCredentialUpsertion(user, info, password.encode())
    change(broker, "alter_user_scram_credentials", [asked])


def remove_user(broker: Broker, user: str) -> None:
    asked = admin.UserScramCredentialDeletion(user, admin.ScramMechanism.SCRAM_SHA_256)
    change(broker, "alter_user_scram_credentials", [asked])


def acl(user: str, operation: str, kind: str, name: str, permission: str = "ALLOW") -> admin.AclBinding:
    return admin.AclBinding(
        admin.ResourceType[kind],
        name,
        admin.ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        admin.AclOperation[operation],
        admin.AclPermissionType[permission],
    )


def create_acls(broker: Broker, *acls: admin.AclBinding) -> None:
    change(broker, "create_acls", list(acls))


def delete_acls(broker: Broker, user: str) -> None:
    every = admin.AclBindingFilter(
        admin.ResourceType.ANY,
        None,
        admin.ResourcePatternType.ANY,
        f"User:{user}",
        None,
        admin.AclOperation.ANY,
        admin.AclPermissionType.ANY,
    )
    change(broker, "delete_acls", [every])


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    with Broker(http=True, line=True, settings=GUARDED) as broker:
        for name in ("orders", "payroll", "letters"):
            create_topic(broker, name)
        create_acls(
            broker,
            acl("alice", "READ", "TOPIC", "orders"),
            acl("alice", "WRITE", "TOPIC", "orders"),
            acl("alice", "READ", "GROUP", "billing"),
            acl("alice", "WRITE", "TOPIC", "letters"),
        )
        with LineClient("127.0.0.1", broker.line_port, user=ALICE[0], password=ALICE[1]) as client:
            client.produce("letters", b"hi")
        yield broker


# -- TLS -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def with_tls(path: Path, ca: trustme.CA, **more: str) -> dict[str, str]:
    return {
        "http.security.protocol": "SSL",
        "line.security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(write_store(path / "node.pem", issue(ca))),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": write_ca(path / "ca.pem", ca),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def test_doors_have_tls_with_the_certificates_of_the_node(tmp_path: Path, ca: trustme.CA) -> None:
    with Broker(http=True, line=True, settings=with_tls(tmp_path, ca)) as broker:
        assert broker.http_url.startswith("https://")
        trusting = client_context(ca)
        made = ask(
            broker,
            "/produce",
            method="POST",
            body={"topic": "orders", "value": b64encode(b"x" * 300_000).decode()},
            context=trusting,
        )
        assert made.status == 200
        found = ask(broker, "/topics/orders/records?decode=text", context=trusting)
        assert json.loads(found.data)["records"][0]["value"] == "x" * 300_000  # type: ignore[attr-defined]
        with LineClient("localhost", broker.line_port, tls=trusting) as client:
            client.produce("lines", b"hello")
            with client.consume("lines", "readers", until_empty=True) as messages:
                for message in messages:
                    assert message.value == b"hello"
                    message.ack()
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(broker, "/health", context=ssl.create_default_context())
        with pytest.raises(ClientError):
            LineClient("localhost", broker.line_port, tls=ssl.create_default_context()).produce("a", b"")
        with pytest.raises((ConnectionError, HTTPException)):
            ask(broker, "/health")
        page = ask(broker, "/metrics", context=trusting).data.decode()  # type: ignore[attr-defined]
        for listener, count in (("HTTP", 2), ("LINE", 1)):
            assert f'penstock_tls_handshakes_failed_total{{listener="{listener}"}} {count}' in page
            assert re.search(rf'penstock_tls_certificate_expiry_days\{{listener="{listener}"\}} \d+', page)


def test_half_closed_connections_with_tls_get_their_answers(tmp_path: Path, ca: trustme.CA) -> None:
    with Broker(line=True, settings=with_tls(tmp_path, ca)) as broker:
        raw = socket.create_connection(("localhost", broker.line_port), SECONDS_MAX)
        with client_context(ca).wrap_socket(raw, server_hostname="localhost") as connection:
            connection.sendall(b"TOPIC orders - 2\nhi" * 50)
            received = b""
            while received.count(b"\n") < 50:
                received += connection.recv(65536)
            assert received.count(b"+OFFSET ") == 50


def test_a_certificate_names_the_client(tmp_path: Path, ca: trustme.CA) -> None:
    settings = with_tls(
        tmp_path,
        ca,
        ssl_client_auth="required",
        ssl_principal_mapping_rules="RULE:^.*CN=([^,]+).*$/$1/,DEFAULT",
        authorizer_class_name=STANDARD,
        super_users="User:ANONYMOUS",
    )
    carol = ca.issue_cert("carol@example.org", common_name="carol")
    with Broker(http=True, line=True, settings=settings) as broker:
        known = client_context(ca, carol)
        create_acls(broker, acl("carol", "ALL", "TOPIC", "hers"), acl("carol", "CREATE", "TOPIC", "hers"))
        body = {"topic": "hers", "value": "aGk="}
        assert ask(broker, "/produce", method="POST", body=body, context=known).status == 200
        body["topic"] = "orders"
        denied = ask(broker, "/produce", method="POST", body=body, context=known)
        assert code_of(denied) == (403, "topic_authorization_failed")
        assert "User:carol" in json.loads(denied.data)["error"]["message"]  # type: ignore[attr-defined]
        with LineClient("localhost", broker.line_port, tls=known) as client:
            client.produce("hers", b"hello")
            with pytest.raises(LineError, match="User:carol is not authorized: write on topic 'orders'"):
                client.produce("orders", b"hello")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ask(broker, "/health", context=client_context(ca))


def test_changed_certificates_are_used(
    tmp_path: Path, ca: trustme.CA, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "LOOK_MS", 50)
    other = trustme.CA(organization_name="Next year")
    with Broker(http=True, settings=with_tls(tmp_path, ca)) as broker:
        assert ask(broker, "/health/live", context=client_context(ca)).status == 200
        write_store(tmp_path / "node.pem", issue(other))

        def is_new() -> bool:
            try:
                return ask(broker, "/health/live", context=client_context(other)).status == 200
            except ssl.SSLError:
                return False

        until(is_new)


# -- log-ins over HTTP ---------------------------------------------------------------------------------


def test_without_a_log_in_a_client_gets_401_and_learns_how_to_log_in(guarded: Broker) -> None:
    for path in ("/topics", "/topics/orders/records", "/metrics", "/openapi.json", "/cluster"):
        refused = ask(guarded, path)
        assert code_of(refused) == (401, "login_required")
        assert refused.headers.get_all("WWW-Authenticate") == ['Basic realm="penstock", charset="UTF-8"']
    refused = ask(guarded, "/topics", headers={"Authorization": "Bearer abc"})
    assert code_of(refused) == (401, "login_failed")
    for broken in ("Basic", "Basic !", "Basic " + b64encode(b"alice").decode(), "Digest a"):
        assert code_of(ask(guarded, "/topics", headers={"Authorization": broken})) == (401, "login_failed")


def test_users_of_plain_and_scram_log_in_with_basic(guarded: Broker) -> None:
    assert ask(guarded, "/topics", as_user=ALICE).status == 200
    assert ask(guarded, "/topics", as_user=BOB).status == 200
    wrong = ask(guarded, "/topics", as_user=("alice", "bob secret%"))
    assert code_of(wrong) == (401, "login_failed")
    assert wrong.headers["Connection"] == "close"
    set_password(guarded, "carol", "first")
    assert ask(guarded, "/topics", as_user=("carol", "first")).status == 200
    set_password(guarded, "carol", "sécond")
    assert ask(guarded, "/topics", as_user=("carol", "first")).status == 401
    assert ask(guarded, "/topics", as_user=("carol", "sécond")).status == 200
    remove_user(guarded, "carol")
    assert ask(guarded, "/topics", as_user=("carol", "sécond")).status == 401
    assert ask(guarded, "/topics", as_user=("nobody", "sécond")).status == 401


def test_a_connection_serves_each_request_as_its_own_user(guarded: Broker) -> None:
    connection = HTTPConnection("127.0.0.1", int(guarded.http_url.rpartition(":")[2]), timeout=SECONDS_MAX)

    def status(user: tuple[str, str] | None) -> int:
        headers = {} if user is None else {"Authorization": basic(*user)}
        connection.request("GET", "/topics/orders", headers=headers)
        response = connection.getresponse()
        response.read()
        return response.status

    with closing(connection):
        assert [status(each) for each in (ALICE, ALICE, BOB, None, ALICE)] == [200, 200, 403, 401, 200]


def test_a_user_that_is_removed_is_refused_on_its_open_connection(guarded: Broker) -> None:
    set_password(guarded, "dave", "d")
    create_acls(guarded, acl("dave", "READ", "TOPIC", "orders"))
    connection = HTTPConnection("127.0.0.1", int(guarded.http_url.rpartition(":")[2]), timeout=SECONDS_MAX)
    with closing(connection):
        for expected in (200, 401):
            connection.request("GET", "/topics/orders", headers={"Authorization": basic("dave", "d")})
            response = connection.getresponse()
            response.read()
            assert response.status == expected
            if expected == 200:
                remove_user(guarded, "dave")


def test_a_body_is_not_received_before_the_log_in(guarded: Broker) -> None:
    port = int(guarded.http_url.rpartition(":")[2])
    for header in ("", f"Authorization: {basic('alice', 'wrong')}\r\n"):
        with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as connection:
            connection.sendall(
                f"POST /produce HTTP/1.1\r\nHost: a\r\n{header}Content-Length: 10000000\r\n\r\n".encode()
                + b" " * 1000
            )
            assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
    value = b64encode(b"x" * 700_000).decode()
    made = ask(guarded, "/produce", method="POST", as_user=ALICE, body={"topic": "orders", "value": value})
    assert made.status == 200


def test_expect_100_continue_waits_for_the_log_in(guarded: Broker) -> None:
    port = int(guarded.http_url.rpartition(":")[2])
    body = json.dumps({"topic": "orders", "value": "aGk="}).encode()
    with socket.create_connection(("127.0.0.1", port), SECONDS_MAX) as connection:
        connection.sendall(
            f"POST /produce HTTP/1.1\r\nHost: a\r\nAuthorization: {basic(*ALICE)}\r\nExpect: 100-continue\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
        )
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_health_is_open_and_metrics_are_not_unless_the_settings_say_so(guarded: Broker) -> None:
    assert [ask(guarded, path).status for path in ("/health", "/health/live", "/health/ready")] == [200] * 3
    assert ask(guarded, "/metrics", as_user=BOB).status == 403
    create_acls(guarded, acl("alice", "DESCRIBE", "BROKER", "kafka-cluster"))
    assert ask(guarded, "/metrics", as_user=ALICE).status == 200
    settings = {"http.health.without.login": "false", "http.metrics.without.login": "true"}
    with Broker(http=True, settings={**GUARDED, **settings}) as broker:
        assert ask(broker, "/metrics").status == 200
        assert code_of(ask(broker, "/health/live")) == (401, "login_required")
        assert ask(broker, "/health/live", as_user=BOB).status == 200


def test_hostile_web_pages_are_kept_out_whatever_credentials_the_browser_has(guarded: Broker) -> None:
    for headers, code in (
        ({"Origin": "http://evil.example"}, "cross_origin"),
        ({"Host": "evil.example:8080", "Accept-Language": "en"}, "unknown_host"),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}, "cross_origin"),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "iframe"}, "cross_origin"),
        ({"Sec-Fetch-Site": "cross-site"}, "cross_origin"),
    ):
        assert code_of(ask(guarded, "/topics", as_user=ALICE, headers=headers)) == (403, code)
        assert code_of(ask(guarded, "/health", headers=headers)) == (403, code)
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate"}
    assert ask(guarded, "/topics", as_user=ALICE, headers=link).status == 200


def test_many_wrong_passwords_have_to_wait(guarded: Broker) -> None:
    with Broker(http=True, settings=GUARDED) as broker:
        set_password(broker, "carol", "right")
        assert ask(broker, "/topics", as_user=("carol", "right")).status == 200
        statuses = [ask(broker, "/topics", as_user=("alice", f"guess {n}")).status for n in range(25)]
        assert statuses[:20] == [401] * 20
        assert 429 in statuses
        late = ask(broker, "/topics", as_user=("bob", "guess"))
        assert code_of(late) == (429, "too_many_log_ins")
        assert int(late.headers["Retry-After"]) >= 1
        assert ask(broker, "/topics", as_user=("carol", "right")).status == 200, "it was right before"


def test_bearer_tokens_log_in_until_they_expire() -> None:
    def token(seconds: int) -> str:
        def part(value: dict[str, Any]) -> str:
            return b64encode(json.dumps(value).encode(), b"-_").decode().rstrip("=")

        now = int(time.time())
        return f"{part({'alg': 'none'})}.{part({'sub': 'erin', 'iat': now, 'exp': now + seconds})}."

    callbacks = "listener.name.http.oauthbearer.sasl.server.callback.handler.class"
    settings = {
        "http.security.protocol": "SASL_PLAINTEXT",
        "listener.name.http.sasl.enabled.mechanisms": "OAUTHBEARER",
        callbacks: "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
        "OAuthBearerUnsecuredValidatorCallbackHandler",
        "connection.failed.authentication.delay.ms": "10",
    }
    with Broker(http=True, settings=settings) as broker:
        assert ask(broker, "/topics", headers={"Authorization": f"Bearer {token(60)}"}).status == 200
        refused = ask(broker, "/topics", headers={"Authorization": f"bearer {token(-60)}"})
        assert refused.status == 401
        assert refused.headers["WWW-Authenticate"] == 'Bearer realm="penstock"'
        described = json.loads(
            ask(broker, "/openapi.json", headers={"Authorization": f"Bearer {token(60)}"}).data  # type: ignore[attr-defined]
        )
        assert set(described["components"]["securitySchemes"]) == {"bearer"}
        assert described["paths"]["/topics"]["get"]["security"] == [{"bearer": []}]
        assert "401" in described["paths"]["/topics"]["get"]["responses"]
        create_topic(broker, "news")
        headers = {"Authorization": f"Bearer {token(2)}"}
        with pytest.raises(IncompleteRead):  # the tail ends with the token
            ask(broker, "/topics/news/tail", headers=headers)


# -- ACLs over HTTP ------------------------------------------------------------------------------------


def test_lists_show_what_may_be_described_and_denials_do_not_tell_what_exists(guarded: Broker) -> None:
    listed = json.loads(ask(guarded, "/topics", as_user=ALICE).data)  # type: ignore[attr-defined]
    assert [each["name"] for each in listed["topics"]] == ["letters", "orders"]
    assert json.loads(ask(guarded, "/topics", as_user=BOB).data)["topics"] == []  # type: ignore[attr-defined]
    for topic in ("payroll", "absent"):
        for path in ("", "/records", "/records.parquet", "/records.ndjson", "/tail", "/configs"):
            denied = ask(guarded, f"/topics/{topic}{path}", as_user=ALICE)
            assert code_of(denied) == (403, "topic_authorization_failed"), path
    assert code_of(ask(guarded, "/topics/orders/configs", as_user=ALICE))[0] == 403
    assert code_of(ask(guarded, "/groups/reports", as_user=ALICE)) == (403, "group_authorization_failed")
    assert code_of(ask(guarded, "/cluster", as_user=BOB)) == (403, "cluster_authorization_failed")


def test_records_are_written_by_those_who_may_and_topics_created_by_those_who_may(guarded: Broker) -> None:
    rows = [{"topic": each, "value": "aGk="} for each in ("orders", "payroll", "absent")]
    made = ask(guarded, "/produce", method="POST", as_user=ALICE, body=rows)
    assert [
        each.get("error", {}).get("code")
        for each in json.loads(made.data)  # type: ignore[attr-defined]
    ] == [None, "topic_authorization_failed", "topic_authorization_failed"]
    create_acls(guarded, acl("bob", "WRITE", "TOPIC", "new"))
    denied = ask(guarded, "/produce", method="POST", as_user=BOB, body={"topic": "new", "value": "aGk="})
    assert "create on topic 'new'" in json.loads(denied.data)["error"]["message"]  # type: ignore[attr-defined]
    create_acls(guarded, acl("bob", "CREATE", "TOPIC", "new"))
    made = ask(guarded, "/produce", method="POST", as_user=BOB, body={"topic": "new", "value": "aGk="})
    assert made.status == 200


def test_groups_over_http_need_the_group_and_the_topic(guarded: Broker) -> None:
    def join(group: str, topic: str) -> int:
        path = f"/join?group={group}&consumer=a&topic={topic}"
        return ask(guarded, path, method="POST", as_user=ALICE).status

    assert join("billing", "orders") == 200
    assert join("billing", "payroll") == 403
    assert join("reports", "orders") == 403
    consume = "/consume?group={}&consumer=a&topic={}&partition=0"
    assert ask(guarded, consume.format("billing", "orders"), as_user=ALICE).status == 200
    assert ask(guarded, consume.format("billing", "payroll"), as_user=ALICE).status == 403
    assert ask(guarded, consume.format("reports", "orders"), as_user=ALICE).status == 403
    assert ask(guarded, "/leave?group=billing&consumer=a", method="POST", as_user=BOB).status == 403
    assert ask(guarded, "/leave?group=billing&consumer=a", method="POST", as_user=ALICE).status == 200


def test_offsets_of_a_group_need_every_topic_and_the_group_that_they_are_taken_from(guarded: Broker) -> None:
    def change(*targets: dict[str, Any]) -> tuple[int, str]:
        answer = ask(
            guarded, "/groups/billing/offsets?dry_run=true", method="POST", as_user=ALICE, body=[*targets]
        )
        return (200, "") if answer.status == 200 else code_of(answer)

    orders = {"topic": "orders", "to": "latest"}
    assert change(orders) == (200, "")
    assert change(orders, {"topic": "payroll", "to": "latest"}) == (403, "topic_authorization_failed")
    assert change(orders, {"topic": "absent", "to": "latest"}) == (403, "topic_authorization_failed")
    other = {"topic": "orders", "to": "committed", "from_group": "reports"}
    assert change(orders, other) == (403, "group_authorization_failed")


EXPLORED = "/api/architecture/topics/{name}/partitions/{partition}"
REQUESTS: dict[str, tuple[str, Any]] = {
    "POST /produce": ("/produce", {"topic": "t", "value": "aGk="}),
    "POST /join": ("/join?group=g&consumer=c&topic=t", None),
    "POST /leave": ("/leave?group=g&consumer=c", None),
    "GET /consume": ("/consume?group=g&topic=t&partition=0", None),
    "POST /commit": ("/commit?group=g&topic=t&partition=0&offset=0", None),
    "POST /topics": ("/topics", {"name": "t"}),
    "PATCH /topics/{topic}": ("/topics/t", {"partitions": 1}),
    "PATCH /topics/{topic}/configs": ("/topics/t/configs", {"configs": {"retention.ms": 1000}}),
    "POST /topics/{topic}/records/copy": (
        "/topics/t/records/copy",
        {"to": "t", "records": [{"partition": 0, "offset": 0}]},
    ),
    **{
        f"GET {EXPLORED}/{each}": (f"/api/architecture/topics/t/partitions/0/{each}?offset=0", None)
        for each in ("batches", "indexes")
    },
    "GET /labs/simulation": ("/labs/simulation?seconds=1", None),
    "PATCH /cluster/configs": ("/cluster/configs", {"configs": {"log.retention.ms": None}}),
    "POST /groups/{group}/offsets": ("/groups/g/offsets", {"topic": "t", "to": "earliest"}),
    "DELETE /groups/{group}/offsets": ("/groups/g/offsets?topic=t", None),
    "GET /topics/{topic}/tail": ("/topics/t/tail?wait_ms=0", None),
    "POST /topics/{topic}/partitions/{partition}/producers/abort": (
        "/topics/t/partitions/0/producers/abort",
        {"start_offset": 0},
    ),
    "PATCH /brokers/{broker}/configs": ("/brokers/1/configs", {"configs": {"log.retention.ms": None}}),
    "POST /elections": ("/elections", {}),
    "POST /reassignments/plan": ("/reassignments/plan", {}),
    "POST /reassignments": (
        "/reassignments",
        {"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]},
    ),
    "POST /reassignments/cancel": ("/reassignments/cancel", {}),
    "POST /users": ("/users", {"user": "u", "password": "p"}),
    "PUT /users/{user}/password": ("/users/u/password", {"password": "p"}),
    "POST /acls": (
        "/acls",
        {
            "acls": [
                {
                    "resource_type": "topic",
                    "resource_name": "t",
                    "principal": "User:u",
                    "operation": "read",
                }
            ]
        },
    ),
    "DELETE /acls": ("/acls?principal=User:nobody", None),
    "GET /acls/explain": (
        "/acls/explain?principal=User:u&operation=read&resource_type=topic&resource_name=t",
        None,
    ),
    "GET /acls/who": ("/acls/who?operation=read&resource_type=topic&resource_name=t", None),
    "POST /quotas": ("/quotas", {"entity": {"user": "u"}, "limits": {"request_percentage": None}}),
    "POST /tokens": ("/tokens", {}),
    "POST /tokens/{token}/renew": ("/tokens/x/renew", {}),
    "POST /tokens/{token}/expire": ("/tokens/x/expire", {}),
    "DELETE /topics/{topic}/partitions/{partition}/records": (
        "/topics/t/partitions/0/records?before=0",
        None,
    ),
}
"""What is sent to routes that need more than their path."""
NAMES = {
    "topic": "t",
    "name": "t",
    "group": "g",
    "partition": "0",
    "transactional_id": "x",
    "broker": "1",
    "user": "u",
    "token": "x",
    "offset": "0",
    "member": "m",
    "pipeline": "p",
}
KINDS = {TOPIC: "TOPIC", GROUP: "GROUP", CLUSTER: "BROKER", TRANSACTIONAL_ID: "TRANSACTIONAL_ID"}


@pytest.mark.parametrize("route", all_routes(), ids=lambda route: f"{route.method} {route.path}")
def test_every_route_obeys_its_rule(guarded: Broker, route: Route) -> None:
    """Without the ACLs, with them, and with one that denies."""
    rule = route.rule
    assert rule is not None
    path = re.sub(r"\{(\w+)\}", lambda found: NAMES[found[1]], route.path)
    path, body = REQUESTS.get(f"{route.method} {route.path}", (path, None))

    def status() -> int:
        return ask(guarded, path, method=route.method, as_user=IVAN, body=body, reads=False).status

    is_of_rows = route.method == "POST" and route.path in ("/produce", "/groups/{group}/offsets")
    needs = [*rule.needs, *(rule.shows if is_of_rows else ())]
    if rule.creates:
        create_acls(guarded, acl("ivan", "CREATE", "TOPIC", "t"))
    try:
        without = ask(guarded, path, method=route.method, body=body).status
        if not rule.is_open:
            assert without == (200 if rule.opened_by == "http.health.without.login" else 401)
        if route.path.startswith("/session"):
            return  # tests/gateway/http/test_session.py
        assert (status() == 403) == bool(needs)
        granted = []
        for need in needs:
            name = {
                TOPIC: need.name if not need.parameter else "t",
                GROUP: "g",
                TRANSACTIONAL_ID: "x",
            }.get(need.on, "kafka-cluster")
            granted.append((need.operation.name, KINDS[need.on], name))
            assert status() == 403
            create_acls(guarded, acl("ivan", *granted[-1]))
        assert status() not in (401, 403)
        if granted:
            create_acls(guarded, acl("ivan", *granted[0], "DENY"))
            assert status() == 403
    finally:
        delete_acls(guarded, "ivan")


@pytest.mark.parametrize("taken", ["acl", "user", "denied"])
def test_a_tail_ends_when_its_right_or_its_user_is_taken_away(guarded: Broker, taken: str) -> None:
    user = f"frank-{taken}"
    set_password(guarded, user, "f")
    create_acls(guarded, acl(user, "READ", "TOPIC", "orders"))
    port = int(guarded.http_url.rpartition(":")[2])
    connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS_MAX)
    with closing(connection):
        connection.request("GET", "/topics/orders/tail", headers={"Authorization": basic(user, "f")})
        response = connection.getresponse()
        assert response.status == 200
        assert response.readline().startswith(b"retry:")
        if taken == "acl":
            delete_acls(guarded, user)
        elif taken == "user":
            remove_user(guarded, user)
        else:
            create_acls(guarded, acl(user, "READ", "TOPIC", "orders", "DENY"))
        began = time.monotonic()
        with suppress(OSError, HTTPException):
            response.read()
        assert time.monotonic() - began < 5


# -- the line protocol ---------------------------------------------------------------------------------


def says(broker: Broker, *lines: bytes) -> bytes:
    """All that the broker says, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", broker.line_port), SECONDS_MAX) as connection:
        connection.sendall(b"".join(lines))
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while more := connection.recv(65536):
            received += more
        return received


def test_the_line_protocol_takes_nothing_but_auth_before_the_log_in(guarded: Broker) -> None:
    for line in (
        b"TOPIC orders - 2\nhi",
        b"ACK\n",
        b"orders:billing:0\n",
        b"HELLO\n",
        b"SET_OFFSET orders:a 1\n",
    ):
        assert says(guarded, line).startswith(b"-ERR log in first: AUTH <user> <password>"), line
    assert says(guarded, b"AUTH alice\n").startswith(b"-ERR log in first")
    assert says(guarded, b"AUTH alice wrong\nTOPIC orders - 2\nhi").startswith(b"-ERR the user, the password")
    assert says(guarded, b"AUTH alice alice-secret\nTOPIC orders - 2\nhi").startswith(b"+OK\n+OFFSET ")
    assert says(guarded, b"AUTH bob bob%20secret%25\nTOPIC orders - 2\nhi").startswith(
        b"+OK\n-ERR User:bob is not authorized: write on topic 'orders'"
    )


def test_the_line_client_logs_in(guarded: Broker) -> None:
    set_password(guarded, "grace", "g r%", iterations=8192)
    create_acls(
        guarded,
        acl("grace", "ALL", "TOPIC", "lines"),
        acl("grace", "CREATE", "BROKER", "kafka-cluster"),
        acl("grace", "READ", "GROUP", "readers"),
    )
    with LineClient("127.0.0.1", guarded.line_port, user="grace", password="g r%") as client:
        client.produce("lines", b"hello")
        with client.consume("lines", "readers", until_empty=True) as messages:
            for message in messages:
                message.ack()
        with pytest.raises(LineError, match="read on group 'others'"):
            next(client.consume("lines", "others"))
        with pytest.raises(LineError, match="read on group 'others'"):
            client.set_offset("lines", "others", 0)
    with pytest.raises(LineError, match="is not valid"):
        LineClient("127.0.0.1", guarded.line_port, user="grace", password="wrong").produce("lines", b"")


def test_a_stream_ends_when_its_right_or_its_user_is_taken_away(guarded: Broker) -> None:
    for taken in ("acl", "user"):
        user = f"heidi-{taken}"
        set_password(guarded, user, "h")
        create_acls(guarded, acl(user, "READ", "TOPIC", "letters"), acl(user, "READ", "GROUP", "heidi"))
        with socket.create_connection(("127.0.0.1", guarded.line_port), SECONDS_MAX) as connection:
            connection.sendall(f"AUTH {user} h\nletters:heidi:-1\n".encode())
            file = connection.makefile("rb")
            assert file.readline() == b"+OK\n"
            assert file.readline().startswith(b"+MSG 0 2 ")
            assert file.read(2) == b"hi"
            if taken == "acl":
                delete_acls(guarded, user)
            else:
                remove_user(guarded, user)
            ended = b"is not authorized" if taken == "acl" else b"-ERR the session has ended"
            assert ended in file.readline()
            if taken == "acl":
                connection.sendall(b"ACK\n")
                assert file.readline().startswith(b"-ERR")
            else:
                assert file.read() == b""


def test_no_secret_of_a_log_in_is_logged_or_answered(
    guarded: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    planted = "planted-password-4711"
    answers = [
        ask(guarded, "/topics", as_user=("alice", planted)).data,  # type: ignore[attr-defined]
        ask(guarded, "/topics", headers={"Authorization": f"Bearer {planted}"}).data,  # type: ignore[attr-defined]
        says(guarded, f"AUTH alice {planted}\n".encode()),
        says(guarded, f"AUTH alice {planted} more\n".encode()),
    ]
    assert planted not in caplog.text
    assert all(planted.encode() not in each for each in answers)


def test_denials_and_log_ins_at_the_doors_are_in_the_audit(tmp_path: Path) -> None:
    file = tmp_path / "audit.json"
    settings = {**GUARDED, "audit.log": "denied", "audit.file": str(file)}
    with Broker(http=True, line=True, settings=settings) as broker:
        assert (
            ask(broker, "/topics/payroll/records", as_user=BOB, headers={"User-Agent": "app"}).status == 403
        )
        assert ask(broker, "/topics", as_user=("bob", "wrong")).status == 401
        says(broker, b"AUTH bob bob%20secret%25\nTOPIC payroll - 2\nhipayroll:g:0\n")
    lines = [json.loads(each) for each in file.read_text().splitlines()]
    found = [
        (
            each["listener"],
            each["event"],
            each["principal"],
            each.get("request"),
            each["operation"],
            each["result"],
        )
        for each in lines
    ]
    assert found == [
        ("HTTP", "login", "User:bob", None, "PLAIN", "allowed"),
        ("HTTP", "operation", "User:bob", "GET /topics/{topic}/records", "Read", "denied"),
        ("HTTP", "login", "User:bob", None, None, "denied"),
        ("LINE", "login", "User:bob", None, "PLAIN", "allowed"),
        ("LINE", "operation", "User:bob", "TOPIC", "Write", "denied"),
        ("LINE", "operation", "User:bob", "READ", "Read", "denied"),
    ]
    assert lines[1]["client_id"] == "app"


def test_browsers_take_no_response_for_a_page_and_run_nothing_in_the_docs(guarded: Broker) -> None:
    for path in ("/topics", "/nowhere", "/openapi.json", "/console/", "/console/assets/no/file", "/docs"):
        for user in (ROOT, None):
            found = ask(guarded, path, as_user=user)
            assert found.headers.get_all("X-Content-Type-Options") == ["nosniff"], path
    docs = ask(guarded, "/docs", as_user=ROOT)
    assert docs.headers["Content-Security-Policy"].startswith("default-src 'none'; style-src")
    assert b"<script" not in docs.data  # type: ignore[attr-defined]
