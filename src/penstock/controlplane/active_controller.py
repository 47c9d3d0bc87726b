"""The controller while this node leads the quorum: it decides at once and replies when the decision is committed.

    submit --> controller.handle --> records --> quorum.propose --> (high watermark passes) --> reply
                                        |
                                        +--> controller.replay: the next decision builds on it

A reply without records waits as well: the state it was read from must be committed first. Replies wait until this node
has applied the committed records, so that a client that asks this node next sees its change. Applying may take seconds
when thousands of partitions are created, which is longer than a broker session: heartbeats wait for the commit only.

A change of ACLs is answered when every broker has it: no broker that has its lease then grants what was revoked.
Brokers report what they have read of the metadata in heartbeats, and send one at once for ACLs. A broker that does not
is fenced when its session ends, and unfenced after it has read everything.

When the node loses leadership, the controller is discarded and every pending request fails with NOT_CONTROLLER.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, TimestampMs
from penstock.base.promise import Promise
from penstock.base.world import Timer, World
from penstock.controlplane.elections import log_expired_sessions, log_leader_changes
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller.controller import Controller
from penstock.metadata.controller.requests import BrokerHeartbeat, CreateAcls, DeleteAcls
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import AnyRecord
from penstock.raft.errors import NotLeader

logger = logging.getLogger(__name__)

Propose = Callable[[Sequence[AnyRecord], LeaderEpoch], Offset]


class _PendingReply(NamedTuple):
    offset: Offset
    """The last record that the reply depends on."""
    reply: Any
    promise: Promise[Any]


class ActiveController:
    """A `ControllerPort` for the controller in this process."""

    def __init__(
        self,
        world: World,
        propose: Propose,
        *,
        cluster_id: str,
        settings: BrokerSettings,
        session_timeout_ms: int,
    ) -> None:
        self._world = world
        self._propose = propose
        self.cluster_id = cluster_id
        self._settings = settings
        self._session_timeout_ms = session_timeout_ms
        self._controller: Controller | None = None
        self._epoch: LeaderEpoch = 0
        self._last_offset: Offset = -1
        """The last proposed record, by this controller or a previous one."""
        self._committed: Offset = 0
        """High watermark of the metadata log."""
        self._applied: Offset = 0
        """This node has applied all records below. Invariant: at most `_committed`."""
        self._pending: deque[_PendingReply] = deque()
        self._heartbeats: deque[_PendingReply] = deque()
        self._unread: deque[_PendingReply] = deque()
        """Replies to changes of ACLs that some broker has not read."""
        self._timer: Timer | None = None
        self._due_ms: TimestampMs = 0
        """When the timer fires."""

    @property
    def is_active(self) -> bool:
        return self._controller is not None

    def lead(self, image: ClusterImage, epoch: LeaderEpoch) -> None:
        """Start deciding, from the image of everything committed before the epoch."""
        self._epoch = epoch
        self._controller = Controller(
            image,
            cluster_id=self.cluster_id,
            rng=self._world.rng,
            now_ms=self._world.now_ms(),
            settings=self._settings,
            session_timeout_ms=self._session_timeout_ms,
        )
        self._last_offset = image.offset
        self._set_timer()

    def resign(self) -> None:
        """Stop deciding. Pending decisions may or may not be committed; their requests fail with NOT_CONTROLLER."""
        self._controller = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending = [*self._heartbeats, *self._pending, *self._unread]
        self._heartbeats, self._pending, self._unread = deque(), deque(), deque()
        for each in pending:
            each.promise.fail(_not_controller())

    def submit(self, request: Any) -> Promise[Any]:
        promise: Promise[Any] = Promise()
        controller = self._controller
        if controller is None:
            promise.fail(_not_controller())
            return promise
        try:
            outcome = controller.handle(request, self._world.now_ms())
            if outcome.records:
                self._write(controller, outcome.records)
        except NotLeader:
            promise.fail(_not_controller())
        except KafkaError as error:
            promise.fail(error)
        else:
            self._queue_for(request).append(_PendingReply(self._last_offset, outcome.reply, promise))
            self._release()
        return promise

    def _queue_for(self, request: Any) -> deque[_PendingReply]:
        if isinstance(request, BrokerHeartbeat):
            return self._heartbeats
        return self._unread if isinstance(request, CreateAcls | DeleteAcls) else self._pending

    def cut(self, broker_id: int, broker_epoch: int) -> None:
        """The connection of a broker's last heartbeat is closed."""
        if self._controller is not None:
            self._controller.cut(broker_id, broker_epoch)

    def write(self, records: Sequence[AnyRecord]) -> None:
        """Append records that belong to no request."""
        assert self._controller is not None
        self._write(self._controller, records)

    def _write(self, controller: Controller, records: Sequence[AnyRecord]) -> None:
        self._last_offset = self._propose(records, self._epoch)
        log_leader_changes(records, controller.image)
        controller.replay(records, self._last_offset, self._epoch)

    def committed(self, high_watermark: Offset) -> None:
        """All records below are committed."""
        self._committed = high_watermark
        self._release()

    def advanced(self, high_watermark: Offset) -> None:
        """This node has applied all records below."""
        self._applied = high_watermark
        self._committed = max(self._committed, high_watermark)
        self._release()

    def _release(self) -> None:
        while self._unread and self._has_reached_brokers(self._unread[0].offset):
            # If a broker was fenced meanwhile, that has to be committed too.
            self._pending.append(self._unread.popleft()._replace(offset=self._last_offset))
        for queue, end in ((self._heartbeats, self._committed), (self._pending, self._applied)):
            while queue and queue[0].offset < end:
                ready = queue.popleft()
                ready.promise.resolve(ready.reply)

    def _has_reached_brokers(self, offset: Offset) -> bool:
        return self._controller is not None and self._controller.has_reached_brokers(offset)

    # -- time ------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Tick four times per session timeout, and when the next broker session expires."""
        controller = self._controller
        if controller is None:
            return
        now_ms = self._world.now_ms()
        wait_ms = self._session_timeout_ms // 4
        ends_ms = controller.next_session_end_ms()
        if ends_ms is not None and ends_ms > now_ms:
            wait_ms = min(wait_ms, ends_ms - now_ms)
        self._due_ms = now_ms + wait_ms
        self._timer = self._world.call_later(wait_ms, self._tick)

    def _tick(self) -> None:
        controller = self._controller
        if controller is None:
            return
        # While this process was paused it received no heartbeats, so that time does not count against any broker.
        # Heartbeats that arrived meanwhile are handled before the next tick.
        now_ms = min(self._world.now_ms(), self._due_ms + self._session_timeout_ms // 4)
        try:
            outcome = controller.tick(now_ms)
            if outcome.records:
                self._write(controller, outcome.records)
                log_expired_sessions(outcome.records)
                self._release()
        except NotLeader:
            return
        if outcome.reply:
            logger.info(
                "moved the leadership of %d partitions back to their preferred replicas", outcome.reply
            )
        self._set_timer()


def _not_controller() -> KafkaError:
    return KafkaError("this node is not the active controller", ErrorCode.NOT_CONTROLLER)
