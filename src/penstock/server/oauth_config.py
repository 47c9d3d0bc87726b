"""The configuration of OAUTHBEARER: where the provider's keys are, and what tokens must say.

    sasl.oauthbearer.jwks.endpoint.url=https://login.example.org/keys
    sasl.oauthbearer.expected.issuer=https://login.example.org
    sasl.oauthbearer.expected.audience=kafka

Tokens without a signature are accepted only if `sasl.server.callback.handler.class` of the listener names Kafka's
class for them. In Kafka that is the default.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from penstock.base.settings import BadSetting
from penstock.security.bearer import TokenRules, UnsecuredRules

PREFIX: Final = "sasl.oauthbearer."
URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
CALLBACKS: Final = "sasl.server.callback.handler.class"

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_SIGNED: Final = frozenset(
    {
        f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
        f"{_PACKAGE}secured.OAuthBearerValidatorCallbackHandler",
    }
)
UNSECURED: Final = f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"

Find = Callable[[str], tuple[str | None, str]]
"""The value of a setting, checked, and its name and source for errors."""


@dataclass(frozen=True, slots=True)
class KeysConfig:
    url: str
    """`file:`, `http:` or `https:`."""
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_ms_max: int = 10_000


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """Which tokens are accepted."""

    keys: KeysConfig | None
    """None if tokens have no signature, which a configuration must ask for by name."""
    rules: TokenRules = field(default_factory=TokenRules)
    unsecured: UnsecuredRules = field(default_factory=UnsecuredRules)


def parse_oauth(
    find: Find, callbacks: tuple[str, str] | None, options: Mapping[str, str], what: str
) -> OAuthConfig:
    """Which tokens a listener accepts.

    `callbacks` is its class of callbacks with its name for errors, if there is one; `options` are those of its login
    module; `what` names the listener in errors.
    """
    if callbacks is not None and callbacks[0] not in {*_SIGNED, UNSECURED}:
        raise BadSetting(
            f"{callbacks[1]} is {callbacks[0]!r}, expected {_PACKAGE}OAuthBearerValidatorCallbackHandler or "
            f"{UNSECURED}: Penstock cannot load other Java classes"
        )
    if callbacks is not None and callbacks[0] == UNSECURED:
        return OAuthConfig(None, unsecured=_unsecured(options, what))
    url, shown = find(URL)
    if not url:
        raise BadSetting(
            f"{what} has the mechanism OAUTHBEARER without keys, expected a file: or https: URL of a JWKS in {URL}"
        )
    from urllib.parse import urlsplit  # noqa: PLC0415  # few nodes have tokens

    if urlsplit(url).scheme not in ("file", "http", "https"):
        raise BadSetting(f"{shown} is {url!r}, expected a URL that begins with file:, http: or https:")
    if "@" in urlsplit(url).netloc:
        raise BadSetting(
            f"{shown} has a user or a password, expected a URL without: it is shown in logs and metrics"
        )
    keys = KeysConfig(
        url,
        *(
            _number(find, f"jwks.endpoint.{each}.ms")
            for each in ("refresh", "retry.backoff", "retry.backoff.max")
        ),
    )
    audiences = find(f"{PREFIX}expected.audience")[0] or ""
    rules = TokenRules(
        find(f"{PREFIX}expected.issuer")[0] or None,
        frozenset(each.strip() for each in audiences.split(",") if each.strip()),
        _number(find, "clock.skew.seconds") * 1000,
        find(f"{PREFIX}sub.claim.name")[0] or "sub",
        find(f"{PREFIX}scope.claim.name")[0] or "scope",
    )
    return OAuthConfig(keys, rules)


def _number(find: Find, name: str) -> int:
    return int(find(PREFIX + name)[0] or 0)


def _unsecured(options: Mapping[str, str], what: str) -> UnsecuredRules:
    def option(name: str) -> str:
        return options.get(f"unsecuredValidator{name}", "").strip()

    skew = option("AllowableClockSkewMs") or "0"
    if not skew.isdecimal():
        raise BadSetting(
            f"{what} has an unsecuredValidatorAllowableClockSkewMs that is no number of milliseconds"
        )
    return UnsecuredRules(
        option("PrincipalClaimName") or "sub",
        option("ScopeClaimName") or "scope",
        frozenset(option("RequiredScope").split()),
        int(skew),
    )
