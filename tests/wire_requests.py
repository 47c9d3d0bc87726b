"""Bodies of Produce and Fetch requests, made by kio, and a reader of everything in a partition."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.nodes import StillNode

from penstock.records import iter_batches
from penstock.wire import Api, request_module, write_request

Topic = str | bytes


def _topic(topic: Topic) -> dict[str, Any]:
    return {"topic_id": UUID(bytes=topic)} if isinstance(topic, bytes) else {"name": topic}


def produce_body(
    version: int,
    topics: Iterable[tuple[Topic, Sequence[tuple[int, bytes | None]]]],
    acks: int = -1,
    timeout_ms: int = 1000,
    transactional_id: str | None = None,
) -> bytes:
    module = request_module(Api.PRODUCE, version)
    request = module.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            module.TopicProduceData(
                **_topic(topic),
                partition_data=tuple(
                    module.PartitionProduceData(index=number, records=records)
                    for number, records in partitions
                ),
            )
            for topic, partitions in topics
        ),
    )
    return write_request(Api.PRODUCE, version, request)


def fetch_body(
    version: int,
    topics: Iterable[tuple[Topic, Sequence[tuple[int, int]]]],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_bytes: int = 1 << 20,
    isolation_level: int = 0,
    session: tuple[int, int] = (0, -1),
    forgotten: Iterable[tuple[Topic, Sequence[int]]] = (),
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
) -> bytes:
    """Partitions are number and offset; what a version does not know is left out."""
    module = request_module(Api.FETCH, version)

    def make(name: str, **fields: Any) -> Any:
        kind = getattr(module, name)
        return kind(**{key: value for key, value in fields.items() if key in kind.__dataclass_fields__})

    def name_of(topic: Topic) -> dict[str, Any]:
        return {"topic_id": UUID(bytes=topic)} if isinstance(topic, bytes) else {"topic": topic}

    request = make(
        "FetchRequest",
        replica_id=-1,
        max_wait=timedelta(milliseconds=max_wait_ms),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=tuple(
            make(
                "FetchTopic",
                **name_of(topic),
                partitions=tuple(
                    make(
                        "FetchPartition",
                        partition=number,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_fetched_epoch,
                        log_start_offset=-1,
                        partition_max_bytes=partition_bytes,
                    )
                    for number, offset in partitions
                ),
            )
            for topic, partitions in topics
        ),
        forgotten_topics_data=tuple(
            make("ForgottenTopic", **name_of(topic), partitions=tuple(numbers))
            for topic, numbers in forgotten
        ),
        rack_id="",
    )
    return write_request(Api.FETCH, version, request)


def values_in(records: bytes | None) -> list[bytes | None]:
    """The values of all records in a reply."""
    return [
        None if record.value is None else bytes(record.value)
        for batch in iter_batches(bytearray(records or b""))
        if not batch.is_control
        for record in batch.records()
    ]


def fetch_all(node: StillNode, topic: str, partition: int) -> list[bytes | None]:
    """Every value of a partition, read as a client does."""
    client = node.client()
    offset, found = 0, []
    while True:
        client.send(Api.FETCH, 12, fetch_body(12, [(topic, [(partition, offset)])]))
        [answered] = client.wait().responses[0].partitions
        assert answered.error_code.value == 0, answered
        batches = list(iter_batches(bytearray(answered.records or b"")))
        if not batches:
            return found
        found += values_in(answered.records)
        offset = batches[-1].next_offset
