"""The controller while this node leads the quorum: asked here, decided at once, answered when it is committed.

    submit --> controller.handle --> records --> quorum.propose --> (high watermark passes) --> reply
                                        |
                                        +--> controller.replay: the next decision builds on it

A decision without records is answered in its place as well: what it saw must be committed before it is told. Whoever
asks through this node finds what it asked for here: answers wait until the node has acted on what was committed. That
may take seconds where thousands of partitions are made, which no broker's session has: heartbeats do not wait for it.
A controller that loses its leadership is thrown away with everything that waited for it.
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
from penstock.metadata import AnyRecord, BrokerSettings, ClusterImage, Controller
from penstock.metadata.controller.requests import BrokerHeartbeat
from penstock.raft.errors import NotLeader

logger = logging.getLogger(__name__)

Propose = Callable[[Sequence[AnyRecord], LeaderEpoch], Offset]


class _Waiting(NamedTuple):
    offset: Offset
    """The last record that the answer rests on."""
    reply: Any
    later: Promise[Any]


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
        """Of what was proposed last, by this controller or before it."""
        self._committed: Offset = 0
        """All below is committed."""
        self._acted_on: Offset = 0
        """All below is committed, and this node has acted on it; at most `_committed`."""
        self._waiting: deque[_Waiting] = deque()
        self._heartbeats: deque[_Waiting] = deque()
        self._timer: Timer | None = None
        self._due_ms: TimestampMs = 0
        """When it is to fire."""

    @property
    def is_active(self) -> bool:
        return self._controller is not None

    def lead(self, image: ClusterImage, epoch: LeaderEpoch) -> None:
        """Begin, with everything that was committed before."""
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
        """Another leads, or nobody: what waits may or may not come true, and nobody here will know."""
        self._controller = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting = [*self._heartbeats, *self._waiting]
        self._heartbeats, self._waiting = deque(), deque()
        for each in waiting:
            each.later.resolve(_not_controller())

    def submit(self, request: Any) -> Promise[Any]:
        later: Promise[Any] = Promise()
        controller = self._controller
        if controller is None:
            later.resolve(_not_controller())
            return later
        try:
            outcome = controller.handle(request, self._world.now_ms())
            if outcome.records:
                self._write(controller, outcome.records)
        except NotLeader:
            later.resolve(_not_controller())
        except KafkaError as error:
            later.resolve(error)
        else:
            line = self._heartbeats if isinstance(request, BrokerHeartbeat) else self._waiting
            line.append(_Waiting(self._last_offset, outcome.reply, later))
            self._release()
        return later

    def cut(self, broker_id: int, broker_epoch: int) -> None:
        """The connection on which a broker was heard is no more."""
        if self._controller is not None:
            self._controller.cut(broker_id, broker_epoch)

    def write(self, records: Sequence[AnyRecord]) -> None:
        """Put records into the log that no request asked for."""
        assert self._controller is not None
        self._write(self._controller, records)

    def _write(self, controller: Controller, records: Sequence[AnyRecord]) -> None:
        self._last_offset = self._propose(records, self._epoch)
        log_leader_changes(records, controller.image)
        controller.replay(records, self._last_offset, self._epoch)

    def committed(self, high_watermark: Offset) -> None:
        """All below is committed."""
        self._committed = high_watermark
        self._release()

    def advanced(self, high_watermark: Offset) -> None:
        """All below is committed, and this node's image has it."""
        self._acted_on = high_watermark
        self._committed = max(self._committed, high_watermark)  # which may have gone on meanwhile
        self._release()

    def _release(self) -> None:
        for line, reached in ((self._heartbeats, self._committed), (self._waiting, self._acted_on)):
            while line and line[0].offset < reached:
                done = line.popleft()
                done.later.resolve(done.reply)

    # -- time ------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Look again some time within a session, or when the first broker has been silent for one."""
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
        # While this node stood still it heard nobody, itself not either: that time counts against no broker. What they
        # said meanwhile is heard before the next look.
        now_ms = min(self._world.now_ms(), self._due_ms + self._session_timeout_ms // 4)
        try:
            outcome = controller.tick(now_ms)
            if outcome.records:
                self._write(controller, outcome.records)
                log_expired_sessions(outcome.records)
        except NotLeader:
            return
        if outcome.reply:
            logger.info("%d partitions are led by their preferred replicas again", outcome.reply)
        self._set_timer()


def _not_controller() -> KafkaError:
    return KafkaError("the controller is elsewhere, or being elected", ErrorCode.NOT_CONTROLLER)
