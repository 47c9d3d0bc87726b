"""Kafka's tokens without a signature, for trials: the client is whom the token names.

As Kafka's OAuthBearerUnsecuredValidatorCallbackHandler, which a configuration must ask for by name.
"""

from typing import Any

from penstock.base.ids import TimestampMs
from penstock.security.bearer import TOKEN_CHARS_MAX, BearerToken, InvalidToken, TokenRules, UnsecuredRules
from penstock.security.jwt import check_claims, decode_part


class UnsecuredValidator:
    """A `TokenValidator` that verifies no signature."""

    __slots__ = ("_rules",)

    def __init__(self, rules: UnsecuredRules) -> None:
        self._rules = rules

    def validate(self, token: str, now_ms: TimestampMs) -> BearerToken:
        parts = token.split(".")
        if len(token) > TOKEN_CHARS_MAX or len(parts) != 3 or parts[2]:
            raise InvalidToken("the token is not an unsecured one: expected header.payload. and no signature")
        if decode_part(parts[0], dict[str, Any], "header").get("alg") != "none":
            raise InvalidToken("the token's algorithm is not none, expected an unsecured token")
        rules = self._rules
        claims = decode_part(parts[1], dict[str, Any], "payload")
        said = claims.get(rules.scope_claim)
        scopes = said.split() if isinstance(said, str) else said if isinstance(said, list) else []
        missing = [each for each in rules.required_scopes if each not in scopes]
        if missing:
            raise InvalidToken(f"the token lacks the scope {', '.join(sorted(missing))}")
        own = TokenRules(skew_ms=rules.skew_ms, user_claim=rules.user_claim, scope_claim=rules.scope_claim)
        # Kafka needs no `iat` here, and reads no audience.
        return check_claims({"iat": 0, **claims, "aud": None}, own, now_ms)
