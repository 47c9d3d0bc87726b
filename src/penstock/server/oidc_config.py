"""The configuration of the console's log-in with OpenID Connect.

    console.oidc.issuer=https://login.example.org
    console.oidc.client.id=penstock

It needs OAUTHBEARER at the HTTP port: tokens of the provider are checked by the keys and rules of that.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from penstock.base.settings import BadSetting
from penstock.gateway.shared.oidc_client import OidcClient
from penstock.server.config_sources import ConfigEntry
from penstock.server.oauth_config import OAuthConfig
from penstock.server.sasl_config import SaslConfig

PREFIX: Final = "console.oidc."
ISSUER: Final = f"{PREFIX}issuer"
CLIENT_ID: Final = f"{PREFIX}client.id"
SCOPES_DEFAULT: Final = "openid"


def parse_oidc(entries: Mapping[str, ConfigEntry], door: SaslConfig | None) -> OidcClient | None:
    """The client that the console is at the provider; None if it is not set up. `door` is the HTTP port's SASL."""

    def text(name: str) -> str:
        entry = entries.get(PREFIX + name)
        return "" if entry is None else entry.text.strip()

    issuer = text("issuer")
    if not issuer:
        others = sorted(each for each in entries if each.startswith(PREFIX) and each != ISSUER)
        if others and any(entries[each].text.strip() for each in others if not each.endswith(".scopes")):
            raise BadSetting(
                f"{others[0]} is set without {ISSUER}, expected the URL of the identity provider"
            )
        return None
    if not text("client.id"):
        raise BadSetting(f"{ISSUER} is set without {CLIENT_ID}, expected the console's name at the provider")
    for name in ("issuer", "redirect.url"):
        if text(name):
            _check_url(PREFIX + name, text(name))
    if door is None or door.oauth is None or door.oauth.keys is None:
        raise BadSetting(
            f"{ISSUER} is set and the HTTP port has no OAUTHBEARER with keys, expected "
            "http.security.protocol=SASL_SSL, OAUTHBEARER in sasl.enabled.mechanisms, and "
            "sasl.oauthbearer.jwks.endpoint.url"
        )
    scopes = text("scopes") or SCOPES_DEFAULT
    if "openid" not in scopes.split():
        raise BadSetting(f"{PREFIX}scopes is {scopes!r}, expected openid among them")
    return OidcClient(
        issuer, text("client.id"), text("client.secret") or None, scopes, text("redirect.url") or None
    )


def id_token_rules(client: OidcClient, oauth: OAuthConfig) -> OAuthConfig:
    """The rules of bearer tokens, for tokens that the provider makes for the console."""
    rules = replace(oauth.rules, issuer=client.issuer, audiences=frozenset({client.client_id}))
    return replace(oauth, rules=rules)


def _check_url(name: str, url: str) -> None:
    from urllib.parse import urlsplit  # noqa: PLC0415  # few nodes have it

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise BadSetting(
            f"{name} is {url!r}, expected a URL that begins with https: or http:, without ? and #"
        )
    if "@" in parts.netloc:
        raise BadSetting(f"{name} has a user or a password, expected a URL without")
