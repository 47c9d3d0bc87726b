"""Requests that try to cost much: refused in one sentence, and the registry answers others afterwards."""

import json
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import httpx
import pytest

from penstock.gateway.http.schemas import lookups
from penstock.gateway.schemas import compared, schema_work

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


def record_of(characters: int, field: str = "f") -> dict[str, str]:
    fields = [{"name": field, "type": "int", "default": 0}]
    return {"schema": json.dumps({"type": "record", "name": "R", "doc": "x" * characters, "fields": fields})}


def test_versions_that_are_compared_are_bounded_together(
    rest: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them go to the helper process with each request."""
    monkeypatch.setattr(compared, "COMPARED_CHARACTERS_MAX", 25_000)
    subject = f"long-{uuid4()}"
    path = f"/subjects/{subject}/versions"
    answers = [rest.post(path, json=record_of(10_000, f"f{number}")).json() for number in range(4)]
    assert ["id" in each for each in answers] == [True, True, True, False]
    assert answers[-1]["error_code"] == 42209
    assert "Delete versions" in answers[-1]["message"]
    looked_up = rest.post(f"/subjects/{subject}", json=record_of(5, "other")).json()
    assert looked_up["error_code"] == 42209
    again = rest.post(path, json=record_of(10_000, "f0")).json()
    assert again == answers[0], "what is known is answered"


def test_schemas_that_wait_to_be_parsed_are_bounded_together(
    rest: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_work, "WAITING_CHARACTERS_MAX", 300_000)
    subjects = [f"waits-{uuid4()}" for _ in range(8)]
    for each in subjects:
        rest.post(f"/subjects/{each}/versions", json=record_of(10)).raise_for_status()
    with ThreadPoolExecutor(len(subjects)) as threads:
        answers = list(
            threads.map(
                lambda each: rest.post(
                    f"/compatibility/subjects/{each}/versions", json=record_of(200_000, each[:5])
                ),
                subjects,
            )
        )
    assert {each.status_code for each in answers} == {200, 429}
    assert rest.post(f"/subjects/{subjects[0]}", json=record_of(10)).status_code == 200


def test_a_schema_has_a_bounded_number_of_references(rest: httpx.Client) -> None:
    rest.post("/subjects/referred/versions", json={"schema": '"string"'}).raise_for_status()
    references = [{"name": f"n{each % 900}", "subject": "referred", "version": 1} for each in range(20_000)]
    many = rest.post("/subjects/refers/versions", json={"schema": '"long"', "references": references})
    assert many.status_code == 400
    assert "1000" in many.json()["message"]


def test_a_long_list_of_schemas_comes_in_portions(
    rest: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"listed-{uuid4()}"
    for number in range(12):
        rest.post(f"/subjects/{prefix}-{number:02}/versions", json=record_of(3000)).raise_for_status()
    whole = rest.get("/schemas", params={"subjectPrefix": prefix}).json()
    monkeypatch.setattr(lookups, "PORTION_BYTES", 4000)
    with rest.stream("GET", "/schemas", params={"subjectPrefix": prefix}) as answer:
        portions = list(answer.iter_raw())
    assert json.loads(b"".join(portions)) == whole
    assert [each["subject"] for each in whole] == [f"{prefix}-{number:02}" for number in range(12)]
    assert answer.headers["transfer-encoding"] == "chunked"
    assert rest.get("/schemas", params={"subjectPrefix": f"{prefix}-none"}).json() == []
