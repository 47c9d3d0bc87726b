"""Consumer groups and committed offsets: one coordinator for each partition of `__consumer_offsets`.

coordinator        how it is driven              classic/       members meet, one of them assigns
requests           what it is asked, and answers   group          a group and its members
outcome            answers and records             rounds         joins, generations, syncs, sessions
schemas            Kafka's records                 joining        who may come in
replay             what each record does           membership     syncs, heartbeats, leaving
offsets            what is committed or pending
committing         commits, fetches, expiry
overview           groups as others see them
consumer_protocol  what consumers put into bytes
timers             deadlines without a clock
settings           settings, and the topics there are
shard              what the parts share
"""

from .coordinator import GroupCoordinator
from .outcome import Change, Outcome, Producer
from .requests import refusal, write_error
from .settings import GroupSettings, Topic, Topics

__all__ = [
    "Change",
    "GroupCoordinator",
    "GroupSettings",
    "Outcome",
    "Producer",
    "Topic",
    "Topics",
    "refusal",
    "write_error",
]
