"""Topics that are deleted and created again under the same name.

A life is the topic from one creation to its deletion, and has its own topic id. A client that uses the topic id
addresses one life, and its events name that life (`life_name`): rules for a topic apply to each life separately. A
client that uses the name reaches the current life.
"""

from typing import NamedTuple
from uuid import UUID

from penstock.base.ids import Offset, TopicPartition

BETWEEN = "@"
"""Not allowed in names of topics."""


def life_name(topic: str, topic_id: UUID) -> str:
    return f"{topic}{BETWEEN}{topic_id}"


def topic_name(scope: str) -> str:
    """Return the topic name of a life, or of a topic without lives."""
    return scope.partition(BETWEEN)[0]


def is_life(scope: str) -> bool:
    return BETWEEN in scope


class LifeStarted(NamedTuple):
    """The topic's renewer found a new life, which began after it sent the last deletion."""

    topic: str
    scope: str


class DeletionSent(NamedTuple):
    """A deletion was sent: of one life by id, or of the current one by name."""

    topic: str
    scope: str | None


class DeletionLost(NamedTuple):
    """The reply to a deletion by name was lost: it may take effect later."""

    topic: str


class Deleted(NamedTuple):
    """The cluster acknowledged the deletion of a life."""

    topic: str
    scope: str


class ReadByName(NamedTuple):
    """A fetch by topic name returned records, of whichever life."""

    consumer: str
    at: TopicPartition
    values: list[tuple[Offset, bytes]]
