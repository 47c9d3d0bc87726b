"""Requests under way: at most one to a peer at a time, a pause after a failure, and which answers still count.

A change of role forgets them all, so that no answer to an old question is taken for one to a new.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.base.ids import TimestampMs
from penstock.raft.config import RaftConfig
from penstock.raft.voters import Peer


@dataclass(slots=True)
class ConnectionState:
    """The state of one peer."""

    peer: Peer
    request_id: int | None = None
    busy_until: TimestampMs = 0
    """While a request is under way, when it is given up; else the end of the pause."""


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
        """When one of them may be asked, if only one of them is to be asked at a time."""
        connections = [self._connections.get(peer_id, _IDLE) for peer_id in peer_ids]
        asked = [connection.busy_until for connection in connections if connection.request_id is not None]
        return (
            max(asked) if asked else min((connection.busy_until for connection in connections), default=None)
        )

    def sent(self, peer: Peer, now_ms: TimestampMs) -> int:
        """The id for a request that goes out now."""
        request_id, self._next_id = self._next_id, (self._next_id + 1) % 2**31
        self._connections[peer.id] = ConnectionState(
            peer, request_id, now_ms + self._config.request_timeout_ms
        )
        return request_id

    def answered(self, request_id: int) -> Peer | None:
        """Who answered; None if the answer is no longer waited for."""
        connection = self._connection_of(request_id)
        if connection is None:
            return None
        connection.request_id, connection.busy_until = None, 0
        return connection.peer

    def pause(self, peer_id: int, now_ms: TimestampMs) -> None:
        connection = self._connections.get(peer_id)
        if connection is not None and connection.request_id is None:
            connection.busy_until = now_ms + self._config.retry_backoff_ms

    def forget(self) -> None:
        self._connections.clear()

    def _connection_of(self, request_id: int) -> ConnectionState | None:
        return next(
            (connection for connection in self._connections.values() if connection.request_id == request_id),
            None,
        )
