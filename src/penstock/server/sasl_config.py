"""The configuration of SASL listeners: mechanisms, and users of PLAIN.

    listeners=SASL_PLAINTEXT://:9092
    sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
    listener.name.sasl_plaintext.plain.sasl.jaas.config=...PlainLoginModule required user_alice="s3cret";

A setting of one listener begins with `listener.name.` and the listener's name in lower case. The mechanism, in lower
case, may follow. No error shows any part of a `sasl.jaas.config`.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from penstock.base.settings import BadSetting
from penstock.handlers.support.context import Endpoint
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.metadata.configs import validate_static
from penstock.metadata.scram import ScramMechanism
from penstock.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas, plain_passwords
from penstock.security.sasl.plain import PlainUsers
from penstock.server import listeners as ln
from penstock.server.config_sources import ConfigEntry

LISTENER_PREFIX: Final = "listener.name."
JAAS_CONFIG: Final = "sasl.jaas.config"
ENABLED: Final = "sasl.enabled.mechanisms"
SESSION: Final = "connections.max.reauth.ms"
RECEIVE: Final = "sasl.server.max.receive.size"

PLAIN: Final = "PLAIN"
SCRAMS: Final = {each.label: each for each in ScramMechanism}
MECHANISMS: Final = (PLAIN, *SCRAMS)

_MODULES: Final = {PLAIN: PLAIN_MODULE, **dict.fromkeys(SCRAMS, SCRAM_MODULE)}

_LOOPBACK: Final = ("localhost", "::1")


@dataclass(frozen=True, slots=True)
class SaslConfig:
    """Of one listener."""

    mechanisms: tuple[str, ...]
    """In the order of the setting."""
    plain_users: PlainUsers | None = field(default=None, repr=False)
    """None if PLAIN is off."""
    session_ms: Mapping[str, int] = field(default_factory=dict)
    """By mechanism, how long a log-in counts; 0 for ever."""
    receive_bytes_max: int = 524288


def is_sasl_override(name: str) -> bool:
    """Whether a setting of a single listener is about its log-ins."""
    _, _, setting = name.removeprefix(LISTENER_PREFIX).partition(".")
    return setting.endswith(SESSION) or setting.startswith("sasl.") or ".sasl." in setting


def parse_sasl(
    entries: Mapping[str, ConfigEntry], overrides: Iterable[ConfigEntry], protocols: Mapping[str, str]
) -> dict[str, SaslConfig]:
    """The SASL listeners. `overrides` has settings of single listeners, `protocols` the brokers' listeners."""
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
                f"{name}:SASL_PLAINTEXT or SASL_SSL in listener.security.protocol.map"
            )
        setting = setting.lower()
        if setting not in own[name] or own[name][setting].rank <= entry.rank:
            own[name][setting] = entry
    return {
        name: _listener(name, entries, own[name])
        for name, protocol in protocols.items()
        if protocol.startswith("SASL_")
    }


def _is_known(setting: str) -> bool:
    setting = setting.lower()
    if setting in (ENABLED, SESSION, RECEIVE):
        return True
    mechanism, _, rest = setting.partition(".")
    return mechanism.upper() in MECHANISMS and rest in (JAAS_CONFIG, SESSION)


def _listener(name: str, entries: Mapping[str, ConfigEntry], own: Mapping[str, ConfigEntry]) -> SaslConfig:
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
    passwords: Mapping[str, str] = {}
    for mechanism in mechanisms:
        jaas = own.get(f"{mechanism.lower()}.{JAAS_CONFIG}")
        if jaas is not None:
            found = _passwords(mechanism, jaas)
            passwords = found if mechanism == PLAIN else passwords
        elif mechanism == PLAIN:
            raise BadSetting(
                f"listener {name} has the mechanism PLAIN without users, expected them in "
                f"{LISTENER_PREFIX}{name.lower()}.plain.{JAAS_CONFIG}"
            )
    session_ms = {each: _number(SESSION, each, entries, own) for each in mechanisms}
    return SaslConfig(
        mechanisms,
        PlainUsers(passwords, os.urandom(32)) if PLAIN in mechanisms else None,
        MappingProxyType(session_ms),
        _number(RECEIVE, "", entries, own),
    )


def _passwords(mechanism: str, entry: ConfigEntry) -> dict[str, str]:
    what = f"{entry.name} ({entry.where})"
    module = parse_jaas(entry.text, what)
    if module.name != _MODULES[mechanism]:
        raise BadSetting(f"{what} has another login module, expected {_MODULES[mechanism]}")
    if mechanism != PLAIN:
        return {}
    passwords = plain_passwords(module)
    if not all(passwords) or not all(passwords.values()):
        raise BadSetting(f"{what} has a user without a name or without a password")
    return passwords


def _number(
    setting: str, mechanism: str, entries: Mapping[str, ConfigEntry], own: Mapping[str, ConfigEntry]
) -> int:
    entry = own.get(f"{mechanism.lower()}.{setting}") or own.get(setting) or entries.get(setting)
    if entry is None:
        return int(BROKER_SETTINGS[setting].default or 0)
    try:
        validate_static({setting: entry.text})
    except BadSetting as error:
        raise BadSetting(f"{error} ({entry.name}, {entry.where})") from error
    return int(entry.text)


def check_doors(sasl: Mapping[str, SaslConfig], doors: Mapping[str, Endpoint]) -> None:
    """Reject doors that let others than this machine's users to the data without a log-in."""
    for name, at in doors.items():
        if sasl and not (at.host in _LOOPBACK or at.host.startswith("127.")):
            raise BadSetting(
                f"{name}.listener is at {ln.address_text(at)} and a listener has SASL, expected a loopback address or "
                f"off: the {name} door does not ask for a log-in yet"
            )
