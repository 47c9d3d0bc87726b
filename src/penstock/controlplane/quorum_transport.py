"""Sends the Raft core's requests to its peers, and returns their replies to the core.

A Fetch may wait at the leader for records, so fetches have a connection of their own: votes and other requests use
another one and are answered at once. For every request the core gets exactly one message: a reply or `RequestFailed`.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
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
    ErrorCode.INCONSISTENT_CLUSTER_ID: "it belongs to another cluster",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "this node's principal is not allowed ClusterAction on the cluster; add it to super.users of all nodes"
    ),
    ErrorCode.BROKER_NOT_AVAILABLE: "its data directory is new, and it does not know its cluster id yet",
}


def reached_at(endpoints: Sequence[Endpoint], listener: str) -> Endpoint | None:
    """The peer's endpoint of that listener name, or else its first endpoint."""
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
        self._logged_errors: dict[int, ErrorCode] = {}
        """By peer, the error of its last rejected request. The same error is logged once."""

    @property
    def is_denied(self) -> bool:
        """Whether a controller does not allow this node what nodes do."""
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED in self._logged_errors.values()

    def __call__(self, outbound: Outbound, deliver: Callable[[Message], None]) -> None:
        peer, request = outbound
        endpoint = reached_at(peer.endpoints, self._listener)
        if endpoint is None:
            deliver(RequestFailed(request.request_id))
            return
        if self._cluster_id_check is not None:
            self._cluster_id_check.sent(request)
        is_fetch = isinstance(request, Fetch | FetchSnapshot)
        timeout_ms = self._config.request_timeout_ms
        if isinstance(request, Fetch):
            timeout_ms += request.wait_ms_max
        response = self._peers.ask(
            Address(endpoint.host, endpoint.port),
            to_wire(request, self.cluster_id, endpoint.listener),
            timeout_ms=timeout_ms,
            purpose=FETCHES if is_fetch else ELECTIONS,
        )
        response.then(
            partial(self._replied, outbound, deliver), partial(self._failed, request.request_id, deliver)
        )

    def _failed(self, request_id: int, deliver: Callable[[Message], None], error: KafkaError) -> None:
        """No response came."""
        deliver(RequestFailed(request_id, refused=isinstance(error, PeerFailed) and error.refused))

    def _replied(self, outbound: Outbound, deliver: Callable[[Message], None], reply: Answer) -> None:
        if isinstance(reply, Refused):
            self._log_error(outbound, reply.error)
            deliver(RequestFailed(outbound.request.request_id))
            endpoint = reached_at(outbound.to.endpoints, self._listener)
            is_other = reply.error is ErrorCode.INCONSISTENT_CLUSTER_ID
            if self._cluster_id_check is not None and is_other and endpoint is not None:
                self._cluster_id_check.refused(Address(endpoint.host, endpoint.port))
        else:
            self._logged_errors.pop(outbound.to.id, None)
            if self._cluster_id_check is not None:
                self._cluster_id_check.accepted(reply)
            deliver(reply)

    def _log_error(self, outbound: Outbound, error: ErrorCode) -> None:
        peer, request = outbound
        if self._logged_errors.get(peer.id) is error:
            return
        self._logged_errors[peer.id] = error
        where = reached_at(peer.endpoints, self._listener)
        logger.log(
            logging.ERROR if error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else logging.WARNING,
            "the controller at %s rejected %s: %s",
            f"{where.host}:{where.port}" if where is not None else "an unknown address",
            type(request).__name__,
            _REASONS.get(error, error.name),
        )
