"""The description of the API: complete, sound, readable, and true, as schemathesis finds out by trying."""

import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest

from penstock.gateway.http.docs_page import page
from penstock.gateway.http.protocol.errors import ALWAYS
from penstock.gateway.http.protocol.messages import Query, Route, json
from penstock.gateway.http.protocol.openapi import PATH_PARAMETERS, describe, operation_id, path_parameters
from penstock.gateway.http.routes import all_routes
from penstock.testing import Broker

DOCS = Path(__file__).parents[4] / "docs"


class Item(msgspec.Struct):
    """A thing."""

    name: str
    data: bytes | None = None


class Box(msgspec.Struct):
    items: list[Item]


ROUTES = (
    Route(
        "POST",
        "/boxes/{topic}/items",
        lambda _gateway, _request: json(None),
        "boxes",
        "Put an item & `more` into it.",
        query=[
            Query("limit", int, "How many.", default=5, min=1, max=9),
            Query("at", int, "Where."),
            Query("name", str, "Whose.", is_required=True, min=1, max=20),
            Query("form", str, "How.", one_of=("a", "b")),
            Query("deep", bool, "Whether."),
            Query("at_time", str, "When.", max=9, pattern="^[0-9]+$"),
            Query("some", list[str], "Which.", max=2, one_of=("a", "b"), is_unique=True),
        ],
        body=Item | list[Item],
        answer=Box,
        status=201,
        errors=(404, 409),
    ),
    Route(
        "GET",
        "/boxes",
        lambda _gateway, _request: json(None),
        "boxes",
        "All of them.",
        answer=list[Box],
        content_types=("application/json", "text/csv"),
    ),
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return msgspec.json.decode(describe(ROUTES), type=dict[str, Any])


def test_parameters_are_described_with_their_bounds(document: dict[str, Any]) -> None:
    operation = document["paths"]["/boxes/{topic}/items"]["post"]
    described = {each["name"]: each for each in operation["parameters"]}
    assert described["topic"]["in"] == "path"
    assert {name: each["schema"] for name, each in described.items() if each["in"] == "query"} == {
        "limit": {"type": "integer", "minimum": 1, "maximum": 9, "default": 5},
        "at": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "form": {"type": "string", "enum": ["a", "b"]},
        "deep": {"type": "boolean"},
        "at_time": {"type": "string", "maxLength": 9, "pattern": "^[0-9]+$"},
        "some": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "enum": ["a", "b"]},
            "minItems": 1,
            "maxItems": 2,
            "uniqueItems": True,
        },
    }
    assert (described["some"]["style"], described["some"]["explode"]) == ("form", False)
    assert [name for name, each in described.items() if each["required"]] == ["topic", "name"]


def test_bodies_and_answers_are_described_by_their_types(document: dict[str, Any]) -> None:
    operation = document["paths"]["/boxes/{topic}/items"]["post"]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    assert {"$ref": "#/components/schemas/Item"} in body["anyOf"]
    assert operation["responses"]["201"]["content"] == {
        "application/json": {"schema": {"$ref": "#/components/schemas/Box"}}
    }
    assert document["components"]["schemas"]["Item"]["required"] == ["name"]
    several = document["paths"]["/boxes"]["get"]["responses"]["200"]["content"]
    assert list(several) == ["application/json", "text/csv"]


def test_every_error_is_described(document: dict[str, Any]) -> None:
    responses = document["paths"]["/boxes/{topic}/items"]["post"]["responses"]
    assert set(responses) == {"201", *map(str, ALWAYS), "404", "409"}
    error = document["components"]["responses"]["404"]["content"]["application/json"]["schema"]
    assert error == {"$ref": "#/components/schemas/ErrorBody"}


# -- of all routes -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return msgspec.json.decode(describe(all_routes()), type=dict[str, Any])


def test_every_route_is_described_once(whole: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, each in whole["paths"].items() for method in each}
    assert described == {(route.method, route.path) for route in all_routes()}
    names = [operation_id(route) for route in all_routes()]
    assert len(set(names)) == len(names)


def test_everything_that_is_referred_to_is_there(whole: dict[str, Any]) -> None:
    for reference in references(whole):
        at: Any = whole
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "$ref":
                yield each
            else:
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


@pytest.mark.parametrize("route", all_routes(), ids=lambda route: f"{route.method} {route.path}")
def test_a_route_says_what_it_does(route: Route) -> None:
    """In a sentence, as do its parameters; those in paths mean the same everywhere."""
    for sentence in (route.summary, *(each.what for each in route.query)):
        assert re.fullmatch(r"[A-Z`].*\.", sentence, re.DOTALL), sentence
    assert set(path_parameters(route)) <= set(PATH_PARAMETERS)


class Outward(HTMLParser):
    """What of a page would be fetched from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("src", "href") and value and not value.startswith(("#", "/")):
                self.found.append(value)
            assert tag != "script"

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_shows_every_route_and_needs_nothing_else() -> None:
    reader = Outward()
    reader.feed(page(all_routes()).decode())
    assert reader.found == []
    for route in all_routes():
        assert route.path in reader.text
        assert route.summary.replace("`", "") in reader.text
    assert "@import" not in reader.text
    assert "url(" not in reader.text


def test_the_page_names_types_and_bounds_as_a_user_would() -> None:
    reader = Outward()
    reader.feed(page(all_routes()).decode())
    assert "penstock." not in reader.text
    assert re.findall(r"[0-9]{8,}", reader.text) == []
    assert "any value or" not in reader.text


def test_the_page_has_the_docstrings_of_fields() -> None:
    with Broker(http=True) as broker, urlopen(f"{broker.http_url}/docs", timeout=30) as response:
        shown = response.read().decode()
    assert "The active controller; null while there is none." in shown
    assert "The base offset of the next segment, or the log end offset." in shown


def test_what_routes_say_is_text_on_the_page() -> None:
    shown = page((ROUTES[0]._replace(summary="Not <b>bold</b>, `a<b`."),)).decode()
    assert "Not &lt;b&gt;bold&lt;/b&gt;, <code>a&lt;b</code>." in shown


# -- schemathesis --------------------------------------------------------------------------------------


def config() -> str:
    """As the docs have it: nobody writes while it tries, so that there is nothing to wait for."""
    [found] = re.findall(r"```toml\n(.*?)```", DOCS.joinpath("http.md").read_text(), re.DOTALL)
    return str(found)


def schemathesis(scratch: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Every check that it has, on every route."""
    (scratch / "schemathesis.toml").write_text(config())
    named = {name.replace("_", "."): each for name, each in settings.items()}
    with Broker(http=True, settings={"durability.fsync": "never", **named}) as broker:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{broker.http_url}/openapi.json"]
        command += ["--no-color", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=scratch)
        # It is alive, whatever was asked of it.
        broker.create_topic("afterwards")
    return done


def test_what_the_description_says_is_so(tmp_path: Path) -> None:
    done = schemathesis(tmp_path, "--seed", "7", "--phases", "examples,fuzzing", "--max-examples", "1")
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"Selected: (\d+)/\1\n", done.stdout), done.stdout[-5000:]
    assert re.search(r"\b[1-9]\d* generated, ", done.stdout), done.stdout[-5000:]


@pytest.mark.long
def test_what_the_description_says_of_log_ins_is_so(tmp_path: Path) -> None:
    """A client without its credentials, and with wrong ones, is refused everywhere."""
    header = f"Authorization: Basic {b64encode(b'alice:secret').decode()}"
    done = schemathesis(
        tmp_path,
        *("--seed", "7", "--phases", "examples,fuzzing", "--max-examples", "1", "-H", header),
        http_security_protocol="SASL_PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        connection_failed_authentication_delay_ms="1",
        listener_name_http_plain_sasl_jaas_config="org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_alice="secret";',
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"Selected: (\d+)/\1\n", done.stdout), done.stdout[-5000:]


@pytest.mark.long
@pytest.mark.parametrize("seed", [7, 8])
def test_what_the_description_says_is_so_in_every_corner(tmp_path: Path, seed: int) -> None:
    done = schemathesis(tmp_path, "--seed", str(seed), "--max-examples", "30")
    assert done.returncode == 0, done.stdout[-20000:]
