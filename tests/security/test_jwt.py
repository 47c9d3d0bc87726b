"""Which bearer tokens are accepted: signatures, claims, and hostile tokens."""

import hmac
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.security.tokens import NOW_MS, claims, jwk, jwks, part, private_key, signed, unsecured

from penstock.security.bearer import TOKEN_CHARS_MAX, BearerToken, InvalidToken, TokenRules, UnsecuredRules
from penstock.security.jwt import KEYS_MAX, BadKeys, JwtValidator, UnknownKey, parse_jwks
from penstock.security.unsecured_jws import UnsecuredValidator


def validator(*keys: dict[str, Any], **rules: Any) -> JwtValidator:
    found = parse_jwks(jwks(*keys), "keys.json")
    return JwtValidator(lambda: found, TokenRules(**{"skew_ms": 0, **rules}))


def validate(token: str, *keys: dict[str, Any], now_ms: int = NOW_MS, **rules: Any) -> BearerToken:
    return validator(*keys, **rules).validate(token, now_ms)


def refusal(token: str, *keys: dict[str, Any], now_ms: int = NOW_MS, **rules: Any) -> str:
    with pytest.raises(InvalidToken) as refused:
        validate(token, *keys, now_ms=now_ms, **rules)
    assert token not in str(refused.value)
    return str(refused.value)


# -- signatures ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["RS256", "RS512", "PS256", "ES256", "ES384", "EdDSA"])
def test_a_token_says_who_and_until_when(kind: str) -> None:
    assert validate(signed(kind=kind), jwk(kind=kind)) == BearerToken("alice", NOW_MS + 600_000)


def test_the_key_is_the_one_that_the_token_names() -> None:
    keys = jwk("k1"), jwk("k2", number=1)
    assert validate(signed(key_id="k2", number=1), *keys).user == "alice"
    assert "not verified" in refusal(signed(key_id="k2"), *keys), "signed by k1"
    with pytest.raises(UnknownKey, match="'k3'"):
        validate(signed(key_id="k3"), *keys)


def test_a_token_without_a_key_id_is_tried_with_each_key() -> None:
    keys = jwk("k1"), jwk("k2", number=1)
    assert validate(signed(key_id=None, number=1), *keys).user == "alice"
    assert "not verified" in refusal(signed(key_id=None, number=2), *keys)


def test_a_key_verifies_only_algorithms_of_its_kind() -> None:
    with pytest.raises(UnknownKey):
        validate(signed(), jwk(alg="RS512"))
    with pytest.raises(UnknownKey):
        validate(signed(), jwk("k1", "ES256"))


def test_no_token_without_a_signature_is_accepted() -> None:
    header, payload, _ = signed().split(".")
    assert "none" in refusal(unsecured())
    assert "not verified" in refusal(f"{header}.{payload}.")


def test_an_hmac_with_the_public_key_as_its_secret_is_refused() -> None:
    """The classic confusion of algorithms: the attacker knows the public key."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    public = private_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signing = f"{part({'alg': 'HS256', 'kid': 'k1'})}.{part(claims())}"
    forged = f"{signing}.{part(hmac.digest(public, signing.encode(), 'sha256'))}"
    assert "HS256" in refusal(forged)


def test_a_secret_key_in_the_jwks_verifies_nothing() -> None:
    secret = {"kty": "oct", "kid": "s", "k": part(b"0" * 32)}
    signing = f"{part({'alg': 'HS256', 'kid': 's'})}.{part(claims())}"
    token = f"{signing}.{part(hmac.digest(b'0' * 32, signing.encode(), 'sha256'))}"
    assert "HS256" in refusal(token, secret, jwk())


def test_critical_extensions_are_refused() -> None:
    header = part({"alg": "RS256", "kid": "k1", "crit": ["b64"], "b64": False})
    assert "critical" in refusal(f"{header}.{part(claims())}.{part(b'x')}")


def test_any_change_of_a_token_makes_it_invalid() -> None:
    header, payload, signature = signed().split(".")
    other = part(claims(sub="admin"))
    refusal(f"{header}.{other}.{signature}")
    refusal(f"{payload}.{header}.{signature}")


# -- claims --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "rules", "why"),
    [
        ({"exp": NOW_MS // 1000}, {}, "expired 0 s ago"),
        ({"exp": NOW_MS // 1000 - 31}, {"skew_ms": 30_000}, "expired 31 s ago"),
        ({"exp": None}, {}, "claim exp is missing"),
        ({"exp": "soon"}, {}, "claim exp"),
        ({"exp": True}, {}, "claim exp"),
        ({"exp": -1}, {}, "claim exp"),
        ({"iat": None}, {}, "claim iat is missing"),
        ({"iat": NOW_MS // 1000 + 700}, {}, "before it was issued"),
        ({"nbf": NOW_MS // 1000 + 60}, {}, "valid only in 60 s"),
        ({"iss": "evil"}, {"issuer": "good"}, "issuer is 'evil', expected 'good'"),
        ({}, {"issuer": "good"}, "expected 'good'"),
        ({"aud": "other"}, {"audiences": frozenset({"kafka"})}, "expected kafka"),
        ({}, {"audiences": frozenset({"kafka"})}, "expected kafka"),
        ({"aud": "kafka"}, {}, "expected.audience is not set"),
        ({"aud": [["kafka"]]}, {"audiences": frozenset({"kafka"})}, "expected kafka"),
        ({"sub": None}, {}, "claim sub"),
        ({"sub": "  "}, {}, "claim sub"),
        ({"sub": 7}, {}, "claim sub"),
        ({"sub": "alice"}, {"user_claim": "email"}, "claim email"),
        ({"scope": ["a", "a"]}, {}, "names a scope twice"),
        ({"scope": ["a", ""]}, {}, "scope that is empty"),
    ],
)
def test_claims_that_do_not_hold(changed: dict[str, Any], rules: dict[str, Any], why: str) -> None:
    assert why in refusal(signed(claims(**changed)), **rules)


@pytest.mark.parametrize(
    ("changed", "rules", "user"),
    [
        ({"exp": NOW_MS // 1000 - 29, "iat": 0}, {"skew_ms": 30_000}, "alice"),
        ({"nbf": NOW_MS // 1000 + 29}, {"skew_ms": 30_000}, "alice"),
        ({"iss": "good"}, {"issuer": "good"}, "alice"),
        ({"aud": ["x", "kafka"]}, {"audiences": frozenset({"kafka", "y"})}, "alice"),
        ({"email": " a@example.org "}, {"user_claim": "email"}, "a@example.org"),
        ({"scope": "a b"}, {}, "alice"),
        ({"scope": ["a", "b"]}, {}, "alice"),
    ],
)
def test_claims_that_hold(changed: dict[str, Any], rules: dict[str, Any], user: str) -> None:
    assert validate(signed(claims(**changed)), **rules).user == user


def test_a_token_is_valid_until_its_time_and_the_skew_are_over() -> None:
    token, own = signed(), validator(skew_ms=30_000)
    ends = own.validate(token, NOW_MS).expires_ms
    assert ends == NOW_MS + 630_000
    assert own.validate(token, ends - 1).user == "alice"
    with pytest.raises(InvalidToken, match="expired"):
        own.validate(token, ends)


# -- keys ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"<html>", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", 'no list "keys"'),
        (b'{"keys": 1}', 'no list "keys"'),
        (b'{"keys": [1, {"kty": ["RSA"]}, {"kty": "oct", "k": "x"}]}', "none of them verifies"),
        (b'{"keys": [{"kty": "RSA", "use": "enc", "n": "AA", "e": "AQAB"}]}', "none of them verifies"),
        (b'{"keys": [' + b'{"kty": "RSA"},' * KEYS_MAX + b'{"kty": "RSA"}]}', "expected at most"),
    ],
    ids=lambda value: value if isinstance(value, str) else len(value),
)
def test_keys_that_cannot_be_used(content: bytes, why: str) -> None:
    with pytest.raises(BadKeys, match=why):
        parse_jwks(content, "keys.json")


def test_a_damaged_key_verifies_nothing() -> None:
    assert "not verified" in refusal(signed(), {"kty": "RSA", "kid": "k1", "n": "AA", "e": 7})


# -- tokens without a signature ------------------------------------------------------------------------


def test_unsecured_tokens_are_trusted_where_asked_for() -> None:
    own = UnsecuredValidator(UnsecuredRules(required_scopes=frozenset({"b"})))
    assert own.validate(unsecured(claims(scope="a b", iat=None, aud="x")), NOW_MS).user == "alice"
    for wrong in (
        unsecured(),
        unsecured(claims(scope=["a"])),
        unsecured(claims(scope=7)),
        signed(),
        "a.b",
        "...",
    ):
        with pytest.raises(InvalidToken):
            own.validate(wrong, NOW_MS)
    with pytest.raises(InvalidToken, match="expired"):
        own.validate(unsecured(claims(scope="b")), NOW_MS + 600_000)


# -- hostile tokens ------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
HEADERS = st.fixed_dictionaries(
    {}, optional={"alg": JSON | st.just("RS256"), "kid": JSON | st.just("k1"), "crit": JSON, "b64": JSON}
)


@cache
def both() -> tuple[JwtValidator, UnsecuredValidator]:
    return validator(), UnsecuredValidator(UnsecuredRules())


@given(st.text(alphabet="abcXYZ019-_.=", max_size=200) | st.text(max_size=50))
def test_no_text_is_a_token(text: str) -> None:
    for own in both():
        with pytest.raises(InvalidToken):
            own.validate(text, NOW_MS)


@given(HEADERS | JSON, JSON | st.binary(max_size=20), st.binary(max_size=20))
def test_no_forged_token_is_accepted(header: Any, payload: Any, signature: bytes) -> None:
    with pytest.raises(InvalidToken):
        both()[0].validate(f"{part(header)}.{part(payload)}.{part(signature)}", NOW_MS)


@given(st.dictionaries(st.sampled_from(["sub", "exp", "iat", "nbf", "aud", "iss", "scope", "x"]), JSON))
def test_odd_claims_are_refused_or_read(said: dict[str, Any]) -> None:
    """Signed by the provider, so only the claims decide."""
    try:
        found = both()[0].validate(signed({**claims(), **said}), NOW_MS)
    except InvalidToken:
        return
    assert found.user.strip()
    assert found.expires_ms > NOW_MS


@pytest.mark.parametrize(
    "token",
    [
        "a" * (TOKEN_CHARS_MAX + 1),
        f"{part(b'[' * 40_000)}.e30.",
        f"{part(b'{' + b'%s' % (b'x' * 40_000))}.e30.x",
        part({"alg": "RS256", "kid": "k" * 2000}) + ".e30.x",
        "." * 60_000,
    ],
    ids=["long", "deep", "wide", "key id", "dots"],
)
def test_huge_tokens_are_refused(token: str) -> None:
    for own in both():
        with pytest.raises(InvalidToken):
            own.validate(token, NOW_MS)
