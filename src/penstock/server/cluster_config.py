"""The cluster part of a node's configuration: roles, voters, and where to find them.

    process.roles                           broker, controller, or both (the default)
    controller.listener.names               the controller listeners (or --controller HOST:PORT)
    controller.quorum.voters                a static quorum: all of its voters
    controller.quorum.bootstrap.servers     a dynamic quorum: addresses to ask for it
    cluster.id                              the cluster of a new data directory

A controller without voters and bootstrap servers is a quorum of one, which other controllers may join. All nodes of a
new cluster need the same id: it is configured, or the first leader draws it (`controlplane.cluster_naming`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.base.ids import uuid_from_text, uuid_text
from penstock.base.settings import BadSetting
from penstock.handlers.support.context import Endpoint
from penstock.server import listeners as ln
from penstock.server.config_sources import ConfigEntry

BROKER, CONTROLLER = "broker", "controller"
BOTH = frozenset({BROKER, CONTROLLER})

CONTROLLER_LISTENER = "CONTROLLER"
"""The listener name of --controller, and of controllers that are known only by their address."""

VOTERS_MAX = 64

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

VoterAddress = tuple[int, Endpoint]


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    roles: frozenset[str] = BOTH
    controllers: Mapping[str, Endpoint] = field(default_factory=lambda: MappingProxyType({}))
    """By name, this node's controller listeners."""
    advertised: Mapping[str, Endpoint] = field(default_factory=lambda: MappingProxyType({}))
    """By name, the advertised addresses of controller listeners; default: where they listen."""
    voters: tuple[VoterAddress, ...] = ()
    bootstrap: tuple[Endpoint, ...] = ()
    """Addresses to ask for the quorum; empty with configured voters, and for a quorum of one."""
    listener: str = "PLAINTEXT"
    """The inter-broker listener."""
    controller_listener: str = CONTROLLER_LISTENER
    """The listener of controllers that this node connects to, by its name: the first of controller.listener.names."""
    cluster_id: str | None = None
    """Of a new data directory. Empty: it is read from the metadata log. None: the node draws one for a new cluster."""

    @property
    def is_broker(self) -> bool:
        return BROKER in self.roles

    @property
    def is_controller(self) -> bool:
        return CONTROLLER in self.roles

    @property
    def is_standalone(self) -> bool:
        """Whether a new directory becomes a quorum of this node alone."""
        return self.is_controller and len(self.voters) <= 1 and not self.bootstrap

    @property
    def is_alone(self) -> bool:
        """Whether this node never connects to another one."""
        return self.is_standalone and not self.controllers


def parse_cluster(
    entries: Mapping[str, ConfigEntry],
    controller: str | None,
    listeners: Mapping[str, Endpoint],
    protocols: Mapping[str, str],
    node_id: int,
) -> ClusterConfig:
    """Parse the cluster settings; `listeners` has all of the node's listeners, controller listeners included, and
    `protocols` their security protocols."""
    roles = frozenset(_list(entries, "process.roles")) or BOTH
    names = controller_names(entries, controller)
    mine = {name: listeners[name] for name in names if name in listeners}
    voters = _voters(entries)
    if CONTROLLER in roles:
        _check_voting(entries, voters, node_id)
    else:
        _check_not_voting(entries, voters, node_id, mine)
    advertised = _advertised(entries, mine)
    bootstrap = _bootstrap(entries, (*mine.values(), *advertised.values())) if not voters else ()
    if roles == {BROKER} and not voters and not bootstrap:
        raise BadSetting(
            f"process.roles is broker ({entries['process.roles'].where}), expected controller.quorum.voters or "
            "controller.quorum.bootstrap.servers with it: a broker needs the address of a controller"
        )
    if CONTROLLER in roles and not mine and (len(voters) > 1 or bootstrap):
        raise BadSetting(
            "the quorum has other nodes, which must reach this one: expected --controller HOST:PORT, or a listener in "
            "controller.listener.names"
        )
    brokers = {name: protocols[name] for name in listeners if name not in names}
    return ClusterConfig(
        roles=roles,
        controllers=MappingProxyType(mine),
        advertised=MappingProxyType(advertised),
        voters=voters,
        bootstrap=bootstrap,
        listener=_between_brokers(entries, brokers),
        controller_listener=next(iter(names), CONTROLLER_LISTENER),
        cluster_id=_cluster_id(entries, voters),
    )


def check_reachable(
    cluster: ClusterConfig,
    listeners: Mapping[str, Endpoint],
    advertised: Mapping[str, Endpoint],
    node_id: int,
) -> list[str]:
    """Reject a configuration that other machines cannot reach: a listener on all interfaces without an advertised
    address. `listeners` and `advertised` are the broker's. Returns warnings about addresses that may be intended."""
    voters = dict(cluster.voters)
    named = voters.pop(node_id, None)
    if all(each.host in _THIS_MACHINE for each in (*voters.values(), *cluster.bootstrap)):
        return []
    addresses = {
        name: cluster.advertised.get(name) or named or at for name, at in cluster.controllers.items()
    }
    if cluster.is_broker and cluster.listener in listeners:
        addresses[cluster.listener] = advertised.get(cluster.listener) or listeners[cluster.listener]
    for name, at in addresses.items():
        if at.host in ln.EVERYWHERE:
            raise BadSetting(
                f"listener {name} is at {ln.address_text(at)}, all interfaces, expected an entry in "
                "advertised.listeners with an address that other nodes can reach"
            )
    return [
        f"listener {name} is advertised to other nodes as {ln.address_text(at)}, which only this machine can reach"
        for name, at in addresses.items()
        if at.host in _THIS_MACHINE
    ]


def controller_names(entries: Mapping[str, ConfigEntry], controller: str | None) -> tuple[str, ...]:
    """Names of the controllers' listeners: those of this node, or on a broker those that it connects to."""
    named = tuple(each.upper() for each in _list(entries, "controller.listener.names"))
    is_only_broker = _list(entries, "process.roles") == [BROKER]
    if controller is not None or (is_only_broker and not named):
        return (*named, CONTROLLER_LISTENER)
    return named


def _list(entries: Mapping[str, ConfigEntry], name: str) -> list[str]:
    return ln.parts(entries[name].text) if name in entries else []


def _voters(entries: Mapping[str, ConfigEntry]) -> tuple[VoterAddress, ...]:
    words = _list(entries, "controller.quorum.voters")
    if not words:
        return ()
    where = f"controller.quorum.voters ({entries['controller.quorum.voters'].where})"
    found: dict[int, Endpoint] = {}
    for entry in words:
        number, _, address = entry.partition("@")
        if not number.isdecimal() or int(number) >= 2**31 or not address:
            raise BadSetting(f"{where} has {entry!r}, expected ID@HOST:PORT, such as 1@127.0.0.1:9093")
        endpoint = ln.parse_address(address, f"voter {number} of {where}", 9093)
        if not endpoint.host or not endpoint.port:
            raise BadSetting(f"{where} has {entry!r}, expected a host and a port that others can reach")
        if int(number) in found:
            raise BadSetting(f"{where} has voter {number} twice")
        found[int(number)] = endpoint
    if len(found) > VOTERS_MAX:
        raise BadSetting(f"{where} names {len(found)} voters, expected at most {VOTERS_MAX}")
    return tuple(sorted(found.items()))


def _check_voting(entries: Mapping[str, ConfigEntry], voters: tuple[VoterAddress, ...], node_id: int) -> None:
    if voters and node_id not in dict(voters):
        entry = entries["controller.quorum.voters"]
        raise BadSetting(
            f"controller.quorum.voters is {entry.text!r} ({entry.where}), expected it to contain node {node_id}, "
            "which is a controller"
        )


def _check_not_voting(
    entries: Mapping[str, ConfigEntry],
    voters: tuple[VoterAddress, ...],
    node_id: int,
    controllers: Mapping[str, Endpoint],
) -> None:
    entry = entries["process.roles"]
    if node_id in dict(voters):
        raise BadSetting(
            f"process.roles is {entry.text!r} ({entry.where}), and controller.quorum.voters has node {node_id}, "
            "expected only controllers there"
        )
    joining = entries.get("controller.quorum.auto.join.enable")
    if joining is not None and joining.text.strip().lower() == "true":
        raise BadSetting(
            f"controller.quorum.auto.join.enable is true ({joining.where}) and process.roles is {entry.text!r}, "
            "expected it only on controllers"
        )
    if controllers:
        raise BadSetting(
            f"process.roles is {entry.text!r} ({entry.where}), expected no controller listener "
            f"({', '.join(controllers)})"
        )


def _bootstrap(entries: Mapping[str, ConfigEntry], mine: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    words = _list(entries, "controller.quorum.bootstrap.servers")
    if not words:
        return ()
    where = f"controller.quorum.bootstrap.servers ({entries['controller.quorum.bootstrap.servers'].where})"
    found = tuple(ln.parse_address(entry, where, 9093) for entry in words)
    if len(found) == 1 and any(_is_itself(found[0], each) for each in mine):
        return ()  # as in Kafka's example configuration of a single node
    return found


def _is_itself(named: Endpoint, own: Endpoint) -> bool:
    """Whether `named` is the node that listens at `own`. Controllers of other machines may have the same port, so the
    host must be equal or loopback."""
    return named.port == own.port and named.host in (own.host, *_THIS_MACHINE)


def _advertised(entries: Mapping[str, ConfigEntry], mine: Mapping[str, Endpoint]) -> dict[str, Endpoint]:
    entry = entries.get("advertised.listeners")
    if entry is None:
        return {}
    advertised = ln.parse_listeners(entry.text, f"advertised.listeners ({entry.where})")
    return {name: each for name, each in advertised.items() if name in mine}


def _between_brokers(entries: Mapping[str, ConfigEntry], protocols: Mapping[str, str]) -> str:
    """The inter-broker listener: the configured one, else the first with the protocol PLAINTEXT, else the first."""
    entry, protocol = entries.get("inter.broker.listener.name"), entries.get("security.inter.broker.protocol")
    if entry is not None and protocol is not None:
        raise BadSetting(
            f"inter.broker.listener.name is {entry.text!r} ({entry.where}) and security.inter.broker.protocol is "
            f"{protocol.text!r} ({protocol.where}), expected only one of them"
        )
    if entry is not None:
        return entry.text.strip().upper()
    wanted = ln.PLAINTEXT if protocol is None else protocol.text.strip()
    found = [name for name, each in protocols.items() if each == wanted]
    if wanted in found or not protocols:
        return wanted
    if protocol is not None and not found:
        raise BadSetting(
            f"security.inter.broker.protocol is {protocol.text!r} ({protocol.where}), expected a listener with this "
            f"protocol; the listeners are {', '.join(f'{name}:{each}' for name, each in protocols.items())}"
        )
    return found[0] if found else next(iter(protocols))


def _cluster_id(entries: Mapping[str, ConfigEntry], voters: tuple[VoterAddress, ...]) -> str | None:
    entry = entries.get("cluster.id")
    if entry is not None:
        try:
            return uuid_text(uuid_from_text(entry.text.strip()))
        except ValueError as error:
            raise BadSetting(
                f"cluster.id is {entry.text!r} ({entry.where}), expected 22 characters of URL-safe base64, "
                "as in meta.properties"
            ) from error
    return "" if voters else None
