"""Rejects requests that a web page of another site makes through a browser on a machine that can reach this server.

    page of            requests                     headers                      error
    evil.example       http://127.0.0.1:8080        Origin is not Host           cross_origin
    evil.example       http://evil.example:8080,    Origin is Host, or none,     unknown_host
                       with address 127.0.0.1       and Host is not a known name
    evil.example       <img>, <script>, <iframe>    Sec-Fetch-Site is another    cross_origin

The second is DNS rebinding: the owner of a domain lets it resolve to this machine, and the browser then takes page and
server for one site. It needs a name that can be registered: not an IP address, not `localhost`, and not another name
without a dot, which is in no public DNS.

A browser is recognised by headers that a page cannot omit: `Origin` is in all requests except simple reads,
`Sec-Fetch-Site` in requests to servers with TLS and to this machine, `Accept-Language` in all. Programs rarely send
these, so they may use a proxy on this machine under any name.
"""

from collections.abc import Collection, Mapping
from typing import Final

from penstock.gateway.http.protocol.messages import HttpError

ANY_HOST = "*"

_OTHER_SITES: Final = ("cross-site", "same-site")
"""Values of `Sec-Fetch-Site` for requests of pages that are not of this server."""
_LINK: Final = "document"
"""The `Sec-Fetch-Dest` of a link that a person follows."""


def is_browser(headers: Mapping[str, str]) -> bool:
    return "origin" in headers or "accept-language" in headers or "sec-fetch-site" in headers


def check(headers: Mapping[str, str], hosts: Collection[str], *, is_local: bool) -> None:
    """Raise an `HttpError` for a request of another site's page. `hosts` are further names of this server
    (`http.hosts`): if there are any, other registrable names are rejected. Otherwise they are rejected only on a
    connection to the loopback address (`is_local`)."""
    host = headers.get("host", "").lower()
    origin = headers.get("origin")
    is_other_origin = origin is not None and origin.partition("://")[2].lower() != host
    is_embedded = (
        headers.get("sec-fetch-site") in _OTHER_SITES and headers.get("sec-fetch-dest") != _LINK
    )  # Simple reads have no Origin. The browser adds the user's password to them too.
    if is_other_origin or is_embedded:
        raise HttpError(
            403, "cross_origin", "cross-origin request: web pages of other sites may not use this API"
        )
    if (hosts or is_local) and ANY_HOST not in hosts:
        name = name_of(host)
        if not _is_unregistrable(name) and name not in hosts:
            raise HttpError(
                403,
                "unknown_host",
                "the Host header is not a known name of this server. Add it to http.hosts.",
            )


def name_of(host: str) -> str:
    """The host name, without the port and a trailing dot."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].removesuffix(".")


def _is_unregistrable(name: str) -> bool:
    """Whether the name cannot be registered: an IP address, or a name that is in no public DNS."""
    return (
        "." not in name
        or name.startswith("[")
        or name.replace(".", "").isdecimal()
        or name.endswith(".localhost")
    )
