"""The functions that a helper process runs. Importing this module imports neither numpy nor pyarrow.

A process that searches has low priority. Hostile input cannot use it up: its memory is limited by the system, and a
call that takes longer than `CALL_SECONDS_MAX` ends the process. The caller reports that, and the next call starts
a new process.
"""

import os
import resource
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.search.query import Chunk, PartitionPlan, Portion, SearchQuery, SearchSpan
from penstock.vfs import Vfs

MEMORY_BYTES_MAX: Final = 2 << 30
"""Of a search process, as the system counts it, which includes what allocators keep for later. A batch that
decompresses to 128 MiB takes about a gigabyte."""

CALL_SECONDS_MAX: Final = 30
"""Of processor time. A call takes a fraction of a second; a single batch of 128 MiB takes a few."""

BUILD_SECONDS_MAX: Final = 600
"""The same for an index: a segment of a gigabyte takes some ten seconds, and much longer if it is compressed."""

NICENESS: Final = 14
"""Added to a helper's own 5, for systems without SCHED_IDLE."""


class SearchFailed(KafkaError):
    """An unexpected error of a search process."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return SearchFailed, (str(self),)


_limited: list[bool] = []


def _step_back() -> None:
    """Leave the processor to the node: with the policy SCHED_IDLE a process that wakes up never waits for this one.
    Without it, the lowest priority is not enough: a Produce took twice as long beside a search."""
    os.nice(NICENESS)
    if hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # forbidden in some containers
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


@contextmanager
def _limits(seconds_max: int = CALL_SECONDS_MAX) -> Iterator[None]:
    if not _limited:
        _limited.append(True)
        import penstock.search.planning  # noqa: PLC0415  # before the priority sinks: a client waits
        import penstock.search.scanning  # noqa: F401, PLC0415

        _step_back()
        with suppress(OSError, ValueError):  # a lower limit is set already
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    signal.setitimer(signal.ITIMER_PROF, seconds_max)
    try:
        yield
    except KafkaError:
        raise
    except MemoryError:
        raise SearchFailed(
            f"the search needs more than {MEMORY_BYTES_MAX >> 20} MiB of memory; narrow its range"
        ) from None
    except Exception as error:
        # As text: to unpickle an exception of Arrow's, the node would import Arrow.
        raise SearchFailed(f"the search failed: {type(error).__name__}: {error}") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def plan_search(vfs: Vfs, query: SearchQuery, spans: Sequence[SearchSpan]) -> list[PartitionPlan]:
    """In a helper: check the query and split the spans into chunks. Raises BadQuery."""
    with _limits():
        from penstock.search.matching import Matcher  # noqa: PLC0415  # the node never imports pyarrow
        from penstock.search.planning import plan  # noqa: PLC0415

        Matcher(query)
        return [plan(vfs, query, each) for each in spans]


def search_chunks(
    vfs: Vfs, query: SearchQuery, work: Sequence[tuple[SearchSpan, Chunk]], limit: int
) -> Portion:
    """In a helper: search chunks for a moment. Each comes with the span that it is part of."""
    with _limits():
        from penstock.search.scanning import search  # noqa: PLC0415

        return search(vfs, query, work, limit)


def build_index(vfs: Vfs, directory: str, base_offset: Offset) -> bool:
    """In a helper: make the index of a sealed segment, unless there is a good one. Whether there is one now."""
    with _limits(BUILD_SECONDS_MAX):
        from penstock.search.gram_index import build, is_current  # noqa: PLC0415

        return build(vfs, directory, base_offset) or is_current(vfs, directory, base_offset)


def remove_indexes(vfs: Vfs, directory: str, keep: frozenset[Offset]) -> None:
    """In a helper: remove the indexes in a partition's directory, except for those of some segments."""
    with _limits():
        from penstock.search.gram_index import remove_orphans  # noqa: PLC0415

        remove_orphans(vfs, directory, keep)
