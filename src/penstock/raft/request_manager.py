"""Requests in flight: at most one to a peer at a time, and a backoff after a failure.

A change of role drops them all, so that a late reply is not taken for the reply to a new request.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.base.ids import TimestampMs
from penstock.raft.config import RaftConfig
from penstock.raft.voters import Peer


@dataclass(slots=True)
class ConnectionState:
    """The request in flight, or the backoff, of one peer."""

    peer: Peer
    request_id: int | None = None
    busy_until: TimestampMs = 0
    """While a request is in flight, its timeout; otherwise the end of the backoff."""


_IDLE = ConnectionState(Peer(-1, ()))


class RequestManager:
    def __init__(self, config: RaftConfig, first_id: int) -> None:
        self._config = config
        self._next_id = first_id
        self._connections: dict[int, ConnectionState] = {}

    def is_ready(self, peer_id: int, now_ms: TimestampMs) -> bool:
        return self.ready_at(peer_id) <= now_ms

    def ready_at(self, peer_id: int) -> TimestampMs:
        connection = self._connections.get(peer_id)
        return connection.busy_until if connection is not None else 0

    def is_pausing(self, peer_id: int, now_ms: TimestampMs) -> bool:
        connection = self._connections.get(peer_id)
        return connection is not None and connection.request_id is None and connection.busy_until > now_ms

    def any_ready_at(self, peer_ids: Iterable[int]) -> TimestampMs | None:
        """When a request can be sent to one of these peers, if only one may be in flight to all of them."""
        connections = [self._connections.get(peer_id, _IDLE) for peer_id in peer_ids]
        asked = [connection.busy_until for connection in connections if connection.request_id is not None]
        return (
            max(asked) if asked else min((connection.busy_until for connection in connections), default=None)
        )

    def sent(self, peer: Peer, now_ms: TimestampMs) -> int:
        """Note a request that is sent now, and return its id."""
        request_id, self._next_id = self._next_id, (self._next_id + 1) % 2**31
        self._connections[peer.id] = ConnectionState(
            peer, request_id, now_ms + self._config.request_timeout_ms
        )
        return request_id

    def answered(self, request_id: int) -> Peer | None:
        """Return the peer that replied; None if the reply is no longer expected."""
        connection = self._connection_of(request_id)
        if connection is None:
            return None
        connection.request_id, connection.busy_until = None, 0
        return connection.peer

    def pause(self, peer_id: int, now_ms: TimestampMs) -> None:
        connection = self._connections.get(peer_id)
        if connection is not None and connection.request_id is None:
            connection.busy_until = now_ms + self._config.retry_backoff_ms

    def ignore_others(self, peer_id: int) -> None:
        """Expect no more replies of other peers. Each is still busy until its timeout."""
        for connection in self._connections.values():
            if connection.peer.id != peer_id:
                connection.request_id = None

    def forget(self) -> None:
        self._connections.clear()

    def _connection_of(self, request_id: int) -> ConnectionState | None:
        return next(
            (connection for connection in self._connections.values() if connection.request_id == request_id),
            None,
        )
