"""An identity provider of the tests: keys, their JWKS, and tokens that they sign."""

import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms
from jwt.api_jws import PyJWS

NOW_MS = 1_800_000_000_000


@cache
def private_key(kind: str = "RS256", number: int = 0) -> Any:
    match kind[:2]:
        case "ES":
            return ec.generate_private_key({"ES256": ec.SECP256R1(), "ES384": ec.SECP384R1()}[kind])
        case "Ed":
            return ed25519.Ed25519PrivateKey.generate()
        case _:
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def jwk(key_id: str | None = "k1", kind: str = "RS256", number: int = 0, **more: Any) -> dict[str, Any]:
    public = get_default_algorithms()[kind].to_jwk(private_key(kind, number).public_key(), as_dict=True)
    return {**public, **({} if key_id is None else {"kid": key_id}), **more}


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": keys or [jwk()]}).encode()


def claims(now_ms: int = NOW_MS, **changed: Any) -> dict[str, Any]:
    """Of alice, for ten minutes; a claim that is None is left out."""
    now = now_ms // 1000
    found = {"sub": "alice", "iat": now - 5, "exp": now + 600, **changed}
    return {name: value for name, value in found.items() if value is not None}


def signed(
    said: dict[str, Any] | None = None,
    *,
    kind: str = "RS256",
    number: int = 0,
    key_id: str | None = "k1",
    **header: Any,
) -> str:
    headers = {**({} if key_id is None else {"kid": key_id}), **header}
    payload = json.dumps(claims() if said is None else said).encode()
    return PyJWS().encode(payload, private_key(kind, number), kind, headers)


def part(value: Any) -> str:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def unsecured(said: dict[str, Any] | None = None) -> str:
    return f"{part({'alg': 'none'})}.{part(claims() if said is None else said)}."
