"""What a node is told before it starts: where its data is, where it listens, and its settings by Kafka's names.

`load` takes the words of all sources, the strongest of each name, and refuses what is wrong in one sentence that
says which setting, where it was found, what it was and what was expected. Some settings and flags are two names for
one thing (`--data` and `log.dirs`, `--kafka` and `listeners`, `--http` and `http.listener`, `node.id` and
`broker.id`): a stronger source wins, and two words of one source that differ are refused.

What a node cannot do yet is refused here as well, rather than taken and not done.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from penstock.base.settings import BadSetting
from penstock.handlers.support.context import Endpoint
from penstock.metadata import EMPTY, BrokerSettings, log_defaults
from penstock.metadata.config_table import BROKER_SETTINGS, TOPIC_SETTINGS
from penstock.metadata.configs import validate_static
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
from penstock.storage.open_files import OPEN_FILES_MAX

DATA_DEFAULT = "./penstock-data"
LISTENER_DEFAULT = "PLAINTEXT"
KAFKA_DEFAULT = Endpoint("127.0.0.1", 9092)
"""Only this machine, unless told otherwise: nobody has to show who they are yet."""

DOORS = {"http": "http.listener", "line": "line.listener"}
"""What is served beside Kafka, and the settings that say where; their defaults are in the table of settings."""

OFF = "off"

NODE_ID_DEFAULT = 1

_LEFT_OUT = (
    "share.",
    "group.share.",
    "group.streams.",
    "group.coordinator.",
    "metric.reporters",
    "metrics.",
    "kafka.metrics.",
    "auto.include.jmx.reporter",
    "client.quota.",
    "quota.",
    "replication.quota.",
    "telemetry.",
    "remote.",
    "log.remote.",
    "internal.",
    "request.queue.",
    "unstable.",
    "zookeeper.",
)
"""Kafka's settings that a file of Kafka's may carry and that change nothing which a client of a single node is
promised: they are left out with a warning. What would keep somebody out (`ssl.`, `sasl.`, `authorizer.`) never is."""

_ACCESS = (
    "ssl.",
    "sasl.",
    "authorizer.",
    "super.users",
    "security.",
    "principal.builder.",
    "delegation.token.secret.",
)
_CLASSES = ("alter.config.policy.class.name", "create.topic.policy.class.name")
"""Rules of somebody's own: a topic that they forbid would be created."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    data: str
    """The data directory; or a log directory of Kafka's, which has meta.properties at its top."""
    listeners: Mapping[str, Endpoint] = field(
        default_factory=lambda: MappingProxyType({LISTENER_DEFAULT: KAFKA_DEFAULT})
    )
    """By name, where clients connect. Once the sockets are bound, ports are the real ones. No host: everywhere."""
    advertised: Mapping[str, Endpoint] = field(default_factory=dict)
    """By name of a listener, where clients are told to connect; a listener that is not in it tells them what they
    dialled."""
    doors: Mapping[str, Endpoint] = field(default_factory=dict)
    """By name, `http` and `line`, where others connect; one that is not in it is not there."""
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    node_id: int | None = None
    """None: whatever the directory says, and 1 for a new one. Otherwise both must agree."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What was set, by Kafka's names, every one known and checked; defaults are not in it."""
    open_files_max: int = OPEN_FILES_MAX
    """How many files of logs are kept open."""
    connections_max: int = 2**31 - 1
    """How many connections the process has descriptors for, beside those of its files."""
    warnings: tuple[str, ...] = ()
    """What the operator should know about the settings; said once, at the start."""

    def setting(self, name: str) -> str | None:
        """What is in force before anything was set at run time."""
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
        """The same with the ports that the listeners and the doors really have."""
        doors = self.doors if doors is None else doors
        controllers = self.cluster.controllers if controllers is None else controllers
        everyone = {**listeners, **controllers}
        settings = {**self.settings, "listeners": ln.listeners_text(everyone), **_doors_text(doors)}
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
    """The configuration of `penstock up`: what its flags, the environment and a file say."""
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
    """A configuration that a program makes; the environment has no say in it, and there are no doors beside Kafka's
    unless it asks for them. A controller alone has no door of Kafka's either."""
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
    words: Iterable[ConfigEntry],
    *,
    data: str | None = None,
    kafka: str | None = None,
    controller: str | None = None,
    http: str | None = None,
    line: str | None = None,
) -> NodeConfig:
    """Put together what was said, checking every word of it."""
    said: dict[str, ConfigEntry] = {}
    warnings = []
    for each in words:
        if each.name not in BROKER_SETTINGS:
            warnings.append(_without(each))
            continue
        _check(each)
        if each.name not in said or said[each.name].rank <= each.rank:
            said[each.name] = each
    path = _data(said, data)
    everyone = _listeners(said, kafka, controller)
    node_id = _node_id(said)
    cluster = parse_cluster(said, controller, everyone, NODE_ID_DEFAULT if node_id is None else node_id)
    listeners = _served(said, everyone, cluster)
    doors = _doors(said, {"http": http, "line": line}, cluster)
    _refuse_what_is_not_there(said, path)
    settings = {name: each.text.strip() for name, each in said.items()}
    settings |= {"listeners": ln.listeners_text(everyone), "log.dirs": path, **_doors_text(doors)}
    settings.pop("log.dir", None)
    _check_together(settings)
    advertised = _advertised(said, listeners)
    warnings += check_reachable(
        cluster, listeners, advertised, NODE_ID_DEFAULT if node_id is None else node_id
    )
    return NodeConfig(
        data=path,
        listeners=MappingProxyType(listeners),
        advertised=MappingProxyType(advertised),
        doors=MappingProxyType(doors),
        cluster=cluster,
        node_id=node_id,
        settings=MappingProxyType(settings),
        warnings=tuple(warnings),
    )


# -- single words --------------------------------------------------------------------------------------


def _without(each: ConfigEntry) -> str:
    """A sentence about a setting that is left out; any other unknown one is refused."""
    if ".properties line " in each.where and each.name.startswith(_LEFT_OUT):
        return f"{each.name} ({each.where}) is not acted on"
    raise BadSetting(f"unknown setting {each.name} ({each.where}){_hint(each.name)}")


def _hint(name: str) -> str:
    topic = TOPIC_SETTINGS.get(name)
    if topic is not None and topic.brokers:
        return f": it is a topic's; for all topics, the broker's is {topic.brokers[0]}"
    if name.startswith(_ACCESS):
        return ": encryption, authentication and authorization are not there yet"
    if name.startswith("listener.name."):
        return ": settings of single listeners are not there yet"
    if name in _CLASSES or name.startswith("config.providers"):
        return ": it loads a class of Java's, and what that would do would not be done"
    near = nearest(name, BROKER_SETTINGS)
    return f"; did you mean {near}?" if near else ""


def _check(each: ConfigEntry) -> None:
    try:
        validate_static({each.name: each.text})
    except BadSetting as error:
        raise BadSetting(f"{error} ({each.where})") from error


def _check_together(settings: Mapping[str, str]) -> None:
    """What is sound alone may not be together, or may be no log's."""
    log_defaults(EMPTY, BrokerSettings(None, settings))


def _strongest(names: tuple[str, ...], said: Mapping[str, ConfigEntry]) -> ConfigEntry | None:
    """Of several names for one thing the strongest word; two of one source must agree."""
    found = sorted((said[name] for name in names if name in said), key=lambda each: each.rank)
    if not found:
        return None
    *rest, best = found
    for other in rest:
        if other.rank == best.rank and other.text.strip() != best.text.strip():
            raise BadSetting(
                f"{other.name} is {other.text!r} ({other.where}) and {best.name} is {best.text!r} ({best.where}), "
                "expected one of them, or the same"
            )
    return best


# -- what several settings say together ----------------------------------------------------------------


def _data(said: Mapping[str, ConfigEntry], flag: str | None) -> str:
    word = _strongest(("log.dir", "log.dirs"), said)
    if flag is not None:
        if word is not None and word.rank == FLAG and word.text != flag:
            raise BadSetting(f"--data is {flag!r} and {word.name} is {word.text!r}, expected one of them")
        paths = [flag]
    else:
        paths = ln.parts(word.text) if word is not None else [DATA_DEFAULT]
    where = f" ({word.where})" if word is not None and flag is None else ""
    if len(paths) > 1:
        raise BadSetting(f"log.dirs names {len(paths)} directories{where}: several are not there yet")
    if not paths or not paths[0]:
        raise BadSetting(f"the data directory has an empty name{where}")
    if "\0" in paths[0]:
        raise BadSetting(f"the data directory is {paths[0]!r}{where}, expected a path without zero bytes")
    return paths[0]


def _node_id(said: Mapping[str, ConfigEntry]) -> int | None:
    words = [
        said[name] for name in ("node.id", "broker.id") if name in said and said[name].text.strip() != "-1"
    ]
    if len({int(each.text) for each in words}) > 1:
        one, other = words
        raise BadSetting(
            f"node.id is {one.text} ({one.where}) and broker.id is {other.text} ({other.where}), expected the same"
        )
    if not words:
        return None
    node_id = int(words[0].text)
    if node_id < 0:
        raise BadSetting(f"broker.id is {node_id} ({words[0].where}), expected 0 or more")
    return node_id


def _listeners(
    said: Mapping[str, ConfigEntry], kafka: str | None, controller: str | None
) -> dict[str, Endpoint]:
    """Where to listen for Kafka's clients, and for controllers."""
    word = said.get("listeners")
    if kafka is not None:
        if word is not None and word.rank == FLAG:
            raise BadSetting(f"--kafka is {kafka!r} and listeners is {word.text!r}, expected one of them")
        found = {LISTENER_DEFAULT: ln.parse_address(kafka, "--kafka")}
    elif word is None:
        found = {LISTENER_DEFAULT: KAFKA_DEFAULT}
    else:
        found = ln.parse_listeners(word.text, f"listeners ({word.where})")
    if controller is not None:
        found[CONTROLLER_LISTENER] = ln.parse_address(controller, "--controller", 9093)
    protocols = said.get("listener.security.protocol.map")
    if word is not None and kafka is None:
        # A controllers' listener needs no entry of its own: Kafka takes it for plain text too.
        mapped = {
            name: each for name, each in found.items() if name not in controller_names(said, controller)
        }
        ln.check_protocols(
            mapped, protocols.text if protocols else None, protocols.where if protocols else word.where
        )
    return found


def _served(
    said: Mapping[str, ConfigEntry], everyone: Mapping[str, Endpoint], cluster: ClusterConfig
) -> dict[str, Endpoint]:
    """Those of Kafka's clients."""
    served = {name: each for name, each in everyone.items() if name not in cluster.controllers}
    if not cluster.is_broker:
        return {}
    if not served:
        word = said["listeners"]
        raise BadSetting(f"listeners is {word.text!r} ({word.where}): all of them are the controllers'")
    among = said.get("inter.broker.listener.name")
    if among is not None and cluster.listener not in served:
        raise BadSetting(
            f"inter.broker.listener.name is {among.text!r} ({among.where}), expected one of {', '.join(served)}"
        )
    return served


def _doors(
    said: Mapping[str, ConfigEntry], flags: Mapping[str, str | None], cluster: ClusterConfig
) -> dict[str, Endpoint]:
    """Where else to listen. A node that is no broker has nothing to say there but how it is, and that where it is told
    to: over HTTP."""
    doors: dict[str, Endpoint] = {}
    for name, setting in DOORS.items():
        word, flag = said.get(setting), flags[name]
        default = BROKER_SETTINGS[setting].default or OFF
        asked = flag if flag is not None else word.text if word is not None else OFF
        if not cluster.is_broker and asked.strip().lower() == OFF:
            continue
        if not cluster.is_broker and name != "http":
            raise BadSetting(f"{setting} is {asked!r}, expected off: a controller alone serves no clients")
        if flag is not None and word is not None and word.rank == FLAG and word.text.strip() != flag.strip():
            raise BadSetting(f"--{name} is {flag!r} and {setting} is {word.text!r}, expected one of them")
        if flag is not None:
            text, what = flag, f"--{name}"
        elif word is not None:
            text, what = word.text, f"{setting} ({word.where})"
        else:
            text, what = default, setting
        if text.strip().lower() != OFF:
            doors[name] = ln.parse_address(text, what, int(default.rpartition(":")[2]), ", or off")
    return doors


def _doors_text(doors: Mapping[str, Endpoint]) -> dict[str, str]:
    return {
        setting: ln.address_text(doors[name]) if name in doors else OFF for name, setting in DOORS.items()
    }


def _advertised(said: Mapping[str, ConfigEntry], served: Mapping[str, Endpoint]) -> dict[str, Endpoint]:
    word = said.get("advertised.listeners")
    if word is None:
        return {}
    told = ln.parse_listeners(word.text, f"advertised.listeners ({word.where})")
    of_controllers = controller_names(said, None)
    for name, endpoint in told.items():
        if name in of_controllers:
            continue
        if name not in served:
            raise BadSetting(
                f"advertised.listeners has {name} ({word.where}), expected names of listeners: {', '.join(served)}"
            )
        if endpoint.host in ln.EVERYWHERE or not endpoint.port:
            raise BadSetting(
                f"advertised.listeners has {name}://{ln.address_text(endpoint)} ({word.where}), "
                "expected a host and a port that clients can reach"
            )
    return {name: endpoint for name, endpoint in told.items() if name in served}


def _refuse_what_is_not_there(said: Mapping[str, ConfigEntry], data: str) -> None:
    log_dir = said.get("metadata.log.dir")
    if log_dir is not None and log_dir.text.strip() not in ("", data):
        raise BadSetting(
            f"metadata.log.dir is {log_dir.text!r} ({log_dir.where}), expected {data!r}: "
            "a directory of its own for the metadata log is not there yet"
        )
