"""Java's properties files, as java.util.Properties reads them."""

import re
from collections.abc import Iterator

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> Iterator[tuple[int, str, str]]:
    """The line, the name and the value of each property. Where a name is repeated, its last value counts."""
    for number, line in _logical_lines(text):
        name, value = _split_property(line)
        yield number, name, value.strip()


def property_line(name: str, value: str) -> str:
    """A line that `parse_properties` reads as this name and value. Names are Kafka's, which need no escapes."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{name}={escaped}\n"


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank lines; a line that ends in a backslash continues on the next."""
    joined, first = "", 0
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = raw.lstrip(" \t\f")
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        joined += line
        if (len(joined) - len(joined.rstrip("\\"))) % 2:
            joined = joined[:-1]
            if joined:
                continue
        if joined:
            yield first, joined
        joined = ""
    if joined:
        yield first, joined


def _split_property(line: str) -> tuple[str, str]:
    """Split at the first =, : or blank that is not escaped."""
    matched = re.match(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", line, re.DOTALL)
    assert matched is not None
    return _unescape(matched[1]), _unescape(matched[2])


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        what = found[1]
        return chr(int(what[1:], 16)) if len(what) == 5 else _ESCAPES.get(what, what)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text, flags=re.DOTALL)
