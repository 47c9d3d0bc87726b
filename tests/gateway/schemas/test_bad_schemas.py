"""Requests that try to cost much: refused in one sentence, and the registry answers others afterwards."""

import json
from uuid import uuid4

import httpx
import pytest

DEEP = '{"type":"array","items":' * 2000
WIDE = json.dumps(
    {"type": "record", "name": "R", "fields": [{"name": f"f{each}", "type": "int"} for each in range(2_000)]}
)
LINKS = {f"d{each}": {"$ref": f"#/definitions/d{each + 1}"} for each in range(300)}
CHAIN = json.dumps({"type": "object", "$ref": "#/definitions/d0", "definitions": LINKS})
BRANCHES = json.dumps(
    {"anyOf": [{"anyOf": [{"type": "string", "minLength": a * b} for a in range(15)]} for b in range(15)]}
)


@pytest.mark.parametrize(
    ("kind", "schema", "code"),
    [
        ("AVRO", DEEP, 42201),
        ("JSON", '{"not":' * 50_000, 42201),
        ("PROTOBUF", "message A {" * 20_000, 42201),
        ("AVRO", '"' + "x" * (1 << 20) + '"', 42209),
        ("PROTOBUF", "/*" + "x" * 300_000 + "*/", 42209),
        ("JSON", CHAIN, 42201),
        ("PROTOBUF", "AAAA" * 1000, 42201),
        ("AVRO", "\ud83d", 400),
    ],
    ids=range(8),
)
def test_costly_and_broken_schemas_are_refused(rest: httpx.Client, kind: str, schema: str, code: int) -> None:
    body = json.dumps({"schemaType": kind, "schema": schema})
    answer = rest.post(f"/subjects/bad-{uuid4()}/versions", content=body)
    assert answer.json()["error_code"] == code, answer.text[:300]
    assert len(answer.json()["message"]) < 600
    assert rest.get("/schemas/types").status_code == 200


def test_large_schemas_are_taken_and_compared(rest: httpx.Client) -> None:
    for kind, schema in (("AVRO", WIDE), ("JSON", BRANCHES)):
        subject = f"large-{uuid4()}"
        rest.post(
            f"/subjects/{subject}/versions", json={"schemaType": kind, "schema": schema}
        ).raise_for_status()
        again = rest.post(
            f"/compatibility/subjects/{subject}/versions/latest", json={"schemaType": kind, "schema": schema}
        )
        assert again.json() == {"is_compatible": True}
    other = BRANCHES.replace("minLength", "maxLength")
    costly = rest.post(
        f"/compatibility/subjects/{subject}/versions/latest", json={"schemaType": "JSON", "schema": other}
    )
    assert costly.json()["error_code"] == 42201
    assert "its combinations take more than" in costly.json()["message"]


def test_a_schema_of_another_type_is_not_compatible(rest: httpx.Client) -> None:
    subject = f"mixed-{uuid4()}"
    rest.post(f"/subjects/{subject}/versions", json={"schema": '"string"'}).raise_for_status()
    answer = rest.post(f"/subjects/{subject}/versions", json={"schemaType": "JSON", "schema": "{}"})
    assert answer.status_code == 409
    assert "SCHEMA_TYPE_CHANGED" in answer.json()["message"]
