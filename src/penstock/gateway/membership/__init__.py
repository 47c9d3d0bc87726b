"""Members of groups that have no connection of their own: they come with one call and are gone until the next.

    members     what is asked: join, leave, consume, commit
    anywhere    the same for groups that another node coordinates
    seats       their sessions, and the heartbeats that the node sends for them
    rights      who may read or commit what, and how it is said that somebody may not

Each is a member of the consumer protocol (KIP-848) under its own name, in the same group and the same log as Kafka
clients, who see nothing unusual about it. Between its calls this node speaks for it: it sends the heartbeats, gives
up at once what is to be given up, takes what is given, and leaves when nothing was heard of the member for the time
of its session.
"""

from .anywhere import MembersAnywhere
from .members import Consumed, Members
from .rights import Conflict

__all__ = ["Conflict", "Consumed", "Members", "MembersAnywhere"]
