"""Takes the Raft core's requests to its peers, and their answers back to whoever asked.

A fetch may wait at the leader for news, so fetches have a connection of their own: votes and their like go over
another one, and are answered at once. Whatever happens, the asker is told, once: a reply, or that none will come.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.controlplane.cluster_id_check import ClusterIdCheck
from penstock.controlplane.quorum_wire import Answer, Refused, to_wire
from penstock.raft.config import RaftConfig
from penstock.raft.messages import Fetch, FetchSnapshot, Message, RequestFailed
from penstock.raft.ready import Outbound
from penstock.raft.voters import Endpoint
from penstock.wire.peers import Address, PeerFailed, Peers

logger = logging.getLogger(__name__)

FETCHES: Final = "raft-fetch"
ELECTIONS: Final = "raft"


_REASONS: Final = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "it is of another cluster",
    ErrorCode.BROKER_NOT_AVAILABLE: "its directory is new, and it does not know yet which cluster it is of",
}


def reached_at(endpoints: Sequence[Endpoint], listener: str) -> Endpoint | None:
    """Where a peer is reached: through the listener of that name, or else through its first."""
    return next((each for each in endpoints if each.listener == listener), next(iter(endpoints), None))


class PeerTransport:
    """A quorum's `Transport`."""

    def __init__(
        self,
        peers: Peers,
        cluster_id: str | None,
        config: RaftConfig,
        listener: str = "",
        cluster_id_check: ClusterIdCheck | None = None,
    ) -> None:
        """Requests carry `cluster_id`, or none while it is unknown. `listener` is the name of this node's first
        controller listener, if it has one."""
        self._peers = peers
        self.cluster_id = cluster_id or None
        self._config = config
        self._listener = listener
        self._cluster_id_check = cluster_id_check
        self._complaints: dict[int, ErrorCode] = {}
        """By peer, what it refused us with when it last did: said once, however often it is asked again."""

    def __call__(self, outbound: Outbound, tell: Callable[[Message], None]) -> None:
        peer, request = outbound
        endpoint = reached_at(peer.endpoints, self._listener)
        if endpoint is None:
            tell(RequestFailed(request.request_id))
            return
        if self._cluster_id_check is not None:
            self._cluster_id_check.asks(request)
        is_fetch = isinstance(request, Fetch | FetchSnapshot)
        timeout_ms = self._config.request_timeout_ms
        if isinstance(request, Fetch):
            timeout_ms += request.wait_ms_max
        answer = self._peers.ask(
            Address(endpoint.host, endpoint.port),
            to_wire(request, self.cluster_id, endpoint.listener),
            timeout_ms=timeout_ms,
            purpose=FETCHES if is_fetch else ELECTIONS,
        )
        answer.then(partial(self._answered, outbound, tell))

    def _answered(
        self, outbound: Outbound, tell: Callable[[Message], None], answer: Answer | PeerFailed
    ) -> None:
        request_id = outbound.request.request_id
        if isinstance(answer, PeerFailed):
            tell(RequestFailed(request_id, refused=answer.refused))
        elif isinstance(answer, Refused):
            self._complain(outbound, answer.error)
            tell(RequestFailed(request_id))
            endpoint = reached_at(outbound.to.endpoints, self._listener)
            is_other = answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID
            if self._cluster_id_check is not None and is_other and endpoint is not None:
                self._cluster_id_check.refused(Address(endpoint.host, endpoint.port))
        else:
            self._complaints.pop(outbound.to.id, None)
            if self._cluster_id_check is not None:
                self._cluster_id_check.accepted(answer)
            tell(answer)

    def _complain(self, outbound: Outbound, error: ErrorCode) -> None:
        peer, request = outbound
        if self._complaints.get(peer.id) is error:
            return
        self._complaints[peer.id] = error
        where = reached_at(peer.endpoints, self._listener)
        logger.warning(
            "the controller at %s refuses %s: %s",
            f"{where.host}:{where.port}" if where is not None else "nowhere",
            type(request).__name__,
            _REASONS.get(error, error.name),
        )
