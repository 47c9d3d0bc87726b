"""Files of kafka-reassign-partitions: read and written, and what is wrong with one said in a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.base.ids import TopicPartition
from penstock.cli.output import Refused
from penstock.cli.reassign_file import document_of, read_file

ROW = {"topic": "t", "partition": 0, "replicas": [1, 2]}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    assignment = {TopicPartition("t", 1): (3, 1), TopicPartition("a", 0): (2,)}
    document = document_of(assignment)
    assert document["partitions"][1] == {
        "topic": "t",
        "partition": 1,
        "replicas": [3, 1],
        "log_dirs": ["any", "any"],
    }
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    assert read_file(file) == assignment


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "expected"),
        ({}, "expected"),
        ({"partitions": []}, "no partitions"),
        ({"version": 2, "partitions": [ROW]}, "version is 2"),
        ({"partitions": [7]}, "7 is not a partition"),
        ({"partitions": [{**ROW, "topic": ""}]}, "expected a name"),
        ({"partitions": [{**ROW, "partition": -1}]}, "-1, expected a number"),
        ({"partitions": [{**ROW, "partition": True}]}, "True, expected a number"),
        ({"partitions": [{**ROW, "replicas": []}]}, "expected broker ids"),
        ({"partitions": [{**ROW, "replicas": None}]}, "expected broker ids"),
        ({"partitions": [{**ROW, "replicas": [1, "2"]}]}, "expected broker ids"),
        ({"partitions": [{**ROW, "replicas": [1, 1]}]}, "a broker twice"),
        ({"partitions": [ROW, ROW]}, "t-0 is listed twice"),
        ({"partitions": [{**ROW, "log_dirs": ["any"]}]}, "but log_dirs is"),
        ({"partitions": [{**ROW, "log_dirs": ["any", "/disk"]}]}, "names log directories"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(document: Any, words: str, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    with pytest.raises(Refused, match=words) as refusal:
        read_file(file)
    assert str(file) in str(refusal.value)


def test_what_is_no_json_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(b"\xff{")
    with pytest.raises(Refused, match="is not JSON"):
        read_file(file)
