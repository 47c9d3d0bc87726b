"""Requests of the console: its header, its cookie, and what keeps other web sites from using the cookie.

The page sends `X-Penstock-Console: 1` with each call. A page of another site cannot: the browser would first ask this
server whether it may (CORS), and is not answered. So a request that is authenticated by the cookie changes something
only with that header. Beside it, the cookie is `SameSite=Strict`, and `browsers.check` refuses requests that say they
come from another site.

Browsers share cookies between the ports of a host. The port is in the cookie's name, so that nodes on one machine do
not overwrite each other's.
"""

from collections.abc import Mapping
from typing import Final

from penstock.gateway.http.protocol.messages import HttpError, Route

HEADER: Final = "x-penstock-console"

CHALLENGE: Final = ("WWW-Authenticate", 'Session realm="penstock"')
"""Of a 401 for the page. The browser would ask for a password itself if it were Basic."""

_SECURE: Final = "__Host-"
"""A prefix with which browsers accept a cookie only over TLS and for this host alone."""

_OIDC: Final = "penstock-oidc"
_SESSION: Final = "penstock-session"


def is_from_page(headers: Mapping[str, str]) -> bool:
    """Whether a script of a page sends the request: it handles a 401 itself."""
    return HEADER in headers or headers.get("sec-fetch-dest") == "empty"


def check_header(headers: Mapping[str, str]) -> None:
    """Raise unless the request has the console's header."""
    if HEADER not in headers:
        raise HttpError(
            403,
            "console_header_missing",
            "a request with a session cookie changes something only with the header X-Penstock-Console: 1",
        )


def check_change(headers: Mapping[str, str], route: Route, *, is_read_only: bool) -> None:
    """Raise if a request of the console, other than GET, is not from its page, or the console may change nothing."""
    check_header(headers)
    if is_read_only and route.changes:
        raise HttpError(403, "console_read_only", "the console is read-only here: console.mode is read-only")


class ConsoleCookies:
    """Cookies at one HTTP port."""

    def __init__(self, *, has_tls: bool) -> None:
        self._has_tls = has_tls

    def session(self, headers: Mapping[str, str]) -> str | None:
        """The value of the session's cookie. Over TLS only one that was set over TLS counts."""
        return self._found(headers, _SESSION)

    def oidc(self, headers: Mapping[str, str]) -> str | None:
        return self._found(headers, _OIDC)

    def address(self, headers: Mapping[str, str]) -> str:
        """This server's, as the browser has reached it."""
        return f"{'https' if self._has_tls else 'http'}://{headers.get('host', '')}"

    def set_session(
        self, headers: Mapping[str, str], value: str, lasts_ms: int, *, is_secure: bool = False
    ) -> tuple[str, str]:
        """The header that makes the browser keep the session. `is_secure` if it is known that the browser uses TLS."""
        return self._set(headers, _SESSION, value, lasts_ms, "Strict", is_secure=is_secure)

    def set_oidc(self, headers: Mapping[str, str], value: str, lasts_ms: int) -> tuple[str, str]:
        """`Lax`, since the identity provider sends the browser back here: that is a link of another site."""
        return self._set(headers, _OIDC, value, lasts_ms, "Lax")

    def _found(self, headers: Mapping[str, str], name: str) -> str | None:
        given = headers.get("cookie")
        if given is None:
            return None
        name += _port(headers)
        found = {
            key.strip(): value.strip() for key, _, value in (each.partition("=") for each in given.split(";"))
        }
        secure = found.get(_SECURE + name)
        return secure if secure is not None or self._has_tls else found.get(name)

    def _set(
        self,
        headers: Mapping[str, str],
        name: str,
        value: str,
        lasts_ms: int,
        same_site: str,
        *,
        is_secure: bool = False,
    ) -> tuple[str, str]:
        is_secure = (
            is_secure or self._has_tls or headers.get("origin", "").startswith("https://")
        )  # of a proxy
        prefix, secure = (_SECURE, "; Secure") if is_secure else ("", "")
        return (
            "Set-Cookie",
            f"{prefix}{name}{_port(headers)}={value}; Path=/; Max-Age={max(lasts_ms // 1000, 0)}; HttpOnly; "
            f"SameSite={same_site}{secure}",
        )


def _port(headers: Mapping[str, str]) -> str:
    port = headers.get("host", "").rpartition("]")[2].partition(":")[2]
    return f"-{port}" if port.isascii() and port.isdigit() and len(port) <= 5 else ""
