"""Who leads now, told in the reply that says "not I" (KIP-951): shared by Produce and Fetch."""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from .primitives import INT32, count, string

_LEADER = Struct(">iix")


class CurrentLeader(NamedTuple):
    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """Where a node that a reply names as leader can be reached."""

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
