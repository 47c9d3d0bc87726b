"""Publishes images, committed batches and leadership from the quorum to its listener, in order.

Events are queued and published one after the other: the listener may propose records from within a call, and what
follows from them is published after the current event. Leadership is published after everything that was committed
before its epoch.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from penstock.base.errors import KafkaError
from penstock.base.ids import LeaderEpoch, Offset
from penstock.controlplane.metadata_log import MetadataLog
from penstock.controlplane.quorum_settings import QuorumListener
from penstock.controlplane.snapshot_generator import SnapshotGenerator
from penstock.metadata.image import ClusterImage
from penstock.raft.ready import RoleChange, RoleName


class MetadataPublisher:
    def __init__(
        self,
        log: MetadataLog,
        listener: QuorumListener,
        snapshots: SnapshotGenerator,
        applied: Offset,
        failed: Callable[[Exception], None],
    ) -> None:
        self._log = log
        self._listener = listener
        self._snapshots = snapshots
        self._failed = failed
        self.applied = applied
        """All batches below were published. Invariant: at most the high watermark."""
        self.is_publishing = False
        self._queue: deque[Callable[[], None]] = deque()
        self._pending_role: RoleChange | None = None
        """Leadership that is not published yet."""
        self._led_epoch: LeaderEpoch | None = None
        """The epoch of the published leadership."""
        self._is_closed = False

    def load(self, image: ClusterImage) -> None:
        """Publish the first image, at once."""
        self._call(partial(self._listener.loaded, image))

    def restarted(self, image: ClusterImage) -> None:
        """The log restarted at a snapshot that the leader sent."""
        self._queue.append(partial(self._publish_image, image))

    def committed(self, high_watermark: Offset) -> None:
        self._queue.append(partial(self._publish_batches, high_watermark))

    def role_changed(self, change: RoleChange) -> None:
        self._queue.append(partial(self._publish_role, change))

    def publish(self) -> None:
        if self.is_publishing:
            return
        self.is_publishing = True
        try:
            while self._queue and not self._is_closed:
                self._call(self._queue.popleft())
        finally:
            self.is_publishing = False

    def close(self) -> None:
        """Publish nothing more."""
        self._is_closed = True
        self._queue.clear()

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except (KafkaError, OSError) as error:
            # The log cannot be read, or a record contradicts the image.
            self._failed(error)

    def _publish_image(self, image: ClusterImage) -> None:
        self.applied = image.offset + 1
        self._listener.loaded(image)

    def _publish_batches(self, high_watermark: Offset) -> None:
        for batch in self._log.committed(self.applied, high_watermark):
            self.applied = batch.last_offset + 1
            if batch.records:
                self._listener.committed(batch.records, batch.last_offset, batch.epoch)
            if self._is_closed:
                return
            self._snapshots.committed(batch)
        self._listener.advanced(high_watermark)
        self._lead_if_ready()
        self._snapshots.consider()

    def _publish_role(self, change: RoleChange) -> None:
        if self._led_epoch is not None:
            epoch, self._led_epoch = self._led_epoch, None
            self._listener.resigned(epoch)
        self._pending_role = change if change.role is RoleName.LEADER else None
        self._lead_if_ready()

    def _lead_if_ready(self) -> None:
        change = self._pending_role
        if change is not None and self.applied > (change.epoch_start_offset or 0):
            self._pending_role = None
            self._led_epoch = change.epoch
            self._listener.leading(change.epoch)
