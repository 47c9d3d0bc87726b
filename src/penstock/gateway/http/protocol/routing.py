"""Routing: decodes the target of a request, finds its route, and validates parameters and body.

    method, target --> route --> query, body, content types --> handle(gateway, request)
         404, 405                 400, 406, 413, 415

A handler sees only requests that fit its route's description: parameters have their types and are within bounds, the
body has its type. `/openapi.json` is made from the same description. A target with a wrong percent-encoding is
rejected (RFC 3986, RFC 9112 section 3.2).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from penstock.gateway.http.protocol.messages import JSON, Dialect, Handle, HttpError, Query, Request, Route
from penstock.gateway.http.protocol.negotiation import preferred
from penstock.gateway.shared.access import TOPIC
from penstock.handlers.support.context import Session
from penstock.metadata.acls import Operation

PARAMETERS_MAX = 100
"""Limit of a query's parameters; far above what any route has."""

_BYTES = {
    f"{high}{low}".encode(): bytes([int(high + low, 16)])
    for high in "0123456789abcdefABCDEF"
    for low in "0123456789abcdefABCDEF"
}


def split_target(target: bytes) -> tuple[bytes, bytes]:
    """The path and the query of a target."""
    if not target.startswith(b"/"):
        target = _from_absolute(target)
    path, _, query = target.partition(b"?")
    return path, query.partition(b"#")[0]


def _from_absolute(target: bytes) -> bytes:
    """The form for proxies, which servers must accept too: `http://host/path`."""
    scheme, sign, rest = target.partition(b"://")
    if not sign or scheme.lower() not in (b"http", b"https"):
        raise HttpError(400, "bad_target", "the request target is not a path: it must begin with /")
    # The path begins at the first slash, unless the query begins before it.
    host, slash, path = rest.partition(b"/")
    if b"?" in host:
        return b"/?" + rest.partition(b"?")[2]
    return slash + path if slash else b"/"


def path_segment(raw: bytes) -> str:
    """A part of a path, as text."""
    if b"%" in raw:
        raw = _unquote(raw, "the path")
    return _text(raw, "the path")


def query_parameters(query: bytes) -> Iterator[tuple[str, str]]:
    """Names and values of a query, in order, in the encoding of forms: a plus is a space."""
    if not query:
        return
    words = query.split(b"&")
    if len(words) > PARAMETERS_MAX:
        raise HttpError(400, "too_many_parameters", f"more than {PARAMETERS_MAX} parameters")
    for word in words:
        if word:
            name, _, value = word.partition(b"=")
            yield _parameter(name), _parameter(value)


def _parameter(raw: bytes) -> str:
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    if b"%" in raw:
        raw = _unquote(raw, "a parameter")
    return _text(raw, "a parameter")


def _unquote(raw: bytes, what: str) -> bytes:
    first, *rest = raw.split(b"%")
    found = [first]
    for each in rest:
        byte = _BYTES.get(each[:2])
        if byte is None:
            raise HttpError(400, "bad_encoding", f"{what} has a % without two hexadecimal digits after it")
        found += (byte, each[2:])
    return b"".join(found)


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise HttpError(400, "bad_encoding", f"{what} is not text in UTF-8") from None


_TRUNCATED = "Input data was truncated"

_HALF_AT_END = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}.{0,9}\Z", re.DOTALL)
"""The first half of a surrogate pair near the end of a body: the decoder expects the second half there."""


def not_json(body: bytes, error: Exception) -> str:
    """The error for a body that is not JSON."""
    if str(error) == _TRUNCATED:
        half = _HALF_AT_END.search(body, max(0, len(body) - 16))
        if half is not None:
            return f"{half[0][:6].decode()} is the first half of a surrogate pair, and the second does not follow"
    return str(error)


def invalid_body(error: Exception) -> str:
    """The error for a body that does not match the route's type."""
    return (
        str(error)
        .replace("`bytes | null`", "base64 text or null")
        .replace("`bytes`", "base64 text")
        .replace(
            "Invalid base64 encoded string", "Expected base64 text, with `=` to a multiple of four letters"
        )
    )


INT_MIN, INT_MAX = -(2**63), 2**63 - 1
"""Limits of a number in a query: 64 bits, as offsets and timestamps."""

LISTED_MAX = 1_000
"""Length of a list without a limit of its own."""

DIGITS_MAX = 20
"""Digits of a number; longer ones are rejected unread."""

SHOWN_MAX = 64
"""Characters of a client's input that an error message repeats."""

_NOTHING: Final[Mapping[str, Any]] = {}
REST: Final = "...}"
"""Ends the parameter of a path that takes the rest of the path."""
_GOT_FLOAT: Final = "got `float`"
"""msgspec's message."""


class BoundRoute:
    """A route with its decoder and defaults, prepared before the first request."""

    def __init__(self, route: Route) -> None:
        self.route = route
        self.handle: Handle = route.handle
        needs = () if route.rule is None else (*route.rule.needs, *route.rule.shows)
        self.reads_records = route.method == "GET" and any(
            each[:2] == (Operation.READ, TOPIC) for each in needs
        )
        self.writes_records = any(each[:2] == (Operation.WRITE, TOPIC) for each in needs)
        """For quotas: whether it returns or writes records."""
        self._parameters = {each.name: each for each in route.query}
        self._defaults = {each.name: each.default for each in route.query}
        self._required = tuple(each.name for each in route.query if each.is_required)
        self._content_types = tuple(route.content_types)
        self._dialect = route.dialect
        self._decode = None if route.body is None else msgspec.json.Decoder(route.body).decode

    def request(
        self,
        session: Session,
        path: Mapping[str, str],
        query: bytes,
        headers: Mapping[str, str],
        body: bytes,
    ) -> Request:
        """The validated request. Raises an `HttpError` with the reason if it is invalid."""
        accept = headers.get("accept") if self._dialect is None else None
        if accept is not None and accept != "*/*" and preferred(accept, self._content_types) is None:
            raise HttpError(
                406,
                "not_acceptable",
                f"the response can be {' or '.join(self._content_types)}, which Accept excludes",
            )
        is_read = (query or self._required) and not self.route.ignores_query
        values = self._query(query) if is_read else self._defaults
        if self._decode is None:
            return Request(session, path, values, headers, None)
        content_type = headers.get("content-type", JSON)
        if content_type != JSON:
            _check_json(content_type, () if self._dialect is None else self._dialect.media_types)
        if not body:
            raise HttpError(400, "no_body", f"{self.route.method} {self.route.path} needs a JSON body")
        try:
            decoded = self._decode(body)
        except msgspec.ValidationError as error:
            decoded = self._with_whole_floats(body, error)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise HttpError(400, "bad_json", f"the body is not JSON: {not_json(body, error)}") from None
        except RecursionError:
            raise HttpError(400, "bad_json", "the body is nested too deeply") from None
        return Request(session, path, values, headers, decoded)

    def _with_whole_floats(self, body: bytes, error: msgspec.ValidationError) -> Any:
        """The body if its only errors are integers written as 3.0: JSON Schema allows them, and some languages have no
        other form."""
        try:
            if _GOT_FLOAT in str(error):
                return msgspec.convert(_whole(msgspec.json.decode(body)), self.route.body)
        except msgspec.ValidationError as other:
            error = other
        except RecursionError:
            raise HttpError(400, "bad_json", "the body is nested too deeply") from None
        raise HttpError(400, "invalid_body", f"invalid body: {invalid_body(error)}") from None

    def _query(self, query: bytes) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, text in query_parameters(query):
            parameter = self._parameters.get(name)
            if parameter is None:
                if self._dialect is not None:
                    continue
                raise HttpError(400, "unknown_parameter", self._unknown(name))
            if name in values:
                raise HttpError(400, "repeated_parameter", f"the parameter {name} is given twice")
            values[name] = _value(parameter, text)
        for name in self._required:
            if name not in values:
                raise HttpError(400, "missing_parameter", f"the parameter {name} is missing")
        return {**self._defaults, **values}

    def _unknown(self, name: str) -> str:
        known = ", ".join(self._parameters)
        return f"unknown parameter {shown(name)}; " + (
            f"there are {known}" if known else f"{self.route.path} takes none"
        )


class _Segment:
    """A node in the tree of paths that have parameters."""

    def __init__(self) -> None:
        self.named: dict[bytes, _Segment] = {}
        self.any: _Segment | None = None
        self.rest: _Segment | None = None
        """Takes all that is left of a path."""
        self.entries: dict[str, BoundRoute] = {}
        self.names: tuple[str, ...] = ()
        """Names of the parameters in the path to this node."""


class Router:
    def __init__(self, routes: Sequence[Route], dialect: Dialect | None = None) -> None:
        """`dialect` is that of errors for paths without a route."""
        self.routes = tuple(routes)
        self.dialect = dialect
        self._fixed: dict[bytes, dict[str, BoundRoute]] = {}
        """Routes of paths without parameters, by the path as sent: most calls have one."""
        self._root = _Segment()
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        if "{" in route.path:
            entries = self._segment(route).entries
        else:
            entries = self._fixed.setdefault(route.path.encode(), {})
        if route.method in entries:
            raise ValueError(f"{route.method} {route.path} is defined twice")
        entry = BoundRoute(route)
        entries[route.method] = entry
        if route.method == "GET":
            entries["HEAD"] = entry

    def _segment(self, route: Route) -> _Segment:
        at, names = self._root, []
        for part in route.path.split("/")[1:]:
            if part.endswith(REST):
                names.append(part[1 : -len(REST)])
                at.rest = at.rest or _Segment()
                at = at.rest
            elif part.startswith("{"):
                names.append(part[1:-1])
                at.any = at.any or _Segment()
                at = at.any
            else:
                at = at.named.setdefault(part.encode(), _Segment())
        if at.entries and at.names != tuple(names):
            raise ValueError(f"{route.path} has other parameter names than another route of this path")
        at.names = tuple(names)
        return at

    def find(self, method: str, path: bytes) -> tuple[BoundRoute, Mapping[str, str]]:
        """The route of a path, and the path's parameters."""
        entries = self._fixed.get(path)
        parameters = _NOTHING
        if entries is None:
            entries, parameters = self._search(path)
        entry = entries.get(method)
        if entry is None:
            allowed = ", ".join(sorted(entries))
            message = f"{shown(method)} is not allowed for this path, only {allowed}"
            raise HttpError(405, "method_not_allowed", message, (("Allow", allowed),))
        return entry, parameters

    def _search(self, path: bytes) -> tuple[dict[str, BoundRoute], Mapping[str, str]]:
        parts = path.split(b"/")[1:]
        found = _match(self._root, parts, 0)
        if found is not None:
            segment, values = found
            return segment.entries, dict(zip(segment.names, map(path_segment, values), strict=True))
        # Characters may be percent-encoded without need. It is the same path, unless it is a slash.
        segments = [path_segment(each) for each in parts]
        entries = self._fixed.get(("/" + "/".join(segments)).encode())
        if entries is None or any("/" in each for each in segments):
            raise HttpError(
                404, "no_such_path", f"no such path: {shown('/' + '/'.join(segments))}; see /docs"
            )
        return entries, _NOTHING


def _match(at: _Segment, parts: list[bytes], index: int) -> tuple[_Segment, list[bytes]] | None:
    """The node of a path, and the values of its parameters. Literal segments come before parameters; trying both costs
    little, because routes are few and short."""
    if index == len(parts):
        return (at, []) if at.entries else None
    part = parts[index]
    named = at.named.get(part)
    if named is not None:
        found = _match(named, parts, index + 1)
        if found is not None:
            return found
    if at.any is not None and part:
        found = _match(at.any, parts, index + 1)
        if found is not None:
            return found[0], [part, *found[1]]
    if at.rest is not None:
        return at.rest, [b"/".join(parts[index:])]
    return None


# -- values --------------------------------------------------------------------------------------------


def _value(parameter: Query, text: str) -> Any:
    if parameter.type is int:
        return _number(parameter, text)
    if parameter.type is bool:
        if text not in ("true", "false"):
            raise _bad(parameter, text, "true or false")
        return text == "true"
    if parameter.type is not str:
        return _list(parameter, text)
    if parameter.one_of and text not in parameter.one_of:
        raise _bad(parameter, text, f"one of {', '.join(parameter.one_of)}")
    if parameter.min is not None and len(text) < parameter.min:
        raise _bad(parameter, text, f"at least {parameter.min} characters")
    if parameter.max is not None and len(text) > parameter.max:
        raise _bad(parameter, text, f"at most {parameter.max} characters")
    if parameter.pattern and not re.fullmatch(parameter.pattern, text):
        raise _bad(parameter, text, _like(parameter))
    return text


def _list(parameter: Query, text: str) -> tuple[str, ...]:
    count_max = parameter.max or LISTED_MAX
    found = tuple(text.split(",", count_max))
    if len(found) > count_max:
        raise _bad(parameter, text, f"at most {count_max} separated by commas")
    for each in found:
        if parameter.one_of and each not in parameter.one_of:
            raise _bad(parameter, text, f"some of {', '.join(parameter.one_of)} separated by commas")
        if parameter.each_max is not None and len(each) > parameter.each_max:
            raise _bad(parameter, text, f"at most {parameter.each_max} characters for each")
        if parameter.pattern and not re.fullmatch(parameter.pattern, each):
            raise _bad(parameter, text, _like(parameter))
    if parameter.is_unique and len(set(found)) < len(found):
        raise _bad(parameter, text, "no value twice")
    return found


def _like(parameter: Query) -> str:
    what = parameter.what.strip()
    return f"what fits its description: {what[0].lower()}{what[1:].removesuffix('.')}"


def _number(parameter: Query, text: str) -> int:
    low, high = bounds(parameter)
    digits = text[1:] if text.startswith("-") else text
    if digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX:
        number = int(text)
        if low <= number <= high:
            return number
    raise _bad(parameter, text, f"a number from {low} to {high}")


def bounds(parameter: Query) -> tuple[int, int]:
    """The limits of a number."""
    return (
        INT_MIN if parameter.min is None else parameter.min,
        INT_MAX if parameter.max is None else parameter.max,
    )


def _bad(parameter: Query, text: str, expected: str) -> HttpError:
    return HttpError(400, "bad_parameter", f"{parameter.name} is {shown(text)}, expected {expected}")


def _whole(value: Any) -> Any:
    """Replace each number without a fraction, such as 3.0, by an integer."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_whole(each) for each in value]
    return value


def _check_json(content_type: str, more: Sequence[str] = ()) -> None:
    kind, _, parameters = content_type.partition(";")
    kind = kind.strip().lower()
    charset = parameters.strip().lower().removeprefix("charset=").strip('"')
    if kind not in (JSON, "", *more) or charset not in ("", "utf-8", "utf8"):
        raise HttpError(415, "unsupported_media_type", f"the body is {shown(content_type)}, expected {JSON}")


def shown(text: str) -> str:
    """A client's input, shortened for an error message."""
    return repr(text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "...")
