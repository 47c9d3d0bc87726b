"""Removes transactional ids that have been unused for too long: once in an interval, a slice at a time.

A producer may use an expired id again at any time, as a new one. So it does no harm to find it an hour late, and a
million ids need not be checked at once.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from penstock.base.ids import TimestampMs

from .requests import ExpireIds

IDS_A_SLICE = 2000
"""Takes about a millisecond."""
TOMBSTONE_BYTES_MAX = 256 * 1024
"""Of one request's ids. An id may be 32 KB long, and all tombstones of a request are one batch, which must stay under
`max.message.bytes`, 1 MB by default."""

E = TypeVar("E")


class ExpiryRound:
    def __init__(self) -> None:
        self.next_ms: TimestampMs | None = None
        """When the next slice is due; None before the first."""
        self._left: list[str] = []
        """Ids of this round that are still to be checked."""

    def due(
        self, entries: Mapping[str, E], is_expired: Callable[[E], bool], interval_ms: int, now_ms: TimestampMs
    ) -> list[ExpireIds]:
        """The next slice, if it is time."""
        if self.next_ms is None or now_ms < self.next_ms:
            return []
        if not self._left:
            self._left = list(entries)
        slice_, self._left = self._left[-IDS_A_SLICE:], self._left[:-IDS_A_SLICE]
        self.next_ms = now_ms if self._left else now_ms + interval_ms
        return _grouped([each for each in slice_ if each in entries and is_expired(entries[each])])


def _grouped(ids: list[str]) -> list[ExpireIds]:
    groups: list[ExpireIds] = []
    group: list[str] = []
    size = 0
    for each in ids:
        bytes_max = 3 * len(each)  # as UTF-8
        if group and size + bytes_max > TOMBSTONE_BYTES_MAX:
            groups.append(ExpireIds(tuple(group)))
            group, size = [], 0
        group.append(each)
        size += bytes_max
    if group:
        groups.append(ExpireIds(tuple(group)))
    return groups
