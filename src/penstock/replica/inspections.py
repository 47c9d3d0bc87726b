"""Validates costly batches off the event loop, for all partitions of a node.

Most batches are validated on the loop when they are staged. A batch whose records would hold the loop for too long is
inspected in a helper process (`storage.inspection`), and staged afterwards. There are two lanes, because a batch of a
million records takes a second or more, and ordinary batches must not wait behind it.

Order: while a batch is inspected, its connection is not read from, as Kafka mutes a connection while it handles a
request. So the batches of one connection stay in order. `stage_in_order` keeps the order of batches that come from no
connection.

Memory: a connection has at most one request under inspection, and all inspections together INSPECTED_BYTES_MAX. Beyond
that a batch is refused with a retriable error.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.world import BATCHES, LARGE_BATCHES, World
from penstock.records import InvalidBatch, RecordBatch
from penstock.storage import Appended, Inspected, Inspection, NeedsInspection

logger = logging.getLogger(__name__)

LOOK_NS_MAX: Final = 5_000_000
"""How long small batches are decoded on the loop in one tick. Those after that are inspected in a helper process."""

INSPECTED_BYTES_MAX: Final = 128 * 1024 * 1024
"""Of batches under inspection, or waiting for it."""

LARGE_RECORDS_MIN: Final = 50_000
"""A batch with this many records takes 100 ms or more: it goes to the lane for large batches."""

LARGE_BYTES_MIN: Final = 2 * 1024 * 1024
"""The same in bytes; twice the default of `message.max.bytes`."""

Stage = Callable[["Inspected | None"], Appended]


class Inspections:
    """The inspections of a node."""

    def __init__(self, world: World, tick: Callable[[], int] = lambda: 0) -> None:
        """`tick` returns the number of the loop's tick."""
        self._world = world
        self._tick = tick
        self._looked_in = -1
        """The tick in which a batch was decoded last."""
        self._looks_began_ns = 0
        """When the first batch was decoded in that tick."""
        self.waiting = 0
        """Batches under inspection, or waiting for it."""
        self.waiting_bytes = 0
        self.inspected = 0
        """Batches whose inspection is over."""
        self._queues: dict[Hashable, deque[tuple[Stage, Promise[Appended]]]] = {}
        """By owner: batches behind one that is inspected."""

    def has_loop_time(self) -> bool:
        """Whether another small batch may be decoded in this tick."""
        now_ns, tick = self._world.clock_ns(), self._tick()
        if tick != self._looked_in:
            self._looked_in, self._looks_began_ns = tick, now_ns
        return now_ns - self._looks_began_ns < LOOK_NS_MAX

    def inspect(self, inspection: Inspection) -> Promise[Inspected]:
        """Validate a batch in a helper process. Fails with a retriable error if too many bytes wait already."""
        validated: Promise[Inspected] = Promise()
        size = len(inspection.data)
        if self.waiting and self.waiting_bytes + size > INSPECTED_BYTES_MAX:
            validated.fail(
                KafkaError(
                    f"{self.waiting} batches of {self.waiting_bytes} bytes wait for validation of their records, "
                    f"at most {INSPECTED_BYTES_MAX} bytes may; retry",
                    ErrorCode.REQUEST_TIMED_OUT,
                )
            )
            return validated
        self.waiting += 1
        self.waiting_bytes += size

        def over() -> None:
            self.waiting -= 1
            self.waiting_bytes -= size
            self.inspected += 1

        def done(inspected: Inspected | None, error: Exception | None) -> None:
            over()
            if inspected is not None:
                validated.resolve(inspected)
            else:
                validated.fail(_client_error(error))

        def not_refreshed(error: KafkaError) -> None:
            over()
            validated.fail(error)

        if inspection.schema_check is None:
            self._world.in_helper(inspection, done, _lane(inspection))
        else:
            # What is registered is asked for first: the schema of a record may be a moment old.
            inspection.schema_check.refreshed().then(
                lambda check: self._world.in_helper(inspection.with_schemas(check), done, _lane(inspection)),
                not_refreshed,
            )
        return validated

    # -- in order --------------------------------------------------------------------------------------

    def stage_in_order(self, owner: Hashable, stage: Stage) -> Promise[Appended]:
        """Stage a batch after all earlier batches of the same owner: at once, unless one of them is inspected. For
        writers that serve many clients without a connection for each. `stage` may be called more than once."""
        appended: Promise[Appended] = Promise()
        queue = self._queues.get(owner)
        if queue is None:
            self._try(owner, stage, appended, None)
        else:
            queue.append((stage, appended))
        return appended

    def _try(
        self, owner: Hashable, stage: Stage, appended: Promise[Appended], inspected: Inspected | None
    ) -> bool:
        """Stage a batch; False if it is inspected first, and the batches behind it wait."""
        try:
            staged = stage(inspected)
        except NeedsInspection as needs:
            validated = self.inspect(needs.inspection)
            if validated.error is None:
                self._queues.setdefault(owner, deque())
                validated.then(
                    partial(self._inspected, owner, stage, appended), partial(self._failed, owner, appended)
                )
                return False
            appended.fail(validated.error)
        except KafkaError as error:
            appended.fail(error)
        else:
            appended.resolve(staged)
        return True

    def _inspected(
        self, owner: Hashable, stage: Stage, appended: Promise[Appended], inspected: Inspected
    ) -> None:
        if self._try(owner, stage, appended, inspected):
            self._go_on(owner)

    def _failed(self, owner: Hashable, appended: Promise[Appended], error: KafkaError) -> None:
        appended.fail(error)
        self._go_on(owner)

    def _go_on(self, owner: Hashable) -> None:
        queue = self._queues[owner]
        while queue:
            if not self._try(owner, *queue.popleft(), None):
                return
        del self._queues[owner]


def _lane(inspection: Inspection) -> str:
    data = inspection.data
    is_large = len(data) >= LARGE_BYTES_MIN or RecordBatch.parse(data).count >= LARGE_RECORDS_MIN
    return LARGE_BATCHES if is_large else BATCHES


def _client_error(error: Exception | None) -> KafkaError:
    if isinstance(error, InvalidBatch):
        return error
    logger.error("a batch could not be validated in a helper process: %s", error)
    return KafkaError(
        f"the records of the batch could not be validated ({error}); retry", ErrorCode.KAFKA_STORAGE_ERROR
    )
