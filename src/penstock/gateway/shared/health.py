"""Health of this node, and of its cluster as this node sees it.

    live        the event loop runs: the node answers
    ready       the node is not fenced, serves every partition that it leads, and its disk accepts writes
                (a controller without a broker: it knows the quorum's leader, and its disk accepts writes)
    degraded    the node is ready, and its cluster is not whole: a broker is fenced, or partitions lack a leader or
                in-sync replicas

A problem needs an operator, or ends by itself within moments (`is_passing`). Problems of the cluster never make a node
unready: a load balancer that removed every node for one dead broker would turn a degraded cluster into an outage.
"""

from typing import Final, Protocol

import msgspec

from penstock.base.steps import Steps, next_tick
from penstock.gateway.shared.metrics_page import coordinator_states
from penstock.handlers.support.context import Context
from penstock.metadata.configs import min_insync_replicas
from penstock.metadata.records import NO_LEADER
from penstock.storage import LogDirectory
from penstock.vfs import Usage

DISK_USABLE_BYTES_MIN: Final = 64 * 2**20
"""A node with less is not ready: indexes and checkpoints would soon find no space."""

NAMED_MAX: Final = 5
"""Partitions or brokers that a message names; the rest are counted."""

PARTITIONS_A_SLICE: Final = 1000
"""Partitions that are checked before other work runs."""


class Problem(msgspec.Struct, frozen=True):
    code: str
    message: str
    is_passing: bool = False


class ObservedNode(Protocol):
    """A node that reports its health and metrics."""

    @property
    def context(self) -> Context: ...

    @property
    def directory(self) -> LogDirectory: ...

    @property
    def is_broker(self) -> bool:
        """False for a controller without a broker."""

    @property
    def http_schemes(self) -> tuple[str, ...]:
        """What HTTP clients log in with; empty if they need not."""


def disk_usage(directory: LogDirectory) -> Usage | None:
    """Usage of the volume that holds the logs; None if it cannot be read."""
    try:
        return directory.vfs.usage(directory.layout.logs)
    except OSError:
        return None


def problems(node: ObservedNode) -> Steps[list[Problem]]:
    """What keeps this node from its work; empty if the node is ready."""
    context = node.context
    if not node.is_broker:
        return [*_quorum(context), *_disk(node.directory)]
    found = [*_membership(context), *_coordinators(context), *_disk(node.directory)]
    found += yield from _partitions(context)
    return found


def warnings(node: ObservedNode) -> list[Problem]:
    """What an operator should know, although the node does all of its work."""
    strays = node.directory.strays_left()
    if not strays:
        return []
    size = sum(each.size_bytes for each in strays)
    return [
        Problem(
            "strays",
            f"{len(strays)} partitions on disk ({size} bytes) belong to no topic of the cluster and are kept: "
            f"{_named([str(each.partition) for each in strays])}; "
            f"see `penstock log strays list {node.directory.layout.logs}`",
        )
    ]


def _membership(context: Context) -> list[Problem]:
    broker = context.image.brokers.get(context.node_id)
    if broker is None or broker.fenced:
        message = "this broker is fenced: the controller has not accepted its heartbeats yet"
        return [Problem("fenced", message, True)]
    if broker.in_controlled_shutdown:
        return [Problem("stopping", "this broker is shutting down", True)]
    return _quorum(context)


def _quorum(context: Context) -> list[Problem]:
    if context.quorum.leader_id < 0:
        message = "no active controller is known: topics and configs cannot be changed"
        return [Problem("no_controller", message, True)]
    return []


def _coordinators(context: Context) -> list[Problem]:
    found = []
    for what, shards in (("groups", context.groups.shards), ("transactions", context.transactions.shards)):
        states = coordinator_states(shards)
        if states["loading"]:
            message = (
                f"{states['loading']} coordinators of {what} are loading their partition of {shards.topic}"
            )
            found.append(Problem("coordinators_loading", message, True))
        if states["damaged"]:
            message = (
                f"{states['damaged']} coordinators of {what} cannot read their partition of {shards.topic}"
            )
            found.append(Problem("coordinators_damaged", message))
    return found


def _disk(directory: LogDirectory) -> list[Problem]:
    usage = disk_usage(directory)
    if usage is None:
        return [Problem("disk_unreadable", f"the volume of {directory.layout.logs} cannot be read")]
    if usage.usable_bytes < DISK_USABLE_BYTES_MIN:
        found = f"the volume of {directory.layout.logs} has {usage.usable_bytes} usable bytes"
        return [Problem("disk_full", f"{found}, expected at least {DISK_USABLE_BYTES_MIN}")]
    return []


def _partitions(context: Context) -> Steps[list[Problem]]:
    in_doubt, unserved = [], []
    checked = 0
    led = context.replicas.by_key
    for name in list(context.replicas.partitions):
        partition = context.replicas.partitions.get(name)
        if partition is not None and partition.log.has_failed_write:
            in_doubt.append(str(name))
        checked += 1
        if checked % PARTITIONS_A_SLICE == 0:
            yield next_tick(context.world)
    for topic in list(context.image.topics.values()):
        for number, placed in topic.partitions.items():
            if placed.leader == context.node_id and (topic.name, number) not in led:
                unserved.append(f"{topic.name}-{number}")
            checked += 1
            if checked % PARTITIONS_A_SLICE == 0:
                yield next_tick(context.world)
    return _problems_of(
        ("log_failed", "the last write or sync failed in", in_doubt),
        ("partitions_unserved", "this broker leads but cannot serve", unserved),
    )


def _problems_of(*problems: tuple[str, str, list[str]]) -> list[Problem]:
    """A problem for each code, start of a message, and names of partitions, if there are any."""
    return [Problem(code, f"{what} {_named(names)}") for code, what, names in problems if names]


def cluster_problems(context: Context) -> Steps[list[Problem]]:
    """What is wrong beyond this node, by the metadata image that this node has."""
    image = context.image
    dead = [each.id for each in image.brokers.values() if each.fenced and each.id != context.node_id]
    offline, under_min_isr, under_replicated = [], [], []
    checked = 0
    for topic in list(image.topics.values()):
        in_sync_min = min_insync_replicas(topic.name, image, context.settings)
        for number, partition in topic.partitions.items():
            if partition.leader == NO_LEADER:
                offline.append(f"{topic.name}-{number}")
            elif len(partition.isr) < min(in_sync_min, len(partition.replicas)):
                under_min_isr.append(f"{topic.name}-{number}")
            elif len(partition.isr) < len(partition.replicas) and not partition.adding:
                under_replicated.append(f"{topic.name}-{number}")
            checked += 1
            if checked % PARTITIONS_A_SLICE == 0:
                yield next_tick(context.world)
    found = []
    if dead:
        found.append(Problem("brokers_fenced", f"{_brokers(dead)} fenced: stopped, unreachable or starting"))
    return found + _problems_of(
        ("partitions_offline", "no leader for", offline),
        ("partitions_under_min_isr", "fewer in-sync replicas than min.insync.replicas in", under_min_isr),
        ("partitions_under_replicated", "a replica is not in sync in", under_replicated),
    )


def _brokers(ids: list[int]) -> str:
    named = _named([str(each) for each in sorted(ids)])
    return f"broker {named} is" if len(ids) == 1 else f"brokers {named} are"


def _named(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown} and {len(names) - NAMED_MAX} more"
