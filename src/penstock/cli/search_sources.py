"""Where `penstock search` gets its results from: the HTTP API of a node, or a directory."""

import base64
import json
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from penstock.base.extras import install_hint
from penstock.base.ids import Offset
from penstock.cli.output import Refused
from penstock.records import Record
from penstock.search.query import SearchQuery

if TYPE_CHECKING:
    from http.client import HTTPConnection

    from penstock.client.client_config import ClientConfig

ANSWER_S_MAX = 60
"""How long a node may be silent: it reports progress several times a second."""


class SearchRequest(NamedTuple):
    topic: str
    query: SearchQuery
    partition: int | None
    """None for all."""
    start: Offset | None
    stop: Offset | None
    limit: int
    is_committed: bool


class Found(NamedTuple):
    partition: int
    record: Record


class Searched(NamedTuple):
    """Progress, in bytes of the log."""

    searched: int
    total: int


class Ended(NamedTuple):
    """The last event."""

    match_count: int
    is_limited: bool
    error: str | None
    unsearched: tuple[tuple[int, str], ...]
    """Partitions, and why a part of them could not be searched."""
    failed_count: int
    failed_why: str


Events: TypeAlias = Generator[Found | Searched | Ended, None, None]


# -- a node -------------------------------------------------------------------------------------------------


def search_node(address: str, config: "ClientConfig | None", asked: SearchRequest) -> Events:
    """Ask a node. Closing the generator closes the connection, which ends the search."""
    from http.client import HTTPException  # noqa: PLC0415  # not for searches of directories

    connection = _connection(address, config)
    try:
        headers = {"Accept": "application/x-ndjson", **_authorization(config)}
        connection.request("GET", _target(asked), headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            raise Refused(_refusal(response.status, response.read(1 << 16)))
        for line in response:
            yield _event(json.loads(line))
    except (HTTPException, ValueError) as error:
        raise Refused(f"{address} does not answer like the HTTP port of a node: {error}") from error
    except TimeoutError:
        raise Refused(f"{address} did not answer for {ANSWER_S_MAX} s") from None
    except OSError as error:
        raise Refused(
            f"cannot search through {address}: {error.strerror or error}; start a node with `penstock up`, or name "
            "the HTTP port of one with --http"
        ) from error
    finally:
        connection.close()


def _connection(address: str, config: "ClientConfig | None") -> "HTTPConnection":
    from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415

    tls = None if config is None else config.security().tls
    if tls is None and not address.startswith("https://"):
        return HTTPConnection(*_host_and_port(address), timeout=ANSWER_S_MAX)
    from ssl import create_default_context  # noqa: PLC0415

    from penstock.client.tls import client_context  # noqa: PLC0415

    context = create_default_context() if tls is None else client_context(tls)
    return HTTPSConnection(*_host_and_port(address), timeout=ANSWER_S_MAX, context=context)


def _authorization(config: "ClientConfig | None") -> dict[str, str]:
    if config is None:
        return {}
    from penstock.client.security_settings import http_credentials  # noqa: PLC0415

    found = http_credentials(config.properties)
    if found is None:
        return {}
    return {"Authorization": f"Basic {base64.b64encode(':'.join(found).encode()).decode()}"}


def _host_and_port(address: str) -> tuple[str, int]:
    address = address.rstrip("/")
    host, colon, port = address.removeprefix("http://").removeprefix("https://").rpartition(":")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise Refused(f"--http is {address!r}, expected HOST:PORT")
    return host.strip("[]"), int(port)


def _target(asked: SearchRequest) -> str:
    from urllib.parse import quote, urlencode  # noqa: PLC0415

    query = asked.query
    parameters: dict[str, Any] = {
        "contains_hex": None if query.contains is None else query.contains.hex(),
        "regex": query.regex,
        "where": query.where,
        "in": query.field,
        "from": query.since_ms,
        "to": query.before_ms,
        "partition": asked.partition,
        "offset": asked.start,
        "until": asked.stop,
        "limit": asked.limit,
        "isolation": "read_committed" if asked.is_committed else "read_uncommitted",
        "decode": "base64",
    }
    words = {name: value for name, value in parameters.items() if value is not None}
    return f"/topics/{quote(asked.topic, safe='')}/search?{urlencode(words, errors='surrogateescape')}"


def _refusal(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"the node answered with status {status}"


def _event(line: dict[str, Any]) -> Found | Searched | Ended:
    if line["type"] == "result":
        row = line["record"]
        headers = tuple((each["key"], _decoded(each["value"])) for each in row.get("headers", ()))
        record = Record(
            row["offset"], row["timestamp"], _decoded(row["key"]), _decoded(row["value"]), headers
        )
        return Found(row["partition"], record)
    if line["type"] == "progress":
        return Searched(line["bytes"]["searched"], line["bytes"]["total"])
    failed = line.get("failed_records") or {"count": 0, "example": ""}
    return Ended(
        line["results"],
        line["reason"] == "limit",
        line.get("error"),
        tuple((each["partition"], each["reason"]) for each in line.get("not_searched", ())),
        failed["count"],
        failed["example"],
    )


def _decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


# -- a directory --------------------------------------------------------------------------------------------


def search_directory(path: str, asked: SearchRequest) -> Events:
    """Search segment files in this process. A broker may be using them."""
    try:
        from penstock.search.directory import spans_of  # noqa: PLC0415  # needs pyarrow
        from penstock.search.matching import Matcher  # noqa: PLC0415
        from penstock.search.planning import plan  # noqa: PLC0415
        from penstock.search.progress import SearchRun  # noqa: PLC0415
        from penstock.search.scanning import search  # noqa: PLC0415
        from penstock.vfs import RealDisk  # noqa: PLC0415
    except ImportError as error:
        raise Refused(f"a search needs {error.name}: {install_hint('search')}") from error
    query, vfs = asked.query, RealDisk()
    Matcher(query)
    run = SearchRun(asked.limit)
    spans = {}
    for span in spans_of(vfs, path, asked.topic, asked.partition, query, asked.is_committed):
        start = max(span.start, asked.start or 0)
        stop = span.stop if asked.stop is None else min(span.stop, asked.stop)
        spans[span.partition] = span._replace(start=start, stop=max(start, stop))
        run.add(plan(vfs, query, spans[span.partition]))
    yield Searched(0, run.total_bytes)
    while (work := run.take()) is not None:
        run.returned(
            work, search(vfs, query, [(spans[each.partition], each) for each in work.chunks], work.limit)
        )
        for match in run.drain():
            record = Record(match.offset, match.timestamp, match.key, match.value, match.headers)
            yield Found(match.partition, record)
        yield Searched(run.searched_bytes, run.total_bytes)
    yield Ended(
        run.match_count,
        run.is_limited,
        None,
        tuple((each.partition, each.why) for each in run.unsearched),
        run.failed_count,
        run.failed_why,
    )
