"""`penstock log dump`: every file of a log, in the words of kafka-dump-log."""

import re
from pathlib import Path

import pytest
from tests.cli.conftest import Command
from tests.cli.data import GOLDEN, flip
from tests.compat.kafka.everything import load_expected

KAFKA_TEXTS = sorted((GOLDEN / "dump").rglob("*.txt"))


def like_kafka(text: str) -> list[str]:
    """Our lines as Kafka prints them: raw bytes instead of hex, no values of headers."""
    lines = []
    for line in comparable(text):
        without_headers = re.sub(r" headers: \{.*\}$", "", line)
        lines.append(
            re.sub(r"0x([0-9a-f]+)", lambda found: bytes.fromhex(found[1]).decode(), without_headers)
        )
    return lines


def comparable(text: str) -> list[str]:
    """Lines, without the one that Kafka has for some kinds of empty files; a payload may have odd line ends."""
    return [line for line in text.split("\n") if line and not line.endswith(" is empty.")]


@pytest.mark.parametrize("text", KAFKA_TEXTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_lines_are_those_of_kafkas_own_tool(
    penstock: Command, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's own topics were dumped with a decoder: there the sizes of key and value must do."""
    monkeypatch.chdir(GOLDEN / "logs")
    path = f"{text.parent.name}/{text.stem}"
    outcome = penstock("log", "dump", path, "--records")
    assert outcome.code == 0
    kafkas = text.read_bytes().decode()
    if not text.parent.name.startswith("__"):
        assert like_kafka(outcome.out) == comparable(kafkas)
        return
    ours, kafkas = (re.sub(r" (key|payload): .*", "", each) for each in (outcome.out, kafkas))
    assert comparable(ours) == comparable(kafkas)


def test_json_has_the_records_that_kafka_read(penstock: Command) -> None:
    expected = load_expected(GOLDEN / "expected.jsonl.gz").of("codec-none")
    logs = sorted((GOLDEN / "logs" / "codec-none-0").glob("*.log"))
    outcome = penstock("log", "dump", "--records", "--json", *logs)
    records = [line for line in outcome.json_lines() if line["type"] == "record"]
    assert [each["offset"] for each in records] == [each.offset for each in expected]
    assert [each["timestamp"] for each in records] == [each.timestamp for each in expected]
    for found, each in zip(records, expected, strict=True):
        assert found["key"] == (None if each.key is None else each.key.decode())
        assert found["value"] == (None if each.value is None else each.value.decode())
        assert [header["key"] for header in found["headers"]] == [key for key, _ in each.headers]


def test_markers_are_shown_as_what_they_are(penstock: Command) -> None:
    log = GOLDEN / "logs" / "transactions-1" / "00000000000000000000.log"
    markers = [
        line for line in penstock("log", "dump", "--records", log).out.splitlines() if "endTxn" in line
    ]
    assert markers
    assert all(re.search(r"endTxnMarker: (COMMIT|ABORT) coordinatorEpoch: \d+$", line) for line in markers)


def test_bytes_that_are_no_text_are_hex(penstock: Command, orders: Path) -> None:
    log = sorted(orders.glob("*.log"))[0]
    assert "headers: {trace=0x00ff}" in penstock("log", "dump", "--records", log).out
    records = [
        each for each in penstock("log", "dump", "--records", "--json", log).json_lines() if "headers" in each
    ]
    assert {"key": "trace", "valueHex": "00ff"} in [header for each in records for header in each["headers"]]


def test_offsets_and_numbers_of_batches_can_be_chosen(penstock: Command, orders: Path) -> None:
    log = sorted(orders.glob("*.log"))[0]
    every = [each for each in penstock("log", "dump", "--json", log).json_lines() if each["type"] == "batch"]
    chosen = penstock("log", "dump", "--json", log, "--from-offset", 5, "--max-batches", 2).json_lines()
    wanted = [each for each in every if each["lastOffset"] >= 5][:2]
    assert [each for each in chosen if each["type"] == "batch"] == wanted


def test_every_file_of_a_directory_can_be_dumped(penstock: Command, data: Path) -> None:
    files = [each for each in data.rglob("*") if each.is_file() and "lock" not in each.name]
    for path in files:
        outcome = penstock("log", "dump", path)
        assert (outcome.code, outcome.err) == (0, ""), path
        assert outcome.out.startswith(f"Dumping {path}\n")
        penstock("log", "dump", "--json", path).json_lines()


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("logs/recovery-point-offset-checkpoint", "topic: orders partition: 0 offset: 110"),
        ("logs/orders-0/leader-epoch-checkpoint", "epoch: 1 startOffset: 54"),
        ("logs/orders-0/partition.metadata", "version: 0 topicId: "),
        ("logs/meta.properties", "nodeId: 1 directoryId: "),
        ("meta/checkpoint.json", "partition: orders-0 offset: 110 segment: "),
        ("meta/broker.id", "text: 1"),
    ],
)
def test_small_files_are_shown(penstock: Command, data: Path, name: str, line: str) -> None:
    assert line in penstock("log", "dump", data / name).out


def test_files_on_their_way_out_are_shown_by_what_they_were(penstock: Command, orders: Path) -> None:
    log = sorted(orders.glob("*.log"))[0]
    expected = penstock("log", "dump", log).out.splitlines()[1:]
    for suffix in (".deleted", ".cleaned", ".swap", ".0.cut", ".cut"):
        other = log.rename(f"{log}{suffix}")
        assert penstock("log", "dump", other).out.splitlines()[1:] == expected
        other.rename(log)
    tomb = orders / "00000000000000000000.tomb"
    tomb.write_text('{"end": 5, "log_start": 7}')
    assert penstock("log", "dump", tomb).out.splitlines()[1:] == ["end: 5 logStart: 7"]


def test_kraft_snapshots_are_batches(penstock: Command) -> None:
    outcome = penstock("log", "dump", "--records", GOLDEN / "logs" / "bootstrap.checkpoint")
    assert outcome.code == 0
    assert "controlType: SNAPSHOT_HEADER" in outcome.out


# -- damage -------------------------------------------------------------------------------------------------


def test_a_corrupt_batch_is_named_and_what_follows_is_shown(penstock: Command, orders: Path) -> None:
    log = sorted(orders.glob("*.log"))[0]
    sound = [each for each in penstock("log", "dump", "--json", log).json_lines() if each["type"] == "batch"]
    flip(log, sound[1]["position"] + 70)
    outcome = penstock("log", "dump", log)
    assert outcome.code == 1
    assert outcome.err == f"penstock: {log}: 1 position is damaged\n"
    assert f"CORRUPT: {log} at position {sound[1]['position']}: CRC mismatch" in outcome.out
    lines = [each for each in penstock("log", "dump", "--json", log).json_lines() if each["type"] == "batch"]
    assert [each["isvalid"] for each in lines] == [number != 1 for number in range(len(sound))]


def test_reading_goes_on_behind_bytes_that_are_no_batch(penstock: Command, orders: Path) -> None:
    log = sorted(orders.glob("*.log"))[0]
    sound = [each for each in penstock("log", "dump", "--json", log).json_lines() if each["type"] == "batch"]
    first, second, third, *_ = sound
    data = bytearray(log.read_bytes())
    data[second["position"] : third["position"]] = b"\xaa" * second["size"]
    log.write_bytes(data)
    outcome = penstock("log", "dump", "--json", log)
    assert outcome.code == 1
    damage = [each for each in outcome.json_lines() if each["type"] == "damage"]
    assert [each["position"] for each in damage] == [second["position"]]
    assert "magic 170" in damage[0]["found"]
    batches = [each for each in outcome.json_lines() if each["type"] == "batch"]
    assert batches == [first, *sound[2:]]


def test_a_snapshot_with_a_flipped_byte_is_refused(penstock: Command, orders: Path) -> None:
    snapshot = sorted(orders.glob("*.snapshot"))[-1]
    flip(snapshot, 12)
    outcome = penstock("log", "dump", snapshot)
    assert outcome.code == 1
    assert "CRC" in outcome.out


def test_zeros_at_the_end_of_an_index_are_a_note(penstock: Command, orders: Path) -> None:
    index = next(each for each in sorted(orders.glob("*.index")) if each.stat().st_size)
    size = index.stat().st_size
    index.write_bytes(index.read_bytes() + bytes(80))
    outcome = penstock("log", "dump", index)
    assert outcome.code == 0
    assert f"at position {size}: 80 bytes of zeros follow" in outcome.out


def test_what_is_no_file_of_a_log_is_refused(penstock: Command, tmp_path: Path, orders: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("hello")
    log = sorted(orders.glob("*.log"))[0]
    outcome = penstock("log", "dump", tmp_path / "gone.log", other, orders, log)
    assert outcome.code == 2
    assert outcome.err.count("penstock: ") == 3
    assert outcome.out.startswith(f"Dumping {log}")
