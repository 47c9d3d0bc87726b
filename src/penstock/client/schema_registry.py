"""A client of schema registries with Confluent's REST API.

Schemas never change, so those that were found are remembered. A registry that does not answer, or answers 5xx, is
asked again, at the next of its addresses, for `TRIES` rounds. Redirects are not followed, since they would carry the
log-in to another host.
"""

import json
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from penstock.client.errors import ClientError, Unreachable
from penstock.client.security import ClientTls
from penstock.registry.errors import shown
from penstock.registry.schema import AVRO, ResolvedSchema

if TYPE_CHECKING:
    from urllib.request import OpenerDirector, Request

REPLY_BYTES_MAX: Final = 16 << 20
TRIES: Final = 4
BACKOFF_S: Final = 0.25
REFERENCES_MAX: Final = 1_000
REMEMBERED_MAX: Final = 4_096
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"


class RegistryRefused(ClientError):
    """The registry answered with an error; `status` is that of HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class RegistrySettings:
    urls: tuple[str, ...]
    authorization: str | None = field(default=None, repr=False)
    """The header Authorization."""
    tls: ClientTls | None = None
    timeout_s: float = 10.0


class RegisteredSchema(NamedTuple):
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    schema: ResolvedSchema


class SchemaRegistry:
    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._found: dict[int | str, ResolvedSchema] = {}

    def schema(self, key: int | str) -> ResolvedSchema:
        """The schema with an id or guid. Raises RegistryRefused with status 404 if there is none, and Unreachable."""
        found = self._found.get(key)
        if found is None:
            path = f"/schemas/ids/{key}" if isinstance(key, int) else f"/schemas/guids/{key}"
            found = self._resolved(self._get(path))
            if len(self._found) >= REMEMBERED_MAX:
                self._found.clear()
            self._found[key] = found
        return found

    def version(self, subject: str, version: str = "latest") -> RegisteredSchema:
        reply = self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        return RegisteredSchema(subject, int(reply["version"]), int(reply["id"]), self._resolved(reply))

    def register(self, subject: str, schema: ResolvedSchema) -> int:
        """Register a schema without references; returns its id."""
        body = {"schema": schema.text, "schemaType": schema.type}
        return int(self._ask(f"/subjects/{quote(subject, safe='')}/versions", body)["id"])

    # -- references ------------------------------------------------------------------------------------

    def _resolved(self, reply: dict[str, Any]) -> ResolvedSchema:
        texts: dict[str, str] = {}
        self._collect(reply, texts, set())
        return ResolvedSchema(reply.get("schemaType") or AVRO, reply["schema"], tuple(texts.items()))

    def _collect(self, reply: dict[str, Any], texts: dict[str, str], seen: set[tuple[str, int]]) -> None:
        for each in reply.get("references") or ():
            place = (each["subject"], each["version"])
            if place in seen:
                continue
            if len(seen) >= REFERENCES_MAX:
                raise ClientError(f"a schema refers to more than {REFERENCES_MAX} others")
            seen.add(place)
            target = self._get(f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}?deleted=true")
            self._collect(target, texts, seen)
            texts[each["name"]] = target["schema"]

    # -- requests --------------------------------------------------------------------------------------

    def _get(self, path: str) -> dict[str, Any]:
        return self._ask(path, None)

    def _ask(self, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        from urllib.request import Request  # noqa: PLC0415  # few clients ask a registry

        headers = {"Accept": f"{_CONTENT}, application/json", "Content-Type": _CONTENT}
        if self._settings.authorization is not None:
            headers["Authorization"] = self._settings.authorization
        data = None if body is None else json.dumps(body).encode()
        error: ClientError = Unreachable("no registry is named")
        for attempt in range(TRIES):
            for url in self._settings.urls:
                try:
                    return self._send(Request(url.rstrip("/") + path, data, headers), url)
                except Unreachable as problem:
                    error = problem
            if attempt + 1 < TRIES:
                time.sleep(BACKOFF_S * 2**attempt)
        raise error

    def _send(self, request: "Request", url: str) -> dict[str, Any]:
        from http.client import HTTPException  # noqa: PLC0415
        from urllib.error import HTTPError  # noqa: PLC0415

        try:
            with self._opener().open(request, timeout=self._settings.timeout_s) as response:
                reply = json.loads(response.read(REPLY_BYTES_MAX))
        except HTTPError as error:
            why = _message(error)
            error.close()
            what = f"the schema registry {url} answered {error.code}: {why}"
            if error.code >= 500 or error.code == 429:
                raise Unreachable(what) from None
            raise RegistryRefused(what, error.code) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(f"the schema registry {url} does not answer: {reason}") from None
        except ValueError:
            raise ClientError(f"the schema registry {url} did not answer with JSON") from None
        if not isinstance(reply, dict):
            raise ClientError(f"the schema registry {url} did not answer with an object of JSON")
        return reply

    def _opener(self) -> "OpenerDirector":
        from penstock.client.plain_opener import plain_opener  # noqa: PLC0415

        return plain_opener(self._settings.tls)


def _message(error: Any) -> str:
    try:
        found = json.loads(error.read(1 << 16)).get("message")
    except (OSError, ValueError, AttributeError):
        found = None
    return shown(found or error.reason)


def check_url(url: str) -> bool:
    return re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", url) is not None
