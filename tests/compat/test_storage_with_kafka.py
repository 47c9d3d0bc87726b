"""Log directories that Penstock and a real Apache Kafka write in turn, and Kafka's tools on Penstock's files.

Three questions: does Kafka find fault with what Penstock wrote; does each read what the other wrote, whichever
way the other stopped; and do they keep each other out while one of them is at work.
"""

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tests.compat.kafka.everything import (
    RETENTION_NEVER,
    Expected,
    ExpectedPartition,
    ExpectedRecord,
    parse_expected,
    run_phase,
    write_and_kill,
)
from tests.compat.kafka.peer import REPOSITORY, KafkaError, KafkaPeer, RunningKafka
from tests.storage.test_golden import assert_same, describe, opened, read_everything, time_of

from penstock.base.ids import TopicPartition
from penstock.records import BatchOptions, Codec, RecordBatch, build_batch, end_txn_marker
from penstock.records.builder import NewRecord
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.directory import DirectoryRefused, LogDirectory
from penstock.storage.epochs import EpochStart
from penstock.storage.log import Appended, Log, Origin

pytestmark = pytest.mark.kafka

T = 1_794_000_000_000
"""When Penstock's own directory is written."""


@dataclass
class Pen:
    """Writes to a log as a leader of one epoch does, and remembers what a consumer should see of it."""

    log: Log
    now_ms: int
    epoch: int
    written: list[ExpectedRecord] = field(default_factory=list)

    def send(self, records: Sequence[NewRecord], *, committed: bool = True, **options: object) -> Appended:
        data = build_batch(records, **options)  # type: ignore[arg-type]  # the options of a batch, by name
        appended = self.log.append(data, leader_epoch=self.epoch, now_ms=self.now_ms)
        if not appended.is_duplicate:
            by_broker = self.log.settings.message_timestamp_type == "LogAppendTime"
            for offset, (key, value, timestamp, *rest) in enumerate(records, appended.base_offset):
                self.written.append(
                    ExpectedRecord(
                        topic=self.log.partition.topic,
                        partition=self.log.partition.partition,
                        offset=offset,
                        timestamp=self.now_ms if by_broker else timestamp,
                        log_append_time=by_broker,
                        leader_epoch=self.epoch,
                        key=key,
                        value=value,
                        headers=tuple(rest[0]) if rest else (),
                        committed=committed,
                    )
                )
        return appended

    def end(self, producer: BatchOptions, *, commit: bool) -> Appended:
        marker = end_txn_marker(producer["producer_id"], producer["producer_epoch"], commit, 0, self.now_ms)
        return self.log.append(marker, leader_epoch=self.epoch, now_ms=self.now_ms, origin=Origin.COORDINATOR)


def txn(producer_id: int, sequence: int, epoch: int = 0) -> BatchOptions:
    return BatchOptions(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )


# -- Kafka's tools on Penstock's files -----------------------------------------------------------------

TOPIC_ID = bytes(range(16))
EVERYTHING, BY_BROKER, EMPTY = (
    TopicPartition("everything", 0),
    TopicPartition("log.append_time", 0),
    TopicPartition("empty", 3),
)


@dataclass(frozen=True)
class Written:
    logs: Path
    records: dict[TopicPartition, list[ExpectedRecord]]
    batches: dict[TopicPartition, list[RecordBatch]]
    """As the log gives them back, for what a builder cannot know: positions, sizes and CRCs."""
    producers: dict[int, str]
    """Each producer of EVERYTHING at the end, as kafka-dump-log puts it."""


@pytest.fixture(scope="module")
def penstock_written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A directory with one of everything: codecs, tombstones, headers, transactions in every state, an
    idempotent producer, three leader epochs, several segments, a restart; then closed cleanly."""
    path = tmp_path_factory.mktemp("penstock") / "data"
    records: dict[TopicPartition, list[ExpectedRecord]] = {}
    with opened(path, T) as directory:
        for partition in (EVERYTHING, BY_BROKER, EMPTY):
            log = directory.create(partition, now_ms=T, topic_id=TOPIC_ID)
            records[partition] = []
        pen = Pen(directory.logs[EVERYTHING], T + 1, 0, records[EVERYTHING])
        write_codecs(pen)
        pen = Pen(pen.log, T + 2, 3, records[EVERYTHING])
        pen.log.begin_epoch(3)
        write_sequences(pen)
        write_transactions(pen)
        by_broker = Pen(directory.logs[BY_BROKER], T + 3, 0, records[BY_BROKER])
        by_broker.send([(b"k", b"v", T), (b"k", None, T + 9)], codec=Codec.LZ4)
        directory.close()
    with opened(path, T) as directory:
        pen = Pen(directory.logs[EVERYTHING], T + 4, 4, records[EVERYTHING])
        write_codecs(pen)
        pen.send([(b"open", b"still undecided", T)], **txn(24, 0))
        pen.send([(b"after", b"the open one", T + 5)])
        batches = {
            partition: [RecordBatch.parse(bytes(batch.view)) for batch in log.batches()]
            for partition, log in directory.logs.items()
        }
        assert len(pen.log.segments) > 3
        log = pen.log
        producers = {
            producer_id: f"producerEpoch: {state.epoch} coordinatorEpoch: {state.coordinator_epoch} "
            f"currentTxnFirstOffset: {optional_long(state.txn_first_offset)} lastTimestamp: {state.timestamp} "
            + "".join(
                f"firstSequence: {kept.first_sequence} lastSequence: {kept.last_sequence} "
                f"lastOffset: {kept.last_offset} offsetDelta: {kept.offset_delta} timestamp: {kept.timestamp}"
                for kept in state.batches[-1:]
            )
            for producer_id, state in log.producers.by_id.items()
        }
        directory.close()
    return Written(path / "logs", records, batches, producers)


def write_codecs(pen: Pen) -> None:
    for codec in Codec:
        pen.send(
            [
                (b"key", b"the same words again; " * 12, T),
                (None, b"no key", T + 7, (("trace", b"id"), ("", b""), ("twice", b"1"), ("twice", None))),
                (b"tombstone", None, T + 3),
                (None, None, T - 5_000),
                (b"", b"", T + 4),
            ],
            codec=codec,
        )


def write_sequences(pen: Pen) -> None:
    for i in range(7):
        numbered = BatchOptions(producer_id=7, producer_epoch=1, base_sequence=2 * i)
        pen.send([(b"a", b"%d" % i, T + i), (b"b", b"%d" % i, T + i)], **numbered)
    assert pen.send([(b"a", b"6", T + 6), (b"b", b"6", T + 6)], **numbered).is_duplicate


def write_transactions(pen: Pen) -> None:
    """Three that overlap: 21 commits twice, 22 aborts, 23 aborts and begins again under a new epoch."""
    pen.send([(b"t", b"21", T + 10)], **txn(21, 0))
    pen.send([(b"t", b"22", T + 11)], **txn(22, 0), committed=False)
    pen.send([(b"t", b"23", T + 12)], **txn(23, 0), committed=False)
    pen.send([(b"t", b"x" * 900, T + 13)], **txn(22, 1), committed=False)
    pen.end(txn(21, 0), commit=True)
    pen.end(txn(22, 0), commit=False)
    pen.end(txn(23, 0, epoch=1), commit=False)
    pen.send([(b"t", b"21 again", T + 14)], **txn(21, 1))
    pen.end(txn(21, 0), commit=True)
    pen.send([(b"t", b"23 again", T + 15)], **txn(23, 0, epoch=1))
    pen.end(txn(23, 0, epoch=1), commit=True)


def optional_long(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def files(written: Written, *kinds: str) -> list[Path]:
    return [
        path
        for kind in kinds
        for partition in written.records
        for path in sorted((written.logs / str(partition)).glob(f"*{kind}"))
    ]


def test_kafkas_dump_prints_every_batch_and_record_as_it_was_written(
    kafka: KafkaPeer, penstock_written: Written
) -> None:
    """kafka-dump-log --deep-iteration --print-data-log, compared line by line and whole."""
    logs = files(penstock_written, names.LOG)
    dump = kafka.dump_log(logs, "--deep-iteration", "--print-data-log")
    assert dump.problems() == []
    printed = {
        partition: [
            line
            for path, text in dump.by_file().items()
            if Path(path).parent.name == str(partition)
            for line in text.splitlines()
            if line.startswith(("baseOffset", "|"))
        ]
        for partition in penstock_written.records
    }
    assert [path.name for path in logs if path.parent.name == str(EVERYTHING)] == [
        f"{position_0.base_offset:020d}.log" for position_0 in first_batches(penstock_written)
    ]
    for partition, records in penstock_written.records.items():
        starts = {each.base_offset for each in first_batches(penstock_written)}
        expected = list(dump_lines(penstock_written.batches[partition], records, starts))
        assert printed[partition] == expected


def first_batches(written: Written) -> list[RecordBatch]:
    """Of each segment of EVERYTHING, by its size: a batch that would pass 1500 bytes begins the next."""
    firsts: list[RecordBatch] = []
    size = 0
    for batch in written.batches[EVERYTHING]:
        if not firsts or size + batch.size > 1500:
            firsts.append(batch)
            size = 0
        size += batch.size
    return firsts


def dump_lines(
    batches: list[RecordBatch], records: list[ExpectedRecord], segment_starts: set[int]
) -> Iterator[str]:
    by_offset = {record.offset: record for record in records}
    position = 0
    for batch in batches:
        position = 0 if batch.base_offset in segment_starts else position
        time = "LogAppendTime" if batch.log_append_time else "CreateTime"
        yield (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.leader_epoch} "
            f"isTransactional: {str(batch.is_transactional).lower()} isControl: {str(batch.is_control).lower()} "
            f"deleteHorizonMs: OptionalLong.empty position: {position} {time}: {batch.max_timestamp} "
            f"size: {batch.size} magic: 2 compresscodec: {batch.codec.name.lower()} crc: {batch.crc} "
            "isvalid: true"
        )
        position += batch.size
        for offset in range(batch.base_offset, batch.next_offset):
            sequence = -1 if batch.base_sequence < 0 else batch.base_sequence + offset - batch.base_offset
            record = by_offset.get(offset)
            if record is None:
                yield marker_line(batch)
                continue
            yield (
                f"| offset: {offset} {time}: {record.timestamp} keySize: {size_of(record.key)} "
                f"valueSize: {size_of(record.value)} sequence: {sequence} "
                f"headerKeys: [{','.join(name for name, _ in record.headers)}]"
                + ("" if record.key is None else f" key: {record.key.decode()}")
                + ("" if record.value is None else f" payload: {record.value.decode()}")
            )


def size_of(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def marker_line(batch: RecordBatch) -> str:
    assert batch.is_control, f"nobody wrote a record at offset {batch.base_offset}"
    (record,) = batch.records()
    kind = "COMMIT" if record.key == b"\0\0\0\1" else "ABORT"
    return (
        f"| offset: {batch.base_offset} CreateTime: {batch.max_timestamp} keySize: 4 valueSize: 6 sequence: -1 "
        f"headerKeys: [] endTxnMarker: {kind} coordinatorEpoch: 0"
    )


def test_kafkas_tools_find_no_fault_with_our_indexes(kafka: KafkaPeer, penstock_written: Written) -> None:
    indexes = files(penstock_written, names.INDEX, names.TIME_INDEX)
    assert sum(path.stat().st_size for path in indexes) > 200
    assert kafka.dump_log(indexes, "--verify-index-only").problems() == []
    checked = kafka.dump_log(indexes, "--index-sanity-check")
    assert checked.problems() == []
    # An offset index without entries is called empty and not checked.
    verdicts = ("index passed sanity check.", "index is empty.")
    assert sum(checked.text.count(each) for each in verdicts) == len(indexes)


def test_kafka_reads_our_producer_snapshots_and_transaction_indexes(
    kafka: KafkaPeer, penstock_written: Written
) -> None:
    dump = kafka.dump_log(files(penstock_written, names.SNAPSHOT, names.TXN_INDEX))
    assert dump.problems() == []
    texts = dump.by_file()
    last = max(path for path in texts if Path(path).match(f"*/{EVERYTHING}/*{names.SNAPSHOT}"))
    printed = {
        int(number): rest.strip()
        for line in texts[last].splitlines()[1:]
        for _, number, rest in [line.split(" ", 2)]
    }
    assert printed == {number: line.strip() for number, line in penstock_written.producers.items()}
    assert "currentTxnFirstOffset: OptionalLong[" in printed[24]
    aborted = [
        line
        for path, text in sorted(texts.items())
        if Path(path).match(f"*/{EVERYTHING}/*{names.TXN_INDEX}")
        for line in text.splitlines()[1:]
    ]
    by_value = {each.value: each.offset for each in penstock_written.records[EVERYTHING]}
    markers = [
        batch.base_offset
        for batch in penstock_written.batches[EVERYTHING]
        if batch.is_control and next(batch.records()).key == b"\0\0\0\0"
    ]
    assert aborted == [
        f"version: 0 producerId: 22 firstOffset: {by_value[b'22']} lastOffset: {markers[0]} "
        f"lastStableOffset: {by_value[b'23']}",
        f"version: 0 producerId: 23 firstOffset: {by_value[b'23']} lastOffset: {markers[1]} "
        f"lastStableOffset: {markers[1] + 1}",
    ]


READ_SMALL_FILES = """
import java.io.File;
import java.util.List;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.storage.internals.checkpoint.*;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;

public class ReadSmallFiles {
    public static void main(String[] args) throws Exception {
        File logs = new File(args[0]);
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        for (String name : List.of("recovery-point", "log-start", "replication", "cleaner")) {
            String file = name + "-offset-checkpoint";
            new OffsetCheckpointFile(new File(logs, file), failures).read()
                .forEach((partition, offset) -> System.out.println(file + " " + partition + " " + offset));
        }
        for (int i = 1; i < args.length; i++) {
            File partition = new File(logs, args[i]);
            String name = args[i];
            System.out.println("topic " + name + " "
                + new PartitionMetadataFile(PartitionMetadataFile.newFile(partition), failures).read().topicId());
            File epochs = LeaderEpochCheckpointFile.newFile(partition);
            if (epochs.exists()) {
                new LeaderEpochCheckpointFile(epochs, failures).read().forEach(entry ->
                    System.out.println("epoch " + name + " " + entry.epoch + " " + entry.startOffset));
            }
        }
        CleanShutdownFileHandler clean = new CleanShutdownFileHandler(logs.getPath());
        System.out.println("clean " + clean.exists() + " " + clean.read());
        MetaProperties meta = new MetaProperties.Builder(
            PropertiesUtils.readPropertiesFile(new File(logs, "meta.properties").getPath())).build();
        System.out.println("node " + meta.nodeId().getAsInt() + " " + meta.clusterId().get() + " " + meta.directoryId().get());
    }
}
"""


def test_kafkas_own_classes_read_our_checkpoints(
    kafka: KafkaPeer, penstock_written: Written, tmp_path: Path
) -> None:
    program = tmp_path / "ReadSmallFiles.java"
    program.write_text(READ_SMALL_FILES)
    partitions = [str(partition) for partition in penstock_written.records]
    printed = kafka.java(str(program), str(penstock_written.logs), *partitions).splitlines()

    batches = penstock_written.batches
    ends = {each: batches[each][-1].next_offset if batches[each] else 0 for each in batches}
    second, third = (
        next(batch.base_offset for batch in batches[EVERYTHING] if batch.leader_epoch == epoch)
        for epoch in (3, 4)
    )
    properties = (penstock_written.logs / ck.META_PROPERTIES).read_bytes()
    identity = ck.MetaProperties.decode(properties, ck.META_PROPERTIES)
    assert sorted(printed) == sorted(
        [
            *(f"{ck.RECOVERY_POINTS} {each} {ends[each]}" for each in ends),
            *(f"{ck.LOG_STARTS} {each} 0" for each in ends),
            *(f"{ck.CLEANER_POINTS} {each} 0" for each in ends),
            *(f"topic {each} {ck.encode_uuid(TOPIC_ID)}" for each in ends),
            f"epoch {EVERYTHING} 0 0",
            f"epoch {EVERYTHING} 3 {second}",
            f"epoch {EVERYTHING} 4 {third}",
            f"epoch {BY_BROKER} 0 0",
            "clean true OptionalLong.empty",
            f"node 1 {identity.cluster_id} {identity.directory_id}",
        ]
    )


# -- a directory passed to and fro ---------------------------------------------------------------------


def append_ours(directory: LogDirectory, now_ms: int, producer_id: int = 9_001) -> list[ExpectedRecord]:
    """Write, under the epoch of Kafka's last leader, to partitions that Kafka wrote.

    Segments roll; Kafka's idempotent producer goes on counting, and its last batch sent again is known; one
    transaction commits and one aborts.
    """
    pens = {
        topic: Pen(log, now_ms, log.epochs.latest)
        for topic in ("segments", "idempotent", "transactions")
        for log in [directory.logs[TopicPartition(topic, 0)]]
    }
    segments = pens["segments"]
    for codec in Codec:
        noise = bytes((i * i >> 3) % 251 for i in range(600))
        segments.send([(b"ours", noise, now_ms), (None, None, now_ms, (("by", b"penstock"),))], codec=codec)

    idempotent = pens["idempotent"]
    (kafkas, state), *_ = sorted(idempotent.log.producers.by_id.items(), reverse=True)
    last = state.batches[-1]
    numbered = BatchOptions(producer_id=kafkas, producer_epoch=state.epoch, base_sequence=last.last_sequence)
    assert idempotent.send([(b"any", b"retry", now_ms)], **numbered).base_offset == last.last_offset
    numbered["base_sequence"] += 1
    assert not idempotent.send([(b"ours", b"counted on", now_ms)], **numbered).is_duplicate

    transactions = pens["transactions"]
    transactions.send([(b"ours", b"kept", now_ms)], **txn(producer_id, 0))
    transactions.send([(b"ours", b"dropped", now_ms)], **txn(producer_id + 1, 0), committed=False)
    transactions.end(txn(producer_id, 0), commit=True)
    transactions.send([(b"ours", b"between", now_ms)])
    transactions.end(txn(producer_id + 1, 0), commit=False)
    return [record for pen in pens.values() for record in pen.written]


def with_ours(before: Expected, ours: list[ExpectedRecord], now: list[ExpectedPartition]) -> Expected:
    """What everybody should read from here on: all that was there, then what Penstock appended."""
    ends = {each.directory: each.log_end for each in before.partitions}
    for each in ours:
        assert each.offset >= ends[f"{each.topic}-{each.partition}"]
    records = sorted([*before.records, *ours], key=lambda each: (each.topic, each.partition, each.offset))
    return Expected(tuple(now), tuple(records))


def describe_all(directory: LogDirectory) -> list[ExpectedPartition]:
    return [describe(log) for _, log in sorted(directory.logs.items())]


COMPLAINTS = r"(?i)recover(?:ing|y) (?!of)|corrupt|rebuil[dt]|truncat|\bstray\b|no clean shutdown|ERROR"


def meta_of(log_dir: Path) -> Path:
    return log_dir.with_name(f"{log_dir.name}.meta")


def test_kafka_goes_on_where_penstock_stopped_and_back_again(
    kafka: KafkaPeer, kafka_directory_copy: tuple[Path, Expected]
) -> None:
    log_dir, expected = kafka_directory_copy
    now_ms = time_of(expected)
    with opened(log_dir, now_ms) as directory:
        ours = append_ours(directory, now_ms)
        expected = with_ours(expected, ours, describe_all(directory))
        directory.close()
    assert (meta_of(log_dir) / ck.CHECKPOINT).exists()
    assert (log_dir / ck.CLEAN_SHUTDOWN).exists()

    with kafka.running_kafka(log_dir, RETENTION_NEVER) as broker:
        print("\n".join(broker.lines))
        assert_same(parse_expected(run_phase(kafka, "read", broker).splitlines()), expected)
        with pytest.raises(DirectoryRefused, match=r"in use by another process, which holds .*/\.lock"):
            opened(log_dir, now_ms).__enter__()

    with opened(log_dir, now_ms) as directory:
        assert_same(read_everything(directory), expected)
        assert directory.reports == {}
