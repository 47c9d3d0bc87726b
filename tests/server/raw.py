"""A client that hides nothing: it sends the bytes it is told to, and says what came back and when the line was cut."""

import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Any

from penstock.records import BatchBuilder
from penstock.wire import Api, read_response, request_module, write_request
from penstock.wire.frames import parse_response_header, request_frame

SECONDS_MAX = 90.0
"""How long a test hangs when something is wrong; nothing here takes a tenth of it."""


class RawClient:
    def __init__(self, port: int, receive_bytes: int | None = None) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(SECONDS_MAX)
        self.socket.connect(("127.0.0.1", port))
        self._correlation_id = 0

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_request(self, api: Api, version: int, message: Any) -> int:
        """Send a request without waiting, and return its correlation id."""
        self._correlation_id += 1
        self.send(
            request_frame(api, version, self._correlation_id, "raw", write_request(api, version, message))
        )
        return self._correlation_id

    def ask(self, api: Api, version: int, message: Any) -> Any:
        """Send a request and return its response."""
        wanted = self.send_request(api, version, message)
        correlation_id, response = self.receive(api, version)
        assert correlation_id == wanted
        return response

    def receive(self, api: Api, version: int) -> tuple[int, Any]:
        """The next response, which must be of this kind."""
        frame = self.receive_frame()
        assert frame is not None, "the connection ended"
        correlation_id, at = parse_response_header(memoryview(frame), api, version)
        return correlation_id, read_response(api, version, memoryview(frame)[at:])

    def receive_frame(self) -> bytes | None:
        """The next frame without its length; None when the connection ended."""
        head = self._receive_exactly(4)
        return None if head is None else self._receive_exactly(int.from_bytes(head, "big"))

    def _receive_exactly(self, count: int) -> bytes | None:
        parts = []
        while count:
            try:
                part = self.socket.recv(min(count, 1 << 20))
            except ConnectionResetError:
                return None
            if not part:
                return None
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def finish(self) -> list[bytes]:
        """Say that no more comes, and return the frames that arrive until the connection ends."""
        with suppress(OSError):  # the other side may have been quicker
            self.socket.shutdown(socket.SHUT_WR)
        frames = []
        while (frame := self.receive_frame()) is not None:
            frames.append(frame)
        return frames


def batch(*values: bytes, timestamp_ms: int = 1_600_000_000_000) -> bytes:
    """A record batch, as a producer sends it."""
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms)
    return builder.build()


# Produce 9 and Fetch 12 are the last versions that call topics by their names.
PRODUCE, FETCH, CREATE_TOPICS, METADATA = 9, 12, 7, 12


def produce_request(topic: str, records: bytes, *, acks: int = 1, partition: int = 0) -> Any:
    of = request_module(Api.PRODUCE, PRODUCE)
    data = of.PartitionProduceData(index=partition, records=records)
    return of.ProduceRequest(
        acks=acks,
        timeout=timedelta(seconds=10),
        topic_data=(of.TopicProduceData(name=topic, partition_data=(data,)),),
    )


def fetch_request(
    topic: str,
    offset: int,
    *,
    wait_ms: int = 0,
    bytes_min: int = 1,
    bytes_max: int = 1 << 20,
    partition: int = 0,
) -> Any:
    of = request_module(Api.FETCH, FETCH)
    wanted = of.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max)
    return of.FetchRequest(
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=bytes_min,
        topics=(of.FetchTopic(topic=topic, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )


def create_topics_request(topics: Mapping[str, int], configs: Mapping[str, str] | None = None) -> Any:
    of = request_module(Api.CREATE_TOPICS, CREATE_TOPICS)
    settings = tuple(
        of.CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()
    )
    return of.CreateTopicsRequest(
        topics=tuple(
            of.CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=settings
            )
            for name, partitions in topics.items()
        )
    )


def metadata_request(*topics: str) -> Any:
    of = request_module(Api.METADATA, METADATA)
    return of.MetadataRequest(
        topics=tuple(of.MetadataRequestTopic(topic_id=None, name=topic) for topic in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


def create_topic(
    port: int, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    with RawClient(port) as client:
        answer = client.ask(
            Api.CREATE_TOPICS, CREATE_TOPICS, create_topics_request({topic: partitions}, configs)
        )
        assert int(answer.topics[0].error_code) == 0, answer.topics[0]
