"""The files of the console, read once and kept compressed.

    /console/                       index.html, which names the release below
    /console/assets/RELEASE/...     all other files; RELEASE is a hash of all of them

Modules import each other by relative paths, so all that a page loads is of one release. A path with a release never
changes its content: browsers keep it for a year and do not ask again. index.html is small, and asked for each time
(`no-cache`, with an ETag): a page that is loaded after an upgrade is the new one as a whole.

Only names that were found when the files were read are served, so no path leads to another file.
"""

import gzip
import hashlib
import posixpath
import re
from collections.abc import Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

INDEX: Final = "index.html"
RELEASE_MARK: Final = b"{release}"
"""In index.html: where the name of the release is put."""
PRELOAD_MARK: Final = b"{preload}\n"
"""In index.html: where links to all modules that the first one imports are put, so that the browser asks for all of
them at once instead of one level of imports after the other."""

FIRST: Final = "app.js"
_IMPORT: Final = re.compile(rb'^(?:import|export)\b[^;]*?\bfrom\s+"(\.[^"]+)"', re.MULTILINE)

TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".woff2": "font/woff2",
}
"""Content types by the end of a name; other files are not served."""

COMPRESSED: Final = frozenset({".css", ".html", ".js", ".json", ".svg"})


class Asset(NamedTuple):
    content_type: str
    body: bytes
    gzipped: bytes
    """Empty if compression gains nothing."""
    tag: str
    """Strong ETag, without quotes."""


class Assets(NamedTuple):
    release: str
    """A hash of all files."""
    document: Asset
    by_name: dict[str, Asset]
    """By path below `web/`, such as `lib/dom.js`."""


def load() -> Assets:
    """Read all files. Takes some 50 ms: run it beside the event loop."""
    found = dict(sorted(_walk(files("penstock.console") / "web", "")))
    index = found.pop(INDEX)
    whole = hashlib.sha256(index)
    for name, body in found.items():
        whole.update(b"%s\0%d\0" % (name.encode(), len(body)))
        whole.update(body)
    release = whole.hexdigest()[:16]
    links = [
        b'<link rel="modulepreload" href="/console/assets/{release}/%s">\n' % name.encode()
        for name in imported(found, FIRST)
    ]
    document = index.replace(PRELOAD_MARK, b"".join(links)).replace(RELEASE_MARK, release.encode())
    return Assets(
        release,
        _asset(INDEX, document),
        {name: _asset(name, body) for name, body in found.items()},
    )


def imported(files: Mapping[str, bytes], first: str) -> list[str]:
    """Names of all modules that a module imports, and they in turn."""
    names = [first]
    for name in names:
        for path in _IMPORT.findall(files[name]):
            other = posixpath.normpath(posixpath.join(posixpath.dirname(name), path.decode()))
            if other not in names:
                names.append(other)
    return names[1:]


def _walk(directory: Traversable, path: str) -> list[tuple[str, bytes]]:
    found = []
    for each in directory.iterdir():
        if each.is_dir():
            found += _walk(each, f"{path}{each.name}/")
        elif _end(each.name) in TYPES:
            found.append((path + each.name, each.read_bytes()))
    return found


def _asset(name: str, body: bytes) -> Asset:
    end = _end(name)
    gzipped = gzip.compress(body, 9, mtime=0) if end in COMPRESSED else b""
    if len(gzipped) >= len(body):
        gzipped = b""
    return Asset(TYPES[end], body, gzipped, hashlib.sha256(body).hexdigest()[:32])


def _end(name: str) -> str:
    _, dot, end = name.rpartition(".")
    return dot + end
