"""Producer state on disk, as of an offset, so that a start does not replay the whole log.

Kafka's `.snapshot` has the last batch of each producer. Our `.sequences` file has in addition all kept batches, the
transactions in doubt, and the CRC of its snapshot; it is left out if the snapshot alone is enough. Both files have a
CRC. If one of a pair is damaged, or they do not belong together, an older pair is used.
"""

from collections.abc import Iterable
from contextlib import suppress
from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from penstock.base.ids import NO_SEQUENCE, Offset, ProducerId
from penstock.records.checksum import crc32c
from penstock.storage import names
from penstock.storage.errors import BadCheckpoint
from penstock.storage.open_files import FileRef
from penstock.storage.producers import InDoubt, KeptBatch, Producer, Producers
from penstock.vfs import Vfs, read_file

_SNAPSHOT_HEAD = Struct(">hI")
_SNAPSHOT_COUNT = Struct(">i")
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")
_SEQUENCES_HEAD = Struct(">hI")
_SEQUENCES_BODY = Struct(">I")
_SEQUENCES_ENTRY = Struct(">qhiiqiq")
_DOUBT_COUNT = Struct(">i")
_DOUBT_ENTRY = Struct(">qhqq")
_PLAIN, _WITH_DOUBTS = 1, 2
"""Versions of `.sequences`: the second has transactions in doubt before the batches."""


def encode_snapshot(producers: dict[ProducerId, Producer]) -> bytes:
    """Kafka's producer snapshot, version 1: int16 version, CRC-32C of the rest, then an array of entries."""
    body = bytearray(_SNAPSHOT_COUNT.pack(len(producers)))
    for producer_id, producer in producers.items():
        last = producer.batches[-1] if producer.batches else None
        body += _SNAPSHOT_ENTRY.pack(
            producer_id,
            producer.epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else -1,
            last.offset_delta if last else 0,
            producer.timestamp,
            producer.coordinator_epoch,
            -1 if producer.txn_first_offset is None else producer.txn_first_offset,
        )
    return _SNAPSHOT_HEAD.pack(1, crc32c(body)) + body


def decode_snapshot(data: bytes, path: str) -> dict[ProducerId, Producer]:
    try:
        version, crc = _SNAPSHOT_HEAD.unpack_from(data)
        (count,) = _SNAPSHOT_COUNT.unpack_from(data, _SNAPSHOT_HEAD.size)
    except struct_error as error:
        raise BadCheckpoint(f"{path}: {len(data)} bytes are too few for a producer snapshot") from error
    if version != 1:
        raise BadCheckpoint(f"{path}: version {version}, expected 1")
    body = data[_SNAPSHOT_HEAD.size :]
    if crc32c(body) != crc:
        raise BadCheckpoint(f"{path}: CRC {crc32c(body)}, expected {crc}")
    if len(body) != _SNAPSHOT_COUNT.size + count * _SNAPSHOT_ENTRY.size:
        raise BadCheckpoint(f"{path}: {len(data)} bytes do not hold {count} entries")
    producers = {}
    for fields in _SNAPSHOT_ENTRY.iter_unpack(body[_SNAPSHOT_COUNT.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn = fields
        batches: tuple[KeptBatch, ...] = ()
        if last_offset >= 0:
            first_sequence = (last_sequence - delta) % 2**31
            batches = (KeptBatch(first_sequence, last_sequence, last_offset, delta, timestamp),)
        producers[producer_id] = Producer(
            epoch, batches, timestamp, coordinator_epoch, None if txn < 0 else txn
        )
    return producers


def encode_sequences(
    producers: dict[ProducerId, Producer], snapshot: bytes, in_doubt: Iterable[InDoubt] = ()
) -> bytes:
    """Encode a `.sequences` file: all kept batches of each producer, oldest first, and the snapshot's CRC."""
    doubts = sorted(in_doubt, key=lambda each: each.first_offset)
    body = bytearray(_SEQUENCES_BODY.pack(crc32c(snapshot)))
    if doubts:
        body += _DOUBT_COUNT.pack(len(doubts))
        for each in doubts:
            body += _DOUBT_ENTRY.pack(*each)
    for producer_id, producer in producers.items():
        for batch in producer.batches:
            body += _SEQUENCES_ENTRY.pack(producer_id, producer.epoch, *batch)
    return _SEQUENCES_HEAD.pack(_WITH_DOUBTS if doubts else _PLAIN, crc32c(body)) + body


class Sequences(NamedTuple):
    """Contents of a `.sequences` file."""

    snapshot_crc: int
    """CRC of the snapshot that it belongs to."""
    batches: list[tuple[ProducerId, int, KeptBatch]]
    """Each with its producer and epoch."""
    in_doubt: tuple[InDoubt, ...] = ()


def decode_sequences(data: bytes, path: str) -> Sequences:
    body = memoryview(data)[_SEQUENCES_HEAD.size :]
    if len(body) < _SEQUENCES_BODY.size:
        raise BadCheckpoint(f"{path}: {len(data)} bytes are too few")
    version, crc = _SEQUENCES_HEAD.unpack_from(data)
    if version not in (_PLAIN, _WITH_DOUBTS):
        raise BadCheckpoint(f"{path}: version {version}, expected {_PLAIN} or {_WITH_DOUBTS}")
    if crc32c(body) != crc:
        raise BadCheckpoint(f"{path}: CRC {crc:#010x}, expected {crc32c(body):#010x}")
    (snapshot_crc,) = _SEQUENCES_BODY.unpack_from(body)
    rest = body[_SEQUENCES_BODY.size :]
    in_doubt: tuple[InDoubt, ...] = ()
    if version == _WITH_DOUBTS:
        (count,) = _DOUBT_COUNT.unpack_from(rest)
        end = _DOUBT_COUNT.size + count * _DOUBT_ENTRY.size
        in_doubt = tuple(InDoubt(*each) for each in _DOUBT_ENTRY.iter_unpack(rest[_DOUBT_COUNT.size : end]))
        rest = rest[end:]
    if len(rest) % _SEQUENCES_ENTRY.size:
        raise BadCheckpoint(f"{path}: {len(data)} bytes do not hold a whole number of entries")
    entries = _SEQUENCES_ENTRY.iter_unpack(rest)
    batches = [(each[0], each[1], KeptBatch(*each[2:])) for each in entries]
    return Sequences(snapshot_crc, batches, in_doubt)


def merge_sequences(
    producers: dict[ProducerId, Producer], sequences: Sequences
) -> dict[ProducerId, Producer]:
    """Add all kept batches to the producers of a snapshot."""
    kept: dict[ProducerId, list[KeptBatch]] = {}
    for producer_id, _, batch in sequences.batches:
        kept.setdefault(producer_id, []).append(batch)
    return {
        producer_id: producer._replace(batches=tuple(kept.get(producer_id, ())))
        for producer_id, producer in producers.items()
    }


# -- files --------------------------------------------------------------------------------------------


def write_snapshot(vfs: Vfs, directory: str, producers: Producers) -> list[FileRef]:
    """Write the state under its offset, and return the files for the caller to sync.

    `.sequences` is created first: a snapshot without it is taken for Kafka's.
    """
    snapshot = encode_snapshot(producers.by_id)
    path = f"{directory}/{names.segment_file(producers.end_offset, names.SEQUENCES)}"
    written = []
    if not producers.in_doubt and _fits_kafka_format(snapshot, producers.by_id):
        with suppress(FileNotFoundError):  # of truncated records with the same offset
            vfs.remove(path)
    else:
        written.append(
            _write(vfs, path, encode_sequences(producers.by_id, snapshot, producers.in_doubt.values()))
        )
    path = f"{directory}/{names.segment_file(producers.end_offset, names.SNAPSHOT)}"
    written.append(_write(vfs, path, snapshot))
    return written


def _fits_kafka_format(snapshot: bytes, producers: dict[ProducerId, Producer]) -> bool:
    """Whether Kafka's format can hold the whole state."""
    if any(len(each.batches) > 1 for each in producers.values()):
        return False
    return not producers or decode_snapshot(snapshot, "") == producers


def _write(vfs: Vfs, path: str, data: bytes) -> FileRef:
    file = vfs.open(path, write=True, create=True)
    try:
        file.truncate(len(data))
        file.pwrite([data], 0)
    finally:
        file.close()
    return FileRef(path)


def load_snapshot(vfs: Vfs, directory: str, offset: Offset, producers: Producers) -> bool:
    """Load the state as of an offset; False if there is no sound snapshot.

    A snapshot without `.sequences` is Kafka's. One whose `.sequences` has another CRC is not used.
    """
    path = f"{directory}/{names.segment_file(offset, names.SNAPSHOT)}"
    try:
        snapshot = read_file(vfs, path)
        entries = decode_snapshot(snapshot, path)
    except (FileNotFoundError, BadCheckpoint):
        return False
    path = f"{directory}/{names.segment_file(offset, names.SEQUENCES)}"
    try:
        sequences = decode_sequences(read_file(vfs, path), path)
    except FileNotFoundError:
        producers.load(entries, offset)
        return True
    except BadCheckpoint:
        return False
    if sequences.snapshot_crc != crc32c(snapshot):
        return False
    producers.load(merge_sequences(entries, sequences), offset, sequences.in_doubt)
    return True


_FILES_OF_ONE = (names.SNAPSHOT, names.SEQUENCES)
"""Kinds in the order of removal: `.sequences` last, see `write_snapshot`."""


def remove_snapshots(vfs: Vfs, directory: str, offsets: Iterable[Offset]) -> None:
    """Remove the snapshots at these offsets, if they exist."""
    for offset in offsets:
        for kind in _FILES_OF_ONE:
            with suppress(FileNotFoundError):
                vfs.remove(f"{directory}/{names.segment_file(offset, kind)}")


def remove_snapshots_above(vfs: Vfs, directory: str, offset: Offset) -> None:
    """Remove all snapshots above an offset."""
    entries = vfs.list_dir(directory)
    for kind in _FILES_OF_ONE:
        for entry in entries:
            parsed = names.parse_segment_file(entry.name)
            if parsed is not None and parsed.kind == kind and parsed.base_offset > offset:
                vfs.remove(f"{directory}/{entry.name}")
