"""The registry with Confluent's own client and with plain requests: the routes, the errors and their codes."""

import json
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from penstock.testing import Broker


def record(*fields: tuple[str, str] | tuple[str, str, Any], name: str = "User") -> str:
    made = []
    for each in fields:
        field = {"name": each[0], "type": each[1]}
        made.append(field | ({"default": each[2]} if len(each) == 3 else {}))
    return json.dumps({"type": "record", "name": name, "fields": made})


def avro(*fields: tuple[str, str] | tuple[str, str, Any], name: str = "User") -> Schema:
    return Schema(record(*fields, name=name), "AVRO")


def new_subject() -> str:
    return f"s-{uuid4()}-value"


def refused(code: int, response: httpx.Response) -> str:
    body = response.json()
    assert body["error_code"] == code, body
    assert response.status_code == (code if code < 1000 else code // 100)
    assert response.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    message: str = body["message"]
    return message


def test_versions_of_a_subject_are_registered_found_and_deleted(client: SchemaRegistryClient) -> None:
    subject = new_subject()
    first, second = avro(("id", "int")), avro(("id", "int"), ("name", "string", "-"))
    first_id = client.register_schema(subject, first)
    second_id = client.register_schema(subject, second)
    assert second_id > first_id
    assert client.register_schema(subject, first) == first_id
    assert client.get_versions(subject) == [1, 2]
    latest = client.get_latest_version(subject)
    assert (latest.version, latest.schema_id) == (2, second_id)
    found = client.lookup_schema(subject, first)
    assert (found.version, found.schema_id) == (1, first_id)
    assert json.loads(client.get_schema(first_id).schema_str) == json.loads(first.schema_str)
    assert found.guid is not None
    assert json.loads(client.get_schema_by_guid(found.guid).schema_str) == json.loads(first.schema_str)
    assert client.get_subjects_by_schema_id(first_id) == [subject]

    assert client.delete_version(subject, 1) == 1
    assert client.get_versions(subject) == [2]
    assert client.delete_subject(subject) == [2]
    assert subject not in client.get_subjects()
    assert subject in client.get_subjects(deleted=True)
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    assert subject not in client.get_subjects(deleted=True)


def test_the_same_schema_has_the_same_id_under_every_subject(client: SchemaRegistryClient) -> None:
    unique = f"f{uuid4().hex}"
    first = client.register_schema(new_subject(), avro((unique, "int")))
    spaced = Schema(record((unique, "int")).replace(",", " ,\n"), "AVRO")
    assert client.register_schema(new_subject(), spaced) == first
    dressed = json.dumps(
        {"fields": [{"type": {"type": "int"}, "name": unique}], "name": "User", "type": "record"}
    )
    assert client.register_schema(new_subject(), Schema(dressed, "AVRO")) == first


def test_ids_are_not_given_again(client: SchemaRegistryClient) -> None:
    subject = new_subject()
    gone = client.register_schema(subject, avro((f"f{uuid4().hex}", "int")))
    client.delete_subject(subject)
    client.delete_subject(subject, permanent=True)
    assert client.register_schema(subject, avro((f"f{uuid4().hex}", "int"))) > gone


def test_an_incompatible_schema_is_refused_with_what_breaks(
    client: SchemaRegistryClient, rest: httpx.Client
) -> None:
    subject = new_subject()
    client.register_schema(subject, avro(("id", "int")))
    broken = {"schema": record(("id", "int"), ("name", "string"))}
    message = refused(409, rest.post(f"/subjects/{subject}/versions", json=broken))
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in message
    assert "The field 'name' at path '/fields/1' in the new schema has no default value" in message
    verbose = rest.post(f"/compatibility/subjects/{subject}/versions/latest?verbose=true", json=broken).json()
    assert verbose["is_compatible"] is False
    assert any("'name'" in each for each in verbose["messages"])
    assert rest.post(f"/compatibility/subjects/{subject}/versions/latest", json=broken).json() == {
        "is_compatible": False
    }
    client.set_compatibility(subject, "NONE")
    assert client.register_schema(subject, Schema(broken["schema"], "AVRO"))


@pytest.mark.parametrize(
    ("level", "narrower", "wider"),
    [("BACKWARD", True, False), ("FORWARD", False, True), ("FULL", False, False), ("NONE", True, True)],
)
def test_levels_look_in_their_direction(
    client: SchemaRegistryClient, level: str, narrower: bool, wider: bool
) -> None:
    """A schema that drops a field reads old records; one that adds a field without default is read by old readers."""
    subject = new_subject()
    client.set_compatibility(subject, level)
    assert client.get_compatibility(subject) == level
    client.register_schema(subject, avro(("a", "int"), ("b", "int")))
    assert client.test_compatibility(subject, avro(("a", "int"))) is narrower
    assert client.test_compatibility(subject, avro(("a", "int"), ("b", "int"), ("c", "int"))) is wider


def test_a_transitive_level_looks_at_all_versions(client: SchemaRegistryClient) -> None:
    subject = new_subject()
    client.register_schema(subject, avro(("a", "int")))
    client.register_schema(subject, avro(("a", "int"), ("b", "int", 0)))
    third = avro(("a", "int"), ("b", "int"))
    assert client.test_compatibility(subject, third)
    client.set_compatibility(subject, "BACKWARD_TRANSITIVE")
    assert not client.test_compatibility_all_versions(subject, third)


def test_references_are_resolved_listed_and_protected(
    client: SchemaRegistryClient, rest: httpx.Client
) -> None:
    inner, outer = new_subject(), new_subject()
    client.register_schema(inner, avro(("zip", "string"), name="Address"))
    reference = SchemaReference("Address", inner, 1)
    schema = Schema(record(("home", "Address"), name="Person"), "AVRO", [reference])
    outer_id = client.register_schema(outer, schema)
    assert client.get_referenced_by(inner, 1) == [outer_id]
    assert client.get_version(outer, 1).schema.references == [reference]
    assert "references exist" in refused(42206, rest.delete(f"/subjects/{inner}/versions/1"))
    refused(42206, rest.delete(f"/subjects/{inner}"))
    missing = {
        "schema": record(("home", "Address")),
        "references": [{"name": "A", "subject": "no", "version": 1}],
    }
    assert "no schema reference found" in refused(
        42201, rest.post(f"/subjects/{outer}/versions", json=missing)
    )
    client.delete_subject(outer)
    client.delete_subject(inner)


def test_errors_have_confluents_codes(rest: httpx.Client, client: SchemaRegistryClient) -> None:
    subject, schema = new_subject(), {"schema": record(("id", "int"))}
    refused(40401, rest.get(f"/subjects/{subject}/versions"))
    refused(40401, rest.post(f"/subjects/{subject}", json=schema))
    refused(40401, rest.delete(f"/subjects/{subject}"))
    rest.post(f"/subjects/{subject}/versions", json=schema).raise_for_status()
    refused(40402, rest.get(f"/subjects/{subject}/versions/7"))
    refused(40403, rest.post(f"/subjects/{subject}", json={"schema": '"string"'}))
    refused(40403, rest.get("/schemas/ids/99999"))
    refused(40403, rest.get("/schemas/guids/89791762-2336-4186-9674-299b90a802e2"))
    refused(40405, rest.delete(f"/subjects/{subject}?permanent=true"))
    refused(40407, rest.delete(f"/subjects/{subject}/versions/1?permanent=true"))
    rest.delete(f"/subjects/{subject}/versions/1").raise_for_status()
    refused(40404, rest.delete(f"/subjects/{subject}"))
    refused(40406, rest.delete(f"/subjects/{subject}/versions/1"))
    refused(40408, rest.get(f"/config/{subject}"))
    refused(40409, rest.get(f"/mode/{subject}"))
    refused(42201, rest.post(f"/subjects/{subject}/versions", json={"schema": "{"}))
    refused(42201, rest.post(f"/subjects/{subject}/versions", json={"schema": "{}", "schemaType": "XML"}))
    refused(42201, rest.post(f"/subjects/{subject}/versions", json={}))
    for version in ("0", "-2", "first", "2147483648", "%F0%9F%90%98"):
        refused(42202, rest.get(f"/subjects/{subject}/versions/{version}"))
    refused(42203, rest.put("/config", json={"compatibility": "SIDEWAYS"}))
    refused(42203, rest.put("/config", json={"compatibility": 7}))
    refused(42204, rest.put("/mode", json={"mode": "SLOW"}))
    refused(42205, rest.post(f"/subjects/{subject}/versions", json={**schema, "id": 5}))
    refused(42208, rest.post("/subjects/__GLOBAL/versions", json=schema))
    refused(400, rest.post(f"/subjects/{subject}/versions", content=b"{"))
    refused(400, rest.post(f"/subjects/{subject}/versions", json={"schema": 5}))
    assert rest.get("/nothing").status_code == 404


def test_requests_may_have_fields_and_parameters_that_are_not_known(rest: httpx.Client) -> None:
    """Confluent's answers have more fields for clients that ignore those they do not know."""
    path = f"/subjects/{new_subject()}/versions?normalize=False&new=1"
    body = {
        "schema": '"string"',
        "metadata": {"properties": {"owner": "me"}},
        "ruleSet": None,
        "newer": {"a": [1]},
    }
    headers = {
        "Content-Type": "application/vnd.schemaregistry.v1+json",
        "Accept": "application/vnd.schemaregistry+json",
    }
    first = rest.post(path, content=json.dumps(body), headers=headers).json()
    assert set(first) == {"id"}
    again = rest.post(path, json=body, headers={"Confluent-Accept-Unknown-Properties": "true"}).json()
    assert (again["id"], again["version"]) == (first["id"], 1)
    assert rest.get(f"/schemas/ids/{first['id']}").json()["metadata"] == {"properties": {"owner": "me"}}


def test_settings_are_set_shown_and_unset(rest: httpx.Client) -> None:
    subject = new_subject()
    assert rest.get("/config").json() == {"compatibilityLevel": "BACKWARD"}
    assert rest.put(f"/config/{subject}", json={"compatibility": "full", "normalize": True}).json() == {
        "compatibility": "FULL",
        "normalize": True,
    }
    assert rest.get(f"/config/{subject}").json() == {"compatibilityLevel": "FULL", "normalize": True}
    assert rest.delete(f"/config/{subject}").json() == {"compatibilityLevel": "FULL", "normalize": True}
    refused(40401, rest.delete(f"/config/{subject}"))
    shown = rest.get(f"/config/{subject}?defaultToGlobal=true").json()
    assert shown == {"compatibilityLevel": "BACKWARD"}
    assert rest.put(f"/mode/{subject}", json={"mode": "READONLY"}).json() == {"mode": "READONLY"}
    refused(42205, rest.post(f"/subjects/{subject}/versions", json={"schema": '"int"'}))
    assert rest.get(f"/mode/{subject}").json() == {"mode": "READONLY"}
    assert rest.delete(f"/mode/{subject}").json() == {"mode": "READONLY"}
    assert rest.get("/mode").json() == {"mode": "READWRITE"}


def test_a_registry_is_imported_with_its_ids(rest: httpx.Client) -> None:
    subject = new_subject()
    assert rest.put(f"/mode/{subject}", json={"mode": "IMPORT"}).json() == {"mode": "IMPORT"}
    body = {"schema": record((f"f{uuid4().hex}", "int")), "id": 7_000_001, "version": 3}
    assert rest.post(f"/subjects/{subject}/versions", json=body).json() == {"id": 7_000_001}
    assert rest.get(f"/subjects/{subject}/versions").json() == [3]
    other = {**body, "schema": record((f"f{uuid4().hex}", "int"))}
    refused(42205, rest.post(f"/subjects/{subject}/versions", json={**other, "version": 4}))
    rest.delete(f"/mode/{subject}").raise_for_status()
    later = rest.post(
        f"/subjects/{new_subject()}/versions", json={"schema": record((f"f{uuid4().hex}", "int"))}
    )
    assert later.json()["id"] == 7_000_002
    refused(42205, rest.put("/mode", json={"mode": "IMPORT"}))
    assert rest.put("/mode?force=true", json={"mode": "IMPORT"}).status_code == 200
    rest.put("/mode", json={"mode": "READWRITE"}).raise_for_status()


def test_a_context_has_ids_of_its_own(rest: httpx.Client, client: SchemaRegistryClient) -> None:
    context, name = f".c{uuid4().hex}", new_subject()
    subject = f":{context}:{name}"
    schema = avro((f"f{uuid4().hex}", "int"))
    assert client.register_schema(subject, schema) == 1
    assert context in client.get_contexts()
    assert client.get_subjects(subject_prefix=f":{context}:") == [subject]
    assert rest.get(f"/contexts/{context}/subjects").json() == [subject]
    assert rest.get(f"/contexts/{context}/subjects/{name}/versions").json() == [1]
    assert (
        rest.get(f"/schemas/ids/1?subject={subject}").json()["schema"]
        == rest.get(f"/subjects/{subject}/versions/1/schema").text
    )
    rest.put(f"/config/:{context}:", json={"compatibility": "NONE"}).raise_for_status()
    assert client.test_compatibility(subject, Schema('"string"', "AVRO"))


def test_pages_and_details_of_lists(rest: httpx.Client, client: SchemaRegistryClient) -> None:
    prefix = f"p{uuid4().hex}"
    for number in range(5):
        client.register_schema(f"{prefix}-{number}", avro(("a", "int"), name=f"N{number}"))
    listed = rest.get(f"/subjects?subjectPrefix={prefix}&offset=1&limit=2").json()
    assert listed == [f"{prefix}-1", f"{prefix}-2"]
    rows = rest.get(f"/schemas?subjectPrefix={prefix}&latestOnly=true").json()
    assert [each["subject"] for each in rows] == [f"{prefix}-{number}" for number in range(5)]
    first = rows[0]["id"]
    assert rest.get(f"/schemas/ids/{first}/versions").json() == [{"subject": f"{prefix}-0", "version": 1}]
    assert rest.get(f"/schemas/ids/{first}/schema").json()["name"] == "N0"
    assert rest.get(f"/schemas/ids/{first}?fetchMaxId=true").json()["maxId"] >= rows[-1]["id"]
    assert rest.get("/schemas/types").json() == ["JSON", "PROTOBUF", "AVRO"]
    assert rest.get("/").json() == {}


def test_subjects_may_have_any_printable_name(client: SchemaRegistryClient) -> None:
    subject = f"my subject/with ümläuts?&%-{uuid4()}"
    client.register_schema(subject, Schema('"string"', "AVRO"))
    assert client.get_versions(subject) == [1]
    assert subject in client.get_subjects()


def test_a_node_has_the_same_registry_after_a_restart() -> None:
    with Broker(http=True) as broker:
        with SchemaRegistryClient({"url": broker.registry_url}) as client:
            first = client.register_schema("a-value", avro(("a", "int")))
            client.register_schema("b-value", avro(("b", "int")))
            client.delete_subject("b-value")
            client.delete_subject("b-value", permanent=True)
            client.set_compatibility("a-value", "FULL")
        broker.kill()
        broker.start()
        with SchemaRegistryClient({"url": broker.registry_url}) as client:
            assert client.get_subjects() == ["a-value"]
            assert client.get_compatibility("a-value") == "FULL"
            assert client.register_schema("c-value", avro(("a", "int"))) == first
            assert client.register_schema("c-value", avro(("a", "int"), ("c", "int", 0))) == 3
            with pytest.raises(SchemaRegistryError):
                client.get_schema(2)
