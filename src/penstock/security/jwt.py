"""Signed tokens (RFC 7519), checked by the public keys of an identity provider (RFC 7517, a JWKS).

    header.payload.signature --> the key that the header names verifies the signature --> the claims hold now

The rules are those of Kafka's OAuthBearerValidatorCallbackHandler: `exp` and `iat` are required, `nbf` is honoured,
the issuer must be the expected one, and one of the token's audiences an expected one. A token for an audience is
refused if none is expected. The signature decides before any claim is read.

Only public-key algorithms are accepted, and only one that fits the type of the key: neither `none`, nor an HMAC with a
public key as its secret. PyJWT and `cryptography` verify.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.base.errors import KafkaError
from penstock.base.ids import TimestampMs
from penstock.security.bearer import TOKEN_CHARS_MAX, BearerToken, InvalidToken, TokenRules

if TYPE_CHECKING:
    from jwt import PyJWK

KEYS_MAX: Final = 100
"""Keys that are used of one JWKS; a token without `kid` may be tried with each. Providers have two to ten."""

KEY_ID_CHARS_MAX: Final = 512

_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
}
"""By the type and curve of a key, the algorithms that it may verify."""

_PUBLIC: Final = ("kty", "crv", "n", "e", "x", "y")
"""The fields of a public key; a private key in a JWKS is never loaded."""


class BadKeys(KafkaError):
    """A JWKS that cannot be used."""


class UnknownKey(InvalidToken):
    """No key of the JWKS fits the token."""


class PublicKey:
    """One key of a JWKS, and the algorithms that it may verify."""

    __slots__ = ("_fields", "_prepared", "algorithms", "key_id")

    def __init__(self, fields: Mapping[str, Any], algorithms: tuple[str, ...], key_id: str | None) -> None:
        self._fields = fields
        self.algorithms = algorithms
        self.key_id = key_id
        self._prepared: dict[str, PyJWK] = {}

    def prepared(self, algorithm: str) -> "PyJWK":
        """The key for an algorithm of `algorithms`. Raises PyJWT's errors if the key is damaged."""
        from jwt import PyJWK  # noqa: PLC0415  (loads cryptography)

        if algorithm not in self._prepared:
            self._prepared[algorithm] = PyJWK(dict(self._fields), algorithm)
        return self._prepared[algorithm]


class KeySet:
    """The keys of a JWKS that verify signatures."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Iterable[PublicKey] = ()) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def fitting(self, algorithm: str, key_id: str | None) -> list[PublicKey]:
        """The keys that may have signed a token with this header."""
        return [
            key
            for key in self._keys
            if algorithm in key.algorithms and (key_id is None or key.key_id == key_id)
        ]


def parse_jwks(content: bytes, what: str) -> KeySet:
    """The keys of a JWKS; `what` names it in errors. Keys of other kinds and for encryption are left out."""
    try:
        found = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadKeys(f"{what} is not JSON: {error}") from error
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise BadKeys(f'{what} has no list "keys", expected a JWKS (RFC 7517)')
    keys = list(_usable(listed))
    if not keys:
        raise BadKeys(
            f"{what} has {len(listed)} keys and none of them verifies signatures, expected a public key of type RSA, "
            "EC or OKP"
        )
    if len(keys) > KEYS_MAX:
        raise BadKeys(f"{what} has {len(keys)} keys, expected at most {KEYS_MAX}")
    return KeySet(keys)


def _usable(listed: list[Any]) -> Iterator[PublicKey]:
    for each in listed:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig":
            continue
        kind, curve = each.get("kty"), each.get("crv")
        if not isinstance(kind, str) or not isinstance(curve, str | None):
            continue
        algorithms = _ALGORITHMS.get((kind, curve), ())
        said = each.get("alg")
        if said is not None:
            algorithms = tuple(name for name in algorithms if name == said)
        key_id = each.get("kid")
        if algorithms and (key_id is None or isinstance(key_id, str)):
            fields = {name: each[name] for name in _PUBLIC if name in each}
            yield PublicKey(fields, algorithms, key_id)


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    crit: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class JwtValidator:
    """A `TokenValidator` for signed tokens."""

    __slots__ = ("_keys", "_rules")

    def __init__(self, keys: Callable[[], KeySet], rules: TokenRules) -> None:
        """`keys` returns the newest keys."""
        self._keys = keys
        self._rules = rules

    def validate(self, token: str, now_ms: TimestampMs) -> BearerToken:
        if len(token) > TOKEN_CHARS_MAX:
            raise InvalidToken(f"the token has {len(token)} characters, expected at most {TOKEN_CHARS_MAX}")
        claims = decode_json(self._verified(token), dict[str, Any], "claims")
        return check_claims(claims, self._rules, now_ms)

    def _verified(self, token: str) -> bytes:
        """The payload, once the signature is verified."""
        from jwt import PyJWTError  # noqa: PLC0415  (loads cryptography)
        from jwt.api_jws import PyJWS  # noqa: PLC0415

        header = read_header(token)
        fitting = self._keys().fitting(header.alg, header.kid)
        if not fitting:
            of = f"the id {header.kid[:80]!r}" if header.kid is not None else "any id"
            raise UnknownKey(f"no known key with {of} verifies the token's algorithm {header.alg[:20]!r}")
        verifier = PyJWS(options={"verify_signature": True, "enforce_minimum_key_length": True})
        for key in fitting:
            try:
                found = verifier.decode_complete(token, key.prepared(header.alg), [header.alg])
            except (PyJWTError, ValueError, TypeError) as error:
                why = type(error).__name__
            else:
                payload: bytes = found["payload"]
                return payload
        raise InvalidToken(f"the token's signature is not verified by the provider's key ({why})")


def read_header(token: str) -> _Header:
    """The header of a token. Its content is not verified yet."""
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken(f"the token has {len(parts)} parts, expected header.payload.signature")
    header: _Header = decode_part(parts[0], _Header, "header")
    if header.crit is not msgspec.UNSET:
        raise InvalidToken("the token's header has critical extensions, expected none")
    if header.kid is not None and len(header.kid) > KEY_ID_CHARS_MAX:
        raise InvalidToken(f"the token's key id has {len(header.kid)} characters")
    return header


def decode_part(text: str, kind: Any, what: str) -> Any:
    """A part of a token that is JSON in base64url."""
    from base64 import urlsafe_b64decode  # noqa: PLC0415  (few nodes have tokens)

    try:
        content = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except ValueError as error:
        raise InvalidToken(f"the token's {what} is not base64url ({type(error).__name__})") from None
    return decode_json(content, kind, what)


def decode_json(content: bytes, kind: Any, what: str) -> Any:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        # The error's own text may have a part of the token.
        raise InvalidToken(f"the token's {what} is not valid JSON ({type(error).__name__})") from None


def check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: TimestampMs) -> BearerToken:
    """What the claims say, if they hold now."""
    expires_ms = _time_ms(claims, "exp")
    issued_ms = _time_ms(claims, "iat")
    if now_ms - rules.skew_ms >= expires_ms:
        raise InvalidToken(f"the token expired {(now_ms - expires_ms) // 1000} s ago")
    if issued_ms > expires_ms:
        raise InvalidToken("the token expires before it was issued")
    if "nbf" in claims:
        begins_ms = _time_ms(claims, "nbf")
        if now_ms + rules.skew_ms < begins_ms:
            raise InvalidToken(f"the token is valid only in {(begins_ms - now_ms) // 1000} s")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise InvalidToken(
            f"the token's issuer is {str(claims.get('iss'))[:200]!r}, expected {rules.issuer!r}"
        )
    _check_audience(claims, rules)
    _check_scopes(claims, rules.scope_claim)
    return BearerToken(_text(claims, rules.user_claim), expires_ms + rules.skew_ms)


def _text(claims: Mapping[str, Any], name: str) -> str:
    """A claim that must be text, without spaces around it."""
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidToken(f"the token's claim {name} is missing, empty or no text")
    return value.strip()


def _time_ms(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise InvalidToken(f"the token's claim {name} is missing or no time in seconds")
    return int(value * 1000)


def _check_audience(claims: Mapping[str, Any], rules: TokenRules) -> None:
    said = claims.get("aud")
    if said is None and not rules.audiences:
        return
    audiences = said if isinstance(said, list) else [said]
    if not any(isinstance(each, str) and each in rules.audiences for each in audiences):
        expected = ", ".join(sorted(rules.audiences)) or "none: sasl.oauthbearer.expected.audience is not set"
        raise InvalidToken(f"the token's audience is {str(said)[:200]!r}, expected {expected}")


def _check_scopes(claims: Mapping[str, Any], name: str) -> None:
    said = claims.get(name)
    if not isinstance(said, list):
        return  # text is one scope, and no scope is needed
    if not all(isinstance(each, str) and each.strip() for each in said):
        raise InvalidToken(f"the token's claim {name} has a scope that is empty or no text")
    if len({each.strip() for each in said}) < len(said):
        raise InvalidToken(f"the token's claim {name} names a scope twice")
