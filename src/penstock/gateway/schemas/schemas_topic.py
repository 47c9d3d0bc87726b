"""Follows `_schemas`: the view of the registry, up to everything that was written when it was asked for.

The leader of the partition is asked for its log end offset, unless it is this broker, and the records up to it are
read when they are committed. So an answer from the view never misses what another answer, of any node, has shown
before. Many callers share one question: those that come while one is under way share the next.
"""

import logging
from typing import Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, Uuid
from penstock.base.promise import Promise
from penstock.base.steps import RunningSteps, Steps, next_tick
from penstock.gateway.peer_rpc.retry import is_alone, retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import Growth, RoutedPartition, find_partition, look_up_bounds
from penstock.gateway.shared.controller_call import check, decide
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context
from penstock.handlers.support.latest_metadata import LatestMetadata
from penstock.metadata.controller.requests import CreateTopics, NewTopic
from penstock.metadata.image import Topic
from penstock.registry.topic_records import TOPIC
from penstock.registry.view import RegistryView

logger = logging.getLogger(__name__)

COMMIT_MS_MAX: Final = 10_000
"""How long a caller waits for records that are written and not committed."""

LOOK_AGAIN_MS: Final = 500
"""While records are not committed, the leader is asked this often."""

READ_BYTES: Final = 1 << 18
RECORDS_A_SLICE: Final = 200
"""Records that are replayed before other work has its turn: about 5 ms."""

REPLICAS_MAX: Final = 3

NO_TOPIC: Final[Uuid] = b""


class SchemasTopic:
    def __init__(self, context: Context) -> None:
        self._context = context
        self.view = RegistryView()
        self._topic_id = NO_TOPIC
        """Of the topic that the view was read from."""
        self._metadata = LatestMetadata(context)
        self._waiting: list[Promise[None]] = []
        """Callers that the next round answers."""
        self._round: RunningSteps[None] | None = None
        self.updated_ms = -1
        """When the last round began that succeeded, by the monotonic clock."""

    def stop(self) -> None:
        if self._round is not None:
            self._round.cancel()
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.fail(KafkaError("the node stops", ErrorCode.NETWORK_EXCEPTION))

    def latest(self) -> Promise[None]:
        """Resolved when the view has everything that was written before the call."""
        promise: Promise[None] = Promise()
        self._waiting.append(promise)
        self._begin_round()
        return promise

    def _begin_round(self) -> None:
        if (self._round is not None and not self._round.is_over) or not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        began_ms = self._context.world.clock_ns() // 1_000_000

        def done(_: None) -> None:
            self.updated_ms = began_ms
            self._round = None
            for each in waiting:
                each.resolve(None)
            self._begin_round()

        def failed(error: Exception) -> None:
            if not isinstance(error, KafkaError):
                logger.error("%s could not be read", TOPIC, exc_info=error)
                error = KafkaError(f"{TOPIC} could not be read: {error}")
            self._round = None
            for each in waiting:
                each.fail(error)
            self._begin_round()

        running = RunningSteps(retry_while_moving(self._context, self._catch_up), done, failed)
        if not running.is_over:
            self._round = running

    def _catch_up(self) -> Steps[None]:
        topic: Topic | None = self._context.image.topics.get(TOPIC)
        if topic is None and not is_alone(self._context):
            # Another broker may have created it a moment ago.
            yield self._metadata.reached()
            topic = self._context.image.topics.get(TOPIC)
        if topic is None:
            self._begin(NO_TOPIC)
            return
        if topic.id != self._topic_id:
            self._begin(topic.id)
        partition = find_partition(self._context, TOPIC, 0)
        yield from self.read_up_to(partition, (yield from self._log_end(partition)))

    def _begin(self, topic_id: Uuid) -> None:
        if topic_id != self._topic_id or topic_id == NO_TOPIC:
            self._topic_id = topic_id
            self.view = RegistryView()

    def _log_end(self, partition: RoutedPartition) -> Steps[Offset]:
        here = partition.here
        if here is None:
            bounds = (yield from look_up_bounds(self._context, [partition]))[partition]
            return bounds.log_end
        if here.may_be_deposed:
            raise KafkaError(
                f"This broker may no longer lead {partition.name}; retry.", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        return here.log.log_end

    def read_up_to(self, partition: RoutedPartition, end: Offset) -> Steps[None]:
        """Replay what is committed below an offset, and wait for it if it is not committed yet."""
        if end < self.view.position:
            logger.warning(
                "%s ends at %d, below what was read (%d): it is read again from its beginning",
                partition.name,
                end,
                self.view.position,
            )
            self.view = RegistryView()
        world = self._context.world
        until_ms = world.now_ms() + COMMIT_MS_MAX
        while self.view.position < end:
            try:
                portion = yield from partition.read(
                    self.view.position, records_max=RECORDS_A_SLICE, bytes_max=READ_BYTES
                )
            except KafkaError as error:
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                yield from self._skip_deleted(partition)
                continue
            for record in portion.records:
                self.view.replay(record.key, record.value, record.offset)
            self.view.position = max(self.view.position, portion.next_offset)
            if portion.records:
                yield next_tick(world)
            elif self.view.position < end:
                if world.now_ms() >= until_ms:
                    raise KafkaError(
                        f"records of {partition.name} up to offset {end} are not committed in time",
                        ErrorCode.REQUEST_TIMED_OUT,
                    )
                yield Growth(self._context, partition, self.view.position, LOOK_AGAIN_MS)

    def _skip_deleted(self, partition: RoutedPartition) -> Steps[None]:
        """Go to the log start offset: records before it were deleted."""
        yield from look_up_bounds(self._context, [partition])
        if partition.log_start <= self.view.position:
            raise KafkaError(
                f"{partition.name} has not committed up to {self.view.position} yet",
                ErrorCode.OFFSET_NOT_AVAILABLE,
            )
        logger.warning(
            "records of %s before offset %d were deleted, and their schemas with them",
            partition.name,
            partition.log_start,
        )
        self.view.position = partition.log_start

    # -- creation --------------------------------------------------------------------------------------

    def ensure(self) -> Steps[Topic]:
        """The topic, created if it does not exist."""
        context = self._context
        topic: Topic | None = context.image.topics.get(TOPIC)
        if topic is not None:
            return topic
        replicas = min(REPLICAS_MAX, max(len(context.image.brokers), 1))
        new = NewTopic(
            TOPIC,
            1,
            replicas,
            configs={
                "cleanup.policy": "compact",
                "min.insync.replicas": str(max(replicas - 1, 1)),
                "unclean.leader.election.enable": "false",
            },
        )
        [created] = yield from decide(context, CreateTopics((new,)))
        if created.result.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            check(created.result, f"topic {TOPIC!r} could not be created")
        elif TOPIC not in context.image.topics:
            yield self._metadata.reached()  # another broker has just created it
        if TOPIC not in context.image.topics:
            raise KafkaError(f"topic {TOPIC!r} is not known here yet. Retry.", ErrorCode.LEADER_NOT_AVAILABLE)
        return find_topic(context, TOPIC)
