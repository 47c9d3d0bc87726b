"""The target of a request, cut and decoded: `/topics/a%20b?limit=5` (RFC 3986, RFC 9112 section 3.2).

What is not encoded as it should be is refused instead of guessed at: a name that is read in two ways is two names.
"""

from collections.abc import Iterator

from penstock.gateway.http.protocol.messages import HttpError

PARAMETERS_MAX = 100
"""More than any route takes, many times over."""

_BYTES = {
    f"{high}{low}".encode(): bytes([int(high + low, 16)])
    for high in "0123456789abcdefABCDEF"
    for low in "0123456789abcdefABCDEF"
}


def split(target: bytes) -> tuple[bytes, bytes]:
    """The path and what is behind its `?`."""
    if not target.startswith(b"/"):
        target = _from_absolute(target)
    path, _, query = target.partition(b"?")
    return path, query.partition(b"#")[0]


def _from_absolute(target: bytes) -> bytes:
    """What is sent to a proxy, which a server takes as well: `http://host/path`."""
    scheme, sign, rest = target.partition(b"://")
    if not sign or scheme.lower() not in (b"http", b"https"):
        raise HttpError(400, "bad_target", "the request's target is no path: it must begin with /")
    # The path begins at the first slash, unless the query does before it.
    host, slash, path = rest.partition(b"/")
    if b"?" in host:
        return b"/?" + rest.partition(b"?")[2]
    return slash + path if slash else b"/"


def segment(raw: bytes) -> str:
    """A part of a path, as text."""
    if b"%" in raw:
        raw = _unquote(raw, "the path")
    return _text(raw, "the path")


def parameters(query: bytes) -> Iterator[tuple[str, str]]:
    """Names and values, in their order, as forms encode them: a plus is a space."""
    if not query:
        return
    words = query.split(b"&")
    if len(words) > PARAMETERS_MAX:
        raise HttpError(400, "too_many_parameters", f"there are more than {PARAMETERS_MAX} parameters")
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
            raise HttpError(400, "bad_encoding", f"{what} has a % that two hexadecimal digits do not follow")
        found += (byte, each[2:])
    return b"".join(found)


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise HttpError(400, "bad_encoding", f"{what} is not text in UTF-8") from None
