"""The way of a consumer's commits, known from the one before: one look at the frame, and the coordinator is asked.

A consumer commits the same partitions, or one after the other of the same topic, as long as its generation lasts. What
the ordinary way (`offset_commit`) finds out each time and finds the same, what the client may, which topics are there,
how the reply looks, is kept here; it holds as long as the image does. Whether a commit is good, by member, generation
and state of the group, is the coordinator's to say, which is asked in both ways alike.

It takes only what that way would take to the coordinator whole. Of a partition that is not there, and of a frame that
says more than other numbers, it says None, and the ordinary way has a look, and the words.
"""

from typing import Any

from penstock.base.errors import KafkaError
from penstock.base.ids import Uuid
from penstock.base.metrics import Asked, Meter
from penstock.base.promise import Promise
from penstock.coordinator.groups.requests import CommittedPartition, OffsetCommit, PartitionsReply
from penstock.coordinator.runtime.group_service import GroupShard
from penstock.metadata import ClusterImage
from penstock.wire import Api, Piece, RequestHeader
from penstock.wire.commits import CommitPattern, commit_pattern, may_repeat

from .commit_parts import commit_asked, sift_commit
from .context import Call, Context

MISSES_MAX = 16
"""Commits looked at in vain before a connection stops looking, and learning: its client says new things each time."""

_new = tuple.__new__


class CommitFastPath:
    """Of one connection; useless, and harmless, until `learn` has been called."""

    __slots__ = (
        "_context",
        "_group",
        "_image",
        "_meter",
        "_misses",
        "_pattern",
        "_places",
        "_rest",
        "_shard",
    )

    _image: ClusterImage
    _shard: GroupShard
    """Whom the group's commits are told. One that is loaded is the one that leads; what comes after it is another."""
    _group: str
    _rest: tuple[Any, ...]
    """What an `OffsetCommit` has behind its partitions."""
    _places: list[tuple[str, int, str | None, Uuid]]
    """For each partition that is committed: its topic, how many partitions this has, the text, the topic's id."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._meter = context.metrics.api(Api.OFFSET_COMMIT)
        self._pattern: CommitPattern | None = None
        self._misses = 0

    def learn(self, frame: memoryview, header: RequestHeader, call: Call) -> None:
        """Remember a commit that had to go the ordinary way, if the coordinator was asked for all of it."""
        if self._pattern is not None:
            self._misses += 1
            self._pattern = None
        if self._misses >= MISSES_MAX or not may_repeat(frame, header):
            return
        sifted = sift_commit(self._context, call)
        if sifted is None or sifted.refused:
            return
        image = self._context.image
        request = commit_asked(call, sifted.partitions)
        try:
            self._shard = self._context.groups.shards.of(request.group)
        except KafkaError:
            return
        self._pattern = commit_pattern(frame, header, call.message)
        self._image = image
        self._group = request.group
        self._rest = request[2:]
        self._places = [
            (each.topic, len(image.topics[each.topic].partitions), each.metadata, each.topic_id)
            for each in request.partitions
        ]

    def take(self, frame: memoryview) -> "CommitReply | None":
        """Ask the coordinator for the commit of a frame that goes this way."""
        pattern = self._pattern
        if pattern is None:
            return None
        numbers = pattern.match(frame)
        context = self._context
        if numbers is None or self._image is not context.image or not self._shard.is_loaded:
            return None
        partitions = []
        at = 3
        for topic, count, text, topic_id in self._places:
            number = numbers[at]
            if not 0 <= number < count:
                return None
            partitions.append(
                _new(CommittedPartition, (topic, number, numbers[at + 1], numbers[at + 2], text, topic_id))
            )
            at += 4
        self._misses = 0
        reply = CommitReply(pattern, self._meter, numbers[1], partitions, context.metrics.tick_began_ns)
        self._shard.handle(_new(OffsetCommit, (self._group, tuple(partitions), *self._rest))).then(reply.told)
        if reply.is_settled:
            reply.asked = None
            context.metrics.answered(self._meter)
        return reply


class CommitReply(Promise[list[Piece]]):
    """The answer to a commit that came this way."""

    __slots__ = ("_correlation_id", "_meter", "_partitions", "_pattern")

    def __init__(
        self,
        pattern: CommitPattern,
        meter: Meter,
        correlation_id: int,
        partitions: list[CommittedPartition],
        since_ns: int,
    ) -> None:
        self.is_settled = False
        self._on_value = self._on_error = self.error = None
        self.asked = _new(Asked, (meter, since_ns))
        self._pattern = pattern
        self._meter = meter
        self._correlation_id = correlation_id
        self._partitions = partitions

    def told(self, reply: PartitionsReply) -> None:
        is_good = not reply.code
        for _, _, code in reply.partitions:
            if code:
                is_good = False
        if is_good:
            results = [(each[1], 0) for each in self._partitions]
        else:
            codes = {(topic, number): code for topic, number, code in reply.partitions if code}
            results = [
                (each.partition, int(codes.get((each.topic, each.partition), reply.code)))
                for each in self._partitions
            ]
            for _, number in results:
                if number:
                    self._meter.fail(number)
        self.resolve([self._pattern.reply(self._correlation_id, results)])
