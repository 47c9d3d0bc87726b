"""The client of schema registries, against a small server that records what it is asked."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from penstock.client import schema_registry
from penstock.client.errors import Unreachable
from penstock.client.schema_registry import RegistryRefused, RegistrySettings, SchemaRegistry
from penstock.registry.schema import AVRO, ResolvedSchema


class Server(ThreadingHTTPServer):
    replies: dict[str, list[tuple[int, Any]]]
    """By path: answers in turn; the last is repeated."""
    asked: list[tuple[str, str | None]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:  # the library's name
        self.server.asked.append((self.path, self.headers["Authorization"]))
        replies = self.server.replies.get(
            self.path, [(404, {"error_code": 40403, "message": "Schema not found"})]
        )
        status, body = replies.pop(0) if len(replies) > 1 else replies[0]
        data = json.dumps(body).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(schema_registry, "BACKOFF_S", 0.0)
    with Server(("127.0.0.1", 0), Handler) as made:
        made.replies, made.asked = {}, []
        thread = Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_a_schema_has_the_texts_that_it_refers_to_and_is_asked_for_once(server: Server) -> None:
    reference = {"name": "Line", "subject": "line", "version": 2}
    server.replies = {
        "/schemas/ids/7": [(200, {"schema": '"Line"', "references": [reference]})],
        "/subjects/line/versions/2?deleted=true": [(200, {"schema": "{}", "id": 3, "version": 2})],
    }
    client = SchemaRegistry(RegistrySettings((server.url,), "Basic xyz"))
    assert client.schema(7) == client.schema(7) == ResolvedSchema(AVRO, '"Line"', (("Line", "{}"),))
    assert server.asked == [
        ("/schemas/ids/7", "Basic xyz"),
        ("/subjects/line/versions/2?deleted=true", "Basic xyz"),
    ]


def test_a_registry_that_fails_for_a_while_is_asked_again(server: Server) -> None:
    server.replies = {"/schemas/ids/7": [(503, {}), (503, {}), (200, {"schema": '"int"'})]}
    assert SchemaRegistry(RegistrySettings((server.url,))).schema(7).text == '"int"'
    assert len(server.asked) == 3


def test_the_next_address_is_asked(server: Server) -> None:
    server.replies = {"/schemas/ids/7": [(200, {"schema": '"int"'})]}
    assert SchemaRegistry(RegistrySettings(("http://127.0.0.1:1", server.url))).schema(7).text == '"int"'


def test_a_refusal_is_final_and_says_why(server: Server) -> None:
    with pytest.raises(RegistryRefused, match="answered 404: Schema not found") as refused:
        SchemaRegistry(RegistrySettings((server.url,))).schema(9)
    assert refused.value.status == 404
    assert len(server.asked) == 1


def test_redirects_are_not_followed(server: Server) -> None:
    """They would carry the log-in to another host."""
    server.replies = {"/schemas/ids/7": [(302, {})]}
    with pytest.raises(RegistryRefused, match="answered 302"):
        SchemaRegistry(RegistrySettings((server.url,), "Basic xyz")).schema(7)
    assert [path for path, _ in server.asked] == ["/schemas/ids/7"]


def test_no_answer_is_an_error(server: Server) -> None:
    with pytest.raises(Unreachable, match=r"the schema registry http://127.0.0.1:1 does not answer"):
        SchemaRegistry(RegistrySettings(("http://127.0.0.1:1",))).schema(7)


def test_the_log_in_is_not_shown() -> None:
    assert "xyz" not in repr(RegistrySettings(("http://a",), "Basic xyz"))
