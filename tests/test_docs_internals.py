"""The chapter on internals is executed: its bytes are a batch, its commands run, and they say what it says."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from aiokafka.record.memory_records import MemoryRecords
from tests.test_compatibility import tables
from tests.test_docs import ADDRESS, ROOT, blocks

from penstock.records import RecordBatch, build_batch
from penstock.records.batch import HEADER
from penstock.records.varint import decode_varint
from penstock.testing import Broker

PAGE = (ROOT / "docs/internals.md").read_text()
HTTP = "http://127.0.0.1:8080"

[EXAMPLE] = [bytes.fromhex(each) for each in blocks("hex", PAGE)]
HEADER_ROWS, RECORD_ROWS = (
    [dict(zip(rows[0], row, strict=True)) for row in rows[2:]] for rows in tables(PAGE)
)


def bytes_of(row: dict[str, str]) -> bytes:
    return bytes.fromhex(row["bytes"].strip("`"))


def test_the_example_is_a_sound_batch() -> None:
    batch = RecordBatch.parse(EXAMPLE)
    assert batch.crc_valid()
    assert batch.size == len(EXAMPLE)
    again = build_batch(
        [
            (b"meter-7", b"12.5", 1767225600000),
            (b"meter-8", None, 1767225600250, [("unit", b"l")]),
        ],
        base_offset=42,
        leader_epoch=3,
    )
    assert again == EXAMPLE


def test_another_reader_finds_the_same_records_in_the_example() -> None:
    """aiokafka's decoder knows nothing of ours."""
    batch = MemoryRecords(EXAMPLE).next_batch()
    assert batch.validate_crc()
    assert [(each.offset, each.timestamp, each.key, each.value) for each in batch] == [
        (42, 1767225600000, b"meter-7", b"12.5"),
        (43, 1767225600250, b"meter-8", None),
    ]


def test_the_tables_have_every_byte_of_the_example_once() -> None:
    at = 0
    for row in (*HEADER_ROWS, *RECORD_ROWS):
        assert int(row["byte"]) == at, row
        at += len(bytes_of(row))
    assert b"".join(bytes_of(row) for row in (*HEADER_ROWS, *RECORD_ROWS)) == EXAMPLE


def test_the_header_has_the_values_of_the_table() -> None:
    values = HEADER.unpack_from(EXAMPLE)
    assert [int(row["value"]) for row in HEADER_ROWS] == list(values)


def test_the_records_have_the_values_of_the_table() -> None:
    for row in RECORD_ROWS:
        raw = bytes_of(row)
        if row["field"] in ("key", "value", "header key", "header value"):
            assert raw.decode() == row["value"]
        elif row["field"] == "attributes":
            assert raw == b"\x00"
        else:
            value, end = decode_varint(raw, 0)
            assert (value, end) == (int(row["value"]), len(raw)), row


def shell(command: str, cwd: Path, broker: Broker) -> str:
    """Run a block of commands as they stand, but for where the node is."""
    assert broker.http_url is not None
    text = command.replace(HTTP, broker.http_url).replace(ADDRESS, broker.bootstrap)
    done = subprocess.run(
        [
            "bash",
            "-e",
            "-o",
            "pipefail",
            "-c",
            f'penstock() {{ {shlex.quote(sys.executable)} -m penstock "$@"; }}\n{text}',
        ],
        cwd=cwd,
        env={**os.environ, "PENSTOCK_SERVER": broker.bootstrap},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    assert done.stderr == "", command
    return done.stdout


@pytest.mark.long
def test_the_hands_on_part_runs_and_says_what_it_says(tmp_path: Path) -> None:
    start, *commands = blocks("sh", PAGE)
    assert start == "penstock up\n"
    assert len(commands) == 9
    with Broker(data=tmp_path / "penstock-data", http=True) as broker:
        said = [shell(each, tmp_path, broker) for each in commands]

    info, setup, topic, look, rotate, indexes, kafka, labs, deleted = said
    assert json.loads(info)["logDirectory"] == str(tmp_path / "penstock-data/logs")
    assert json.loads(setup)["produced"] == 1000
    opened = json.loads(topic)
    assert (opened["segmentBytes"], opened["retentionMs"], opened["minInsyncReplicas"]) == (
        100_000,
        604_800_000,
        1,
    )
    assert [each["segmentCount"] for each in opened["partitions"]] == [1, 1, 1]
    assert "baseOffset: 0 lastOffset: 24 count: 25" in look
    [shown] = [json.loads(each) for each in blocks("json", PAGE)]
    assert json.loads(rotate) == shown
    assert "offset: " in indexes
    last = json.loads(indexes.splitlines()[-1])
    assert [each["partition"] for each in last["partitions"]] == [0]
    assert [each["isActive"] for each in last["partitions"][0]["segments"]] == [True]
    assert "architecture.demo: 3 partitions" in kafka
    assert "no errors" in kafka
    assert "lab.small: segment.bytes=10,000\n" in labs
    assert "lab.default: segment.bytes=1,073,741,824\n" in labs
    assert "00000000000000000054.log has offsets 54 to 62" in labs
    assert "key key-777" in labs
    assert "architecture.demo" in deleted


def test_the_names_of_segments_in_the_text_are_the_demos_own(tmp_path: Path) -> None:
    """The questions ask about segments 0, 1295 and 2585: partition 0 has them after the rotation."""
    named = re.search(r"segments are named (\d+), (\d+) and (\d+)", PAGE)
    assert named is not None
    with Broker(data=tmp_path / "data", http=True) as broker:
        for path in ("setup", "produce?count=10000"):
            shell(f"curl -s -X POST '{HTTP}/api/architecture/{path}'", tmp_path, broker)
    bases = sorted(int(each.stem) for each in (tmp_path / "data/logs/architecture.demo-0").glob("*.log"))
    assert bases[:3] == [int(each) for each in named.groups()]
