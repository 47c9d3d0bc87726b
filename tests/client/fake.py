"""A cluster of brokers without sockets or time, for the client to be tried on.

The bytes are real: each link has the client's own Conversation at one end and Penstock's parsers, or kio, at the
other. A broker keeps its logs as lists of batches and can be told to misbehave, once or for a while: `faults`
are asked before a request is handled, and may answer with an error code, or break the connection before or
after the request took effect.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.client.connection import Call, Conversation
from penstock.client.errors import ConnectionLost, Unreachable
from penstock.client.settings import Address
from penstock.records import RecordBatch, iter_batches
from penstock.wire import (
    KAFKA_RANGES,
    Api,
    CurrentLeader,
    FetchResult,
    NodeEndpoint,
    ProduceResult,
    api_versions_reply,
    fetch_reply,
    parse_fetch,
    parse_header,
    parse_produce,
    produce_reply,
    read_request,
    response_frame,
    write_response,
)
from penstock.wire.messages import response_builder
from penstock.wire.request import Request

T = TypeVar("T")


def feed(conversation: Conversation, data: bytes) -> list[Call[Any]]:
    """Have a conversation receive bytes, as a socket gives them: as many as there is room for."""
    answered = []
    while data:
        room = conversation.room()
        piece, data = data[: len(room)], data[len(room) :]
        room[: len(piece)] = piece
        answered += conversation.received(len(piece))
    return answered


class FakeClock:
    def __init__(self) -> None:
        self.time_ms = 0.0

    def now_ms(self) -> float:
        return self.time_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.time_ms)

    def sleep_ms(self, duration_ms: float) -> None:
        self.time_ms += max(0.0, duration_ms)


@dataclass
class Log:
    topic_id: bytes
    leader: int
    epoch: int = 0
    start: int = 0
    batches: list[bytes] = field(default_factory=list)
    sequences: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By producer: the first and last sequence number and the base offset of its last five batches."""
    bytes_max: int = 2**20

    @property
    def end(self) -> int:
        return RecordBatch.parse(self.batches[-1]).next_offset if self.batches else self.start

    def append(self, data: memoryview) -> tuple[int, int]:
        """The error code and the base offset, for one batch of a producer's."""
        batch = RecordBatch.parse(bytearray(data))
        assert batch.crc_valid()
        if batch.size > self.bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if batch.has_producer_id:
            known = self.sequences.setdefault(batch.producer_id, [])
            for first, last, offset in known:
                if (batch.base_sequence, batch.last_sequence) == (first, last):
                    return 0, offset
            if known and batch.base_sequence != known[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
            known.append((batch.base_sequence, batch.last_sequence, self.end))
            del known[:-5]
        base = self.end
        batch.place(base, self.epoch)
        self.batches.append(bytes(batch.view))
        return 0, base

    def records(self) -> list[Any]:
        return [record for each in self.batches for record in RecordBatch.parse(each).records()]


Fault = Callable[["FakeBroker", Api], "str | int | None"]
"""'before' or 'after' breaks the connection, a number is an error code for all of the request's partitions."""


class FakeCluster:
    def __init__(self, brokers: int = 1) -> None:
        self.clock = FakeClock()
        self.brokers = {node_id: FakeBroker(self, node_id) for node_id in range(1, brokers + 1)}
        self.logs: dict[TopicPartition, Log] = {}
        self.topics: dict[str, bytes] = {}
        self.faults: deque[Fault] = deque()
        self.requests: list[tuple[int, Api]] = []
        """Who was asked what, in order."""
        self.next_producer_id = 100
        self.creates_topics = False
        self.hints = True
        """Whether a broker that does not lead says who does."""
        self.ranges = dict(KAFKA_RANGES)
        self.latency_ms: Callable[[], float] = lambda: 0.0
        """How long a reply takes."""

    def add_topic(self, name: str, partitions: int = 1, leader: int = 1) -> None:
        topic_id = self.topics[name] = (len(self.topics) + 1).to_bytes(16, "big")
        for index in range(partitions):
            self.logs[TopicPartition(name, index)] = Log(topic_id, leader)

    def move(self, partition: TopicPartition, leader: int) -> None:
        log = self.logs[partition]
        log.leader, log.epoch = leader, log.epoch + 1

    @property
    def addresses(self) -> list[Address]:
        return [each.address for each in self.brokers.values()]

    # -- Network --------------------------------------------------------------------------------------

    def connect(self, address: Address) -> "FakeLink":
        for broker in self.brokers.values():
            if broker.address == address and broker.is_up:
                return FakeLink(broker)
        raise Unreachable(f"cannot reach {address}: connection refused")

    def wait(self, links: Sequence[Any], timeout_ms: float) -> list[Any]:
        deadline_ms = self.clock.now_ms() + timeout_ms
        arrivals = [each.arrives_ms for each in links]
        if min(arrivals) > deadline_ms:
            self.clock.sleep_ms(max(1.0, timeout_ms))
            return []
        self.clock.time_ms = max(self.clock.time_ms, min(arrivals))
        return [each for each in links if each.arrives_ms <= self.clock.now_ms()]


class FakeLink:
    def __init__(self, broker: "FakeBroker") -> None:
        self.broker = broker
        self.is_open = True
        self.incoming: list[tuple[float, bytes]] = []
        """Replies on their way, and when they arrive."""
        self.conversation = Conversation(str(broker.address), "test", 2**24)
        while not self.conversation.is_ready:
            self._exchange()
            broker.cluster.clock.time_ms = max(broker.cluster.clock.time_ms, self.arrives_ms)
            self.read()

    def _exchange(self) -> None:
        outgoing = self.conversation.take()
        if not outgoing:
            return
        if not self.broker.is_up:
            raise self._lose()
        try:
            reply = self.broker.handle(memoryview(outgoing)[4:])
        except ConnectionLost:
            self._lose()
            return
        if reply is not None:
            cluster = self.broker.cluster
            self.incoming.append((cluster.clock.now_ms() + cluster.latency_ms(), reply))

    @property
    def arrives_ms(self) -> float:
        """When there is something to read: the end of the connection is."""
        if not self.is_open:
            return 0.0
        return self.incoming[0][0] if self.incoming else float("inf")

    def _lose(self) -> ConnectionLost:
        self.is_open = False
        lost = ConnectionLost(f"the connection to {self.broker.address} was lost")
        self.conversation.fail(lost)
        return lost

    def start(self, request: Request[T]) -> Call[T]:
        if not self.is_open:
            raise ConnectionLost("closed")
        call = self.conversation.send(request)
        self._exchange()
        return call

    def ask(self, request: Request[T], timeout_ms: float | None = None) -> T:
        call = self.start(request)
        clock = self.broker.cluster.clock
        while not call.is_done:
            clock.time_ms = max(clock.time_ms, self.arrives_ms)
            self.read()
        return call.result()

    def read(self) -> list[Call[Any]]:
        done = []
        while self.incoming and self.incoming[0][0] <= self.broker.cluster.clock.now_ms():
            done += feed(self.conversation, self.incoming.pop(0)[1])
        return done

    def close(self) -> None:
        if self.is_open:
            self._lose()


class FakeBroker:
    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.address = Address(f"broker-{node_id}", 9092)
        self.is_up = True

    def handle(self, frame: memoryview) -> bytes | None:
        header = parse_header(frame)
        api, version = Api(header.api_key), header.api_version
        served = self.cluster.ranges
        if api is Api.API_VERSIONS:
            body = api_versions_reply(served, {}, {}, version)
            return response_frame(api, version, header.correlation_id, body)
        self.cluster.requests.append((self.node_id, api))
        assert version in served[api], f"{api.label} {version} is not served"
        fault = self.cluster.faults[0](self, api) if self.cluster.faults else None
        if fault is not None:
            self.cluster.faults.popleft()
        if fault == "before":
            raise ConnectionLost("a fault")
        code = fault if isinstance(fault, int) else None
        handler = getattr(self, api.name.lower())
        if api in (Api.PRODUCE, Api.FETCH):
            reply = handler(frame, header.body_at, version, header.correlation_id, code)
        else:
            entity = handler(
                read_request(api, version, frame[header.body_at :]), response_builder(api, version), code
            )
            body = write_response(api, version, entity)
            reply = response_frame(api, version, header.correlation_id, body)
        if fault == "after":
            raise ConnectionLost("a fault")
        return reply

    # -- APIs -----------------------------------------------------------------------------------------

    def metadata(self, request: Any, module: Any, code: int | None) -> Any:
        names = (
            list(self.cluster.topics) if request.topics is None else [each.name for each in request.topics]
        )
        if request.allow_auto_topic_creation and self.cluster.creates_topics:
            answer = [self._topic(module, name) for name in names]
            for name in names:
                if name not in self.cluster.topics:
                    self.cluster.add_topic(name)
        else:
            answer = [self._topic(module, name) for name in names]
        return module.MetadataResponse(
            throttle_time=timedelta(0),
            brokers=tuple(
                module.MetadataResponseBroker(
                    node_id=each.node_id, host=each.address.host, port=each.address.port, rack=None
                )
                for each in self.cluster.brokers.values()
                if each.is_up
            ),
            cluster_id="fake",
            controller_id=1,
            topics=tuple(answer),
            error_code=ErrorCode.NONE,
        )

    def _topic(self, module: Any, name: str) -> Any:
        topic_id = self.cluster.topics.get(name)
        code = ErrorCode.NONE if topic_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partitions = [
            module.MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=where.partition,
                leader_id=log.leader if self.cluster.brokers[log.leader].is_up else -1,
                leader_epoch=log.epoch,
                replica_nodes=(log.leader,),
                isr_nodes=(log.leader,),
                offline_replicas=(),
            )
            for where, log in self.cluster.logs.items()
            if where.topic == name
        ]
        return module.MetadataResponseTopic(
            error_code=code,
            name=name,
            topic_id=UUID(bytes=topic_id) if topic_id else None,
            is_internal=False,
            partitions=tuple(partitions),
        )

    def init_producer_id(self, request: Any, module: Any, code: int | None) -> Any:
        self.cluster.next_producer_id += 1
        return module.InitProducerIdResponse(
            throttle_time=timedelta(0),
            error_code=ErrorCode(code or 0),
            producer_id=self.cluster.next_producer_id,
            producer_epoch=0,
        )

    def list_offsets(self, request: Any, module: Any, code: int | None) -> Any:
        def answer(topic: str, each: Any) -> Any:
            log = self.cluster.logs[TopicPartition(topic, each.partition_index)]
            mine = log.leader == self.node_id
            offset = {-1: log.end, -2: log.start}.get(each.timestamp, -1)
            return module.ListOffsetsPartitionResponse(
                partition_index=each.partition_index,
                error_code=ErrorCode(code or (0 if mine else ErrorCode.NOT_LEADER_OR_FOLLOWER)),
                timestamp=-1,
                offset=offset if mine and not code else -1,
                leader_epoch=log.epoch,
            )

        return module.ListOffsetsResponse(
            throttle_time=timedelta(0),
            topics=tuple(
                module.ListOffsetsTopicResponse(
                    name=topic.name, partitions=tuple(answer(topic.name, each) for each in topic.partitions)
                )
                for topic in request.topics
            ),
        )

    def _log(self, topic: str | bytes, partition: int) -> tuple[Log | None, ErrorCode]:
        names = {topic_id: name for name, topic_id in self.cluster.topics.items()}
        name = names.get(topic) if isinstance(topic, bytes) else topic
        log = self.cluster.logs.get(TopicPartition(name or "", partition))
        if log is None:
            return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return log, ErrorCode.NONE if log.leader == self.node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _hint(self, log: Log | None) -> CurrentLeader | None:
        return CurrentLeader(log.leader, log.epoch) if log is not None and self.cluster.hints else None

    @property
    def _endpoints(self) -> list[NodeEndpoint]:
        return [NodeEndpoint(each.node_id, *each.address) for each in self.cluster.brokers.values()]

    def produce(
        self, frame: memoryview, at: int, version: int, correlation_id: int, code: int | None
    ) -> bytes | None:
        request = parse_produce(frame, at, version)
        topics = []
        for topic, partitions in request.topics:
            results = []
            for partition, data in partitions:
                log, error = self._log(topic, partition)
                if log is None or error:
                    hint = self._hint(log)
                    results.append(ProduceResult(partition, int(error), current_leader=hint))
                elif code:
                    results.append(ProduceResult(partition, code))
                else:
                    assert data is not None
                    result, base = log.append(data)
                    results.append(ProduceResult(partition, int(result), base, -1, log.start))
            topics.append((topic, results))
        if request.acks == 0:
            return None
        return produce_reply(version, correlation_id, topics, node_endpoints=self._endpoints)

    def fetch(self, frame: memoryview, at: int, version: int, correlation_id: int, code: int | None) -> bytes:
        request = parse_fetch(frame, at, version)
        topics = []
        for topic, partitions in request.topics:
            results = []
            for each in partitions:
                log, error = self._log(topic, each.partition)
                if log is None or error or code:
                    hint = self._hint(log) if error else None
                    bad = FetchResult(each.partition, code or int(error), -1, -1, -1, current_leader=hint)
                    results.append(bad)
                elif not log.start <= each.fetch_offset <= log.end:
                    gone = int(ErrorCode.OFFSET_OUT_OF_RANGE)
                    results.append(FetchResult(each.partition, gone, log.end, log.end, log.start))
                else:
                    whole = b"".join(log.batches)
                    data = b"".join(
                        bytes(batch.view)
                        for batch in iter_batches(whole)
                        if batch.next_offset > each.fetch_offset
                    )
                    results.append(FetchResult(each.partition, 0, log.end, log.end, log.start, data, []))
            topics.append((topic, results))
        if not code and not any(result.records for _, some in topics for result in some):
            self.cluster.clock.sleep_ms(request.max_wait_ms)  # a long poll that found nothing
        buffers, _ = fetch_reply(version, correlation_id, topics, node_endpoints=self._endpoints)
        return b"".join(buffers)


def on(api: Api, what: str | int) -> Fault:
    return lambda _, asked: what if asked is api else None


def cause_chaos(fake: FakeCluster, rng: random.Random, partitions: int, rate: float) -> None:
    """Move leaders of `orders` at random, lose or refuse Produce requests at a rate, and delay replies."""
    codes = [int(ErrorCode.NOT_ENOUGH_REPLICAS), int(ErrorCode.NOT_LEADER_OR_FOLLOWER)]

    def chaos(_: FakeBroker, api: Api) -> str | int | None:
        if rng.random() < 0.1:
            fake.move(TopicPartition("orders", rng.randrange(partitions)), rng.randrange(1, 4))
        if api is Api.PRODUCE and rng.random() < rate:
            return rng.choice(["before", "after", *codes])
        return None

    fake.faults += [chaos] * 100_000
    fake.latency_ms = lambda: rng.choice([0.0, rng.random() * 20])


def seeded() -> random.Random:
    return random.Random(7)
