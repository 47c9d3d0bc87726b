"""OAUTHBEARER (RFC 7628) as a server: one message with a bearer token.

    client: n,,^Aauth=Bearer TOKEN^A^A          server: nothing, and the client is logged in
                                                server: {"status":"invalid_token"}
    client: ^A                                  server: a refusal with the same text

The token contains the principal and its expiry. Extensions of the client are accepted and ignored, as in Kafka.
"""

import re
from collections.abc import Callable
from typing import Final

from penstock.base.ids import TimestampMs
from penstock.security.bearer import InvalidToken, KeysPending, TokenValidator
from penstock.security.sasl.exchange import Accepted, Challenge, Refused, Undecided, Verdict

MESSAGE_BYTES_MAX: Final = 131_072
"""Room for the largest token and for extensions."""

_FIRST: Final = re.compile(
    r"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(\w+) +([-_.a-zA-Z0-9]+)", re.ASCII)
_ERROR: Final = '{"status":"invalid_token"}'
"""Kafka's, for whatever is wrong with the token: the reason is in the broker's log."""


class OAuthBearerExchange:
    __slots__ = ("_now_ms", "_validator", "_why")

    needs_latest = False

    def __init__(self, validator: TokenValidator, now_ms: Callable[[], TimestampMs]) -> None:
        self._validator = validator
        self._now_ms = now_ms
        self._why: str | None = None
        """Why the token was refused, until the client has answered."""

    def evaluate(self, token: bytes, *, is_latest: bool) -> Verdict:
        if self._why is not None:
            return Refused(self._why, _ERROR if token == b"\x01" else None)
        if len(token) > MESSAGE_BYTES_MAX:
            return Refused(f"a message has {len(token)} bytes, expected at most {MESSAGE_BYTES_MAX}")
        matched = _FIRST.fullmatch(token.decode("utf-8", "replace"))
        if matched is None:
            return Refused("the message is not one of OAUTHBEARER")
        on_behalf_of, pairs = matched.groups()
        auth = [each.removeprefix("auth=") for each in pairs.split("\x01") if each.startswith("auth=")]
        bearer = _AUTH.fullmatch(auth[-1]) if auth else None
        if bearer is None or bearer[1].lower() != "bearer":
            return Refused("the message has no bearer token")
        return self._validated(bearer[2], on_behalf_of)

    def _validated(self, token: str, on_behalf_of: str | None) -> Verdict:
        try:
            found = self._validator.validate(token, self._now_ms())
        except KeysPending as error:
            return Undecided(str(error))
        except InvalidToken as error:
            self._why = str(error)
            return Challenge(_ERROR.encode())
        if on_behalf_of not in (None, found.user):
            return Refused(
                "the client wants to act as another user",
                f"Authentication failed: Client requested an authorization id ({on_behalf_of}) that is different from "
                f"the token's principal name ({found.user})",
            )
        return Accepted(found.user, expires_ms=found.expires_ms)
