"""Fetches one range of one partition from its leader, and decodes it to Arrow batches.

The next Fetch is in flight while the records of the last one are decoded: its offset comes from the batch headers,
before the batches are decoded. If a leader has moved or a broker is down, the fetch is retried with new
metadata until a timeout. Lost records are an error or a warning, by `failOnDataLoss`:

    deleted by retention      the position is below the log start: continue at the log start
    truncated                 the log ends before the range does: stop there
    topic deleted             nothing is left to read; a new topic of the same name is another topic
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, NoReturn

import pyarrow as pa

from penstock.arrow.decode import CorruptRecords, Decoder
from penstock.arrow.frames import Frames
from penstock.base.errors import ErrorCode
from penstock.base.ids import Offset, TopicPartition, Uuid
from penstock.client.cluster import Backoff, Cluster
from penstock.client.connection import Call
from penstock.client.errors import NETWORK_ERRORS, RETRIABLE, BrokerRefused, ClientError, TimedOut, refused
from penstock.client.fetch_request import fetch_request
from penstock.client.network import Link
from penstock.client.offsets import EARLIEST, LATEST, READ_COMMITTED, list_offsets
from penstock.client.topology import TopicInfo
from penstock.spark.errors import DataLoss
from penstock.spark.reading.offsets import MISSING_WAIT_MS, open_cluster
from penstock.spark.reading.options import SourceOptions
from penstock.spark.reading.plan import OffsetRange, RangeTask
from penstock.wire import FetchResult
from penstock.wire.fetch import AbortedTransaction
from penstock.wire.fetch_client import FetchResponse

log = logging.getLogger("penstock.spark")

TRUNCATED_WAIT_MS: Final = 10_000
"""How long a log may end before its range does: a new leader's high watermark lags for a while."""

CORRUPT_TRIES: Final = 3
"""Retries after CORRUPT_MESSAGE from the broker, which may be a single bad read."""

_ABSENT = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)


def read_task(task: RangeTask, columns: Sequence[str], options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """Read the records of a task as Arrow batches of some megabytes."""
    span = task.span
    start = span.start
    decoder = Decoder(*span.partition, columns, start=start, stop=span.stop)
    with open_cluster(options) as cluster:
        fetcher = RangeFetcher(cluster, span, options, task.topic_id)
        for fetched in fetcher.fetched():
            if fetcher.start > start:  # a batch may have records before the new log start
                yield from decoder.finish()
                start = fetcher.start
                decoder = Decoder(*span.partition, columns, start=start, stop=span.stop)
            yield from decoder.stream(*fetched)
    yield from decoder.finish()


class Fetched(NamedTuple):
    """Batches of a Fetch response, in the receive buffer, which the next response reuses."""

    frames: Frames
    aborted: Sequence[AbortedTransaction]


class _Gone(Exception):
    """The rest of the range is lost, and the reader continues without it."""


class _NotYet(Exception):
    """The response has no result; the request is repeated."""


class RangeFetcher:
    """Fetches the batches of a range in order; reports lost records between them."""

    def __init__(
        self, cluster: Cluster, span: OffsetRange, options: SourceOptions, topic_id: Uuid | None = None
    ) -> None:
        self._cluster = cluster
        self._span = span
        self._options = options
        self._topic_id = topic_id
        self.start: Offset = span.start
        """Start of the range; moves if the log starts later."""
        self._position: Offset = span.start
        self._failing: Backoff | None = None
        """Timeout of retries; runs while requests fail."""
        self._short: Backoff | None = None
        """Timeout while the log ends before the range does."""
        self._corrupt_tries = 0

    @property
    def partition(self) -> TopicPartition:
        return self._span.partition

    def fetched(self) -> Iterator[Fetched]:
        """Yield the batches up to the end of the range, or up to the log end."""
        flight: tuple[Link, Call[FetchResponse]] | None = None
        with suppress(_Gone):
            while self._position < self._span.stop:
                try:
                    flight = flight or self._start()
                    response = self._wait(*flight)
                    result = self._result(response)
                except NETWORK_ERRORS as error:
                    self._retry(error)
                    continue
                except _NotYet:
                    continue
                finally:
                    flight = None
                fetched = Fetched(Frames.read(result.records or b""), result.aborted or ())
                after = fetched.frames.next_offset
                if after is None or after <= self._position:
                    yield fetched  # the decoder reports the error
                    raise self._not_whole(result)
                self._position, self._failing, self._short = after, None, None
                if after < self._span.stop:
                    with suppress(*NETWORK_ERRORS):  # it is retried above
                        flight = self._start()
                yield fetched

    # -- requests -------------------------------------------------------------------------------------

    def _start(self) -> tuple[Link, Call[FetchResponse]]:
        self._same_topic(self._cluster.info.topics.get(self.partition.topic) or self._topic())
        leader = self._cluster.leader(self.partition)
        if leader is None:
            raise TimedOut(f"partition {self.partition} has no leader at the moment")
        link = self._cluster.link(leader.leader)
        options = self._options
        request = fetch_request(
            self._cluster,
            {self.partition: self._position},
            wait_ms_max=options.fetch_wait_ms_max,
            bytes_max=options.fetch_bytes_max,
            isolation_level=options.isolation_level,
        )
        return link, link.start(request)

    def _wait(self, link: Link, call: Call[FetchResponse]) -> FetchResponse:
        clock = self._cluster.clock
        limit_ms = self._options.client.request_timeout_ms + self._options.fetch_wait_ms_max
        deadline_ms = clock.now_ms() + limit_ms
        while not call.is_done:
            left_ms = deadline_ms - clock.now_ms()
            if left_ms <= 0:
                link.close()
                raise TimedOut(f"partition {self.partition}: no answer to Fetch within {limit_ms / 1000:g} s")
            if self._cluster.network.wait([link], left_ms):
                link.read()
        return call.result()

    def _topic(self) -> TopicInfo:
        """The current metadata of the topic; a deleted topic ends the range."""
        try:
            return self._cluster.topic(self.partition.topic, wait_ms=MISSING_WAIT_MS)
        except BrokerRefused as error:
            if error.code in _ABSENT:
                self._end("the topic no longer exists")
            raise

    def _same_topic(self, topic: TopicInfo) -> None:
        if self._topic_id is not None and topic.topic_id not in (None, self._topic_id):
            self._end("the topic was deleted and created again")
        if not topic.error_code and self.partition.partition not in topic.partitions:
            self._end(f"the topic has {len(topic.partitions)} partitions")

    # -- responses ------------------------------------------------------------------------------------

    def _result(self, response: FetchResponse) -> FetchResult:
        """The partition's result if it has records; raises _NotYet to repeat the request."""
        found = [
            each
            for name, results in response.topics
            for each in results
            if TopicPartition(str(name), each.partition) == self.partition
        ]
        code = response.error_code or (found[0].error_code if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code:
            self._refused(code, found[0] if found else None, response)
            raise _NotYet
        result = found[0]
        if not result.records:
            self._nothing(result)
            raise _NotYet
        return result

    def _refused(self, code: int, result: FetchResult | None, response: FetchResponse) -> None:
        problem = refused(f"partition {self.partition}", code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(problem)
            return
        if code == ErrorCode.CORRUPT_MESSAGE:
            self._corrupt_tries += 1
            if self._corrupt_tries >= CORRUPT_TRIES:
                raise CorruptRecords(
                    *self.partition,
                    self._position,
                    "the broker reports it as corrupt",
                )
        if code not in RETRIABLE:
            raise problem
        hint = None if result is None else result.current_leader
        if hint is not None and self._cluster.learn(self.partition, hint, response.node_endpoints):
            self._pause(problem)
            return
        self._retry(problem)
        if code in _ABSENT:
            self._same_topic(self._topic())

    def _out_of_range(self, problem: ClientError) -> None:
        [first] = list_offsets(self._cluster, {self.partition: EARLIEST}).values()
        if self._position < first.offset:
            stop = min(first.offset, self._span.stop)
            self._lost(
                f"offsets {self._position} to {stop - 1} no longer exist, its log now starts at {first.offset}"
            )
            self._position = self.start = first.offset
            return
        [last] = list_offsets(self._cluster, {self.partition: LATEST}).values()
        if self._position > last.offset:
            self._end(f"its log now ends at {last.offset}")
        self._retry(problem)

    def _nothing(self, result: FetchResult) -> None:
        """Handle a result without records and error: the log may end here."""
        is_committed = self._options.isolation_level == READ_COMMITTED
        end = result.last_stable_offset if is_committed else result.high_watermark
        if self._position < end:
            self._pause(
                ClientError(f"partition {self.partition} returns no records at offset {self._position}")
            )
            return
        if self._short is None:
            self._short = self._cluster.backoff(TRUNCATED_WAIT_MS)
        try:
            self._short.pause(ClientError(""))
        except ClientError:
            self._end(f"its log now ends at {end}")

    def _not_whole(self, result: FetchResult) -> CorruptRecords:
        size = len(memoryview(result.records or b""))
        return CorruptRecords(*self.partition, self._position, f"the batch is incomplete in {size} bytes")

    # -- errors ---------------------------------------------------------------------------------------

    def _retry(self, error: ClientError) -> None:
        self._pause(error)
        with suppress(*NETWORK_ERRORS):  # no broker answers: the next attempt reports it
            self._cluster.refresh([self.partition.topic], timeout_ms=self._options.client.request_timeout_ms)

    def _pause(self, error: ClientError) -> None:
        if self._failing is None:
            self._failing = self._cluster.backoff(self._options.failing_ms_max)
        try:
            self._failing.pause(error)
        except ClientError:
            seconds = self._options.failing_ms_max / 1000
            raise TimedOut(f"{self._span} could not be read for {seconds:g} s: {error}") from error

    def _lost(self, why: str) -> None:
        report_loss(
            f"{self._span} cannot be read completely: {why}", is_error=self._options.fails_on_data_loss
        )

    def _end(self, why: str) -> NoReturn:
        self._lost(why)
        raise _Gone


def report_loss(what: str, *, is_error: bool) -> None:
    """Raise or log that records are lost, by `failOnDataLoss`."""
    if is_error:
        raise DataLoss(f"{what} (set failOnDataLoss=false to read the rest)")
    log.warning("%s; failOnDataLoss is false, so the rest is read", what)
