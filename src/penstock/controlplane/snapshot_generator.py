"""Decides when to take snapshots of the metadata log, and deletes what they replace.

A snapshot is due after a number of committed bytes, or an interval after the first commit that the last one does not
cover (Kafka's settings). One is also taken, after a delay, when a start would read much more of the log than of the
snapshot: with many partitions, each start and stop adds a record for each.
The snapshot is written on a thread, from an immutable image. Then the log rolls a segment, so that the segments before
the snapshot can be deleted later, and what `metadata.max.retention.*` no longer keeps is deleted. A failed snapshot
loses nothing: the log still has all records.

While a metadata transaction is open no snapshot is taken, because its records are in no image yet.
"""

import logging
from collections.abc import Callable
from functools import partial

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset
from penstock.base.world import Timer, World
from penstock.controlplane.metadata_log import CommittedBatch, MetadataLog
from penstock.controlplane.quorum_settings import QuorumSettings
from penstock.metadata.image import ClusterImage
from penstock.raft.log import OffsetAndEpoch

logger = logging.getLogger(__name__)

LOG_TO_SNAPSHOT_MAX = 2
"""Size of the log after a snapshot, relative to the snapshot, from which a new one is worthwhile."""

SNAPSHOT_BYTES_MIN = 1 << 20
"""A smaller log is read quickly; no extra snapshot is taken for it."""

CALM_MS = 5_000
"""Delay of a snapshot that only speeds up the next start; a start with thousands of partitions takes less."""


class SnapshotGenerator:
    def __init__(
        self,
        world: World,
        log: MetadataLog,
        settings: QuorumSettings,
        image: Callable[[], ClusterImage],
        idle: Callable[[], None],
    ) -> None:
        """`image` returns the image to write; `idle` is called when a snapshot is finished or has failed."""
        self.is_busy = False
        """A thread is working on the log's files."""
        self._world = world
        self._log = log
        self._settings = settings
        self._image = image
        self._idle = idle
        self._timer: Timer | None = None
        self._calm_timer: Timer | None = None
        self._bytes_since = 0
        """Committed since the last snapshot was started."""
        self._last: CommittedBatch | None = None
        self._is_closed = False

    def committed(self, batch: CommittedBatch) -> None:
        """A batch was published and is in the image."""
        self._bytes_since += batch.size
        self._last = batch

    def consider(self) -> None:
        """Take a snapshot if enough was committed since the last one; otherwise set the timers."""
        if self.is_busy or self._is_closed or self._last is None:
            return
        if self._bytes_since >= self._settings.snapshot_bytes:
            self._take()
            return
        if self._timer is None and self._settings.snapshot_interval_ms > 0:
            self._timer = self._world.call_later(self._settings.snapshot_interval_ms, self._interval_passed)
        if self._calm_timer is None and self._bytes_since > self._bytes_worthwhile:
            self._calm_timer = self._world.call_later(CALM_MS, self._calmed_down)

    @property
    def _bytes_worthwhile(self) -> int:
        latest = self._log.latest_snapshot()
        size = self._log.snapshot_bytes(latest) if latest is not None else None
        return max(SNAPSHOT_BYTES_MIN, LOG_TO_SNAPSHOT_MAX * (size or 0))

    def close(self) -> None:
        """Start no more snapshots. A running one continues."""
        self._is_closed = True
        self._cancel_timers()

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._calm_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._calm_timer = None

    def _calmed_down(self) -> None:
        self._calm_timer = None
        if not self.is_busy and not self._is_closed:
            self._take()

    def _interval_passed(self) -> None:
        self._timer = None
        if not self.is_busy and not self._is_closed:
            self._take()

    def _take(self) -> None:
        image, last, latest = self._image(), self._last, self._log.latest_snapshot()
        end: Offset = image.offset + 1
        if image.transaction is not None or (latest is not None and end <= latest.offset) or last is None:
            return  # the next commit tries again
        assert self._log.start_offset < end <= last.last_offset + 1, (
            f"an image of {image.offset} was not published"
        )
        snapshot_id = OffsetAndEpoch(end, image.epoch)
        batches = self._log.snapshot_batches(image, timestamp=last.timestamp, now_ms=self._world.now_ms())
        self.is_busy = True
        self._bytes_since = 0
        self._cancel_timers()
        self._world.beside(
            partial(self._log.snapshots.write, snapshot_id, batches), partial(self._written, snapshot_id)
        )

    def _written(self, snapshot_id: OffsetAndEpoch, size: int | None, error: Exception | None) -> None:
        if size is None:
            logger.error("cannot write the snapshot %s: %s", snapshot_id, error)
            self._done()
            return
        latest = self._log.latest_snapshot()
        if latest is not None and latest.offset > snapshot_id.offset:
            self._done()  # the leader sent a newer one meanwhile
            return
        self._log.snapshots.added(snapshot_id, size)
        logger.info("wrote the snapshot %s: %d bytes", snapshot_id, size)
        if self._is_closed:
            self._done()
        else:
            self._forget_old()

    def _forget_old(self) -> None:
        log, now_ms = self._log, self._world.now_ms()
        try:
            if log.log.segments.active.size >= self._settings.snapshot_bytes:
                log.log.roll(now_ms)
            oldest = log.retention_snapshot(
                self._settings.retention_bytes, self._settings.retention_ms, now_ms
            )
            if oldest is None:
                self._done()
            else:
                self._world.beside(log.forget_before(oldest), self._forgotten)
        except (KafkaError, OSError) as error:
            self._forgotten(None, error)

    def _forgotten(self, _: None, error: Exception | None) -> None:
        if error is not None:
            logger.error("cannot remove old metadata: %s", error)
        self._done()

    def _done(self) -> None:
        self.is_busy = False
        self._idle()
