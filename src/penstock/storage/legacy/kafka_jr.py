"""Kafka-JR's records.

    byte  0 size                4    bytes that follow this field
          4 topic               .    int32 length and bytes, as are key, value and idempotency key
          . partition           4
          . offset              8
          . timestamp           8    milliseconds; -1 for none
          . key                 .    length -1 for no key
          . value               .    length -1 for no value, a tombstone
          . idempotency key     .    length -1 or 0 for none

There is no checksum: damage is detected by inconsistent lengths, topic, partition or offsets. The search for a record
looks for its topic and partition, which every record repeats.
"""

from collections.abc import Iterator
from struct import Struct

from penstock.base.ids import TopicPartition
from penstock.records import Record

from .codec import INT32, LENGTH_BYTES, BadRecord, Encoded, check_numbers, field

IDEMPOTENCY_HEADER = "idempotency-key"
"""The record header that holds the idempotency key. The HTTP gateway finds and leaves it under this name."""

_PLACE = Struct(">qqi")
_PLACE_BYTES = 20


class KafkaJrCodec:
    def __init__(self, partition: TopicPartition) -> None:
        topic = partition.topic.encode()
        self._prefix = field(topic) + INT32.pack(partition.partition)
        self._place_at = LENGTH_BYTES + len(self._prefix)
        self.length_min = len(self._prefix) + _PLACE_BYTES + 2 * LENGTH_BYTES
        self.probe_bytes = self._place_at

    def decode(self, data: bytes, start: int, end: int) -> Record:
        place_at = start + self._place_at
        if data[start + LENGTH_BYTES : place_at] != self._prefix:
            raise self._wrong_partition(data[start + LENGTH_BYTES : end])
        offset, timestamp, key_size = _PLACE.unpack_from(data, place_at)
        key_at = place_at + _PLACE_BYTES
        key_end = key_at + key_size if key_size > 0 else key_at
        if key_size < -1 or key_end + 2 * LENGTH_BYTES > end:
            raise BadRecord(f"key length {key_size}, expected -1 to {end - key_at - 2 * LENGTH_BYTES}")
        (value_size,) = INT32.unpack_from(data, key_end)
        value_at = key_end + LENGTH_BYTES
        value_end = value_at + value_size if value_size > 0 else value_at
        if value_size < -1 or value_end + LENGTH_BYTES > end:
            raise BadRecord(f"value length {value_size}, expected -1 to {end - value_at - LENGTH_BYTES}")
        (name_size,) = INT32.unpack_from(data, value_end)
        name_at = value_end + LENGTH_BYTES
        if name_size != end - name_at and (name_size != -1 or name_at != end):
            raise BadRecord(f"idempotency key length {name_size}, expected {end - name_at}")
        if offset < 0 or timestamp < 0:
            check_numbers(offset, timestamp)
        return Record(
            offset,
            timestamp,
            None if key_size < 0 else data[key_at:key_end],
            None if value_size < 0 else data[value_at:value_end],
            ((IDEMPOTENCY_HEADER, data[name_at:end]),) if name_size > 0 else (),
        )

    def _wrong_partition(self, rest: bytes) -> BadRecord:
        found, expected = rest[: len(self._prefix)], self._prefix
        (size,) = INT32.unpack_from(found)
        if found[:-4] == expected[:-4]:
            partition = INT32.unpack(found[-4:])[0]
            return BadRecord(f"partition {partition}, expected {INT32.unpack(expected[-4:])[0]}")
        topic = f"{found[4:-4]!r}" if size == len(expected) - 8 else f"of {size} bytes"
        return BadRecord(f"topic {topic}, expected {expected[4:-4]!r}")

    def encode(self, record: Record) -> Encoded:
        offset, timestamp, key, value, headers, _ = record
        name, left = None, 0
        if headers:
            # Of several the last counts, as in Kafka's own Headers.lastHeader.
            named = (each for title, each in reversed(headers) if title == IDEMPOTENCY_HEADER)
            name = next(filter(None, named), None)
            left = len(headers) - (name is not None)
        body = b"".join(
            (self._prefix, _PLACE.pack(offset, timestamp, 0)[:-4], field(key), field(value), field(name))
        )
        return Encoded(INT32.pack(len(body)) + body, left)

    def is_torn(self, head: bytes, length: int) -> bool:
        return False

    def candidates(self, block: bytes) -> Iterator[int]:
        at = block.find(self._prefix, LENGTH_BYTES)
        while at >= 0:
            yield at - LENGTH_BYTES
            at = block.find(self._prefix, at + 1)
