"""The harness itself: a Kafka that starts, writes, stops or dies, and tools that see what is wrong.

What Penstock makes of Kafka's directories is tested elsewhere, on top of these fixtures.
"""

import re
import shutil
from pathlib import Path

import pytest
from tests.compat.kafka import peer as peer_module
from tests.compat.kafka.everything import Expected, load_expected, parse_expected, run_phase
from tests.compat.kafka.make_golden import BYTES_MAX, DUMPED, GOLDEN, dumps
from tests.compat.kafka.peer import KafkaError, KafkaPeer, KafkaUnavailable

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def record_offsets(dumped: str) -> list[int]:
    """The offsets of the data records in a dump made with --deep-iteration and --print-data-log."""
    found = (re.match(r"\| offset: (\d+) (?!.*endTxnMarker)", line) for line in dumped.split("\n"))
    return [int(match[1]) for match in found if match]


@pytest.mark.kafka
def test_dump_log_finds_the_records_that_the_consumer_read(
    kafka: KafkaPeer, kafka_written_directory: tuple[Path, Expected]
) -> None:
    log_dir, expected = kafka_written_directory
    logs = [path for each in expected.partitions for path in sorted((log_dir / each.directory).glob("*.log"))]
    dump = kafka.dump_log(logs, "--deep-iteration", "--print-data-log")
    texts = dump.by_file()
    for each in expected.partitions:
        there = [
            offset
            for path in logs
            if path.parent.name == each.directory
            for offset in record_offsets(texts[str(path)])
            if offset >= each.log_start
        ]
        assert there == [record.offset for record in expected.of(each.topic, each.partition)], each
    assert not dump.problems(gaps=True)


@pytest.mark.kafka
def test_dump_log_accepts_every_index_that_kafka_wrote(
    kafka: KafkaPeer, kafka_written_directory: tuple[Path, Expected]
) -> None:
    log_dir, expected = kafka_written_directory
    indexes = [
        path
        for each in expected.partitions
        for suffix in ("index", "timeindex")
        for path in sorted((log_dir / each.directory).glob(f"*.{suffix}"))
    ]
    checked = kafka.dump_log(indexes, "--index-sanity-check").text
    # An offset index without entries is called empty and not checked.
    assert len(re.findall(r"index (?:passed sanity check|is empty)\.", checked)) == len(indexes)
    assert not kafka.dump_log(indexes, "--verify-index-only").problems()


@pytest.mark.kafka
def test_a_dump_names_the_indexes_that_disagree_with_the_log(
    kafka: KafkaPeer, kafka_written_directory: tuple[Path, Expected], tmp_path: Path
) -> None:
    log_dir, _ = kafka_written_directory
    partition = Path(shutil.copytree(log_dir / "segments-0", tmp_path / "segments-0"))
    index, time_index = (partition / f"00000000000000000000.{each}" for each in ("index", "timeindex"))
    for path, low_byte_of_offset in ((index, 3), (time_index, 11)):
        entries = bytearray(path.read_bytes())
        entries[low_byte_of_offset] += 1
        path.write_bytes(entries)
    assert kafka.dump_log([index, time_index]).problems() == [
        f"Mismatches in :{index}",
        f"Found timestamp mismatch in :{time_index}",
    ]


@pytest.mark.kafka
def test_a_tool_that_fails_says_so(kafka: KafkaPeer, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match=r"DumpLogSegments .* ended with status 1"):
        kafka.dump_log([tmp_path / "00000000000000000000.log"])


@pytest.mark.long
@pytest.mark.kafka
def test_kafka_reads_the_same_from_its_directory_after_a_kill(
    kafka: KafkaPeer, kafka_directory_copy: tuple[Path, Expected]
) -> None:
    log_dir, expected = kafka_directory_copy
    index = log_dir / "segments-1" / "00000000000000000000.index"
    assert (log_dir / CLEAN_SHUTDOWN_FILE).exists()
    assert index.stat().st_size == 0

    with kafka.running_kafka(log_dir) as broker:
        broker.kill()
    assert not (log_dir / CLEAN_SHUTDOWN_FILE).exists()
    assert index.stat().st_size == 10 << 20

    with kafka.running_kafka(log_dir) as broker:
        again = parse_expected(run_phase(kafka, "read", broker).splitlines())
    assert again == expected
    assert (log_dir / CLEAN_SHUTDOWN_FILE).exists()
    assert index.stat().st_size == 0


@pytest.mark.kafka
def test_a_broker_that_cannot_start_says_why(kafka: KafkaPeer, tmp_path: Path) -> None:
    with pytest.raises(KafkaError, match=r"meta\.properties"), kafka.running_kafka(tmp_path):
        pass


@pytest.mark.long
@pytest.mark.kafka
def test_the_golden_dumps_are_what_this_kafka_prints(kafka: KafkaPeer) -> None:
    for name, text in dumps(kafka, GOLDEN / "logs"):
        assert text == (GOLDEN / "dump" / f"{name}.txt").read_bytes().decode(), name


def test_the_golden_directory_is_small_and_whole() -> None:
    logs = GOLDEN / "logs"
    files = [path for path in GOLDEN.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < BYTES_MAX
    assert {path.suffix for path in logs.rglob("*")} >= {
        ".log",
        ".index",
        ".timeindex",
        ".txnindex",
        ".snapshot",
        ".deleted",
    }
    assert (logs / CLEAN_SHUTDOWN_FILE).exists()
    assert all((logs / name).is_dir() for name in DUMPED)


@pytest.mark.parametrize("name", ["expected.jsonl.gz", "unclean-expected.jsonl.gz"])
def test_the_golden_expectation_lies_between_log_start_and_log_end(name: str) -> None:
    expected = load_expected(GOLDEN / name)
    assert expected.records
    for each in expected.partitions:
        offsets = [record.offset for record in expected.of(each.topic, each.partition)]
        assert offsets == sorted(set(offsets))
        assert all(each.log_start <= offset < each.log_end for offset in offsets)
        committed = expected.of(each.topic, each.partition, committed=True)
        assert all(record.offset < each.last_stable for record in committed)


def test_the_golden_expectation_has_every_shape_of_record() -> None:
    expected = load_expected(GOLDEN / "expected.jsonl.gz")
    for codec in CODECS:
        records = expected.of(f"codec-{codec}")
        assert len(records) == 36
        assert {(each.key is None, each.value is None) for each in records} == {
            (False, False),
            (False, True),
            (True, False),
            (True, True),
        }
        assert any(value is None for each in records for _, value in each.headers)
    assert any(not each.committed for each in expected.of("transactions"))
    assert any(each.value is None for each in expected.of("compacted-tombstones-kept"))
    assert all(each.value is not None for each in expected.of("compacted-tombstones-gone"))
    assert expected.partition("transaction-open").last_stable < expected.partition("transaction-open").log_end


def test_without_java_the_reason_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KafkaUnavailable, match="no java on the PATH"):
        KafkaPeer.find()


def test_without_maven_the_reason_is_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(peer_module, "CACHE", tmp_path / "cache")
    with pytest.raises(KafkaUnavailable, match=r"no jars in .* no mvn on the PATH"):
        KafkaPeer.find()
