"""What all doors of a node share, and what routes and commands are called with.

A part of it that does something by itself (keeps sessions, writes snapshots) is a `Part`: it begins when the doors
open and ends before the node lets go of its logs.
"""

from typing import Protocol, TypeVar

from penstock.gateway.exports.store import Exports
from penstock.gateway.idempotency import IdempotencyKeys
from penstock.gateway.membership import Members, MembersAnywhere
from penstock.gateway.peer_rpc.client import PeerRpc
from penstock.gateway.shared.explorer import Explorer
from penstock.gateway.shared.fair_queue import FairQueue
from penstock.gateway.shared.producer import Producer
from penstock.handlers.support.context import Context
from penstock.storage import LogDirectory
from penstock.vfs import Vfs


class Part(Protocol):
    def start(self) -> None:
        """The node serves."""

    def stop(self) -> None:
        """It serves no longer: nothing is written and no timer runs after this."""


P = TypeVar("P", bound=Part)


class Gateway:
    is_broker = True
    """Controllers alone have no doors for clients."""

    def __init__(
        self,
        context: Context,
        directory: LogDirectory,
        vfs: Vfs,
        keys: IdempotencyKeys | None = None,
    ) -> None:
        """`keys` are the node's idempotency keys, where it has some already."""
        self.context = context
        self.directory = directory
        self.vfs = vfs
        self._parts: list[Part] = []
        self.fair_queue = FairQueue(context.world)
        self.explorer = Explorer(context)
        self.exports = self._with(Exports(context))
        self.peer_rpc = self._with(PeerRpc(context, self))
        self.members = self._with(Members(context))
        self.membership = MembersAnywhere(context, self.members)
        self.producer = self._with(Producer(context, keys))

    def _with(self, part: P) -> P:
        """Have a part started and stopped with the doors."""
        self._parts.append(part)
        return part

    def start(self) -> None:
        for part in self._parts:
            part.start()

    def stop(self) -> None:
        for part in reversed(self._parts):
            part.stop()
