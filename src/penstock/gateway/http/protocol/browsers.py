"""What a web page may do here with the reach of whoever looks at it: nothing, unless this server gave it out.

    the page is of     it asks for                  what the browser says        refused as
    evil.example       http://127.0.0.1:8080        Origin is not Host           cross_origin
    evil.example       http://evil.example:8080,    Origin is Host, or none,     unknown_host
                       whose address is 127.0.0.1   and Host is no name of ours

The second is DNS rebinding: whoever owns a name may have it point to this machine, and to a browser the page and the
server are then one site. Only names that somebody may own can be used for it: not numbers, not `localhost`, nor any
other name without a dot, which no public name server has.

A browser is known by headers that no page can leave out. `Origin` goes with all but plain reading; `Sec-Fetch-Site`
only to servers with TLS and to this machine; `Accept-Language` goes always. Programs hardly send any of them, so that
they may come through a proxy on this machine under whatever name it has.
"""

from collections.abc import Collection, Mapping

from penstock.gateway.http.protocol.messages import HttpError

ANY_HOST = "*"


def is_browser(headers: Mapping[str, str]) -> bool:
    return "origin" in headers or "accept-language" in headers or "sec-fetch-site" in headers


def check(headers: Mapping[str, str], hosts: Collection[str], *, is_local: bool) -> None:
    """Raise an `HttpError` if another's page asks. `hosts` are names that this server is known by besides; where there
    are any, all others are refused, and otherwise only who dialled this machine by the address that it has for
    itself (`is_local`) needs a name that nobody else can own."""
    host = headers.get("host", "").lower()
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != host:
        raise HttpError(
            403, "cross_origin", "cross-origin request: web pages of other sites may not use this API"
        )
    if (hosts or is_local) and ANY_HOST not in hosts:
        name = name_of(host)
        if not _is_nobodys(name) and name not in hosts:
            raise HttpError(
                403,
                "unknown_host",
                "the Host header is not a known name of this server. Add it to http.hosts.",
            )


def name_of(host: str) -> str:
    """Without the port, and without the dot that may end a name."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].removesuffix(".")


def _is_nobodys(name: str) -> bool:
    """It is an address, or a name that stands in no public name server."""
    return (
        "." not in name
        or name.startswith("[")
        or name.replace(".", "").isdecimal()
        or name.endswith(".localhost")
    )
