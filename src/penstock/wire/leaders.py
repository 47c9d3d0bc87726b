"""The current leader and its endpoint in NOT_LEADER replies of Produce and Fetch (KIP-951)."""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from .errors import MalformedRequest
from .primitives import INT32, count, read_count, read_nullable_string, read_string, skip_tags, string

_LEADER = Struct(">iix")


class CurrentLeader(NamedTuple):
    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """The endpoint of a leader that a reply names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def encode_leader(leader: CurrentLeader) -> bytes:
    return _LEADER.pack(leader.leader_id, leader.leader_epoch)


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    return count(len(endpoints), True) + b"".join(
        INT32.pack(node_id) + string(host, True) + INT32.pack(port) + string(rack, True) + b"\0"
        for node_id, host, port, rack in endpoints
    )


def read_leader(frame: memoryview, start: int, stop: int) -> CurrentLeader:
    """On the client's side: the leader in the tagged field from start to stop."""
    leader_id, leader_epoch = _LEADER.unpack_from(frame[:stop], start)
    if skip_tags(frame[:stop], start + 8) != stop:
        raise MalformedRequest(f"a leader at byte {start} does not end at {stop}, where its tag does")
    return CurrentLeader(leader_id, leader_epoch)


def read_endpoints(frame: memoryview, start: int, stop: int) -> list[NodeEndpoint]:
    frame = frame[:stop]
    endpoint_count, at = read_count(frame, start, True, 11)
    endpoints = []
    for _ in range(endpoint_count):
        (node_id,) = INT32.unpack_from(frame, at)
        host, at = read_string(frame, at + 4, True)
        (port,) = INT32.unpack_from(frame, at)
        rack, at = read_nullable_string(frame, at + 4, True)
        at = skip_tags(frame, at)
        endpoints.append(NodeEndpoint(node_id, host, port, rack))
    if at != stop:
        raise MalformedRequest(f"the leaders' addresses at byte {start} end at {at}, expected {stop}")
    return endpoints
