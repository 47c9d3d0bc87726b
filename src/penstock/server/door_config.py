"""The configuration of the doors, HTTP and the line protocol: addresses, TLS, and whether clients must log in.

A door has one address (`http.listener`) and one security protocol (`http.security.protocol`). Settings of TLS and SASL
are those of Kafka's listeners; `listener.name.http.` and `listener.name.line.` set one for the door alone.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.base.settings import BadSetting
from penstock.handlers.support.context import Endpoint
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.server import listeners as ln
from penstock.server.config_sources import FLAG, ConfigEntry
from penstock.server.sasl_config import OAUTHBEARER, SaslConfig
from penstock.server.tls_config import REQUIRED, TlsConfig

DOORS: Final = {"http": "http.listener", "line": "line.listener"}
"""The doors beside the Kafka port, and the settings of their addresses."""

REGISTRY: Final = "registry"
REGISTRY_LISTENER: Final = "schema.registry.listener"
"""A second address of the HTTP door, where the paths are those of a schema registry. Its security is that of HTTP."""

REGISTRY_PORT: Final = 8081
"""Where clients of schema registries look for one. Opened without being asked for beside an HTTP port 8080."""

OFF: Final = "off"

_LOOPBACK: Final = ("localhost", "::1")


def listener_of(door: str) -> str:
    """The name of a door among listeners, in settings, metrics and log lines."""
    return "HTTP" if door == REGISTRY else door.upper()


def protocol_setting(door: str) -> str:
    return "http.security.protocol" if door == REGISTRY else f"{door}.security.protocol"


def parse_doors(
    entries: Mapping[str, ConfigEntry], flags: Mapping[str, str | None], *, is_broker: bool
) -> dict[str, Endpoint]:
    """Addresses of the doors. A node that is only a controller has them off by default, and can serve health and
    metrics over HTTP."""
    doors: dict[str, Endpoint] = {}
    for name, setting in DOORS.items():
        entry, flag = entries.get(setting), flags[name]
        default = BROKER_SETTINGS[setting].default or OFF
        asked = flag if flag is not None else entry.text if entry is not None else OFF
        if not is_broker and asked.strip().lower() == OFF:
            continue
        if not is_broker and name != "http":
            raise BadSetting(
                f"{setting} is {asked!r}, expected off: a node that is only a controller serves no clients"
            )
        if (
            flag is not None
            and entry is not None
            and entry.rank == FLAG
            and entry.text.strip() != flag.strip()
        ):
            raise BadSetting(
                f"--{name} is {flag!r} and {setting} is {entry.text!r}, expected only one of them"
            )
        if flag is not None:
            text, what = flag, f"--{name}"
        elif entry is not None:
            text, what = entry.text, f"{setting} ({entry.where})"
        else:
            text, what = default, setting
        if text.strip().lower() != OFF:
            doors[name] = ln.parse_address(text, what, int(default.rpartition(":")[2]), ", or off")
    registry = _registry(entries.get(REGISTRY_LISTENER), doors.get("http"), is_broker=is_broker)
    if registry is not None:
        doors[REGISTRY] = registry
    return doors


def _registry(entry: ConfigEntry | None, http: Endpoint | None, *, is_broker: bool) -> Endpoint | None:
    """The address of the schema registry."""
    if entry is None:
        is_beside = is_broker and http is not None and http.port == REGISTRY_PORT - 1
        return http._replace(port=REGISTRY_PORT) if http is not None and is_beside else None
    if entry.text.strip().lower() == OFF:
        return None
    if not is_broker:
        raise BadSetting(
            f"{REGISTRY_LISTENER} is {entry.text!r}, expected off: a node that is only a controller serves no clients"
        )
    return ln.parse_address(entry.text, f"{REGISTRY_LISTENER} ({entry.where})", REGISTRY_PORT, ", or off")


def doors_text(doors: Mapping[str, Endpoint]) -> dict[str, str]:
    return {
        setting: ln.address_text(doors[name]) if name in doors else OFF
        for name, setting in (*DOORS.items(), (REGISTRY, REGISTRY_LISTENER))
    }


def door_protocols(
    entries: Mapping[str, ConfigEntry], doors: Iterable[str], listeners: Iterable[str]
) -> dict[str, str]:
    """The security protocols of the doors, by their names among listeners."""
    found: dict[str, str] = {}
    for door in doors:
        entry = entries.get(protocol_setting(door))
        name = listener_of(door)
        protocol = ln.PLAINTEXT if entry is None else entry.text.strip()
        if name not in listeners:
            found[name] = protocol
        elif entry is not None and protocol != ln.PLAINTEXT:
            raise BadSetting(
                f"{entry.name} is {entry.text!r} ({entry.where}) and listeners has {name}, expected another name: "
                f"listener.name.{door}. begins the settings of the {door} door"
            )
    return found


def is_of_absent_door(setting: str, names: Iterable[str]) -> bool:
    """Whether a setting of a single listener is of a door that is off; `names` has the listeners and open doors."""
    return any(
        setting.lower().startswith(f"listener.name.{door}.") and listener_of(door) not in names
        for door in DOORS
    )


def check_doors(
    sasl: Mapping[str, SaslConfig],
    tls: Mapping[str, TlsConfig],
    doors: Mapping[str, Endpoint],
    *,
    has_authorizer: bool,
) -> list[str]:
    """Reject doors that let others than this machine's users to the data without a log-in, although Kafka clients must
    log in. With an authorizer their clients are User:ANONYMOUS. Returns warnings."""
    warnings = []
    asks_certificates = any(each.client_auth == REQUIRED for each in tls.values())
    if (line := sasl.get(listener_of("line"))) is not None and set(line.mechanisms) == {OAUTHBEARER}:
        raise BadSetting(
            f"{protocol_setting('line')} asks for a log-in and sasl.enabled.mechanisms is {OAUTHBEARER}, expected "
            "PLAIN or SCRAM: clients of the line protocol log in with a password"
        )
    for door, at in doors.items():
        if door == REGISTRY and "http" in doors and doors["http"].host == at.host:
            continue  # what is said of the HTTP port is true of both
        name = listener_of(door)
        is_local = at.host in _LOOPBACK or at.host.startswith("127.")
        is_known = name in sasl or (name in tls and tls[name].client_auth == REQUIRED)
        if (sasl or asks_certificates) and not is_known and not is_local and not has_authorizer:
            asked, expected = (
                ("has SASL", f"{protocol_setting(door)}=SASL_SSL")
                if sasl
                else ("asks for certificates", f"{protocol_setting(door)}=SSL with ssl.client.auth=required")
            )
            setting = REGISTRY_LISTENER if door == REGISTRY else DOORS[door]
            raise BadSetting(
                f"{setting} is at {ln.address_text(at)} and a listener {asked}, expected a loopback address, off "
                f"or {expected}: everyone could use the {door} door without a log-in"
            )
        if name in sasl and name not in tls and not is_local:
            warnings.append(
                f"{protocol_setting(door)} is SASL_PLAINTEXT at {ln.address_text(at)}: passwords cross the network "
                "unencrypted"
            )
    return warnings
