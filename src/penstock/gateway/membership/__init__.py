"""Group members over HTTP: members without a connection, which make a call now and then.

    members         join, leave, consume and commit, on the broker that coordinates the group
    http_members    sessions of these members, and the heartbeats that this broker sends for them
    rights          which member may read or commit a partition

Each is a member of the consumer protocol (KIP-848) with a member id of its own, in the same group and the same log as
Kafka clients. Between its calls the coordinator's broker sends heartbeats for it, gives up revoked partitions, takes
assigned ones, and makes it leave when its session times out.
"""

from .members import Consumed, Members, consume_anywhere
from .rights import Conflict

__all__ = ["Conflict", "Consumed", "Members", "consume_anywhere"]
