"""Whether this node's directory is of the cluster that its settings lead to.

A controller of another cluster refuses whatever it is asked with INCONSISTENT_CLUSTER_ID. One that does may itself be
the one that is wrong, so a majority of those that the settings name must, before this node has found its place among
them: then its start is over. From then on, whoever refuses it is wrong.
"""

from collections.abc import Callable
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.raft.messages import BeginQuorumEpoch, FetchReply, Reply, Request
from penstock.wire.peers import Address

SHOWN_MAX: Final = 3


class ClusterIdCheck:
    def __init__(self, named: int, cluster_id: str, failed: Callable[[str], None]) -> None:
        """`named` controllers are in the settings; `failed` is told, once, why this node cannot go on."""
        self._named = named
        self.cluster_id = cluster_id
        self._failed = failed
        self._refusing: set[Address] = set()
        self._is_settled = False
        """It follows a leader, or is one; or has failed."""

    def asks(self, request: Request) -> None:
        """One that tells others that it leads has been elected by a majority."""
        if isinstance(request, BeginQuorumEpoch):
            self._is_settled = True

    def accepted(self, reply: Reply) -> None:
        if isinstance(reply, FetchReply) and reply.error is ErrorCode.NONE:
            self._is_settled = True

    def refused(self, at: Address) -> None:
        """The controller there is of another cluster."""
        self._refusing.add(at)
        if self._is_settled or 2 * len(self._refusing) <= self._named:
            return
        self._is_settled = True
        shown = ", ".join(f"{each.host}:{each.port}" for each in sorted(self._refusing)[:SHOWN_MAX])
        self._failed(
            f"the directory is of cluster {self.cluster_id}, but the controllers at {shown} are of another one: "
            "either --data or the controllers in the settings are wrong"
        )
