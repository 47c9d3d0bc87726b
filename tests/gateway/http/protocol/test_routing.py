"""Which route answers, and what is refused before it is asked."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.http.talking import Talk

from penstock.base.errors import ErrorCode, KafkaError
from penstock.gateway.http.protocol.errors import STATUSES, error_response, from_kafka
from penstock.gateway.http.protocol.messages import HttpError, Query, Request, Response, Route, json
from penstock.gateway.http.protocol.negotiation import preferred
from penstock.gateway.http.protocol.routing import (
    DIGITS_MAX,
    INT_MAX,
    INT_MIN,
    PARAMETERS_MAX,
    Router,
    path_segment,
    query_parameters,
)
from penstock.handlers.support.context import Session

SESSION = Session("", 0, "10.0.0.1:4711")


def answer(_gateway: object, request: Request) -> Response:
    return json({"path": request.path, "query": request.query})


def route(method: str, path: str, *query: Query, **more: Any) -> Route:
    return Route(method, path, answer, "test", f"{method} {path}.", query=query, **more)


# -- paths ---------------------------------------------------------------------------------------------


PATHS = Router(
    [
        route("GET", "/topics"),
        route("POST", "/topics"),
        route("GET", "/topics/{topic}"),
        route("DELETE", "/topics/{topic}"),
        route("GET", "/topics/{topic}/records"),
        route("GET", "/topics/{topic}/partitions/{partition}/records"),
        route("GET", "/topics/all/records"),
        route("GET", "/health/live"),
    ]
)


@pytest.mark.parametrize(
    ("target", "path", "found"),
    [
        ("/topics", "/topics", {}),
        ("/topics/orders", "/topics/{topic}", {"topic": "orders"}),
        ("/topics/a%20b%2Fc%C3%BC", "/topics/{topic}", {"topic": "a b/c\xfc"}),
        ("/topics/a+b", "/topics/{topic}", {"topic": "a+b"}),
        ("/topics/records", "/topics/{topic}", {"topic": "records"}),
        ("/topics/all", "/topics/{topic}", {"topic": "all"}),
        ("/topics/all/records", "/topics/all/records", {}),
        (
            "/topics/all/partitions/3/records",
            "/topics/{topic}/partitions/{partition}/records",
            {"topic": "all", "partition": "3"},
        ),
        ("/%74opics", "/topics", {}),
        ("/health/liv%65", "/health/live", {}),
    ],
)
def test_a_path_finds_its_route(target: str, path: str, found: dict[str, str]) -> None:
    entry, values = PATHS.find("GET", target.encode())
    assert (entry.route.path, dict(values)) == (path, found)


@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/topic",
        "/topics/",
        "/topics//records",
        "/topics/a/b",
        "//topics",
        "/TOPICS",
        "/health%2Flive",
        "/health",
    ],
)
def test_an_unknown_path_is_404(target: str) -> None:
    with pytest.raises(HttpError) as caught:
        PATHS.find("GET", target.encode())
    assert (caught.value.status, caught.value.code) == (404, "no_such_path")


@pytest.mark.parametrize(
    ("method", "target", "allowed"),
    [
        ("PUT", "/topics", "GET, HEAD, POST"),
        ("POST", "/topics/orders", "DELETE, GET, HEAD"),
        ("OPTIONS", "/health/live", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_for_the_path_is_405_and_says_which_are(
    method: str, target: str, allowed: str
) -> None:
    got = Talk(*PATHS.routes).ask(method, target)
    assert (got.status, got.code, got.headers["allow"]) == (405, "method_not_allowed", allowed)


@pytest.mark.parametrize(
    ("target", "rest"),
    [
        ("/page/", ""),
        ("/page/a", "a"),
        ("/page/a/b%2Fc//d/", "a/b/c//d/"),
        ("/page/..%2f..", "../.."),
        ("/page/a?x=1&x=2&=&%zz", "a"),
    ],
)
def test_the_rest_of_a_path_is_one_parameter_and_its_query_is_not_read(target: str, rest: str) -> None:
    talk = Talk(route("GET", "/page/known/{name}"), route("GET", "/page/{path...}", ignores_query=True))
    assert talk.ask("GET", target).json == {"path": {"path": rest}, "query": {}}
    assert talk.ask("GET", "/page/known/x").json["path"] == {"name": "x"}
    assert talk.ask("GET", "/page/known/x/y").json["path"] == {"path": "known/x/y"}
    assert talk.ask("GET", "/page").status == 404
    assert talk.ask("GET", "/page/%ff").code == "bad_encoding"


def test_a_route_that_is_there_twice_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="GET /a is defined twice"):
        Router([route("GET", "/a"), route("GET", "/a")])
    with pytest.raises(ValueError, match="other parameter names"):
        Router([route("GET", "/a/{one}"), route("POST", "/a/{other}")])


@pytest.mark.parametrize(
    "target", ["/topics/%", "/topics/%2", "/topics/%zz", "/topics/%ff", "/topics/%C3", "/%ff"]
)
def test_a_path_that_is_not_encoded_as_it_should_be_is_refused(target: str) -> None:
    with pytest.raises(HttpError) as caught:
        PATHS.find("GET", target.encode())
    assert (caught.value.status, caught.value.code) == (400, "bad_encoding")


@given(st.text(max_size=30))
def test_every_text_can_be_a_part_of_a_path(text: str) -> None:
    encoded = "".join(f"%{byte:02X}" for byte in text.encode())
    assert path_segment(encoded.encode()) == text
    assert list(query_parameters(f"{encoded}={encoded}".encode())) == ([(text, text)])


# -- parameters ----------------------------------------------------------------------------------------

PARAMETERS = Talk(
    route(
        "GET",
        "/find",
        Query("name", str, "A name.", is_required=True, min=1, max=5),
        Query("limit", int, "How many.", default=100, min=1, max=1000),
        Query("offset", int, "Where."),
        Query("deep", bool, "Whether.", default=False),
        Query("form", str, "How.", default="json", one_of=("json", "text")),
    ),
    route(
        "GET",
        "/several",
        Query("place", str, "A place, such as 0:42.", max=9, pattern="^[0-9]+:[0-9]+$"),
        Query("names", list[str], "Names.", max=3, pattern="^[a-z]+$", each_max=4),
        Query("kinds", list[str], "Kinds.", max=3, one_of=("a", "b", "c"), is_unique=True),
    ),
    route("GET", "/none"),
)

DEFAULTS = {"name": "a", "limit": 100, "offset": None, "deep": False, "form": "json"}


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("name=a", {}),
        ("name=a&limit=1", {"limit": 1}),
        ("name=a&limit=1000&deep=true&form=text", {"limit": 1000, "deep": True, "form": "text"}),
        ("name=a%20b", {"name": "a b"}),
        ("name=a+b", {"name": "a b"}),
        ("name=a%2Bb", {"name": "a+b"}),
        ("name=%C3%BC", {"name": "\xfc"}),
        ("&name=a&&", {}),
        ("name=a=b", {"name": "a=b"}),
        ("%6Eame=a", {}),
        (f"name=a&offset={INT_MIN}", {"offset": INT_MIN}),
        (f"name=a&offset={INT_MAX}", {"offset": INT_MAX}),
        ("name=a&offset=-0", {"offset": 0}),
        ("name=a#name=b", {}),
    ],
)
def test_parameters_have_their_types(query: str, values: dict[str, Any]) -> None:
    assert PARAMETERS.ask("GET", f"/find?{query}").json["query"] == {**DEFAULTS, **values}


@pytest.mark.parametrize(
    ("query", "code", "words"),
    [
        ("", "missing_parameter", "the parameter name is missing"),
        ("name=a&limt=1", "unknown_parameter", "unknown parameter 'limt'; there are name, limit, offset"),
        ("name=a&name=a", "repeated_parameter", "the parameter name is given twice"),
        ("name=", "bad_parameter", "name is '', expected at least 1 characters"),
        ("name", "bad_parameter", "name is '', expected at least 1 characters"),
        ("name=abcdef", "bad_parameter", "expected at most 5 characters"),
        ("name=a&limit=0", "bad_parameter", "limit is '0', expected a number from 1 to 1000"),
        ("name=a&limit=1001", "bad_parameter", "from 1 to 1000"),
        ("name=a&limit=", "bad_parameter", "limit is ''"),
        ("name=a&limit=-", "bad_parameter", "limit is '-'"),
        ("name=a&limit=1.0", "bad_parameter", "limit is '1.0'"),
        ("name=a&limit=1e2", "bad_parameter", "limit is '1e2'"),
        ("name=a&limit=+1", "bad_parameter", "limit is ' 1'"),
        ("name=a&limit=1_0", "bad_parameter", "limit is '1_0'"),
        ("name=a&limit=%D9%A3", "bad_parameter", "expected a number"),
        (f"name=a&offset={INT_MAX + 1}", "bad_parameter", "expected a number"),
        ("name=a&offset=" + "0" * DIGITS_MAX + "1", "bad_parameter", "expected a number"),
        ("name=a&offset=" + "9" * 5000, "bad_parameter", "offset is '9999"),
        ("name=a&deep=yes", "bad_parameter", "deep is 'yes', expected true or false"),
        ("name=a&deep", "bad_parameter", "deep is '', expected true or false"),
        ("name=a&form=xml", "bad_parameter", "form is 'xml', expected one of json, text"),
        ("name=%", "bad_encoding", "two hexadecimal digits"),
        ("name=%ff", "bad_encoding", "UTF-8"),
        ("name=a&" * (PARAMETERS_MAX + 1), "too_many_parameters", "more than 100"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused_and_named(query: str, code: str, words: str) -> None:
    got = PARAMETERS.ask("GET", f"/find?{query}")
    assert (got.status, got.code) == (400, code)
    assert words in got.json["error"]["message"]
    assert len(got.body) < 400


def test_a_route_without_parameters_takes_none() -> None:
    assert PARAMETERS.ask("GET", "/none?x=1").code == "unknown_parameter"
    assert PARAMETERS.ask("GET", "/none?").status == 200


# -- bodies --------------------------------------------------------------------------------------------


class Item(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    data: bytes = b""


def store(_gateway: object, request: Request) -> Response:
    items = request.body if isinstance(request.body, list) else [request.body]
    return json([[each.name, each.data.hex()] for each in items])


BODIES = Talk(
    Route("POST", "/items", store, "test", "Keep.", body=Item | list[Item]),
    route("POST", "/bare"),
)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("Content-Type: application/json",),
        ("Content-Type: Application/JSON; charset=UTF-8",),
        ('Content-Type: application/json; charset="utf-8"',),
    ],
)
def test_a_body_is_what_the_route_wants(headers: tuple[str, ...]) -> None:
    one = BODIES.ask("POST", "/items", *headers, body=b'{"name":"a","data":"AQI="}')
    assert one.json == [["a", "0102"]]
    many = BODIES.ask("POST", "/items", *headers, body=b'[{"name":"a"},{"name":"b"}]')
    assert many.json == [["a", ""], ["b", ""]]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (b"", "no_body", "POST /items needs a JSON body"),
        (b"nonsense", "bad_json", "the body is not JSON"),
        (b'{"name":"a"', "bad_json", "the body is not JSON"),
        (b'{"name":"\xff"}', "bad_json", "the body is not JSON"),
        (b"[" * 100_000, "invalid_body", "Expected `object`, got `array` - at `$[0]`"),
        (b"{}", "invalid_body", "missing required field `name`"),
        (b'{"name":1}', "invalid_body", "$.name"),
        (b'{"name":"a","data":"?"}', "invalid_body", "base64"),
        (b'{"name":"a","colour":1}', "invalid_body", "colour"),
        (b'[{"name":"a"},{"name":null}]', "invalid_body", "$[1].name"),
        (b"7", "invalid_body", "Expected"),
    ],
)
def test_a_body_that_does_not_fit_is_refused(body: bytes, code: str, words: str) -> None:
    got = BODIES.ask("POST", "/items", body=body)
    assert (got.status, got.code) == (400, code)
    assert words in got.json["error"]["message"]


def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    talk = Talk(Route("POST", "/any", answer, "test", "Keep.", body=Any))
    got = talk.ask("POST", "/any", body=b"[" * 100_000)
    assert (got.status, got.code) == (400, "bad_json")
    assert got.json["error"]["message"] == "the body is nested too deeply"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", "json"]
)
def test_a_body_of_another_kind_is_415(kind: str) -> None:
    got = BODIES.ask("POST", "/items", f"Content-Type: {kind}", body=b'{"name":"a"}')
    assert (got.status, got.code) == (415, "unsupported_media_type")


def test_a_body_on_a_route_without_one_is_refused_unless_it_is_empty() -> None:
    """As curl sends it with -d '', it does; parameters of a form would be lost."""
    form = "Content-Type: application/x-www-form-urlencoded"
    assert BODIES.ask("POST", "/bare", form, body=b"").status == 200
    assert BODIES.ask("POST", "/bare", body=b"{}").status == 200
    assert BODIES.ask("POST", "/bare", form, body=b"a=b").code == "unexpected_body"


# -- what is accepted ----------------------------------------------------------------------------------

ARROW = "application/vnd.apache.arrow.stream"
FORMS = ("application/json", "application/x-ndjson", ARROW)


@pytest.mark.parametrize(
    ("accept", "found"),
    [
        ("", FORMS[0]),
        ("*/*", FORMS[0]),
        ("application/*", FORMS[0]),
        ("application/x-ndjson", FORMS[1]),
        (f"{ARROW};q=0.9, application/json;q=0.5", ARROW),
        ("text/html,application/xhtml+xml,*/*;q=0.8", FORMS[0]),
        ("application/json;q=0, */*", FORMS[1]),
        ("Application/X-NDJSON ; charset=utf-8", FORMS[1]),
        ("text/html", None),
        ("*/*;q=0", None),
        ("application/json;q=nonsense", None),
        ("application/json;q=7", None),
        (",,;", None),
    ],
)
def test_a_client_gets_the_form_it_likes_best(accept: str, found: str | None) -> None:
    """RFC 9110, 12.5.1."""
    assert preferred(accept, FORMS) == found


def test_who_takes_none_of_the_forms_is_406() -> None:
    got = PARAMETERS.ask("GET", "/none", "Accept: text/html")
    assert (got.status, got.code) == (406, "not_acceptable")
    assert "application/json" in got.json["error"]["message"]
    assert PARAMETERS.ask("GET", "/none", "Accept: text/html, */*;q=0.1").status == 200


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("place=0:42", {"place": "0:42"}),
        ("names=a", {"names": ["a"]}),
        ("names=a,bc,a", {"names": ["a", "bc", "a"]}),
        ("kinds=c%2Ca", {"kinds": ["c", "a"]}),
    ],
)
def test_lists_have_commas_in_between(query: str, values: dict[str, Any]) -> None:
    nothing = {"place": None, "names": None, "kinds": None}
    assert PARAMETERS.ask("GET", f"/several?{query}").json["query"] == {**nothing, **values}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("place=42", "expected what fits its description: a place, such as 0:42"),
        ("place=0:42%0A", "such as 0:42"),
        ("names=", "names is ''"),
        ("names=a,,b", "names is 'a,,b'"),
        ("names=a,B", "names is 'a,B'"),
        ("names=a,bcdef", "at most 4 characters for each"),
        ("names=a,b,c,d", "at most 3"),
        ("kinds=a,d", "some of a, b, c"),
        ("kinds=a,a", "no value twice"),
    ],
)
def test_what_does_not_fit_a_pattern_or_a_list_is_refused(query: str, words: str) -> None:
    got = PARAMETERS.ask("GET", f"/several?{query}")
    assert (got.status, got.code) == (400, "bad_parameter")
    assert words in got.json["error"]["message"]


# -- Kafka's errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 404),
        (ErrorCode.GROUP_ID_NOT_FOUND, 404),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, 400),
        (ErrorCode.TOPIC_ALREADY_EXISTS, 409),
        (ErrorCode.REBALANCE_IN_PROGRESS, 409),
        (ErrorCode.MESSAGE_TOO_LARGE, 413),
        (ErrorCode.RECORD_LIST_TOO_LARGE, 413),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 503),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, 503),
        (ErrorCode.KAFKA_STORAGE_ERROR, 503),
        (ErrorCode.REQUEST_TIMED_OUT, 504),
        (ErrorCode.UNKNOWN_SERVER_ERROR, 500),
    ],
)
def test_a_kafka_error_has_a_status_and_keeps_its_name(code: ErrorCode, status: int) -> None:
    response = error_response(from_kafka(KafkaError("a sentence", code)))
    assert response.status == status
    assert msgspec.json.decode(response.body) == {
        "error": {"code": code.name.lower(), "message": "a sentence"}
    }


def test_every_status_of_an_error_is_one_of_an_error() -> None:
    assert ErrorCode.NONE not in STATUSES
    assert all(400 <= status < 600 for status in STATUSES.values())
