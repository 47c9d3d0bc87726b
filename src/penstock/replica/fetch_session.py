"""A fetch session from the follower's side (KIP-227): the leader remembers what is wanted, and is told what changes.

A thousand partitions in which nothing happens cost nothing: they are in no request and in no answer.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.base.ids import Uuid
from penstock.replica.following import Following, Key
from penstock.wire import FetchPartition, FetchTopic, ForgottenTopic

NONE: Final = 0
"""The id of no session, and the epoch of the request that opens one."""

_EPOCH_MAX = 2**31 - 1


class Asked(NamedTuple):
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class Session:
    def __init__(self) -> None:
        self._id = NONE
        self._epoch = NONE
        self._changed: dict[Following, None] = {}
        """Wanted otherwise than the leader knows, or not known to it at all."""
        self._gone: dict[Key, None] = {}
        """Known to the leader, and not wanted any more."""
        self._was_refused = False
        """The leader had no room for one the last time."""

    @property
    def is_opening(self) -> bool:
        """Whether the next request opens one, as far as is known: what it is called is worth an answer of its own."""
        return not self.is_open and not self._was_refused

    @property
    def is_open(self) -> bool:
        return self._epoch != NONE

    @property
    def has_newcomers(self) -> bool:
        """Whether something is wanted, and waited for, that the leader has not heard of."""
        return any(each.told is None and each.is_eager for each in self._changed)

    def put(self, following: Following) -> None:
        self._changed[following] = None

    def drop(self, following: Following) -> None:
        self._changed.pop(following, None)
        if following.told is not None:
            following.told = None
            self._gone[following.key] = None

    def ask(self, everything: Iterable[Following]) -> Asked:
        """What the next request says. `everything` that is wanted is in it where the leader remembers nothing."""
        asked = self._changed if self.is_open else everything
        topics: dict[Uuid, list[FetchPartition]] = {}
        for each in asked:
            each.told = each.wanted()
            topics.setdefault(each.key[0], []).append(each.told)
        forgotten: dict[Uuid, list[int]] = {}
        if self.is_open:
            for topic_id, number in self._gone:
                forgotten.setdefault(topic_id, []).append(number)
        self._changed, self._gone = {}, {}
        return Asked(
            self._id,
            self._epoch,
            [FetchTopic(topic_id, partitions) for topic_id, partitions in topics.items()],
            [ForgottenTopic(topic_id, tuple(numbers)) for topic_id, numbers in forgotten.items()],
        )

    def answered(self, session_id: int) -> None:
        """The leader remembers, under this id; 0 if it has no room to."""
        self._was_refused = session_id == NONE
        if self._was_refused:
            self.lose(NONE)
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def lose(self, session_id: int | None = None) -> None:
        """Begin anew with the next request, which also ends what the leader may still have of the old one."""
        if session_id is not None:
            self._id = session_id
        self._epoch = NONE
