"""The commands over the wire from end to end: the same tour on Penstock and on Apache Kafka."""

import io
import json
import sys
from typing import Any

import pytest
from tests.cli.conftest import Command, Outcome

ODD = b'{"k": "\xc3\xa9"}'
"""A line of text that is not ASCII."""


class Shell:
    """Commands for one server, with something on standard input where they read it."""

    def __init__(self, penstock: Command, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server = server
        self._penstock = penstock
        self._monkeypatch = monkeypatch

    def try_(self, *arguments: object, stdin: bytes = b"") -> Outcome:
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return self._penstock(*arguments, "--server", self.server)

    def __call__(self, *arguments: object, stdin: bytes = b"") -> str:
        outcome = self.try_(*arguments, stdin=stdin)
        assert (outcome.code, outcome.err) == (0, ""), outcome
        return outcome.out

    def json(self, *arguments: object, stdin: bytes = b"") -> Any:
        return json.loads(self(*arguments, "--json", stdin=stdin))

    def lines(self, *arguments: object) -> list[str]:
        return self(*arguments).splitlines()


def topics(shell: Shell) -> None:
    shell("topics", "create", "tour-a", "tour-b", "--partitions", 3, "--config", "retention.ms=86400000")
    again = shell.try_("topics", "create", "tour-a")
    assert again.code == 2
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert "exists already" in shell("topics", "create", "tour-a", "--if-not-exists")
    names = {each["name"]: each for each in shell.json("topics", "list")["topics"]}
    assert names["tour-a"]["partitions"] == 3
    assert names["tour-a"]["replicationFactor"] == 1
    assert "tour-b" in shell("topics", "list")

    shell("topics", "alter", "tour-a", "--partitions", 5)
    refused = shell.try_("topics", "alter", "tour-a", "--partitions", 2)
    assert (refused.code, refused.out) == (2, "")
    assert "INVALID_PARTITIONS" in refused.err

    shell("produce", "tour-a", "--partition", 4, stdin=b"one\ntwo\n")
    (described,) = shell.json("topics", "describe", "tour-a")["topics"]
    assert described["configs"]["retention.ms"] == "86400000"
    assert [each["endOffset"] for each in described["partitionList"]] == [0, 0, 0, 0, 2]
    assert all(each["leader"] is not None and each["isr"] for each in described["partitionList"])
    replica = described["partitionList"][4]["replicaList"]
    leader = described["partitionList"][4]["leader"]
    assert replica == [{"broker": leader, "inSync": True, "logEnd": 2, "lag": 0}]
    assert "tour-a: 5 partitions, replication factor 1, id " in shell("topics", "describe", "tour-a")
    absent = shell.try_("topics", "describe", "tour-a", "tour-nope")
    assert absent.code == 2
    assert "topic tour-nope: there is no such topic" in absent.err
    assert absent.out.startswith("tour-a: ")

    assert "deleted tour-a" in shell("topics", "delete", "tour-a", "tour-b", "--yes")
    gone = shell.try_("topics", "delete", "tour-a")
    assert gone.code == 2
    assert "UNKNOWN_TOPIC_OR_PARTITION" in gone.err
    assert "does not exist" in shell("topics", "delete", "tour-a", "--if-exists")
    bad = shell.try_("topics", "create", "no/name")
    assert bad.code == 2
    assert "INVALID_TOPIC_EXCEPTION" in bad.err


def configs(shell: Shell) -> None:
    shell("topics", "create", "tour-c", "--partitions", 1)
    shell("configs", "set", "topic", "tour-c", "retention.ms=1234567", "cleanup.policy=compact")

    def described(*arguments: object) -> dict[str, Any]:
        document = shell.json("configs", "describe", "topic", "tour-c", *arguments)
        return {each["name"]: each for each in document["configs"]}

    changed = described()
    assert (changed["retention.ms"]["value"], changed["retention.ms"]["source"]) == ("1234567", "topic")
    assert changed["cleanup.policy"]["value"] == "compact"
    assert "segment.bytes" not in changed
    everything = described("--all", "--verbose")
    assert everything["segment.bytes"]["source"] == "default"
    assert everything["segment.bytes"]["documentation"]
    assert everything["retention.ms"]["synonyms"][0]["source"] == "topic"
    assert list(described("segment.bytes")) == ["segment.bytes"]
    table = [line.split() for line in shell.lines("configs", "describe", "topic", "tour-c", "--all")]
    assert ["retention.ms", "1234567", "topic"] in [row[:3] for row in table]

    bad = shell.try_("configs", "set", "topic", "tour-c", "retention.ms=soon", "segment.bytes=2000000")
    assert (bad.code, bad.out) == (2, "")
    assert "INVALID_CONFIG" in bad.err
    assert "segment.bytes" not in described()
    shell("configs", "unset", "topic", "tour-c", "retention.ms", "cleanup.policy")
    assert "retention.ms" not in described() or described()["retention.ms"]["source"] != "topic"

    (node,) = {
        each["leader"] for each in shell.json("topics", "describe", "tour-c")["topics"][0]["partitionList"]
    }
    static = shell.json("configs", "describe", "broker", node)["configs"]
    assert "log.dirs" in {each["name"] for each in static}
    shell("configs", "set", "brokers", "log.cleaner.threads=1")
    shell("configs", "unset", "brokers", "log.cleaner.threads")
    absent = shell.try_("configs", "describe", "topic", "tour-nope")
    assert (absent.code, absent.out) == (2, "")
    nobody = shell.try_("configs", "describe", "broker", 4711)
    assert "there is no broker 4711" in nobody.err


def records(shell: Shell) -> None:
    shell("topics", "create", "tour-r", "--partitions", 3)
    text = b"k1:v1\nk2:" + ODD + b"\nk3:NIL\n"
    told = shell.json(
        "produce", "tour-r", "-K", ":", "-Z", "NIL", "-H", "h=1", "--timestamp", 1_700_000_000_000, stdin=text
    )
    assert (told["topic"], told["records"]) == ("tour-r", 3)
    assert sum(each["records"] for each in told["partitions"]) == 3
    assert all(each["firstOffset"] == 0 for each in told["partitions"])
    assert sorted(shell.lines("consume", "tour-r", "-K", ":", "-Z", "NIL")) == sorted(
        text.decode().splitlines()
    )

    documents = [json.loads(line) for line in shell.lines("consume", "tour-r", "--json")]
    by_key = {each["key"]: each for each in documents}
    assert by_key["k2"]["value"] == ODD.decode()
    assert by_key["k3"]["value"] is None
    assert by_key["k1"]["headers"] == [{"key": "h", "value": "1"}]
    assert {each["timestamp"] for each in documents} == {1_700_000_000_000}

    exported = shell("consume", "tour-r", "--json", "--base64")
    shell("topics", "create", "tour-copy", "--partitions", 3)
    shell("produce", "tour-copy", "--format", "json", stdin=exported.encode())
    copied = shell("consume", "tour-copy", "--json", "--base64")
    assert sorted(copied.replace("tour-copy", "tour-r").splitlines()) == sorted(exported.splitlines())


def places(shell: Shell) -> None:
    """Beginning, end, offsets, times; and a record is in one of two halves wherever the log is cut."""
    shell("topics", "create", "tour-p", "--partitions", 1)
    start = 1_700_000_000_000
    documents = "".join(
        json.dumps({"value": f"v{index}", "timestamp": start + 1000 * index}) + "\n" for index in range(10)
    )
    shell("produce", "tour-p", "--format", "json", "--compression", "zstd", stdin=documents.encode())
    everything = [f"v{index}" for index in range(10)]

    def values(*arguments: object) -> list[str]:
        return shell.lines("consume", "tour-p", *arguments)

    assert values() == everything
    assert values("--from", "end") == []
    assert values("--from", 4) == everything[4:]
    assert values("--from", "-3") == everything[-3:]
    assert values("--from", "-99") == everything
    assert values("--from", f"@{start + 3500}") == everything[4:]
    assert values("--from", "2023-11-14T22:13:25Z", "--until", f"@{start + 7000}") == everything[5:7]
    assert values("--from", "-1s") == []
    assert values("--until", 3) == everything[:3]
    assert values("--until", "-3") == everything[:-3]
    assert values("--from", 2, "--count", 2) == everything[2:4]
    assert values("--follow", "--count", 10) == everything
    assert values("--follow", "--from", 3, "--until", 6) == everything[3:6]
    assert values("--isolation", "committed") == everything
    assert values("--format", "%p:%o %v%%") == [f"0:{index} v{index}%" for index in range(10)]
    beyond = shell.try_("consume", "tour-p", "--from", 11)
    assert (beyond.code, beyond.out) == (2, "")
    assert beyond.err == "penstock: tour-p-0 has no offset 11: its log end is 10\n"


def codecs(shell: Shell) -> None:
    shell("topics", "create", "tour-z", "--partitions", 2)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        told = shell.json("produce", "tour-z", "--count", 300, "--size", 2000, "--compression", codec)
        assert (told["records"], told["bytes"]) == (300, 600_000)
    for acks, idempotent in (("0", "--no-idempotent"), ("1", "--no-idempotent"), ("all", "--idempotent")):
        assert (
            shell.json("produce", "tour-z", "-n", 10, "--size", 9, "--acks", acks, idempotent)["records"]
            == 10
        )
    lines = shell.lines("consume", "tour-z")
    assert len(lines) == 5 * 300 + 3 * 10
    assert {len(line) for line in lines} == {2000, 9}
