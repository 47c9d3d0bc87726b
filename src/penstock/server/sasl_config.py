"""The configuration of SASL listeners: mechanisms, users of PLAIN, and which bearer tokens are accepted.

    listeners=SASL_PLAINTEXT://:9092
    sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
    listener.name.sasl_plaintext.plain.sasl.jaas.config=...PlainLoginModule required user_alice="s3cret";

A setting of one listener begins with `listener.name.` and the listener's name in lower case. The mechanism, in lower
case, may follow. No error shows any part of a `sasl.jaas.config`.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from penstock.base.settings import BadSetting
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.metadata.configs import validate_static
from penstock.metadata.scram import ScramMechanism
from penstock.security.sasl.jaas import (
    OAUTH_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    LoginModule,
    parse_jaas,
    plain_passwords,
)
from penstock.security.sasl.plain import PlainUsers
from penstock.server import listeners as ln
from penstock.server.config_sources import ConfigEntry
from penstock.server.oauth_config import CALLBACKS, PREFIX, URL, OAuthConfig, parse_oauth

LISTENER_PREFIX: Final = "listener.name."
JAAS_CONFIG: Final = "sasl.jaas.config"
ENABLED: Final = "sasl.enabled.mechanisms"
CONSOLE_SECRET: Final = "console.session.secret"
CONSOLE_SECRET_CHARS_MIN: Final = 16
SESSION: Final = "connections.max.reauth.ms"
RECEIVE: Final = "sasl.server.max.receive.size"

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAMS: Final = {each.label: each for each in ScramMechanism}
MECHANISMS: Final = (PLAIN, *SCRAMS, OAUTHBEARER)

_MODULES: Final = {PLAIN: PLAIN_MODULE, **dict.fromkeys(SCRAMS, SCRAM_MODULE), OAUTHBEARER: OAUTH_MODULE}


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """Of one listener."""

    mechanisms: tuple[str, ...]
    """In the order of the setting."""
    plain_users: PlainUsers | None = field(default=None, repr=False)
    """None if PLAIN is off."""
    oauth: OAuthConfig | None = None
    """None if OAUTHBEARER is off."""
    session_ms: Mapping[str, int] = field(default_factory=dict)
    """By mechanism, how long a log-in counts; 0 for ever."""
    receive_bytes_max: int = 524288


def is_sasl_override(name: str) -> bool:
    """Whether a setting of a single listener is about its log-ins."""
    _, _, setting = name.removeprefix(LISTENER_PREFIX).partition(".")
    return setting.endswith(SESSION) or setting.startswith("sasl.") or ".sasl." in setting


def sasl_overrides(
    overrides: Iterable[ConfigEntry], protocols: Mapping[str, str], doors: Collection[str] = ()
) -> dict[str, dict[str, ConfigEntry]]:
    """Settings of single listeners, by listener and by the rest of the setting's name. `protocols` has all listeners
    of this node, its `doors`, and those of controllers that it connects to."""
    names = {name.lower(): name for name in protocols}
    own: dict[str, dict[str, ConfigEntry]] = {name: {} for name in protocols}
    for entry in overrides:
        listener, _, setting = entry.name.removeprefix(LISTENER_PREFIX).partition(".")
        if listener.lower() not in names:
            raise BadSetting(
                f"{entry.name} ({entry.where}) is of no listener, expected one of {', '.join(names)} as its name"
            )
        name = names[listener.lower()]
        if not _is_known(setting):
            raise BadSetting(
                f"unknown setting {entry.name} ({entry.where}): Penstock has no such setting of a listener"
            )
        if not protocols[name].startswith("SASL_"):
            raise BadSetting(
                f"{entry.name} ({entry.where}) is of a listener with the protocol {protocols[name]}, expected "
                + (
                    f"{name.lower()}.security.protocol=SASL_SSL or SASL_PLAINTEXT"
                    if name in doors
                    else f"{name}:SASL_PLAINTEXT or SASL_SSL in listener.security.protocol.map"
                )
            )
        setting = setting.lower()
        if setting not in own[name] or own[name][setting].rank <= entry.rank:
            own[name][setting] = entry
    return own


def parse_sasl(
    entries: Mapping[str, ConfigEntry],
    own: Mapping[str, Mapping[str, ConfigEntry]],
    protocols: Mapping[str, str],
    doors: Collection[str] = (),
    of_controllers: Collection[str] = (),
) -> dict[str, SaslConfig]:
    """The SASL listeners. `own` has settings of single listeners, `protocols` this node's listeners and doors. A door
    without users of PLAIN has those of the brokers' listener that has some."""
    secret = entries.get(CONSOLE_SECRET)
    if secret is not None and len(secret.text) < CONSOLE_SECRET_CHARS_MIN:
        raise BadSetting(
            f"{CONSOLE_SECRET} has {len(secret.text)} characters, expected at least {CONSOLE_SECRET_CHARS_MIN}: with "
            "a guessed one, anyone could log in as anyone"
        )
    found: dict[str, SaslConfig] = {}
    of_brokers: list[PlainUsers] = []
    for name, protocol in protocols.items():
        if not protocol.startswith("SASL_"):
            continue
        found[name] = _listener(name, entries, own[name], of_brokers if name in doors else ())
        if (
            name not in doors
            and name not in of_controllers
            and (users := found[name].plain_users) is not None
        ):
            of_brokers.append(users)
    return found


def _is_known(setting: str) -> bool:
    setting = setting.lower()
    if setting in (ENABLED, SESSION, RECEIVE) or _is_oauth(setting):
        return True
    mechanism, _, rest = setting.partition(".")
    if mechanism.upper() == OAUTHBEARER and (rest == CALLBACKS or _is_oauth(rest)):
        return True
    return mechanism.upper() in MECHANISMS and rest in (JAAS_CONFIG, SESSION)


def _is_oauth(setting: str) -> bool:
    return setting.startswith(PREFIX) and setting in BROKER_SETTINGS


def _listener(
    name: str,
    entries: Mapping[str, ConfigEntry],
    own: Mapping[str, ConfigEntry],
    others: Sequence[PlainUsers],
) -> SaslConfig:
    """`others` are PLAIN's users of other listeners, for a door without its own."""
    entry = own.get(ENABLED) or entries.get(ENABLED)
    text = entry.text if entry is not None else BROKER_SETTINGS[ENABLED].default or ""
    where = f" ({entry.where})" if entry is not None else ", its default,"
    mechanisms = tuple(dict.fromkeys(ln.parts(text)))
    unknown = [each for each in mechanisms if each not in MECHANISMS]
    if unknown or not mechanisms:
        raise BadSetting(
            f"{entry.name if entry is not None else ENABLED} is {text!r}{where} and listener {name} has SASL, "
            f"expected some of {', '.join(MECHANISMS)}"
        )
    modules = {
        mechanism: login_module(mechanism, own[key])
        for mechanism in mechanisms
        if (key := f"{mechanism.lower()}.{JAAS_CONFIG}") in own
    }
    users = oauth = None
    if PLAIN in mechanisms:
        if PLAIN in modules:
            users = PlainUsers(_passwords(*modules[PLAIN]), _plain_key(entries))
        elif len(others) == 1:
            users = others[0]
        else:
            raise BadSetting(
                f"listener {name} has the mechanism PLAIN without users, expected them in "
                f"{LISTENER_PREFIX}{name.lower()}.plain.{JAAS_CONFIG}"
            )
    if OAUTHBEARER in mechanisms:
        oauth = _oauth(f"listener {name}", modules.get(OAUTHBEARER), entries, own)
    session_ms = {each: int(_found(SESSION, each, entries, own)[0] or 0) for each in mechanisms}
    receive = _found(RECEIVE, "", entries, own)[0]
    return SaslConfig(mechanisms, users, oauth, MappingProxyType(session_ms), int(receive or 0))


def _plain_key(entries: Mapping[str, ConfigEntry]) -> bytes:
    """Random, unless sessions of the console hold at all nodes: then each must know passwords by the same hashes."""
    secret = entries.get(CONSOLE_SECRET)
    if secret is None:
        return os.urandom(32)
    import hashlib  # noqa: PLC0415  (loads OpenSSL)

    return hashlib.sha256(b"users of PLAIN\0" + secret.text.encode()).digest()


def login_module(mechanism: str, entry: ConfigEntry) -> tuple[LoginModule, str]:
    """A login module, and the name of its setting for errors."""
    what = f"{entry.name} ({entry.where})"
    module = parse_jaas(entry.text, what)
    if module.name != _MODULES[mechanism]:
        raise BadSetting(f"{what} has another login module, expected {_MODULES[mechanism]}")
    return module, what


def _passwords(module: LoginModule, what: str) -> dict[str, str]:
    passwords = plain_passwords(module)
    if not all(passwords) or not all(passwords.values()):
        raise BadSetting(f"{what} has a user without a name or without a password")
    return passwords


def bearer_tokens(entries: Mapping[str, ConfigEntry]) -> OAuthConfig | None:
    """Which bearer tokens the settings of all listeners accept; None if they name no keys."""
    return _oauth("this node", None, entries, {}) if URL in entries else None


def _oauth(
    what: str,
    module: tuple[LoginModule, str] | None,
    entries: Mapping[str, ConfigEntry],
    own: Mapping[str, ConfigEntry],
) -> OAuthConfig:
    callbacks = own.get(f"{OAUTHBEARER.lower()}.{CALLBACKS}")
    return parse_oauth(
        lambda name: _found(name, OAUTHBEARER, entries, own),
        None if callbacks is None else (callbacks.text.strip(), f"{callbacks.name} ({callbacks.where})"),
        {} if module is None else module[0].options,
        what,
    )


def _found(
    setting: str, mechanism: str, entries: Mapping[str, ConfigEntry], own: Mapping[str, ConfigEntry]
) -> tuple[str | None, str]:
    """A setting's value for a mechanism of a listener, checked, and its name and source."""
    entry = own.get(f"{mechanism.lower()}.{setting}") or own.get(setting) or entries.get(setting)
    if entry is None:
        return BROKER_SETTINGS[setting].default, setting
    try:
        validate_static({setting: entry.text})
    except BadSetting as error:
        raise BadSetting(f"{error} ({entry.name}, {entry.where})") from error
    return entry.text.strip(), f"{entry.name} ({entry.where})"
