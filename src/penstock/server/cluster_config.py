"""What a node is told of the cluster that it is part of: its roles, who votes, and where they are found.

    process.roles                           broker, controller, or both, as it is where nothing is said
    controller.listener.names               which of the listeners are the controllers' (or --controller HOST:PORT)
    controller.quorum.voters                a quorum that is the same for ever, every node of it named
    controller.quorum.bootstrap.servers     a quorum that may change: whom to ask for it
    cluster.id                              which cluster a new directory is of

A controller that is told neither of voters nor of anybody else to ask is a quorum by itself, which others may join.
All nodes of a new cluster must agree on its id. Where it is not set, those with the same voters derive the same one
from them; a node that only knows whom to ask must be told.
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
"""What --controller calls its listener."""

VOTERS_MAX = 64

_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")

VoterAddress = tuple[int, Endpoint]


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    roles: frozenset[str] = BOTH
    controllers: Mapping[str, Endpoint] = field(default_factory=lambda: MappingProxyType({}))
    """By name, the controllers' listeners of this node."""
    advertised: Mapping[str, Endpoint] = field(default_factory=lambda: MappingProxyType({}))
    """By name, where other nodes are told to find them; one that is not in it is found where it listens."""
    voters: tuple[VoterAddress, ...] = ()
    bootstrap: tuple[Endpoint, ...] = ()
    """Whom to ask where no voters are named; none for a node that is a quorum by itself."""
    listener: str = "PLAINTEXT"
    """The one that brokers use among themselves."""
    cluster_id: str | None = None
    """Of a new directory. Empty: the metadata log will tell. None: the node begins a cluster of its own."""

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


def parse_cluster(
    said: Mapping[str, ConfigEntry], controller: str | None, listeners: Mapping[str, Endpoint], node_id: int
) -> ClusterConfig:
    """Put together what is said; `listeners` are all of the node's, the controllers' among them."""
    roles = frozenset(_list(said, "process.roles")) or BOTH
    names = controller_names(said, controller)
    mine = {name: each for name, each in listeners.items() if name in names}
    voters = _voters(said)
    if CONTROLLER in roles:
        _check_voting(said, voters, node_id)
    else:
        _check_not_voting(said, voters, node_id, mine)
    advertised = _advertised(said, mine)
    bootstrap = _bootstrap(said, (*mine.values(), *advertised.values())) if not voters else ()
    if roles == {BROKER} and not voters and not bootstrap:
        raise BadSetting(
            f"process.roles is broker ({said['process.roles'].where}), expected controller.quorum.voters or "
            "controller.quorum.bootstrap.servers beside it: a broker alone has no controller"
        )
    if CONTROLLER in roles and not mine and (len(voters) > 1 or bootstrap):
        raise BadSetting(
            "the quorum has other nodes, expected --controller HOST:PORT, or a listener that "
            "controller.listener.names has: they must reach this one"
        )
    brokers = [name for name in listeners if name not in names]
    return ClusterConfig(
        roles=roles,
        controllers=MappingProxyType(mine),
        advertised=MappingProxyType(advertised),
        voters=voters,
        bootstrap=bootstrap,
        listener=_between_brokers(said, brokers),
        cluster_id=_cluster_id(said, voters),
    )


def check_reachable(
    cluster: ClusterConfig,
    listeners: Mapping[str, Endpoint],
    advertised: Mapping[str, Endpoint],
    node_id: int,
) -> list[str]:
    """Refuse a node of a cluster that other machines could not find: one that listens on all interfaces and does not
    say by which name. `listeners` are its brokers', `advertised` what clients and other brokers are told of them. What
    may be meant so is returned as warnings."""
    voters = dict(cluster.voters)
    named = voters.pop(node_id, None)
    if all(each.host in _THIS_MACHINE for each in (*voters.values(), *cluster.bootstrap)):
        return []
    told = {name: cluster.advertised.get(name) or named or at for name, at in cluster.controllers.items()}
    if cluster.is_broker and cluster.listener in listeners:
        told[cluster.listener] = advertised.get(cluster.listener) or listeners[cluster.listener]
    for name, at in told.items():
        if at.host in ln.EVERYWHERE:
            raise BadSetting(
                f"listener {name} is at {ln.address_text(at)}, all interfaces, expected advertised.listeners to say "
                "where the other nodes of the cluster find it"
            )
    return [
        f"listener {name} is told to other nodes as {ln.address_text(at)}, which is this machine alone"
        for name, at in told.items()
        if at.host in _THIS_MACHINE
    ]


def controller_names(said: Mapping[str, ConfigEntry], controller: str | None) -> tuple[str, ...]:
    """The controllers' listeners, by name."""
    named = tuple(each.upper() for each in _list(said, "controller.listener.names"))
    return (*named, CONTROLLER_LISTENER) if controller is not None else named


def _list(said: Mapping[str, ConfigEntry], name: str) -> list[str]:
    return ln.parts(said[name].text) if name in said else []


def _voters(said: Mapping[str, ConfigEntry]) -> tuple[VoterAddress, ...]:
    words = _list(said, "controller.quorum.voters")
    if not words:
        return ()
    where = f"controller.quorum.voters ({said['controller.quorum.voters'].where})"
    found: dict[int, Endpoint] = {}
    for word in words:
        number, _, address = word.partition("@")
        if not number.isdecimal() or int(number) >= 2**31 or not address:
            raise BadSetting(f"{where} has {word!r}, expected ID@HOST:PORT, such as 1@127.0.0.1:9093")
        endpoint = ln.parse_address(address, f"voter {number} of {where}", 9093)
        if not endpoint.host or not endpoint.port:
            raise BadSetting(f"{where} has {word!r}, expected a host and a port that others can reach")
        if int(number) in found:
            raise BadSetting(f"{where} has voter {number} twice")
        found[int(number)] = endpoint
    if len(found) > VOTERS_MAX:
        raise BadSetting(f"{where} names {len(found)} voters, expected at most {VOTERS_MAX}")
    return tuple(sorted(found.items()))


def _check_voting(said: Mapping[str, ConfigEntry], voters: tuple[VoterAddress, ...], node_id: int) -> None:
    if voters and node_id not in dict(voters):
        word = said["controller.quorum.voters"]
        raise BadSetting(
            f"controller.quorum.voters is {word.text!r} ({word.where}), expected node {node_id} to be in it, "
            "since it is a controller"
        )


def _check_not_voting(
    said: Mapping[str, ConfigEntry],
    voters: tuple[VoterAddress, ...],
    node_id: int,
    controllers: Mapping[str, Endpoint],
) -> None:
    word = said["process.roles"]
    if node_id in dict(voters):
        raise BadSetting(
            f"process.roles is {word.text!r} ({word.where}), and controller.quorum.voters has node {node_id}, "
            "expected only controllers in it"
        )
    joining = said.get("controller.quorum.auto.join.enable")
    if joining is not None and joining.text.strip().lower() == "true":
        raise BadSetting(
            f"controller.quorum.auto.join.enable is true ({joining.where}), and process.roles {word.text!r}, expected "
            "only controllers to want a vote"
        )
    if controllers:
        raise BadSetting(
            f"process.roles is {word.text!r} ({word.where}), expected no listener of the controllers' "
            f"({', '.join(controllers)})"
        )


def _bootstrap(said: Mapping[str, ConfigEntry], mine: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    words = _list(said, "controller.quorum.bootstrap.servers")
    if not words:
        return ()
    where = f"controller.quorum.bootstrap.servers ({said['controller.quorum.bootstrap.servers'].where})"
    found = tuple(ln.parse_address(word, where, 9093) for word in words)
    if len(found) == 1 and any(_is_itself(found[0], each) for each in mine):
        return ()  # what Kafka's files for a node alone say
    return found


def _is_itself(named: Endpoint, own: Endpoint) -> bool:
    """Whether a node that listens at `own` is the one that is named. Another machine's controller may well have the
    same port: only a name that can mean no other machine counts."""
    return named.port == own.port and named.host in (own.host, *_THIS_MACHINE)


def _advertised(said: Mapping[str, ConfigEntry], mine: Mapping[str, Endpoint]) -> dict[str, Endpoint]:
    word = said.get("advertised.listeners")
    if word is None:
        return {}
    told = ln.parse_listeners(word.text, f"advertised.listeners ({word.where})")
    return {name: each for name, each in told.items() if name in mine}


def _between_brokers(said: Mapping[str, ConfigEntry], names: list[str]) -> str:
    word = said.get("inter.broker.listener.name")
    if word is not None:
        return word.text.strip().upper()
    return "PLAINTEXT" if "PLAINTEXT" in names or not names else names[0]


def _cluster_id(said: Mapping[str, ConfigEntry], voters: tuple[VoterAddress, ...]) -> str | None:
    word = said.get("cluster.id")
    if word is not None:
        try:
            return uuid_text(uuid_from_text(word.text.strip()))
        except ValueError as error:
            raise BadSetting(
                f"cluster.id is {word.text!r} ({word.where}), expected 22 characters of URL-safe base64, "
                "as in meta.properties"
            ) from error
    return "" if voters else None
