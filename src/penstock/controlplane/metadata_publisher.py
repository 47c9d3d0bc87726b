"""What the quorum tells the state machine on top of it: images, committed batches, and whether it leads.

News wait in a line and are told one after the other. The listener may propose records from within: what comes of
that is told after what is being told. That this node leads is told once all that came before its epoch was.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from penstock.base.errors import KafkaError
from penstock.base.ids import LeaderEpoch, Offset
from penstock.controlplane.metadata_log import MetadataLog
from penstock.controlplane.quorum_settings import QuorumListener
from penstock.controlplane.snapshot_generator import SnapshotGenerator
from penstock.metadata import ClusterImage
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
        """All below was given out. Invariant: at most the high watermark, but for a moment while it is announced."""
        self.is_publishing = False
        self._queue: deque[Callable[[], None]] = deque()
        self._pending_role: RoleChange | None = None
        """We lead, and the listener does not know yet."""
        self._led_epoch: LeaderEpoch | None = None
        """The epoch that the listener was told it leads."""
        self._is_closed = False

    def load(self, image: ClusterImage) -> None:
        """The first of all news, and told at once."""
        self._call(partial(self._listener.loaded, image))

    def restarted(self, image: ClusterImage) -> None:
        """The log begins anew at a snapshot that a leader sent."""
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
        """Nothing is told any more."""
        self._is_closed = True
        self._queue.clear()

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except (KafkaError, OSError) as error:
            # The log cannot be read, or makes no sense to the image.
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
