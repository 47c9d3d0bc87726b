"""Detects at the start that the data directory belongs to another cluster than the configured controllers.

A controller of another cluster rejects every request with INCONSISTENT_CLUSTER_ID. That controller may itself be the
misconfigured one, so the start fails only if a majority of the configured controllers reject this node before it
follows or becomes a leader. Later rejections are ignored.
"""

from collections.abc import Callable
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.raft.messages import BeginQuorumEpoch, FetchReply, Reply, Request
from penstock.wire.peers import Address

SHOWN_MAX: Final = 3
"""Addresses in the error message."""


class ClusterIdCheck:
    def __init__(self, controllers: int, cluster_id: str, failed: Callable[[str], None]) -> None:
        """`controllers` is the number of configured ones. `failed` is called at most once, with the reason."""
        self._controllers = controllers
        self.cluster_id = cluster_id
        self._failed = failed
        self._rejecting: set[Address] = set()
        self._is_settled = False
        """This node has followed or become a leader, or the check has failed."""

    def sent(self, request: Request) -> None:
        """A node that sends BeginQuorumEpoch was elected by a majority."""
        if isinstance(request, BeginQuorumEpoch):
            self._is_settled = True

    def accepted(self, reply: Reply) -> None:
        if isinstance(reply, FetchReply) and reply.error is ErrorCode.NONE:
            self._is_settled = True

    def refused(self, at: Address) -> None:
        """The controller at this address belongs to another cluster."""
        self._rejecting.add(at)
        if self._is_settled or 2 * len(self._rejecting) <= self._controllers:
            return
        self._is_settled = True
        shown = ", ".join(f"{each.host}:{each.port}" for each in sorted(self._rejecting)[:SHOWN_MAX])
        self._failed(
            f"the data directory belongs to cluster {self.cluster_id}, but the controllers at {shown} belong to "
            "another cluster: correct --data, or controller.quorum.voters or controller.quorum.bootstrap.servers"
        )
