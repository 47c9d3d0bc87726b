"""Topics that are deleted and created again under their name: each time is a life of its own, with an id of its own.

Who names a topic by its id means one life of it, and all that is said of what it wrote and read is said of that
life (`life_name`): nothing that holds of one topic has to hold across two. Who names it by name gets whatever life
there is.
"""

from typing import NamedTuple
from uuid import UUID

from penstock.base.ids import Offset, TopicPartition

BETWEEN = "@"
"""No topic has it in its name."""


def life_name(topic: str, topic_id: UUID) -> str:
    return f"{topic}{BETWEEN}{topic_id}"


def topic_name(scope: str) -> str:
    """The name of the topic that a life is of; or of a topic that has one."""
    return scope.partition(BETWEEN)[0]


def is_life(scope: str) -> bool:
    return BETWEEN in scope


class LifeStarted(NamedTuple):
    """Who renews a topic has found a life of it that it did not know: it began after the last deletion was asked
    for."""

    topic: str
    scope: str


class DeletionSent(NamedTuple):
    """A topic is to be deleted: one life of it; or, named by name, whichever there is."""

    topic: str
    scope: str | None


class DeletionLost(NamedTuple):
    """Nobody knows what became of a deletion by name, nor when it will."""

    topic: str


class Deleted(NamedTuple):
    """A life is over, as the cluster said."""

    topic: str
    scope: str


class ReadByName(NamedTuple):
    """A fetch that named the topic by name showed some of a partition, in whatever life."""

    consumer: str
    at: TopicPartition
    values: list[tuple[Offset, bytes]]
