"""Batches that are judged beside the event loop, over all partitions of a node.

Most batches are judged where they are staged. One whose records would hold the loop for too long is inspected in a
helper process (`storage.inspection`), and staged when its inspection is over. Two lanes: a batch of a million records
takes a second or more, and nobody with an ordinary one waits behind it.

Order: a connection whose batch is inspected is not read from until that batch is staged, as Kafka mutes a connection
while it handles a request of it. So what one client sends stays in order; batches of different connections have none.

Memory: each connection has one request under inspection at most, and all of them together INSPECTED_BYTES_MAX. Beyond
that a batch is refused with a retriable error.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.world import BATCHES, LARGE_BATCHES, World
from penstock.records import InvalidBatch, RecordBatch
from penstock.storage import Appended, Inspected, Inspection, NeedsInspection

logger = logging.getLogger(__name__)

LOOK_NS_MAX: Final = 5_000_000
"""How long small batches are decoded on the event loop in one turn; those after that are inspected beside it."""

INSPECTED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of batches that wait for their inspection, or are in it."""

LARGE_RECORDS_MIN: Final = 50_000
"""From so many records on a batch takes 100 ms or more: it goes to the lane for large ones."""

LARGE_BYTES_MIN: Final = 2 * 1024 * 1024
"""The same of a batch's bytes; twice the default of `message.max.bytes`."""

Judged = Callable[["Inspected | KafkaError"], None]
"""Called with what came of an inspection, or with the error for the producer."""

Stage = Callable[["Inspected | None"], Appended]
Staged = Callable[["Appended | KafkaError"], None]


class Inspections:
    """One for a node."""

    def __init__(self, world: World, turn: Callable[[], int] = lambda: 0) -> None:
        """`turn` tells the turns of the loop apart."""
        self._world = world
        self._turn = turn
        self._looked_in = -1
        """The turn in which a batch was decoded last."""
        self._looks_began_ns = 0
        """When a batch was first decoded in that turn."""
        self.waiting = 0
        """Batches under inspection, or waiting for theirs."""
        self.waiting_bytes = 0
        self.inspected = 0
        """Batches whose inspection is over."""
        self._queues: dict[Hashable, deque[tuple[Stage, Staged]]] = {}
        """By owner: batches behind one that is inspected."""

    def may_look(self) -> bool:
        """Whether another small batch may be decoded in this turn of the loop."""
        now_ns, turn = self._world.clock_ns(), self._turn()
        if turn != self._looked_in:
            self._looked_in, self._looks_began_ns = turn, now_ns
        return now_ns - self._looks_began_ns < LOOK_NS_MAX

    def inspect(self, inspection: Inspection, judged: Judged) -> None:
        """Have a batch judged; `judged` is called later. Raises a retriable error where too much waits already."""
        size = len(inspection.data)
        if self.waiting and self.waiting_bytes + size > INSPECTED_BYTES_MAX:
            raise KafkaError(
                f"{self.waiting} batches of {self.waiting_bytes} bytes wait for validation of their records, "
                f"at most {INSPECTED_BYTES_MAX} bytes may; retry",
                ErrorCode.REQUEST_TIMED_OUT,
            )
        self.waiting += 1
        self.waiting_bytes += size

        def done(inspected: Inspected | None, error: Exception | None) -> None:
            self.waiting -= 1
            self.waiting_bytes -= size
            self.inspected += 1
            judged(inspected if inspected is not None else _told(error))

        self._world.in_helper(inspection, done, _lane(inspection))

    # -- in order --------------------------------------------------------------------------------------

    def stage_in_order(self, owner: Hashable, stage: Stage, staged: Staged) -> None:
        """Stage a batch after all that were given here before for the same owner, and call `staged` with what came of
        it: at once, unless one of them is inspected. For who writes for many clients over no connection of theirs.
        `stage` may be called more than once."""
        queue = self._queues.get(owner)
        if queue is None:
            self._try(owner, stage, staged, None)
        else:
            queue.append((stage, staged))

    def _try(self, owner: Hashable, stage: Stage, staged: Staged, inspected: Inspected | None) -> bool:
        """Whether it is settled now; otherwise it is inspected, and those behind it wait."""
        outcome: Appended | KafkaError
        try:
            outcome = stage(inspected)
        except NeedsInspection as needs:
            try:
                self.inspect(needs.inspection, partial(self._go_on, owner, stage, staged))
            except KafkaError as error:
                outcome = error
            else:
                self._queues.setdefault(owner, deque())
                return False
        except KafkaError as error:
            outcome = error
        staged(outcome)
        return True

    def _go_on(self, owner: Hashable, stage: Stage, staged: Staged, found: Inspected | KafkaError) -> None:
        if isinstance(found, KafkaError):
            staged(found)
        elif not self._try(owner, stage, staged, found):
            return
        queue = self._queues[owner]
        while queue:
            if not self._try(owner, *queue.popleft(), None):
                return
        del self._queues[owner]


def _lane(inspection: Inspection) -> str:
    data = inspection.data
    is_large = len(data) >= LARGE_BYTES_MIN or RecordBatch.parse(data).count >= LARGE_RECORDS_MIN
    return LARGE_BATCHES if is_large else BATCHES


def _told(error: Exception | None) -> KafkaError:
    if isinstance(error, InvalidBatch):
        return error
    logger.error("a batch could not be validated in a process of its own: %s", error)
    return KafkaError(
        f"the records of the batch could not be validated ({error}); retry", ErrorCode.KAFKA_STORAGE_ERROR
    )
