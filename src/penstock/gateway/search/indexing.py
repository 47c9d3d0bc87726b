"""Makes the search indexes of sealed segments, for topics with `search.index`, one at a time and at low priority.

Every half minute the replicas of this broker are compared with what is known to be indexed. A segment that is new, or
was compacted, is given to a helper process, which leaves a good index alone. Indexes of segments that compaction has
removed are deleted then; deletion of a segment deletes its index with it. When the setting is switched off, the
indexes are deleted.
"""

import logging
from collections import deque
from functools import partial
from typing import Final, NamedTuple

from penstock.base.ids import Offset
from penstock.base.world import SEARCH_INDEXES, Timer
from penstock.handlers.support.context import Context
from penstock.metadata.configs import topic_setting
from penstock.metadata.image import ResourceType
from penstock.replica import Partition
from penstock.search.engine import build_index, remove_indexes

logger = logging.getLogger(__name__)

SETTING: Final = "search.index"
CHECK_MS: Final = 30_000
PAUSE_MS: Final = 100
"""Between two segments."""


class _SealedSegment(NamedTuple):
    directory: str
    base_offset: Offset
    size: int
    """Compaction makes a segment of another size."""


class SearchIndexer:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._done: set[_SealedSegment] = set()
        """Segments that have an index, or for which none can be made."""
        self._directories: dict[str, frozenset[Offset]] = {}
        """Directories with indexes, and the segments in them when they were last compared."""
        self._timer: Timer | None = None
        """None while the node does not serve."""
        self._queue: deque[tuple[partial[bool] | partial[None], _SealedSegment | None]] = deque()
        """Work that is left of the last comparison; a segment is to be indexed by it, if one is given."""

    def start(self) -> None:
        self._timer = self._context.world.call_later(CHECK_MS, self._check)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        """Compare the segments with what is known, and begin to work on the difference."""
        vfs = self._context.replicas.directory.vfs
        sealed: dict[str, list[_SealedSegment]] = {
            each.log.directory: [
                _SealedSegment(each.log.directory, segment.base_offset, segment.size)
                for segment in each.log.segments[:-1]
            ]
            for each in self._wanted()
        }
        for directory, known in list(self._directories.items()):
            keep = frozenset(each.base_offset for each in sealed.get(directory, ()))
            if not known <= keep:
                self._queue.append((partial(remove_indexes, vfs, directory, keep), None))
                self._directories[directory] = keep
            if not keep:
                del self._directories[directory]
        self._done &= {each for segments in sealed.values() for each in segments}
        for segments in sealed.values():
            self._queue += [
                (partial(build_index, vfs, each.directory, each.base_offset), each)
                for each in reversed(segments)
                if each not in self._done
            ]
        self._work()

    def _work(self) -> None:
        """Do the next piece of work; wait if there is none."""
        if self._queue:
            self._run(*self._queue.popleft())
        else:
            self._timer = self._context.world.call_later(CHECK_MS, self._check)

    def _wanted(self) -> list[Partition]:
        """The replicas of this broker whose topics have the setting."""
        image, replicas = self._context.image, self._context.replicas
        found = []
        for resource in image.configs:
            topic = image.topics.get(resource.name) if resource.type == ResourceType.TOPIC else None
            if topic is not None and topic_setting(topic.name, SETTING, image) == "true":
                held = (replicas.held(topic.id, number) for number in sorted(topic.partitions))
                found += [each for each in held if each is not None]
        return found

    def _run(self, work: "partial[bool] | partial[None]", segment: _SealedSegment | None) -> None:
        def done(_: object, error: Exception | None) -> None:
            if error is not None:
                logger.warning("search indexes: %s", error)
            if segment is not None:
                self._done.add(segment)  # after an error too: the next start tries again
                known = self._directories.get(segment.directory, frozenset())
                self._directories[segment.directory] = known | {segment.base_offset}
            if self._timer is not None:
                self._timer = self._context.world.call_later(PAUSE_MS, self._work)

        self._context.world.in_helper(work, done, SEARCH_INDEXES)
