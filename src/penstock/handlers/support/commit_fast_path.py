"""Fast path of OffsetCommit: commits that repeat the connection's last one, with other numbers.

A consumer commits the same partitions, or one partition of a topic after the other, while its generation lasts. The
result of the checks in `offset_commit` (authorization, topics, format of the reply) is kept while the metadata image
stays the same. The coordinator checks member, generation and state of the group for every commit.

`take` handles only commits that `offset_commit` would pass to the coordinator whole. Otherwise it returns None, and
`offset_commit` validates and reports.
"""

from typing import Any

from penstock.base.errors import KafkaError
from penstock.base.ids import Uuid
from penstock.base.metrics import Meter, RequestStart
from penstock.base.promise import Promise
from penstock.coordinator.groups.requests import CommittedPartition, OffsetCommit, PartitionsReply
from penstock.coordinator.runtime.group_service import GroupShard
from penstock.metadata.image import ClusterImage
from penstock.wire import Api, Piece, RequestHeader
from penstock.wire.commits import CommitPattern, commit_pattern, may_repeat

from .commit_parts import commit_request, sift_commit
from .context import Call, Context

MISSES_MAX = 16
"""Commits that do not match before a connection stops trying."""

_new = tuple.__new__


class CommitFastPath:
    """Of one connection. Does nothing until `learn` has been called."""

    __slots__ = (
        "_context",
        "_group",
        "_image",
        "_meter",
        "_misses",
        "_pattern",
        "_rest",
        "_rows",
        "_shard",
    )

    _image: ClusterImage
    _shard: GroupShard
    """The group's coordinator shard. While it is loaded, this broker leads its partition."""
    _group: str
    _rest: tuple[Any, ...]
    """The fields of `OffsetCommit` after its partitions."""
    _rows: list[tuple[str, int, str | None, Uuid]]
    """For each partition of the commit: its topic, the topic's partition count, the metadata, the topic id."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._meter = context.metrics.api(Api.OFFSET_COMMIT)
        self._pattern: CommitPattern | None = None
        self._misses = 0

    def learn(self, frame: memoryview, header: RequestHeader, call: Call) -> None:
        """Remember a commit that `offset_commit` handled, if all of it went to the coordinator."""
        if self._pattern is not None:
            self._misses += 1
            self._pattern = None
        if self._misses >= MISSES_MAX or not may_repeat(frame, header):
            return
        sifted = sift_commit(self._context, call)
        if sifted is None or sifted.refused:
            return
        image = self._context.image
        request = commit_request(call, sifted.partitions)
        try:
            self._shard = self._context.groups.shards.of(request.group)
        except KafkaError:
            return
        self._pattern = commit_pattern(frame, header, call.message)
        self._image = image
        self._group = request.group
        self._rest = request[2:]
        self._rows = [
            (each.topic, len(image.topics[each.topic].partitions), each.metadata, each.topic_id)
            for each in request.partitions
        ]

    def take(self, frame: memoryview) -> "CommitReply | None":
        """Pass the commit of a frame to the coordinator, if it matches."""
        pattern = self._pattern
        if pattern is None:
            return None
        numbers = pattern.match(frame)
        context = self._context
        if numbers is None or self._image is not context.image or not self._shard.is_loaded:
            return None
        partitions = []
        at = 3
        for topic, count, text, topic_id in self._rows:
            number = numbers[at]
            if not 0 <= number < count:
                return None
            partitions.append(
                _new(CommittedPartition, (topic, number, numbers[at + 1], numbers[at + 2], text, topic_id))
            )
            at += 4
        self._misses = 0
        reply = CommitReply(pattern, self._meter, numbers[1], partitions, context.metrics.tick_began_ns)
        self._shard.handle(_new(OffsetCommit, (self._group, tuple(partitions), *self._rest))).then(
            reply.committed
        )
        if reply.is_settled:
            reply.request_start = None
            context.metrics.answered(self._meter)
        return reply


class CommitReply(Promise[list[Piece]]):
    """The promise of the reply to a commit of the fast path."""

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
        self.request_start = _new(RequestStart, (meter, since_ns))
        self._pattern = pattern
        self._meter = meter
        self._correlation_id = correlation_id
        self._partitions = partitions

    def committed(self, reply: PartitionsReply) -> None:
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
