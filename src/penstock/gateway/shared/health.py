"""Whether a node can do its work, and if not, why.

    live     its loop turns: it would not answer otherwise
    ready    it is counted on by its cluster, serves all that it leads, and its disk takes what is written
             a controller alone: it knows who leads the quorum, and its disk takes what is written

Every problem is one that somebody has to do something about, or that passes by itself within moments (`is_passing`).
"""

from typing import Final, Protocol

import msgspec

from penstock.base.steps import Steps
from penstock.gateway.shared.controller_call import others_first
from penstock.gateway.shared.metrics_page import coordinator_states
from penstock.handlers.support.context import Context
from penstock.storage import LogDirectory
from penstock.vfs import Usage

DISK_USABLE_BYTES_MIN: Final = 64 * 2**20
"""Below that a node is not ready: what it keeps for itself, indexes and checkpoints, has no room for long."""

NAMED_MAX: Final = 5
"""Partitions that are named in a sentence; the others are counted."""

A_TURN: Final = 1000
"""Partitions that are looked at before clients get their turn."""


class Problem(msgspec.Struct, frozen=True):
    code: str
    message: str
    is_passing: bool = False


class Operated(Protocol):
    """A node that tells how it is."""

    @property
    def context(self) -> Context: ...

    @property
    def directory(self) -> LogDirectory: ...

    @property
    def is_broker(self) -> bool:
        """Else it is a controller, and nothing else."""


def disk_usage(directory: LogDirectory) -> Usage | None:
    """Of the volume that holds the logs; None if even that cannot be read."""
    try:
        return directory.vfs.usage(directory.layout.logs)
    except OSError:
        return None


def problems(node: Operated) -> Steps[list[Problem]]:
    """All that is wrong; nothing if the node is ready."""
    context = node.context
    if not node.is_broker:
        return [*_quorum(context), *_disk(node.directory)]
    found = [*_membership(context), *_coordinators(context), *_disk(node.directory)]
    found += yield from _partitions(context)
    return found


def warnings(node: Operated) -> list[Problem]:
    """What keeps the node from none of its work, and somebody should know."""
    strays = node.directory.strays_left()
    if not strays:
        return []
    size = sum(each.size_bytes for each in strays)
    return [
        Problem(
            "strays",
            f"{len(strays)} partitions on disk, {size} bytes, belong to no topic of the cluster and are kept: "
            f"{_named([str(each.partition) for each in strays])}; "
            f"see `penstock log strays list {node.directory.layout.logs}`",
        )
    ]


def _membership(context: Context) -> list[Problem]:
    broker = context.image.brokers.get(context.node_id)
    if broker is None or broker.fenced:
        return [Problem("fenced", "the cluster does not count on this node yet: it is fenced", True)]
    if broker.in_controlled_shutdown:
        return [Problem("stopping", "the node is being stopped", True)]
    return _quorum(context)


def _quorum(context: Context) -> list[Problem]:
    if context.quorum.leader_id < 0:
        return [Problem("no_controller", "no controller is known: nothing can be created or changed", True)]
    return []


def _coordinators(context: Context) -> list[Problem]:
    found = []
    for what, shards in (("groups", context.groups.shards), ("transactions", context.transactions.shards)):
        states = coordinator_states(shards)
        if states["loading"]:
            found.append(
                Problem(
                    "coordinators_loading",
                    f"{states['loading']} coordinators of {what} are reading their partition",
                    True,
                )
            )
        if states["damaged"]:
            found.append(
                Problem(
                    "coordinators_damaged",
                    f"{states['damaged']} coordinators of {what} cannot read their partition of {shards.topic}",
                )
            )
    return found


def _disk(directory: LogDirectory) -> list[Problem]:
    usage = disk_usage(directory)
    if usage is None:
        return [Problem("disk_unreadable", f"the volume of {directory.layout.logs} cannot be looked at")]
    if usage.usable_bytes < DISK_USABLE_BYTES_MIN:
        return [
            Problem(
                "disk_full",
                f"{usage.usable_bytes} bytes are left on the volume of {directory.layout.logs}, "
                f"expected {DISK_USABLE_BYTES_MIN} or more",
            )
        ]
    return []


def _partitions(context: Context) -> Steps[list[Problem]]:
    in_doubt, unserved = [], []
    looks = 0
    led = context.replicas.by_key
    for name in list(context.replicas.partitions):
        partition = context.replicas.partitions.get(name)
        if partition is not None and partition.log.is_in_doubt:
            in_doubt.append(str(name))
        looks += 1
        if looks % A_TURN == 0:
            yield others_first(context.world)
    for topic in list(context.image.topics.values()):
        for number, placed in topic.partitions.items():
            if placed.leader == context.node_id and (topic.name, number) not in led:
                unserved.append(f"{topic.name}-{number}")
        looks += len(topic.partitions)
        if looks >= A_TURN:
            looks = 0
            yield others_first(context.world)
    found = []
    if in_doubt:
        found.append(
            Problem("log_failed", f"the disk failed, and nothing was written since, in {_named(in_doubt)}")
        )
    if unserved:
        found.append(Problem("partitions_unserved", f"led here and not served: {_named(unserved)}"))
    return found


def _named(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    return shown if len(names) <= NAMED_MAX else f"{shown} and {len(names) - NAMED_MAX} more"
