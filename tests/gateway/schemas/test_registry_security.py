"""Subjects obey the ACLs of topics, and the registry's routes ask for a log-in as others do."""

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from penstock.testing import Broker, Security

SCHEMA = {"schema": '"string"'}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    users = Security("SASL_PLAINTEXT", "PLAIN", users={"admin": "a", "shop": "s", "guest": "g"})
    with Broker(http=True, security=users) as running:
        admin = AdminClient(running.client().confluent_kafka)
        operations = (AclOperation.WRITE, AclOperation.DELETE, AclOperation.DESCRIBE_CONFIGS)
        bindings = [
            AclBinding(
                ResourceType.TOPIC,
                "orders",
                ResourcePatternType.LITERAL,
                "User:shop",
                "*",
                each,
                AclPermissionType.ALLOW,
            )
            for each in operations
        ]
        for done in admin.create_acls(bindings).values():
            done.result()
        yield running


def as_user(broker: Broker, user: str) -> httpx.Client:
    password = {"admin": "a", "shop": "s", "guest": "g"}[user]
    return httpx.Client(base_url=broker.registry_url, auth=(user, password), timeout=30)


def test_without_a_log_in_nothing_is_answered(broker: Broker) -> None:
    answer = httpx.get(f"{broker.registry_url}/subjects")
    assert answer.status_code == 401
    assert answer.json()["error_code"] == 40101


def test_subjects_obey_the_acls_of_their_topic(broker: Broker) -> None:
    with (
        as_user(broker, "shop") as shop,
        as_user(broker, "guest") as guest,
        as_user(broker, "admin") as admin,
    ):
        mine = shop.post("/subjects/orders-value/versions", json=SCHEMA)
        assert mine.status_code == 200, mine.text
        assert shop.post("/subjects/:.eu:orders-key/versions", json=SCHEMA).status_code == 200
        for subject in ("orders", "orders-value-value", "other-value", "orders-values"):
            refused = shop.post(f"/subjects/{subject}-x/versions", json=SCHEMA)
            assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
        admin.post("/subjects/secret-value/versions", json={"schema": '"long"'}).raise_for_status()
        hidden = admin.get("/subjects/secret-value/versions/1").json()["id"]
        assert shop.get("/subjects").json() == [":.eu:orders-key", "orders-value"]
        assert guest.get("/subjects").json() == []
        assert len(admin.get("/subjects").json()) == 3
        assert shop.get(f"/schemas/ids/{mine.json()['id']}").status_code == 200
        for client, schema_id in ((shop, hidden), (guest, hidden), (guest, mine.json()["id"])):
            found = client.get(f"/schemas/ids/{schema_id}")
            assert (found.status_code, found.json()["error_code"]) == (404, 40403)
        assert guest.get("/subjects/orders-value/versions").status_code == 403
        assert shop.put("/config/orders-value", json={"compatibility": "NONE"}).status_code == 403
        assert shop.get("/config/orders-value?defaultToGlobal=true").status_code == 200
        assert shop.put("/config", json={"compatibility": "NONE"}).status_code == 403
        assert shop.delete("/subjects/orders-value").json() == [1]


def test_a_schema_refers_only_to_subjects_that_its_author_may_see(broker: Broker) -> None:
    """Otherwise it would tell whether they exist and what they are, and keep them from being deleted."""
    hidden = {"schema": '{"type":"record","name":"Hidden","fields":[{"name":"code","type":"string"}]}'}
    using = '{"type":"record","name":"Using","fields":[{"name":"hidden","type":"Hidden"}]}'
    with as_user(broker, "shop") as shop, as_user(broker, "admin") as admin:
        admin.post("/subjects/hidden-value/versions", json=hidden).raise_for_status()
        for subject, version in (
            ("hidden-value", 1),
            ("hidden-value", 7),
            (":.:hidden-value", 1),
            ("gone", 1),
        ):
            body = {
                "schema": using,
                "references": [{"name": "Hidden", "subject": subject, "version": version}],
            }
            for path in (
                "/subjects/orders-value/versions",
                "/subjects/orders-value",
                "/compatibility/subjects/orders-value/versions",
                "/compatibility/subjects/orders-value/versions/latest",
            ):
                refused = shop.post(path, json=body)
                assert (refused.status_code, refused.json()["error_code"]) == (403, 40301), path
        body["references"] = [{"name": "Hidden", "subject": "hidden-value", "version": 1}]
        theirs = admin.post("/subjects/other-value/versions", json=body).raise_for_status().json()["id"]
        referring = "/subjects/hidden-value/versions/1/referencedby"
        assert admin.get(referring).json() == [theirs]


def test_who_refers_to_a_schema_is_shown_to_those_who_may_see_it(broker: Broker) -> None:
    with as_user(broker, "shop") as shop, as_user(broker, "admin") as admin:
        common = {"schema": '{"type":"enum","name":"Common","symbols":["A"]}'}
        version = shop.post("/subjects/orders-key/versions", json=common)
        assert version.status_code == 200, version.text
        body = {
            "schema": '{"type":"record","name":"Uses","fields":[{"name":"a","type":"Common"}]}',
            "references": [{"name": "Common", "subject": "orders-key", "version": 1}],
        }
        theirs = admin.post("/subjects/unseen-value/versions", json=body).raise_for_status().json()["id"]
        referring = "/subjects/orders-key/versions/1/referencedby"
        assert admin.get(referring).json() == [theirs]
        assert shop.get(referring).json() == []


def test_contexts_are_shown_to_those_who_may_see_a_subject_of_them(broker: Broker) -> None:
    with (
        as_user(broker, "shop") as shop,
        as_user(broker, "guest") as guest,
        as_user(broker, "admin") as admin,
    ):
        for subject in (":.merger:plan-value", ":.eu:orders-key"):
            admin.post(f"/subjects/{subject}/versions", json=SCHEMA).raise_for_status()
        assert {".", ".eu", ".merger"} <= set(admin.get("/contexts").json())
        assert shop.get("/contexts").json() == [".", ".eu"]
        assert guest.get("/contexts").json() == ["."]
