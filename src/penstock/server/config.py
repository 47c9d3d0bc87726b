"""The configuration of a node: its data directory, its listeners, and its settings by Kafka's names.

`load` merges all sources and checks every value. An error names the setting, its source, the value found and the value
expected. Some settings and flags are two names of one thing (`--data` and `log.dirs`, `--kafka` and `listeners`,
`--http` and `http.listener`, `node.id` and `broker.id`): the stronger source wins, and two different values of one
source are an error.

Settings that Penstock does not implement are rejected, unless they are known to be harmless (`_IGNORED`).
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from penstock.base.settings import BadSetting
from penstock.client.security import PLAINTEXT as NO_SECURITY
from penstock.client.security import ClientSecurity
from penstock.handlers.support.context import Endpoint
from penstock.metadata.config_table import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.metadata.configs import BrokerSettings, log_defaults, validate_static
from penstock.metadata.image import EMPTY
from penstock.metadata.records import UserScramCredentialRecord
from penstock.server import listeners as ln
from penstock.server.cluster_config import (
    CONTROLLER_LISTENER,
    ClusterConfig,
    check_reachable,
    controller_names,
    parse_cluster,
)
from penstock.server.config_sources import (
    FLAG,
    ConfigEntry,
    environment_now,
    from_environment,
    from_file,
    from_flags,
    nearest,
)
from penstock.server.door_config import (
    DOORS,
    OFF,
    REGISTRY,
    REGISTRY_LISTENER,
    check_doors,
    door_protocols,
    doors_text,
    is_of_absent_door,
    parse_doors,
)
from penstock.server.java_security import warning_about
from penstock.server.listener_config import (
    CONNECTION_RATE,
    ListenerSettings,
    is_override,
    parse_overrides,
)
from penstock.server.oauth_config import OAuthConfig
from penstock.server.peer_config import PeersSettings
from penstock.server.sasl_config import (
    SaslConfig,
    bearer_tokens,
    is_sasl_override,
    parse_sasl,
    sasl_overrides,
)
from penstock.server.tls_config import TlsConfig, parse_tls
from penstock.storage.open_files import OPEN_FILES_MAX

if TYPE_CHECKING:
    from penstock.gateway.shared.oidc_client import OidcClient

DATA_DEFAULT = "./penstock-data"
LISTENER_DEFAULT = "PLAINTEXT"
KAFKA_DEFAULT = Endpoint("127.0.0.1", 9092)
"""Loopback by default, because a new node neither authenticates clients nor encrypts."""

FIRST_USERS = "bootstrap.scram.users"
"""Also the flag --add-scram."""

NODE_ID_DEFAULT = 1

_IGNORED = (
    "share.",
    "group.share.",
    "group.streams.",
    "group.coordinator.",
    "metric.reporters",
    "metrics.",
    "kafka.metrics.",
    "auto.include.jmx.reporter",
    "client.quota.",
    "quota.producer.default",
    "quota.consumer.default",
    "replication.quota.",
    "telemetry.",
    "remote.",
    "log.remote.",
    "internal.",
    "request.queue.",
    "unstable.",
    "zookeeper.",
)
"""Settings that a Kafka configuration file may have and that do not change what clients are promised: they are
ignored with a warning. Settings of access control (`ssl.`, `sasl.`, `authorizer.`) are not; but see
`server.java_security`."""

_ACCESS = (
    "ssl.",
    "sasl.",
    "authorizer.",
    "super.users",
    "security.",
    "principal.builder.",
)
_CLASSES = ("alter.config.policy.class.name", "create.topic.policy.class.name")
"""Policies in Java: a topic that they forbid would be created."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    data: str
    """The data directory, or a log directory of Kafka, which has meta.properties at its top."""
    listeners: Mapping[str, Endpoint] = field(
        default_factory=lambda: MappingProxyType({LISTENER_DEFAULT: KAFKA_DEFAULT})
    )
    """By name, where Kafka clients connect. An empty host means all interfaces. After binding, port 0 is replaced."""
    advertised: Mapping[str, Endpoint] = field(default_factory=dict)
    """By listener name, the address in Metadata responses. A listener without one returns the address that the client
    connected to."""
    protocols: Mapping[str, str] = field(default_factory=dict)
    """By listener name, its security protocol; default: PLAINTEXT."""
    tls: Mapping[str, TlsConfig] = field(default_factory=dict)
    """By name, the TLS settings of the listeners that have it; those of doors are HTTP and LINE."""
    sasl: Mapping[str, SaslConfig] = field(default_factory=dict)
    """By name, the listeners whose clients must log in; those of doors are HTTP and LINE."""
    to_brokers: ClientSecurity = field(default=NO_SECURITY)
    """How this node connects to other brokers."""
    to_controllers: ClientSecurity = field(default=NO_SECURITY)
    """How this node connects to controllers."""
    first_users: tuple[UserScramCredentialRecord, ...] = field(default=(), repr=False)
    """SCRAM users of a new cluster, if this node writes its first records."""
    connection_rates: Mapping[str, int] = field(default_factory=dict)
    """By name, the listeners with a rate of new connections of their own."""
    bearer: OAuthConfig | None = None
    """Which bearer tokens the settings without a listener's name accept; None if they name no keys."""
    oidc: "OidcClient | None" = None
    """The console as a client of an identity provider; None if its users do not log in there."""
    doors: Mapping[str, Endpoint] = field(default_factory=dict)
    """By name, `http`, `line` and `registry`, the addresses of the other doors; a door without an address is off."""
    optional_doors: frozenset[str] = frozenset()
    """Doors that nobody asked for: the node starts without them if their ports are taken."""
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    node_id: int | None = None
    """None: the data directory's, or 1 for a new one. Otherwise it must match the directory's."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Explicit settings by Kafka's names, known and valid; without defaults. They may be passwords."""
    open_files_max: int = OPEN_FILES_MAX
    """Log files that are kept open."""
    connections_max: int = 2**31 - 1
    """Connections that the process has descriptors for, beside its files."""
    warnings: tuple[str, ...] = ()
    """Logged once, at the start."""

    def setting(self, name: str) -> str | None:
        """The value without dynamic configuration."""
        return self.settings.get(name, BROKER_SETTINGS[name].default)

    def number(self, name: str) -> int:
        return int(self.setting(name) or 0)

    def flag(self, name: str) -> bool:
        return (self.setting(name) or "").strip().lower() == "true"

    def bound(
        self,
        listeners: Mapping[str, Endpoint],
        doors: Mapping[str, Endpoint] | None = None,
        controllers: Mapping[str, Endpoint] | None = None,
    ) -> "NodeConfig":
        """The same with the bound ports of listeners and doors."""
        doors = self.doors if doors is None else doors
        controllers = self.cluster.controllers if controllers is None else controllers
        everyone = {**listeners, **controllers}
        settings = {**self.settings, "listeners": ln.listeners_text(everyone), **doors_text(doors)}
        return replace(
            self,
            listeners=MappingProxyType(dict(listeners)),
            doors=MappingProxyType(dict(doors)),
            cluster=replace(self.cluster, controllers=MappingProxyType(dict(controllers))),
            settings=settings,
        )


def load(
    *,
    data: str | None = None,
    kafka: str | None = None,
    controller: str | None = None,
    http: str | None = None,
    line: str | None = None,
    file: str | None = None,
    flags: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> NodeConfig:
    """The configuration of `penstock up`, from its flags, the environment and a file."""
    given = [
        *(from_file(file) if file is not None else ()),
        *from_environment(environment_now() if environment is None else environment, BROKER_SETTINGS),
        *from_flags(flags),
    ]
    return config_of(given, data=data, kafka=kafka, controller=controller, http=http, line=line)


def config_from(
    data: str,
    settings: Mapping[str, str] | None = None,
    *,
    kafka: str | None = "127.0.0.1:0",
    controller: str | None = None,
    http: str = OFF,
    line: str = OFF,
) -> NodeConfig:
    """A configuration made by a program. It ignores the environment, and doors are off by default. A node that is only
    a controller has no Kafka listener."""
    own = settings or {}
    given = [ConfigEntry(name, text, "settings", FLAG) for name, text in own.items()]
    return config_of(
        given,
        data=data,
        kafka=None if "listeners" in own else kafka,
        controller=controller,
        http=None if DOORS["http"] in own else http,
        line=None if DOORS["line"] in own else line,
    )


def config_of(
    given: Iterable[ConfigEntry],
    *,
    data: str | None = None,
    kafka: str | None = None,
    controller: str | None = None,
    http: str | None = None,
    line: str | None = None,
) -> NodeConfig:
    """Merge and check entries and flags."""
    entries: dict[str, ConfigEntry] = {}
    overrides: list[ConfigEntry] = []
    of_sasl: list[ConfigEntry] = []
    warnings = []
    for each in given:
        warning = warning_about(each)
        if warning is not None:
            warnings.append(warning)
            continue
        if is_override(each.name):
            (of_sasl if is_sasl_override(each.name) else overrides).append(each)
            continue
        if each.name not in BROKER_SETTINGS:
            warnings.append(_ignored(each))
            continue
        _check(each)
        if each.name not in entries or entries[each.name].rank <= each.rank:
            entries[each.name] = each
    path = _data(entries, data)
    everyone = _listeners(entries, kafka, controller)
    protocols = _protocols(entries, everyone, kafka, controller)
    node_id = _node_id(entries)
    cluster = parse_cluster(
        entries, controller, everyone, protocols, NODE_ID_DEFAULT if node_id is None else node_id
    )
    listeners = _served(entries, everyone, cluster)
    doors = parse_doors(entries, {"http": http, "line": line}, is_broker=cluster.is_broker)
    at_doors = door_protocols(entries, doors, protocols)
    known = {**protocols, **at_doors}
    secured = {name: known[name] for name in (*listeners, *cluster.controllers, *at_doors)}
    overrides = [each for each in overrides if not is_of_absent_door(each.name, known)]
    of_sasl = [each for each in of_sasl if not is_of_absent_door(each.name, known)]
    of_listeners = _of_listeners(overrides, known)
    tls = _tls(entries, of_listeners, secured)
    warnings += _without_audit(entries, cluster)
    own_of_sasl = sasl_overrides(of_sasl, known, at_doors)
    sasl = parse_sasl(entries, own_of_sasl, secured, at_doors, cluster.controllers)
    peers = PeersSettings(entries, of_listeners, own_of_sasl, protocols, cluster, sasl)
    to_brokers, to_controllers = peers.to_brokers(), peers.to_controllers()
    warnings += _without_tls(entries, [*tls, *(each for each in (to_brokers, to_controllers) if each.tls)])
    warnings += peers.warnings()
    authorizer = entries.get("authorizer.class.name")
    has_authorizer = authorizer is not None and bool(authorizer.text.strip())
    warnings += check_doors(sasl, tls, doors, has_authorizer=has_authorizer)
    _reject_unsupported(entries, path)
    settings = {name: each.text.strip() for name, each in entries.items()}
    settings |= {"listeners": ln.listeners_text(everyone), "log.dirs": path, **doors_text(doors)}
    settings.pop("log.dir", None)
    _check_together(settings)
    advertised = _advertised(entries, listeners)
    warnings += check_reachable(
        cluster, listeners, advertised, NODE_ID_DEFAULT if node_id is None else node_id
    )
    return NodeConfig(
        data=path,
        listeners=MappingProxyType(listeners),
        advertised=MappingProxyType(advertised),
        protocols=MappingProxyType(protocols),
        tls=MappingProxyType(tls),
        sasl=MappingProxyType(sasl),
        to_brokers=to_brokers,
        to_controllers=to_controllers,
        first_users=_first_users(entries),
        connection_rates=MappingProxyType(
            {
                name: int(own[CONNECTION_RATE].text)
                for name, own in of_listeners.items()
                if CONNECTION_RATE in own
            }
        ),
        bearer=bearer_tokens(entries),
        oidc=_oidc(entries, sasl.get("HTTP") if "HTTP" in at_doors else None),
        doors=MappingProxyType(doors),
        optional_doors=frozenset() if REGISTRY_LISTENER in entries else frozenset({REGISTRY}),
        cluster=cluster,
        node_id=node_id,
        settings=MappingProxyType(settings),
        warnings=tuple(warnings),
    )


def _oidc(entries: Mapping[str, ConfigEntry], door: SaslConfig | None) -> "OidcClient | None":
    if not any(each.startswith("console.oidc.") for each in entries):
        return None
    from penstock.server.oidc_config import parse_oidc  # noqa: PLC0415  # few nodes have it

    return parse_oidc(entries, door)


# -- single settings --------------------------------------------------------------------------------------


def _ignored(each: ConfigEntry) -> str:
    """The warning about an ignored setting. Raises for any other unknown setting."""
    if ".properties line " in each.where and each.name.startswith(_IGNORED):
        return f"{each.name} ({each.where}) is ignored: Penstock does not implement it"
    raise BadSetting(f"unknown setting {each.name} ({each.where}){_hint(each.name)}")


def _hint(name: str) -> str:
    topic = TOPIC_SETTINGS.get(name)
    if topic is not None and topic.brokers:
        return f": it is a topic setting; the broker setting for all topics is {topic.brokers[0]}"
    if name.startswith(_ACCESS):
        return ": this setting of access control is not supported yet"
    if name in _CLASSES or name.startswith("config.providers"):
        return ": it names a Java class, which Penstock cannot load"
    near = nearest(name, BROKER_SETTINGS)
    return f"; did you mean {near}?" if near else ""


def _check(each: ConfigEntry) -> None:
    try:
        validate_static({each.name: each.text})
    except BadSetting as error:
        raise BadSetting(f"{error} ({each.where})") from error


def _check_together(settings: Mapping[str, str]) -> None:
    """Check combinations of settings, and that the log settings are valid."""
    log_defaults(EMPTY, BrokerSettings(None, settings))


def _strongest(names: tuple[str, ...], entries: Mapping[str, ConfigEntry]) -> ConfigEntry | None:
    """The entry from the strongest source, of several names for one thing. Two of one source must be equal."""
    found = sorted((entries[name] for name in names if name in entries), key=lambda each: each.rank)
    if not found:
        return None
    *rest, best = found
    for other in rest:
        if other.rank == best.rank and other.text.strip() != best.text.strip():
            raise BadSetting(
                f"{other.name} is {other.text!r} ({other.where}) and {best.name} is {best.text!r} ({best.where}), "
                "expected only one of them, or equal values"
            )
    return best


# -- combined settings ----------------------------------------------------------------


def _data(entries: Mapping[str, ConfigEntry], flag: str | None) -> str:
    entry = _strongest(("log.dir", "log.dirs"), entries)
    if flag is not None:
        if entry is not None and entry.rank == FLAG and entry.text != flag:
            raise BadSetting(
                f"--data is {flag!r} and {entry.name} is {entry.text!r}, expected only one of them"
            )
        paths = [flag]
    else:
        paths = ln.parts(entry.text) if entry is not None else [DATA_DEFAULT]
    where = f" ({entry.where})" if entry is not None and flag is None else ""
    if len(paths) > 1:
        raise BadSetting(
            f"log.dirs has {len(paths)} directories{where}, expected one: several are not supported yet"
        )
    if not paths or not paths[0]:
        raise BadSetting(f"the data directory is empty{where}, expected a path")
    if "\0" in paths[0]:
        raise BadSetting(f"the data directory is {paths[0]!r}{where}, expected a path without zero bytes")
    return paths[0]


def _node_id(entries: Mapping[str, ConfigEntry]) -> int | None:
    words = [
        entries[name]
        for name in ("node.id", "broker.id")
        if name in entries and entries[name].text.strip() != "-1"
    ]
    if len({int(each.text) for each in words}) > 1:
        one, other = words
        raise BadSetting(
            f"node.id is {one.text} ({one.where}) and broker.id is {other.text} ({other.where}), expected equal values"
        )
    if not words:
        return None
    node_id = int(words[0].text)
    if node_id < 0:
        raise BadSetting(f"broker.id is {node_id} ({words[0].where}), expected 0 or more")
    return node_id


def _listeners(
    entries: Mapping[str, ConfigEntry], kafka: str | None, controller: str | None
) -> dict[str, Endpoint]:
    """Addresses for Kafka clients and for controllers."""
    entry = entries.get("listeners")
    if kafka is not None:
        if entry is not None and entry.rank == FLAG:
            raise BadSetting(
                f"--kafka is {kafka!r} and listeners is {entry.text!r}, expected only one of them"
            )
        found = {LISTENER_DEFAULT: ln.parse_address(kafka, "--kafka")}
    elif entry is None:
        found = {LISTENER_DEFAULT: KAFKA_DEFAULT}
    else:
        found = ln.parse_listeners(entry.text, f"listeners ({entry.where})")
    if controller is not None:
        found[CONTROLLER_LISTENER] = ln.parse_address(controller, "--controller", 9093)
    return found


def _protocols(
    entries: Mapping[str, ConfigEntry],
    everyone: Mapping[str, Endpoint],
    kafka: str | None,
    controller: str | None,
) -> dict[str, str]:
    """The security protocol of each listener, also of the controllers' listeners that this node connects to. As in
    Kafka, a controller listener without an entry is PLAINTEXT."""
    protocols, listeners = entries.get("listener.security.protocol.map"), entries.get("listeners")
    of_controllers = controller_names(entries, controller)
    plain = list(of_controllers)
    if kafka is not None or listeners is None:
        plain.append(LISTENER_DEFAULT)
    source = protocols or listeners
    return ln.protocols_of(
        dict.fromkeys((*everyone, *of_controllers)),
        None if protocols is None else protocols.text,
        source.where if source else "",
        plain,
    )


def _of_listeners(
    overrides: Iterable[ConfigEntry], listeners: Iterable[str]
) -> dict[str, dict[str, ConfigEntry]]:
    """The settings of single listeners, checked."""
    of_listeners = parse_overrides(overrides, listeners)
    for own in of_listeners.values():
        for name, each in own.items():
            _check(each._replace(name=name))
    return of_listeners


def _tls(
    entries: Mapping[str, ConfigEntry],
    of_listeners: Mapping[str, Mapping[str, ConfigEntry]],
    protocols: Mapping[str, str],
) -> dict[str, TlsConfig]:
    """The TLS settings of this node's listeners that have it."""
    return {
        name: parse_tls(ListenerSettings(name, entries, of_listeners[name]), is_sasl=protocol == ln.SASL_SSL)
        for name, protocol in protocols.items()
        if protocol in (ln.SSL, ln.SASL_SSL)
    }


def _without_tls(entries: Mapping[str, ConfigEntry], tls: Collection[object]) -> list[str]:
    """Warn of a key store without a listener that uses it."""
    return [
        f"{name} ({entries[name].where}) has no effect: no listener has the protocol SSL or "
        "SASL_SSL (listener.security.protocol.map)"
        for name in ("ssl.keystore.location", "ssl.keystore.key")
        if name in entries and not tls
    ]


def _without_audit(entries: Mapping[str, ConfigEntry], cluster: ClusterConfig) -> list[str]:
    """Warn of settings of an audit that is off, and of a topic that a controller cannot write to."""
    is_off = "audit.log" not in entries or entries["audit.log"].text.strip() == OFF
    found = [
        f"{name} ({entries[name].where}) has no effect: audit.log is off"
        for name in ("audit.file", "audit.topic")
        if name in entries and is_off
    ]
    if "audit.topic" in entries and not is_off and not cluster.is_broker:
        where = entries["audit.topic"].where
        found.append(f"audit.topic ({where}) has no effect: the node is only a controller")
    return found


def _served(
    entries: Mapping[str, ConfigEntry], everyone: Mapping[str, Endpoint], cluster: ClusterConfig
) -> dict[str, Endpoint]:
    """The listeners of Kafka clients."""
    served = {name: each for name, each in everyone.items() if name not in cluster.controllers}
    if not cluster.is_broker:
        return {}
    if not served:
        entry = entries["listeners"]
        raise BadSetting(
            f"listeners is {entry.text!r} ({entry.where}), expected at least one that is not in "
            "controller.listener.names"
        )
    among = entries.get("inter.broker.listener.name")
    if among is not None and cluster.listener not in served:
        raise BadSetting(
            f"inter.broker.listener.name is {among.text!r} ({among.where}), expected one of {', '.join(served)}"
        )
    return served


def _advertised(entries: Mapping[str, ConfigEntry], served: Mapping[str, Endpoint]) -> dict[str, Endpoint]:
    entry = entries.get("advertised.listeners")
    if entry is None:
        return {}
    advertised = ln.parse_listeners(entry.text, f"advertised.listeners ({entry.where})")
    of_controllers = controller_names(entries, None)
    for name, endpoint in advertised.items():
        if name in of_controllers:
            continue
        if name not in served:
            raise BadSetting(
                f"advertised.listeners has {name} ({entry.where}), expected one of the listeners {', '.join(served)}"
            )
        if endpoint.host in ln.EVERYWHERE or not endpoint.port:
            raise BadSetting(
                f"advertised.listeners has {name}://{ln.address_text(endpoint)} ({entry.where}), "
                "expected a host and a port that clients can reach"
            )
    return {name: endpoint for name, endpoint in advertised.items() if name in served}


def _first_users(entries: Mapping[str, ConfigEntry]) -> tuple[UserScramCredentialRecord, ...]:
    entry = entries.get(FIRST_USERS)
    if entry is None:
        return ()
    from penstock.metadata.bootstrap_users import parse_users  # noqa: PLC0415  # loads OpenSSL

    return parse_users(entry.text, f"{FIRST_USERS} ({entry.where})", os.urandom)


def _reject_unsupported(entries: Mapping[str, ConfigEntry], data: str) -> None:
    log_dir = entries.get("metadata.log.dir")
    if log_dir is not None and log_dir.text.strip() not in ("", data):
        raise BadSetting(
            f"metadata.log.dir is {log_dir.text!r} ({log_dir.where}), expected {data!r}: "
            "a separate directory for the metadata log is not supported yet"
        )
