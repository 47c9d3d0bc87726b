"""An identity provider that speaks OpenID Connect on loopback: a form, codes, and id tokens that it signs."""

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from secrets import token_urlsafe
from threading import Thread
from time import time
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from tests.security.tokens import claims, jwks, signed

CLIENT_ID, CLIENT_SECRET = "penstock-console", "a secret+of%the console"

FORM = """<!doctype html><html lang="en"><title>Example login</title><h1>Example login</h1>
<form method="post"><label>Name <input name="user" autofocus></label><button>Log in</button></form></html>"""


class OidcServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = f"http://127.0.0.1:{self.server_port}"
        self.codes: dict[str, dict[str, str]] = {}
        """What each code was asked for with, and by whom."""
        self.claims: dict[str, Any] = {}
        """Claims that replace those of id tokens."""
        self.is_broken = False
        """Whether requests fail, except those for keys."""
        self.asked: list[str] = []
        """Paths that the node asked for."""
        self.now_ms: Callable[[], int] = lambda: int(time() * 1000)
        jwks()  # draws the key before threads want it

    def settings(self) -> dict[str, str]:
        """Of a node whose console uses this provider."""
        return {
            "http.security.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": f"{self.issuer}/keys",
            "sasl.oauthbearer.expected.audience": "kafka",
            "console.oidc.issuer": self.issuer,
            "console.oidc.client.id": CLIENT_ID,
            "console.oidc.client.secret": CLIENT_SECRET,
        }


@contextmanager
def oidc_server() -> Iterator[OidcServer]:
    with OidcServer() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: OidcServer

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, content: bytes, kind: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        server, path = self.server, urlsplit(self.path).path
        server.asked.append(path)
        if path == "/keys":
            self.answer(200, jwks())
        elif server.is_broken:
            self.answer(500, b"{}")
        elif path == "/.well-known/openid-configuration":
            document = {
                "issuer": server.issuer,
                "authorization_endpoint": f"{server.issuer}/authorize",
                "token_endpoint": f"{server.issuer}/token",
                "jwks_uri": f"{server.issuer}/keys",
            }
            self.answer(200, json.dumps(document).encode())
        elif path == "/authorize":
            self.answer(200, FORM.encode(), "text/html")
        else:
            self.answer(404, b"{}")

    def do_POST(self) -> None:
        server, path = self.server, urlsplit(self.path).path
        server.asked.append(path)
        form = self.form(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if server.is_broken:
            self.answer(500, b"{}")
        elif path == "/authorize":
            query = self.form(urlsplit(self.path).query)
            code = token_urlsafe(16)
            server.codes[code] = {**query, "user": form["user"]}
            back = urlencode({"code": code, "state": query["state"], "session_state": "x"})
            if form["user"] == "nobody":
                back = urlencode({"error": "access_denied", "state": query["state"]})
            self.answer(303, b"", Location=f"{query['redirect_uri']}?{back}")
        elif path == "/token":
            self.answer(*self.tokens(form))
        else:
            self.answer(404, b"{}")

    def form(self, text: str) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(text).items()}

    def tokens(self, form: dict[str, str]) -> tuple[int, bytes]:
        """RFC 6749, 4.1.3 and RFC 7636, 4.6: what a provider checks."""
        asked = self.server.codes.pop(form.get("code", ""), None)
        if asked is None:
            return 400, b'{"error": "invalid_grant"}'
        challenge = urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        given = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode().partition(":")
        is_right = (
            (unquote_plus(given[0]), unquote_plus(given[2])) == (CLIENT_ID, CLIENT_SECRET)
            and asked["client_id"] == CLIENT_ID
            and asked["code_challenge"] == challenge
            and asked["code_challenge_method"] == "S256"
            and asked["redirect_uri"] == form["redirect_uri"]
            and form["grant_type"] == "authorization_code"
            and "openid" in asked["scope"].split()
        )
        if not is_right:
            return 401, b'{"error": "invalid_client"}'
        said = claims(
            self.server.now_ms(),
            sub=asked["user"],
            iss=self.server.issuer,
            aud=CLIENT_ID,
            nonce=asked["nonce"],
        )
        said |= self.server.claims
        return 200, json.dumps(
            {"id_token": signed(said), "access_token": "opaque", "token_type": "Bearer"}
        ).encode()
