"""Where a client takes bearer tokens from: a file, or the token endpoint of an identity provider.

At an endpoint the client shows its id and secret (RFC 6749, 4.4: client credentials) and gets a token, which it uses
for all log-ins until 80% of its lifetime are over. A refusal is final; an endpoint that does not answer is retried, as
a broker is. Redirects are not followed, since they would carry the secret to another host.
"""

import re
import time
from typing import TYPE_CHECKING, Any, Final

from .errors import LoginFailed, Unreachable
from .security import ClientTls

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

REPLY_BYTES_MAX: Final = 1 << 20
LIFETIME_SHARE: Final = 0.8
"""As `sasl.login.refresh.window.factor`."""

_TOKEN: Final = re.compile(r"[\x21-\x7e]+")


class TokenFile:
    """Reads the token for each log-in, so that it can be replaced."""

    __slots__ = ("_path", "_setting")

    def __init__(self, url: str, setting: str) -> None:
        from urllib.parse import unquote, urlsplit  # noqa: PLC0415  # few clients have tokens

        self._path = unquote(urlsplit(url).path)
        self._setting = setting

    def __call__(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as file:
                text = file.read(REPLY_BYTES_MAX).strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise LoginFailed(f"cannot read a token from {self._path}, {self._setting}: {why}") from None
        return _checked(text, f"{self._path}, {self._setting},")


class TokenEndpoint:
    __slots__ = ("_cached", "_id", "_is_urlencoded", "_scope", "_secret", "_timeout_ms", "_tls", "_url")

    def __init__(
        self,
        url: str,
        client_id: str,
        secret: str,
        scope: str | None = None,
        *,
        is_urlencoded: bool = False,
        tls: ClientTls | None = None,
        timeout_ms: float = 10_000,
    ) -> None:
        """`is_urlencoded`: id and secret are encoded as RFC 6749, 2.3.1 says, which not all providers expect."""
        self._url = url
        self._id = client_id
        self._secret = secret
        self._scope = scope
        self._is_urlencoded = is_urlencoded
        self._tls = tls
        self._timeout_ms = timeout_ms
        self._cached: tuple[str, float] | None = None
        """A token, and until when it is used."""

    def __repr__(self) -> str:
        return f"TokenEndpoint({self._url}, {self._id!r})"

    def __call__(self) -> str:
        if self._cached is not None and time.monotonic() < self._cached[1]:
            return self._cached[0]
        asked = time.monotonic()
        reply = self._ask()
        token = _checked(reply.get("access_token"), f"the reply of the token endpoint {self._url}")
        lifetime_s = reply.get("expires_in")
        if isinstance(lifetime_s, int | float) and lifetime_s > 0:
            self._cached = (token, asked + LIFETIME_SHARE * lifetime_s)
        return token

    def _ask(self) -> dict[str, Any]:
        import json  # noqa: PLC0415  # few clients have tokens
        from base64 import b64encode  # noqa: PLC0415
        from http.client import HTTPException  # noqa: PLC0415
        from urllib.error import HTTPError  # noqa: PLC0415
        from urllib.parse import quote_plus, urlencode  # noqa: PLC0415
        from urllib.request import Request  # noqa: PLC0415

        pair = [quote_plus(each) if self._is_urlencoded else each for each in (self._id, self._secret)]
        fields = {"grant_type": "client_credentials"} | ({"scope": self._scope} if self._scope else {})
        request = Request(
            self._url,
            urlencode(fields).encode(),
            {
                "Authorization": f"Basic {b64encode(':'.join(pair).encode()).decode()}",
                "Accept": "application/json",
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        try:
            with self._opener().open(request, timeout=self._timeout_ms / 1000) as response:
                reply = json.loads(response.read(REPLY_BYTES_MAX))
        except HTTPError as error:
            error.close()
            what = f"the token endpoint {self._url} answered {error.code} {error.reason}"
            if error.code >= 500 or error.code == 429:
                raise Unreachable(what) from None
            raise LoginFailed(f"{what} to the client id {self._id!r}") from None
        except (OSError, HTTPException) as error:
            raise self._unreachable(error) from None
        except ValueError:
            raise LoginFailed(f"the token endpoint {self._url} did not answer with JSON") from None
        if not isinstance(reply, dict):
            raise LoginFailed(f"the token endpoint {self._url} did not answer with an object of JSON")
        return reply

    def _opener(self) -> "OpenerDirector":
        from .plain_opener import plain_opener  # noqa: PLC0415  # few clients have tokens

        return plain_opener(self._tls)

    def _unreachable(self, error: Exception) -> Exception:
        reason = getattr(error, "reason", error)
        if self._tls is not None:
            from .tls import explain  # noqa: PLC0415  (loads OpenSSL)

            explained = explain(reason, f"the token endpoint {self._url}", self._tls)
            if explained is not None:
                return explained
        why = getattr(reason, "strerror", None) or str(reason)
        return Unreachable(f"cannot reach the token endpoint {self._url}: {why.lower()}")


def _checked(token: Any, where: str) -> str:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise LoginFailed(f"{where} has no token, expected one line of visible ASCII")
    return token
