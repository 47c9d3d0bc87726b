"""Requests as bytes, made before anything is measured.

The versions are those that librdkafka 2.16 sends to Kafka 4.3: Produce 10, which names topics, and Fetch 16,
which has their ids. It opens no fetch sessions, so a Fetch lists all its partitions.
"""

import random
import time
from collections.abc import Sequence
from struct import Struct

from penstock.records import build_batch
from penstock.wire import Api, request_frame
from penstock.wire.primitives import uvarint

PRODUCE_VERSION, FETCH_VERSION = 10, 16
CLIENT_ID = "rdkafka"
CORRELATION_AT = 8
"""Where the correlation id of a request's frame is: behind length, API key and version."""

KB, MB = 1 << 10, 1 << 20
VALUE_BYTES = 100
RECORD_BYTES = 1000
"""The value of each record in the batches of many."""

FETCH_ERROR_AT = 41
"""Where a Fetch reply has the error code of its first partition."""

_ACKS = Struct(">hi")
_FETCH_HEAD = Struct(">iiibii")
_FETCH_PARTITION = Struct(">iiqiqi")
REQUEST_TIMEOUT_MS = 30_000


def now_ms() -> int:
    return int(time.time() * 1000)


def one_record() -> bytes:
    """A batch with one record of a hundred bytes: what a producer without linger sends."""
    return build_batch([(None, random.Random(0).randbytes(VALUE_BYTES), now_ms())])


def batch_of(size: int) -> bytes:
    """A batch of exactly so many bytes, with as many records of a kilobyte as fit."""
    rng = random.Random(size)
    stamp = now_ms()
    rows = [(None, rng.randbytes(RECORD_BYTES), stamp) for _ in range(size // (RECORD_BYTES + 24))]
    filler = max(1, size - len(build_batch([*rows, (None, b"", stamp)])))
    while (
        True
    ):  # the filler's own length fields grow with it, so that the first guess is a few bytes too many
        batch = build_batch([*rows, (None, rng.randbytes(filler), stamp)])
        if len(batch) <= size:
            break
        filler -= len(batch) - size
    if len(batch) != size:
        raise ValueError(f"no batch of this shape has {size} bytes: {len(batch)} is the nearest below")
    return batch


def records_in(batch: bytes) -> int:
    return int.from_bytes(batch[57:61], "big")


def produce_frame(topic: str, partitions: Sequence[int], batch: bytes, acks: int = 1) -> bytes:
    name = topic.encode()
    body = b"\0" + _ACKS.pack(acks, REQUEST_TIMEOUT_MS) + b"\2" + uvarint(len(name) + 1) + name
    body += uvarint(len(partitions) + 1)
    for partition in partitions:
        body += partition.to_bytes(4, "big") + uvarint(len(batch) + 1) + batch + b"\0"
    return request_frame(Api.PRODUCE, PRODUCE_VERSION, 0, CLIENT_ID, body + b"\0\0")


def fetch_frame(
    topic_id: bytes, offsets: Sequence[int], *, max_wait_ms: int = 0, min_bytes: int = 0, bytes_max: int = MB
) -> bytes:
    """A Fetch of partitions 0, 1 and so on, each from its offset; it waits for nothing unless told to."""
    body = _FETCH_HEAD.pack(max_wait_ms, min_bytes, bytes_max, 0, 0, -1)
    body += b"\2" + topic_id + uvarint(len(offsets) + 1)
    for partition, offset in enumerate(offsets):
        body += _FETCH_PARTITION.pack(partition, -1, offset, -1, -1, bytes_max) + b"\0"
    return request_frame(Api.FETCH, FETCH_VERSION, 0, CLIENT_ID, body + b"\0\1\1\0")


def produce_error_at(topic: str) -> int:
    """Where a Produce reply has the error code of its first partition."""
    return 16 + len(topic.encode())
