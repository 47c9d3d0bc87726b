"""Reads a client's security from Kafka's settings, as in the `client.properties` that Kafka's tools take.

    security.protocol=SASL_SSL
    sasl.mechanism=SCRAM-SHA-256
    sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="...";
    ssl.truststore.type=PEM
    ssl.truststore.location=/etc/penstock/ca.pem

`sasl.username` and `sasl.password`, librdkafka's names, may stand for `sasl.jaas.config`. A setting of security that
cannot be honoured raises `BadSetting`, since a client that ignored it would be less secure than its user believes.
Settings that only Java needs, and all others of Kafka's clients, are ignored. No error shows a secret.

A file is overridden by environment variables: PENSTOCK_CLIENT_SASL_PASSWORD is `sasl.password`. A value may stand
elsewhere: `sasl.password=${env:KAFKA_PASSWORD}` (`referenced_values.py`).
"""

import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.base.properties import parse_properties
from penstock.base.settings import BadSetting
from penstock.security.sasl.client import (
    OAUTHBEARER,
    PLAIN,
    SCRAMS,
    BearerLogin,
    ClientLogin,
    PlainLogin,
    ScramLogin,
)
from penstock.security.sasl.jaas import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, LoginModule, parse_jaas

from .bearer_tokens import TokenEndpoint, TokenFile
from .referenced_values import is_reference, read_text, resolve
from .security import ClientSecurity, ClientTls, client_tls

VARIABLE_PREFIX: Final = "PENSTOCK_CLIENT_"

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = (PLAIN, *SCRAMS, OAUTHBEARER)

_PROTOCOL: Final = "security.protocol"
_MECHANISM: Final = "sasl.mechanism"
_JAAS: Final = "sasl.jaas.config"
_USER, _PASSWORD = "sasl.username", "sasl.password"
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_SCOPE: Final = "sasl.oauthbearer.scope"
_URLENCODE: Final = "sasl.oauthbearer.header.urlencode"
_HANDLER: Final = "sasl.login.callback.handler.class"

_DEFAULTS: Final[Mapping[str, str]] = {
    _PROTOCOL: "PLAINTEXT",
    _MECHANISM: "GSSAPI",
    "ssl.keystore.type": "JKS",
    "ssl.truststore.type": "JKS",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.endpoint.identification.algorithm": "https",
    _URLENCODE: "false",
}

_READ: Final = frozenset(
    {
        *_DEFAULTS,
        _JAAS,
        _USER,
        _PASSWORD,
        _URL,
        _CLIENT_ID,
        _CLIENT_SECRET,
        _SCOPE,
        _HANDLER,
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "ssl.cipher.suites",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
    }
)

_WITHOUT_EFFECT: Final = frozenset(
    {
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
    }
)
"""About Java, Kerberos, and a token that is fetched ahead of its use: this client fetches one when it logs in."""

SECURITY_SETTINGS: Final = _READ | _WITHOUT_EFFECT

_PREFIXES: Final = ("security.", "sasl.", "ssl.")

_HANDLERS: Final = frozenset(
    {
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    }
)
_EXTENSION: Final = "extension_"
"""Of an option of OAUTHBEARER's login module that the client sends along (KIP-342)."""


class _Entry(NamedTuple):
    text: str
    shown: str
    """Its name and source, for errors."""
    variable: str | None = None
    """The environment variable that set it."""


def _given(name: str) -> str:
    return f"{name} (the client's settings)"


class ClientProperties(Mapping[str, str]):
    """Settings with their sources. Its `repr` has names only."""

    def __init__(self, values: Mapping[str, str] | None = None, shown: Callable[[str], str] = _given) -> None:
        """`shown` gives the name of a setting in errors."""
        self._entries = {name: _Entry(text, shown(name)) for name, text in (values or {}).items()}

    @classmethod
    def from_file(cls, path: str) -> "ClientProperties":
        made = cls()
        for number, name, value in parse_properties(read_text(path, expected="a properties file")):
            made._entries[name] = _Entry(value, f"{name} ({path} line {number})")
        return made

    def with_environment(self, environment: Mapping[str, str]) -> "ClientProperties":
        """The same, overridden by variables."""
        names = {VARIABLE_PREFIX + name.upper().replace(".", "_"): name for name in SECURITY_SETTINGS}
        made = ClientProperties()
        made._entries = dict(self._entries)
        for variable in sorted(environment):
            if not variable.startswith(VARIABLE_PREFIX):
                continue
            name = names.get(variable)
            if name is not None:
                shown = f"{name} (the environment's {variable})"
                made._entries[name] = _Entry(environment[variable], shown, variable)
            elif variable.removeprefix(VARIABLE_PREFIX).startswith(("SECURITY_", "SASL_", "SSL_")):
                raise BadSetting(f"the environment's {variable} is not a setting of a client")
        return made

    def __getitem__(self, name: str) -> str:
        return self._entries[name].text

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"ClientProperties({', '.join(sorted(self._entries))})"

    def text(self, name: str) -> str | None:
        """The value with its references replaced, or its default. Raises BadSetting."""
        entry = self._entries.get(name)
        if entry is None:
            return _DEFAULTS.get(name)
        text = entry.text.strip()
        return text if entry.variable is not None else resolve(text, self.shown(name))

    def unresolved(self, name: str) -> str | None:
        """The value as it was set."""
        entry = self._entries.get(name)
        return None if entry is None else entry.text.strip()

    @property
    def from_environment(self) -> dict[str, str]:
        """Settings of environment variables, as references: a Spark job that gets them as options has no secret."""
        entries = self._entries.items()
        return {name: f"${{env:{each.variable}}}" for name, each in entries if each.variable is not None}

    def overlaid(self, other: "ClientProperties") -> "ClientProperties":
        """The same, overridden by others."""
        made = ClientProperties()
        made._entries = {**self._entries, **other._entries}
        return made

    def is_set(self, name: str) -> bool:
        return name in self._entries and bool(self._entries[name].text.strip())

    def shown(self, name: str) -> str:
        entry = self._entries.get(name)
        return name if entry is None else entry.shown


def parse_security(given: Mapping[str, str]) -> ClientSecurity:
    """The security that settings ask for. Raises BadSetting."""
    settings = given if isinstance(given, ClientProperties) else ClientProperties(given)
    for name in settings:
        if name.startswith(_PREFIXES) and name not in SECURITY_SETTINGS:
            raise BadSetting(
                f"{settings.shown(name)} is not supported: remove it, or connect with a client that has it"
            )
    protocol = (settings.text(_PROTOCOL) or "").upper()
    if protocol not in PROTOCOLS:
        raise BadSetting(
            f"{settings.shown(_PROTOCOL)} is {settings.text(_PROTOCOL)!r}, expected one of {', '.join(PROTOCOLS)}"
        )
    _refuse_unused(settings, protocol)
    return ClientSecurity(
        client_tls(settings) if protocol.endswith("SSL") else None,
        _login(settings) if protocol.startswith("SASL") else None,
    )


def _refuse_unused(settings: ClientProperties, protocol: str) -> None:
    """Raise if credentials are set that the protocol does not use."""
    if protocol.startswith("SASL"):
        return
    for name in (_JAAS, _USER, _PASSWORD, _CLIENT_SECRET):
        if settings.is_set(name):
            raise BadSetting(
                f"{settings.shown(name)} is set, but {settings.shown(_PROTOCOL)} is {protocol}, expected SASL_SSL or "
                "SASL_PLAINTEXT"
            )


# -- log-ins -------------------------------------------------------------------------------------------


def http_credentials(settings: ClientProperties) -> tuple[str, str] | None:
    """User and password for HTTP's Basic scheme; None if the settings have no log-in. Raises BadSetting."""
    if not (settings.text(_PROTOCOL) or "").upper().startswith("SASL"):
        return None
    mechanism = settings.text(_MECHANISM) or ""
    if mechanism == OAUTHBEARER:
        raise BadSetting(f"{settings.shown(_MECHANISM)} is {mechanism}, expected PLAIN or SCRAM for HTTP")
    return _credentials(settings, _module(settings, mechanism))


def _login(settings: ClientProperties) -> ClientLogin:
    mechanism = settings.text(_MECHANISM) or ""
    if mechanism not in MECHANISMS:
        default = "" if settings.is_set(_MECHANISM) else ", its default"
        raise BadSetting(
            f"{settings.shown(_MECHANISM)} is {mechanism!r}{default}, expected one of {', '.join(MECHANISMS)}"
        )
    module = _module(settings, mechanism)
    if mechanism == OAUTHBEARER:
        return _bearer_login(settings, module)
    user, password = _credentials(settings, module)
    if mechanism == PLAIN:
        return PlainLogin(user, password)
    is_token = module is not None and module.options.get("tokenauth", "").lower() == "true"
    return ScramLogin(mechanism, user, password, random_nonce, is_delegation_token=is_token)


def random_nonce() -> str:
    return urlsafe_b64encode(os.urandom(24)).decode()


def _module(settings: ClientProperties, mechanism: str) -> LoginModule | None:
    if not settings.is_set(_JAAS):
        return None
    shown, text = settings.shown(_JAAS), settings.unresolved(_JAAS) or ""
    is_elsewhere = is_reference(text)
    module = parse_jaas(resolve(text, shown) if is_elsewhere else text, shown)
    if not is_elsewhere:  # after parsing, so that a password may have quotes
        options = {name: resolve(value, f"{name} in {shown}") for name, value in module.options.items()}
        module = module._replace(options=options)
    expected = {PLAIN: PLAIN_MODULE, OAUTHBEARER: OAUTH_MODULE}.get(mechanism, SCRAM_MODULE)
    if module.name != expected:
        raise BadSetting(
            f"{settings.shown(_JAAS)} has a login module that is not of {_MECHANISM} {mechanism}, expected {expected}"
        )
    return module


def _credentials(settings: ClientProperties, module: LoginModule | None) -> tuple[str, str]:
    if module is None:
        user, password = settings.text(_USER) or "", settings.text(_PASSWORD) or ""
        shown = f"{_USER} and {_PASSWORD}"
    elif settings.is_set(_USER) or settings.is_set(_PASSWORD):
        raise BadSetting(
            f"{settings.shown(_JAAS)} is set together with {_USER} or {_PASSWORD}, expected one of both ways"
        )
    else:
        user, password = module.options.get("username", ""), module.options.get("password", "")
        shown = f"username and password in {settings.shown(_JAAS)}"
    if not user or not password:
        raise BadSetting(
            f"{settings.text(_PROTOCOL)} has no {'user' if not user else 'password'} to log in with, expected {shown}"
            + ("" if module is not None else f", or {_JAAS}")
        )
    if "\0" in user or "\0" in password:
        raise BadSetting(f"a user or password has a NUL character, expected {shown} without")
    return user, password


def _bearer_login(settings: ClientProperties, module: LoginModule | None) -> ClientLogin:
    options = module.options if module is not None else {}
    handler = settings.text(_HANDLER)
    if handler and handler not in _HANDLERS:
        raise BadSetting(
            f"{settings.shown(_HANDLER)} is a class of Java's, expected none: {_URL} has the tokens"
        )
    extensions = {
        name.removeprefix(_EXTENSION): text for name, text in options.items() if name.startswith(_EXTENSION)
    }
    url = settings.text(_URL) or ""
    if url.startswith("file:"):
        return BearerLogin(TokenFile(url, settings.shown(_URL)), extensions)
    client_id = settings.text(_CLIENT_ID) or options.get("clientId", "")
    secret = settings.text(_CLIENT_SECRET) or options.get("clientSecret", "")
    if not url.startswith(("https://", "http://")):
        raise BadSetting(
            f"{settings.shown(_URL)} is {url!r}, expected the URL of a token endpoint, or a file: URL of a token"
        )
    if not client_id or not secret:
        raise BadSetting(
            f"the mechanism {OAUTHBEARER} has no client id or no client secret, expected {_CLIENT_ID} and "
            f"{_CLIENT_SECRET}, or clientId and clientSecret in {_JAAS}"
        )
    endpoint = TokenEndpoint(
        url,
        client_id,
        secret,
        settings.text(_SCOPE) or options.get("scope"),
        is_urlencoded=(settings.text(_URLENCODE) or "").lower() == "true",
        tls=_endpoint_tls(settings, options) if url.startswith("https:") else None,
        timeout_ms=_milliseconds(settings, "sasl.login.read.timeout.ms", 10_000),
    )
    return BearerLogin(endpoint, extensions)


def _endpoint_tls(settings: ClientProperties, options: Mapping[str, str]) -> ClientTls:
    """As in Kafka, the endpoint's TLS is set by options of the login module: brokers have other authorities."""
    own = {name: text for name, text in options.items() if name.startswith("ssl.")}
    return client_tls(ClientProperties(own, lambda name: f"{name} ({settings.shown(_JAAS)})"))


def _milliseconds(settings: ClientProperties, name: str, default: int) -> int:
    text = settings.text(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not int(text):
        raise BadSetting(f"{settings.shown(name)} is {text!r}, expected a number of milliseconds")
    return int(text)
