"""Log directories that Penstock and a real Apache Kafka write in turn, and Kafka's tools on Penstock's files.

Three questions: does Kafka find fault with what Penstock wrote; does each read what the other wrote, whichever
way the other stopped; and do they keep each other out while one of them is at work.
"""

import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
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
from tests.storage.test_golden import (
    WRITTEN_IN_ONE_RUN,
    assert_batches_leave_files,
    assert_same,
    describe,
    opened,
    read_everything,
    time_of,
)

from penstock.base.ids import TopicPartition, uuid_text
from penstock.records import BatchOptions, Codec, RecordBatch, build_batch, end_txn_marker
from penstock.storage import checkpoints as ck
from penstock.storage import names
from penstock.storage.check import check_directory
from penstock.storage.directory import LogDirectory
from penstock.storage.errors import DirectoryRefused
from penstock.storage.identity import IDENTITY_COPY
from penstock.storage.log import Appended, Log
from penstock.storage.producers import Producer
from penstock.storage.rules import Origin
from penstock.vfs import RealDisk

pytestmark = pytest.mark.kafka

T = 1_794_000_000_000
"""When Penstock's own directory is written."""

NewRecord = (
    tuple[bytes | None, bytes | None, int]
    | tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]
)
"""Key, value, timestamp and perhaps headers."""


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
INDEXES = (names.INDEX, names.TIME_INDEX)
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
            directory.create(partition, now_ms=T, topic_id=TOPIC_ID)
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
        producers = {each: producer_line(state) for each, state in pen.log.producers.by_id.items()}
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


def producer_line(state: Producer) -> str:
    """What kafka-dump-log prints after a producer's id. A snapshot has one time for both its timestamps."""
    line = (
        f"producerEpoch: {state.epoch} coordinatorEpoch: {state.coordinator_epoch} "
        f"currentTxnFirstOffset: {optional_long(state.txn_first_offset)} lastTimestamp: {state.timestamp}"
    )
    for kept in state.batches[-1:]:
        line += (
            f" firstSequence: {kept.first_sequence} lastSequence: {kept.last_sequence} "
            f"lastOffset: {kept.last_offset} offsetDelta: {kept.offset_delta} timestamp: {state.timestamp}"
        )
    return line


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
    # A file that does not begin at offset 0 is said to have a hole before it, Kafka's own as well. That there
    # are no others is in the lines below.
    assert dump.problems(gaps=True) == []
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
        f"{batch.base_offset:020d}.log" for batch in first_batches(penstock_written)
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
    indexes = files(penstock_written, *INDEXES)
    assert all(any(path.stat().st_size for path in indexes if path.suffix == kind) for kind in INDEXES)
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
    assert printed == penstock_written.producers
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
                    System.out.println("epoch " + name + " " + entry.epoch() + " " + entry.startOffset()));
            }
        }
        CleanShutdownFileHandler clean = new CleanShutdownFileHandler(logs.getPath());
        System.out.println("clean " + clean.exists() + " " + clean.read());
        MetaProperties meta = new MetaProperties.Builder(
            PropertiesUtils.readPropertiesFile(new File(logs, "meta.properties").getPath())).build();
        System.out.println("node " + meta.nodeId().getAsInt() + " " + meta.clusterId().get()
            + " " + meta.directoryId().get());
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
            *(f"topic {each} {uuid_text(TOPIC_ID)}" for each in ends),
            f"epoch {EVERYTHING} 0 0",
            f"epoch {EVERYTHING} 3 {second}",
            f"epoch {EVERYTHING} 4 {third}",
            f"epoch {BY_BROKER} 0 0",
            # No broker epoch to vouch for: a controller that tracks eligible leaders counts the stop as unclean.
            "clean true OptionalLong[-1]",
            f"node 1 {identity.cluster_id} {identity.directory_id}",
        ]
    )


# -- a directory passed to and fro ---------------------------------------------------------------------


FIRST_OF_OURS = 9_001
"""Producer ids that Kafka has not come to yet."""

APPENDED_TO = (
    TopicPartition("segments", 0),
    TopicPartition("segments", 1),
    TopicPartition("idempotent", 0),
    TopicPartition("transactions", 0),
)


def append_ours(
    directory: LogDirectory, now_ms: int, producer_id: int = FIRST_OF_OURS
) -> list[ExpectedRecord]:
    """Write to partitions that Kafka wrote, under the last epoch that has records there.

    Segments roll; Kafka's idempotent producer goes on counting, and its last batch sent again is known; one
    transaction commits and one aborts, where Kafka has seen transactions before and, in `segments-1`, in a
    segment that it has left without a transaction index.
    """
    segments, alone, idempotent, transactions = pens = [
        Pen(directory.logs[partition], now_ms, directory.logs[partition].epochs.latest)
        for partition in APPENDED_TO
    ]
    latest = alone.log.reader.latest_timestamp()
    assert latest is not None
    alone.now_ms = latest.timestamp  # years ago; a record of today would begin another segment
    for codec in Codec:
        noise = bytes((i * i >> 3) % 251 for i in range(600))
        segments.send([(b"ours", noise, now_ms), (None, None, now_ms, (("by", b"penstock"),))], codec=codec)

    kafkas, state = max(
        (each for each in idempotent.log.producers.by_id.items() if each[0] < FIRST_OF_OURS),
        key=itemgetter(0),
    )
    last = state.batches[-1]
    numbered = BatchOptions(producer_id=kafkas, producer_epoch=state.epoch, base_sequence=last.last_sequence)
    assert idempotent.send([(b"any", b"retry", now_ms)], **numbered).base_offset == last.last_offset
    numbered["base_sequence"] += 1
    assert not idempotent.send([(b"ours", b"counted on", now_ms)], **numbered).is_duplicate

    for pen in (transactions, alone):
        pen.send([(b"ours", b"kept", pen.now_ms)], **txn(producer_id, 0))
        pen.send([(b"ours", b"dropped", pen.now_ms)], **txn(producer_id + 1, 0), committed=False)
        pen.end(txn(producer_id, 0), commit=True)
        pen.send([(b"ours", b"between", pen.now_ms)])
        pen.end(txn(producer_id + 1, 0), commit=False)
    return [record for pen in pens for record in pen.written]


def with_ours(before: Expected, ours: list[ExpectedRecord], now: list[ExpectedPartition]) -> Expected:
    """What everybody should read from here on: all that was there, then what Penstock appended."""
    ends = {each.directory: each.log_end for each in before.partitions}
    for each in ours:
        assert each.offset >= ends[f"{each.topic}-{each.partition}"]
    records = sorted([*before.records, *ours], key=lambda each: (each.topic, each.partition, each.offset))
    return Expected(tuple(now), tuple(records))


def describe_all(directory: LogDirectory) -> list[ExpectedPartition]:
    return [describe(log) for _, log in sorted(directory.logs.items())]


def meta_of(log_dir: Path) -> Path:
    """Where Penstock's own files stand for a directory that is Kafka's."""
    return log_dir.with_name(f"{log_dir.name}.meta")


def errors_in(log_dir: Path) -> list[str]:
    """What `penstock log check` finds wrong, each record looked at."""
    findings = check_directory(RealDisk(), str(log_dir), str(meta_of(log_dir)), deep=True)
    return [str(each) for each in findings if each.severity == "error"]


def read_by_kafka(kafka: KafkaPeer, broker: RunningKafka) -> Expected:
    return parse_expected(run_phase(kafka, "read", broker).splitlines())


TROUBLE = (
    r"(?i)Recovering (unflushed|\d+ logs)|corrupt|rebuilding segment|\bstray\b|truncat"
    r"|(WARN|ERROR) (kafka\.log|org\.apache\.kafka\.storage)\."
)
REPLAY = re.compile(r"partition=([^,]+), dir=.*rebuilding producer state from offset (\d+)")
LOADED = re.compile(
    r"Completed load of Log\(dir=[^,]*/([^/,]+),.* logStartOffset=(\d+), logEndOffset=(\d+)\)"
)


def trouble(broker: RunningKafka) -> list[str]:
    """What Kafka logged of faults and recovery; the controller recovers its own log at every start."""
    return [line for line in broker.logged(TROUBLE) if "__cluster_metadata" not in line]


def assert_loaded_without_work(broker: RunningKafka, expected: Expected) -> None:
    """Kafka believed every file, and took producer state from the snapshot at the log end."""
    assert trouble(broker) == []
    assert broker.logged("Skipping recovery of .* since clean shutdown file was found")
    ends = {each.directory: each.log_end for each in expected.partitions}
    starts = {each.directory: each.log_start for each in expected.partitions}
    loaded = {found[1]: found.groups() for line in broker.lines if (found := LOADED.search(line))}
    for name, end in ends.items():
        assert loaded[name] == (name, str(starts[name]), str(end))
    replayed = {found[1]: int(found[2]) for line in broker.lines if (found := REPLAY.search(line))}
    assert {name: offset for name, offset in replayed.items() if name in ends} == {
        name: end for name, end in ends.items() if end > 0
    }


def test_kafka_goes_on_where_penstock_stopped_and_back_again(
    kafka: KafkaPeer, kafka_directory_copy: tuple[Path, Expected]
) -> None:
    log_dir, expected = kafka_directory_copy
    now_ms = time_of(expected)
    with opened(log_dir, now_ms) as directory:
        ours = append_ours(directory, now_ms)
        expected = with_ours(expected, ours, describe_all(directory))
        directory.close()
    assert errors_in(log_dir) == []
    assert (log_dir / ck.CLEAN_SHUTDOWN).exists()
    assert sorted(path.name for path in meta_of(log_dir).iterdir()) == [
        ck.BROKER_ID,
        ck.CHECKPOINT,
        IDENTITY_COPY,
        "lock",
    ]

    with kafka.running_kafka(log_dir, RETENTION_NEVER) as broker:
        assert_loaded_without_work(broker, expected)
        assert not (log_dir / ck.CLEAN_SHUTDOWN).exists()
        with (
            pytest.raises(DirectoryRefused, match=r"in use by another process, which holds .*/\.lock"),
            opened(log_dir, now_ms),
        ):
            pass
        assert_same(read_by_kafka(kafka, broker), expected)

    assert errors_in(log_dir) == []
    with opened(log_dir, now_ms) as directory:
        assert_same(read_everything(directory), expected)
        assert directory.reports == {}


def hold(log_dir: str, told: str, now_ms: int) -> None:
    """The life of a Penstock that is about to be killed: write, note a recovery point, write on, wait."""
    with opened(Path(log_dir), now_ms) as directory:
        ours = append_ours(directory, now_ms)
        directory.checkpoint()
        ours += append_ours(directory, now_ms, producer_id=FIRST_OF_OURS + 2)
        Path(told).write_bytes(pickle.dumps((ours, describe_all(directory))))
        print("written", flush=True)
        sys.stdin.read()


@contextmanager
def penstock_process(log_dir: Path, told: Path, now_ms: int) -> Iterator[subprocess.Popen[str]]:
    """`hold` in a process of its own, once it has written; ended with SIGKILL at the latest."""
    program = f"from {__name__} import hold; hold({str(log_dir)!r}, {str(told)!r}, {now_ms})"
    paths = os.pathsep.join((str(REPOSITORY / "src"), str(REPOSITORY)))
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "written\n"
            yield process
        finally:
            process.kill()


def test_kafka_recovers_what_a_killed_penstock_wrote(
    kafka: KafkaPeer,
    kafka_directory_copy: tuple[Path, Expected],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log_dir, expected = kafka_directory_copy
    told, now_ms = tmp_path / "told", time_of(expected)
    # The last lines tell of Kafka's shutdown; why it gave up stands before them.
    monkeypatch.setattr(RunningKafka, "tail", lambda broker: "\n".join(broker.lines))
    with (
        penstock_process(log_dir, told, now_ms),
        pytest.raises(KafkaError, match=r"Failed to acquire lock on file \.lock in .*/kafka-logs"),
        kafka.running_kafka(log_dir),
    ):
        pass
    expected = with_ours(expected, *pickle.loads(told.read_bytes()))
    assert not (log_dir / ck.CLEAN_SHUTDOWN).exists()

    with kafka.running_kafka(log_dir, RETENTION_NEVER) as broker:
        assert broker.logged(r"Recovering \d+ logs from .* since no clean shutdown file was found")
        assert broker.logged(r"(?i)corrupt|truncat") == []
        assert_same(read_by_kafka(kafka, broker), expected)

    assert errors_in(log_dir) == []
    with opened(log_dir, now_ms) as directory:
        assert_same(read_everything(directory), expected)
        assert directory.reports == {}


@pytest.mark.long
def test_penstock_recovers_what_a_killed_kafka_wrote_and_kafka_goes_on(
    kafka: KafkaPeer, tmp_path: Path
) -> None:
    log_dir = tmp_path / "kafka-logs"
    expected = parse_expected(write_and_kill(kafka, log_dir).splitlines())
    now_ms = time_of(expected)
    with opened(log_dir, now_ms) as directory:
        assert_same(read_everything(directory), expected)
        log = directory.logs[TopicPartition("crashed", 0)]
        report = directory.reports[log.partition]
        assert (report.bytes_scanned, report.bytes_cut, report.notes) == (log.size_bytes, 0, [])
        pen = Pen(log, now_ms, log.epochs.latest)
        for i in range(20):
            pen.send([(b"ours", b"%d" % i * 40, now_ms + i)], codec=Codec.ZSTD if i % 2 else Codec.NONE)
        expected = with_ours(expected, pen.written, describe_all(directory))
        directory.close()
    with kafka.running_kafka(log_dir) as broker:
        assert_loaded_without_work(broker, expected)
        assert_same(read_by_kafka(kafka, broker), expected)
    assert errors_in(log_dir) == []
    with opened(log_dir, now_ms) as directory:
        assert_same(read_everything(directory), expected)
        assert directory.reports == {}


def test_a_live_kafkas_directory_reads_as_its_consumer_read_it(
    kafka_directory_copy: tuple[Path, Expected],
) -> None:
    """The golden directory says the same of a directory made earlier; this one is of this Kafka, today."""
    log_dir, expected = kafka_directory_copy
    assert errors_in(log_dir) == []
    with opened(log_dir, time_of(expected)) as directory:
        assert_same(read_everything(directory), expected)
        assert directory.reports == {}
        directory.close()
    assert errors_in(log_dir) == []


def test_a_live_kafkas_batches_leave_its_files(
    kafka_written_directory: tuple[Path, Expected], tmp_path: Path
) -> None:
    log_dir, expected = kafka_written_directory
    for each in expected.partitions:
        if each.directory in WRITTEN_IN_ONE_RUN:
            assert_batches_leave_files(tmp_path, log_dir / each.directory, each, time_of(expected))
