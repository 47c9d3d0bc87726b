"""`penstock log dump`: prints the contents of a file, one entry per line, with the names and order of kafka-dump-log.

Each kind of file has a reader that yields `DumpEntry`s; all are printed alike. Scripts for kafka-dump-log can
parse the output.
"""

import os.path
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec
import typer

from penstock.base.errors import KafkaError
from penstock.base.ids import Offset, uuid_text
from penstock.base.internal_topics import METADATA_TOPIC
from penstock.cli.main import EXIT_CANNOT, EXIT_WRONG
from penstock.cli.output import complain, print_json_line, printable
from penstock.records import Codec, ControlType, Record, RecordBatch, parse_control
from penstock.records.batch import CODEC_MASK, SEQUENCE_MASK
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.checkpoints import Checkpoint, MetaProperties
from penstock.storage.deletion import DeletionMarker
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.errors import BadCheckpoint
from penstock.storage.findings import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    TXN_ENTRY,
    Finding,
    is_zero_from,
    read_entries,
    read_through,
)
from penstock.storage.identity import IDENTITY_COPY
from penstock.storage.snapshots import decode_sequences, decode_snapshot
from penstock.storage.strays import NOTE as STRAY_NOTE
from penstock.vfs import File, RealDisk, Vfs, read_file

_STARTING = "Log starting offset"
_LEAVING = re.compile(r"(\.\d+)?\.(deleted|cleaned|swap|cut|tmp)$")
_BASE = re.compile(r"\d{20}")
OPTIONAL = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})
"""Kafka prints these as Java's OptionalLong."""


def dump_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Files of a log directory.")],
    records: Annotated[bool, typer.Option("--records", help="Show the records of each batch too.")] = False,
    from_offset: Annotated[
        int, typer.Option("--from-offset", metavar="N", help="Skip batches that end before offset N.")
    ] = 0,
    max_batches: Annotated[
        int | None, typer.Option("--max-batches", metavar="N", min=1, help="Maximum batches of each file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines: an object for each entry.")] = False,
) -> int:
    """Print the contents of files, line by line.

    Output follows kafka-dump-log. Reads .log, .index, .timeindex, .txnindex, .snapshot, .sequences and .tomb files,
    also with .deleted, .cleaned, .swap or .cut appended; .checkpoint snapshots; the checkpoint files,
    partition.metadata and meta.properties. Damage is shown where it is found; reading continues at the next valid
    batch, and the exit code is 1.

    Bytes are shown as text if they are printable UTF-8, otherwise in hex after 0x. In JSON a key or value that
    is not UTF-8 is keyHex or valueHex. Passwords in the metadata log are hidden.

    \b
    penstock log dump orders-0/00000000000000000000.log --records --from-offset 100 --max-batches 3
    penstock log dump --json orders-0/*.index orders-0/leader-epoch-checkpoint
    """
    options = DumpOptions(records, from_offset, max_batches)
    vfs, worst = RealDisk(), 0
    for path in map(str, files):
        stat = vfs.stat(path)
        reader = reader_of(path)
        if stat is None or stat.is_dir:
            problem = "no such file" if stat is None else "a directory; `penstock log ls` shows directories"
            complain(f"{path}: {problem}")
            worst = max(worst, EXIT_CANNOT)
        elif reader is None:
            complain(f"{path}: not a log file; expected .log, .index, a checkpoint or the like")
            worst = max(worst, EXIT_CANNOT)
        else:
            wrong = _print(path, dump(vfs, path, options), as_json=as_json)
            if wrong:
                sys.stdout.flush()
                positions = "1 position is" if wrong == 1 else f"{wrong} positions are"
                complain(f"{path}: {positions} damaged")
                worst = max(worst, EXIT_WRONG)
    return worst


HIDDEN: Final = b"(hidden: a secret)"


class DumpOptions(NamedTuple):
    records: bool = False
    from_offset: Offset = 0
    batches_max: int | None = None


class DumpEntry(NamedTuple):
    kind: str
    fields: dict[str, Any]
    """With Kafka's names, in Kafka's order."""


class Source(NamedTuple):
    vfs: Vfs
    path: str
    base_offset: Offset
    options: DumpOptions

    def read(self) -> bytes:
        return read_file(self.vfs, self.path)


Reader = Callable[[Source], Iterator[DumpEntry | Finding]]


def dump(vfs: Vfs, path: str, options: DumpOptions = DumpOptions()) -> Iterator[DumpEntry | Finding]:
    """Yield the entries of a file, and a finding for each damaged position."""
    reader = reader_of(path)
    assert reader is not None, path
    base = _BASE.match(os.path.basename(path))
    try:
        yield from reader(Source(vfs, path, int(base[0]) if base else 0, options))
    except (BadCheckpoint, ValueError) as error:
        problem = "the file cannot be parsed"
        yield Finding("error", path, 0, problem, str(error).removeprefix(f"{path}: "))


def reader_of(path: str) -> Reader | None:
    name = _LEAVING.sub("", os.path.basename(path))
    if name in _BY_NAME:
        return _BY_NAME[name]
    return _BY_SUFFIX.get(os.path.splitext(name)[1])


def _print(path: str, entries: Iterator[DumpEntry | Finding], *, as_json: bool) -> int:
    """Print entries; return the number of damaged positions."""
    wrong = count = 0
    if not as_json:
        print(f"Dumping {path}")
    for each in entries:
        if isinstance(each, Finding):
            wrong += each.severity == "error"
        else:
            count += 1
        if as_json:
            print_json_line({"file": path, **_for_machines(each)})
        else:
            sys.stdout.write(show_entry(each) + "\n")
    if not count and not wrong and not as_json:
        print(f"{path} is empty.")
    return wrong


# -- text and JSON ----------------------------------------------------------------------------------------


def show_entry(entry: DumpEntry | Finding) -> str:
    """Format an entry as kafka-dump-log does."""
    if isinstance(entry, Finding):
        return f"{'CORRUPT' if entry.severity == 'error' else 'note'}: {printable(str(entry))}"
    parts = []
    for name, value in entry.fields.items():
        if name in OPTIONAL:
            parts.append(f"{name}: " + ("OptionalLong.empty" if value is None else f"OptionalLong[{value}]"))
        elif name == "headers":
            if value:
                shown = ", ".join(f"{printable(key)}={_text(content)}" for key, content in value)
                parts.append(f"headers: {{{shown}}}")
        elif name == "headerKeys":
            parts.append(f"headerKeys: [{','.join(printable(key) for key in value)}]")
        elif isinstance(value, bytes):
            parts.append(f"{name}: {_text(value)}")
        elif isinstance(value, bool):
            parts.append(f"{name}: {str(value).lower()}")
        elif value is not None:
            parts.append(f"{name}: {printable(str(value))}")
    return ("| " if entry.kind == "record" else "") + " ".join(parts)


def _text(data: bytes | None) -> str:
    """Bytes as text if printable, otherwise in hex."""
    if data is None:
        return "null"
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"


def _for_machines(entry: DumpEntry | Finding) -> dict[str, Any]:
    """Fields for JSON: Kafka's `CreateTime: n` as a type and a number, bytes as text or hex."""
    if isinstance(entry, Finding):
        return {"type": "damage" if entry.severity == "error" else "note", **entry._asdict()}
    result: dict[str, Any] = {"type": entry.kind}
    for name, value in entry.fields.items():
        if name in ("CreateTime", "LogAppendTime"):
            result |= {"timestampType": name, "timestamp": value}
        elif name == _STARTING:
            result["startingOffset"] = value
        elif name == "headerKeys":
            continue
        elif name == "headers":
            result[name] = [{"key": printable(key)} | _json_bytes("value", content) for key, content in value]
        elif name in ("key", "payload"):
            result |= _json_bytes("value" if name == "payload" else name, value)
        else:
            result[name] = value
    return result


def _json_bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}Hex": data.hex()}


# -- batches ----------------------------------------------------------------------------------------------


def _read_batches(source: Source) -> Iterator[DumpEntry | Finding]:
    options, shown = source.options, 0
    yield DumpEntry("log", {_STARTING: source.base_offset})
    file = source.vfs.open(source.path)
    try:
        for piece in read_through(file, 0, file.size()):
            batch = piece.batch
            is_wanted = batch is None or not piece.is_sound or batch.last_offset >= options.from_offset
            if is_wanted and shown == options.batches_max:
                return
            if batch is not None and is_wanted:
                shown += 1
                yield DumpEntry("batch", _batch_fields(piece.position, batch, is_valid=piece.is_sound))
            if not piece.is_sound:
                skipped = f"{piece.problem}; {piece.size} bytes are skipped"
                yield Finding("error", source.path, piece.position, skipped, piece.found, piece.expected)
            elif batch is not None and is_wanted and options.records:
                yield from _read_records(source, piece.position, batch)
    finally:
        file.close()


def _batch_fields(position: int, batch: RecordBatch, *, is_valid: bool) -> dict[str, Any]:
    codec = batch.attributes & CODEC_MASK
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "count": batch.count,
        "baseSequence": batch.base_sequence,
        "lastSequence": batch.last_sequence,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "partitionLeaderEpoch": batch.leader_epoch,
        "isTransactional": batch.is_transactional,
        "isControl": batch.is_control,
        "deleteHorizonMs": batch.delete_horizon_ms,
        "position": position,
        _time_name(batch): batch.max_timestamp,
        "size": batch.size,
        "magic": batch.magic,
        "compresscodec": Codec(codec).name.lower() if codec <= max(Codec) else f"unknown({codec})",
        "crc": batch.crc,
        "isvalid": is_valid,
    }


def _time_name(batch: RecordBatch) -> str:
    return "LogAppendTime" if batch.log_append_time else "CreateTime"


def _read_records(source: Source, position: int, batch: RecordBatch) -> Iterator[DumpEntry | Finding]:
    try:
        for record in batch.records():
            if record.offset >= source.options.from_offset:
                yield DumpEntry("record", _without_secret(source, _record_fields(batch, record)))
    except KafkaError as error:
        problem = "the records cannot be decoded"
        yield Finding("error", source.path, position, problem, str(error), f"{batch.count} records")


def _without_secret(source: Source, fields: dict[str, Any]) -> dict[str, Any]:
    """Hide passwords, and what stands for them, in the metadata log and its snapshots."""
    is_metadata = os.path.basename(os.path.dirname(os.path.abspath(source.path))).startswith(METADATA_TOPIC)
    payload = fields.get("payload")
    if is_metadata and payload is not None and "controlType" not in fields:
        from penstock.metadata.records import has_secret  # noqa: PLC0415  # few files are of the metadata log

        if has_secret(payload):
            return fields | {"payload": HIDDEN}
    return fields


def _record_fields(batch: RecordBatch, record: Record) -> dict[str, Any]:
    sequence = -1
    if batch.base_sequence >= 0:
        sequence = (batch.base_sequence + record.offset - batch.base_offset) & SEQUENCE_MASK
    fields: dict[str, Any] = {
        "offset": record.offset,
        _time_name(batch): record.timestamp,
        "keySize": -1 if record.key is None else len(record.key),
        "valueSize": -1 if record.value is None else len(record.value),
        "sequence": sequence,
        "headerKeys": [key for key, _ in record.headers],
    }
    if batch.is_control:
        control = parse_control(record)
        if control.type in (ControlType.ABORT, ControlType.COMMIT):
            fields |= {"endTxnMarker": control.type.name, "coordinatorEpoch": control.coordinator_epoch}
        else:
            fields |= {"controlType": control.type.name, "payload": record.value}
    else:
        fields |= {"key": record.key, "payload": record.value}
    return fields | {"headers": record.headers}


# -- indexes ----------------------------------------------------------------------------------------------


def _read_entries(
    source: Source, kind: str, layout: Any, labels: tuple[str, ...]
) -> Iterator[DumpEntry | Finding]:
    """The entries of an index. Offsets in an offset index or time index are relative to the base offset."""
    base = {"offset": source.base_offset}
    file: File = source.vfs.open(source.path)
    try:
        size = file.size()
        for entry in read_entries(file, size, layout):
            if not any(entry.fields) and is_zero_from(file, entry.position, size):
                note = f"{size - entry.position} bytes of zeros follow: preallocated and never trimmed"
                yield Finding("note", source.path, entry.position, note)
                return
            fields = zip(labels, entry.fields, strict=True)
            yield DumpEntry(kind, {name: value + base.get(name, 0) for name, value in fields})
        whole = size // layout.size * layout.size
        if size != whole:
            found, expected = f"{size} bytes", f"a multiple of {layout.size}"
            yield Finding("error", source.path, whole, "the file ends inside an entry", found, expected)
    finally:
        file.close()


def _read_index(source: Source) -> Iterator[DumpEntry | Finding]:
    return _read_entries(source, "index", OFFSET_ENTRY, ("offset", "position"))


def _read_time_index(source: Source) -> Iterator[DumpEntry | Finding]:
    return _read_entries(source, "timeindex", TIME_ENTRY, ("timestamp", "offset"))


def _read_txn_index(source: Source) -> Iterator[DumpEntry | Finding]:
    labels = ("version", "producerId", "firstOffset", "lastOffset", "lastStableOffset")
    return _read_entries(source, "txnindex", TXN_ENTRY, labels)


# -- producers and small files ------------------------------------------------------------------------------


def _read_snapshot(source: Source) -> Iterator[DumpEntry]:
    for producer_id, producer in decode_snapshot(source.read(), source.path).items():
        fields = {
            "producerId": producer_id,
            "producerEpoch": producer.epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": producer.txn_first_offset,
            "lastTimestamp": producer.timestamp,
        }
        if producer.batches:
            fields |= _kept_fields(producer.batches[-1])
        yield DumpEntry("producer", fields)


def _read_sequences(source: Source) -> Iterator[DumpEntry]:
    sequences = decode_sequences(source.read(), source.path)
    for each in sequences.in_doubt:
        fields = {"producerId": each.producer_id, "producerEpoch": each.epoch}
        yield DumpEntry("in doubt", fields | {"firstOffset": each.first_offset, "hole": each.hole})
    for producer_id, epoch, batch in sequences.batches:
        fields = {"producerId": producer_id, "producerEpoch": epoch}
        yield DumpEntry("sequence", fields | _kept_fields(batch))


def _kept_fields(batch: tuple[int, ...]) -> dict[str, Any]:
    fields = ("firstSequence", "lastSequence", "lastOffset", "offsetDelta", "timestamp")
    return dict(zip(fields, batch, strict=True))


def _read_offsets(source: Source) -> Iterator[DumpEntry]:
    for (topic, partition), offset in ck.decode_offsets(source.read(), source.path).items():
        yield DumpEntry("offset", {"topic": topic, "partition": partition, "offset": offset})


def _read_epochs(source: Source) -> Iterator[DumpEntry]:
    for epoch, offset in LeaderEpochs.decode(source.read(), source.path).entries:
        yield DumpEntry("epoch", {"epoch": epoch, "startOffset": offset})


def _read_partition_metadata(source: Source) -> Iterator[DumpEntry]:
    topic_id = ck.decode_partition_metadata(source.read(), source.path)
    yield DumpEntry("partition", {"version": 0, "topicId": uuid_text(topic_id)})


def _read_meta_properties(source: Source) -> Iterator[DumpEntry]:
    found = MetaProperties.decode(source.read(), source.path)
    fields = {"clusterId": found.cluster_id, "nodeId": found.node_id, "directoryId": found.directory_id}
    yield DumpEntry("directory", fields)


def _read_checkpoint(source: Source) -> Iterator[DumpEntry]:
    found = Checkpoint.decode(source.read(), source.path)
    yield DumpEntry("checkpoint", {"version": found.version, "clean": found.clean})
    for partition, point in found.recovery_points.items():
        fields = {"offset": point.offset, "segment": point.segment, "position": point.position}
        yield DumpEntry("recovery point", {"partition": partition, **fields})


def _read_tomb(source: Source) -> Iterator[DumpEntry]:
    tomb = msgspec.json.decode(source.read(), type=DeletionMarker)
    yield DumpEntry("tomb", {"end": tomb.end, "logStart": tomb.log_start})


def _read_text(source: Source) -> Iterator[DumpEntry]:
    for line in source.read().decode("utf-8").splitlines():
        yield DumpEntry("text", {"text": line})


_BY_SUFFIX: dict[str, Reader] = {
    names.LOG: _read_batches,
    ".checkpoint": _read_batches,
    names.INDEX: _read_index,
    names.TIME_INDEX: _read_time_index,
    names.TXN_INDEX: _read_txn_index,
    names.SNAPSHOT: _read_snapshot,
    names.SEQUENCES: _read_sequences,
    names.TOMB: _read_tomb,
}

_BY_NAME: dict[str, Reader] = {
    ck.RECOVERY_POINTS: _read_offsets,
    ck.LOG_STARTS: _read_offsets,
    ck.HIGH_WATERMARKS: _read_offsets,
    ck.CLEANER_POINTS: _read_offsets,
    names.LEADER_EPOCHS: _read_epochs,
    names.PARTITION_METADATA: _read_partition_metadata,
    ck.META_PROPERTIES: _read_meta_properties,
    IDENTITY_COPY: _read_meta_properties,
    "metadata-synced": _read_text,
    STRAY_NOTE: _read_text,
    ck.CHECKPOINT: _read_checkpoint,
    ck.BROKER_ID: _read_text,
    ck.CLEAN_SHUTDOWN: _read_text,
    "quorum-state": _read_text,
}
