"""Groups and transactions from the command line, with members and producers of confluent-kafka: the same tour on
Penstock and on Apache Kafka."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from tests.cli.wire_tour import Shell

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.coordinators import ask_leader
from penstock.client.group_offsets import fetch_offsets
from penstock.client.settings import parse_servers
from penstock.records import build_batch
from penstock.wire import Api, ProducePartition, ProduceRequest, ProduceTopic
from penstock.wire.produce_client import ProduceResponse, produce_body, read_produce_response
from penstock.wire.request import Request

WAIT_S = 60
"""Far longer than anything here takes: a client that waits so long waits in vain."""


@contextmanager
def member(shell: Shell, group: str, topic: str, protocol: str, reads: int) -> Iterator[Consumer]:
    """A member of a group that has read some records, so it has joined; it commits when it is told to."""
    settings = {
        "bootstrap.servers": shell.server,
        "group.id": group,
        "group.protocol": protocol,
        "client.id": "tourist",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **({"session.timeout.ms": 10_000} if protocol == "classic" else {}),
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        for _ in range(reads):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None, message.error()
        yield consumer
    finally:
        consumer.close()


def committed(shell: Shell, group: str) -> dict[tuple[str, int], int]:
    with Cluster(parse_servers(shell.server)) as cluster:
        return {tuple(each): found.offset for each, found in fetch_offsets(cluster, group).items()}


def filled(shell: Shell, topic: str) -> None:
    """Two partitions with five records each, at 1,000 ms, 2,000 ms, ... after 2026 began."""
    shell("topics", "create", topic, "--partitions", 2)
    for partition in (0, 1):
        for second in range(5):
            moment = f"2026-01-01T00:00:0{second}Z"
            shell("produce", topic, "--partition", partition, "--timestamp", moment, stdin=b"x\n")


def describing(shell: Shell, protocol: str) -> None:
    """A group with a member, then without; its lag is told in both."""
    topic, group = f"lag-{protocol}", f"lagging-{protocol}"
    filled(shell, topic)
    with member(shell, group, topic, protocol, reads=10) as consumer:
        (described,) = shell.json("groups", "describe", group)["groups"]
        told = [(e["committedOffset"], e["endOffset"], e["lag"]) for e in described["partitions"]]
        assert (described["lag"], told) == (10, [(None, 5, 5), (None, 5, 5)]), "nothing is committed yet"
        assert f"{group}: Stable, 1 member, lag 10, " in shell("groups", "describe", group)
        age = time.time() - datetime.fromisoformat("2026-01-01T00:00:00Z").timestamp()
        assert all(age - 60 < each["lagSeconds"] <= age for each in described["partitions"]), (
            "of the first record"
        )
        consumer.commit(asynchronous=False)
        shell("produce", topic, "--partition", 1, stdin=b"a\nb\nc\n")

        (listed,) = [each for each in shell.json("groups", "list")["groups"] if each["groupId"] == group]
        assert (listed["type"], listed["state"], listed["protocolType"]) == (protocol, "Stable", "consumer")
        (described,) = shell.json("groups", "describe", group)["groups"]
        assert (described["type"], described["state"], described["lag"]) == (protocol, "Stable", 3)
        (one,) = described["members"]
        assert (one["clientId"], one["protocol"], one["topics"]) == ("tourist", protocol, [topic])
        assert one["assignment"] == [{"topic": topic, "partition": 0}, {"topic": topic, "partition": 1}]
        told = [(e["committedOffset"], e["endOffset"], e["lag"]) for e in described["partitions"]]
        assert told == [(5, 5, 0), (5, 8, 3)]
        assert described["partitions"][0]["lagSeconds"] == 0
        assert 0 < described["lagSeconds"] == described["partitions"][1]["lagSeconds"] < 300
        assert {each["memberId"] for each in described["partitions"]} == {one["memberId"]}
        page = shell("groups", "describe", group)
        assert re.match(
            rf"{group}: Stable, 1 member, lag 3, .*s behind\n{protocol} protocol, type consumer", page
        )
        assert f"{topic}:0,1" in page

        for arguments in (("delete", group), ("reset-offsets", group, "--to", "earliest", "--execute")):
            refused = shell.try_("groups", *arguments)
            assert (refused.code, refused.out) == (2, "")
            assert "live member" in refused.err
            assert refused.err.count("\n") == 1
        kept = shell.try_("groups", "delete", group, "--topic", topic)
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in kept.err
        warned = shell.try_("groups", "reset-offsets", group, "--to", "earliest")
        assert warned.code == 0
        assert "--execute will fail" in warned.err

    assert committed(shell, group) == {(topic, 0): 5, (topic, 1): 5}
    (described,) = shell.json("groups", "describe", group)["groups"]
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 3)
    assert group in shell("groups", "list", "--state", "Empty", "--type", protocol)
    assert group not in shell("groups", "list", "--state", "Stable")

    shell("groups", "delete", group, "--topic", f"{topic}:0")
    assert committed(shell, group) == {(topic, 1): 5}
    assert shell("groups", "delete", group, "--yes") == f"deleted {group}\n"
    gone = shell.try_("groups", "delete", group)
    assert gone == (2, "", f"penstock: group {group}: there is no such group (GROUP_ID_NOT_FOUND)\n")
    assert shell("groups", "delete", group, "--if-exists") == f"{group} does not exist\n"
    assert shell.try_("groups", "describe", group).code == 2


def resetting(shell: Shell, tmp_path: Path) -> None:
    """Every way to say where to; a dry run shows the same and changes nothing."""
    filled(shell, "again")

    def reset(*arguments: object) -> list[int]:
        before = committed(shell, "reader")
        plan = shell.json("groups", "reset-offsets", "reader", *arguments)
        assert not plan["executed"]
        assert committed(shell, "reader") == before
        done = shell.json("groups", "reset-offsets", "reader", *arguments, "--execute")
        assert done["executed"]
        assert done["partitions"] == plan["partitions"]
        after = committed(shell, "reader")
        for each in done["partitions"]:
            where = (each["topic"], each["partition"])
            assert each["committedOffset"] == before.get(where)
            assert each["newOffset"] == after[where]
        return list(after.values())

    nothing = shell.try_("groups", "reset-offsets", "reader", "--to", "earliest")
    assert "has no committed offsets: name topics with --topic" in nothing.err
    assert reset("--to", "latest", "--topic", "again:1") == [5]
    assert reset("--to", "earliest", "--topic", "again") == [0, 0]
    assert reset("--to", 3) == [3, 3]
    assert reset("--shift-by", -2, "--topic", "again:0") == [1, 3]
    assert reset("--to", "2026-01-01T00:00:02Z") == [2, 2]
    assert reset("--to", "-2") == [3, 3]
    assert reset("--to", "-1h") == [5, 5]
    assert reset("--shift-by", -100) == [0, 0]
    beyond = shell("groups", "reset-offsets", "reader", "--to", 99)
    assert "99 is beyond the end" in beyond
    assert "Add --execute" in beyond

    file = tmp_path / "offsets.csv"
    file.write_text("again,0,4\r\nother-group,again,1,1\nreader,again,1,2\n\n")
    assert reset("--from-file", file) == [4, 2]
    exported = shell("groups", "reset-offsets", "reader", "--to", "current", "--export")
    assert exported == "again,0,4\nagain,1,2\n"

    (described,) = shell.json("groups", "describe", "reader")["groups"]
    assert (described["state"], described["lag"]) == ("Empty", 4)
    with member(shell, "reader", "again", "classic", reads=4) as consumer:
        consumer.commit(asynchronous=False)
    assert committed(shell, "reader") == {("again", 0): 5, ("again", 1): 5}
    for arguments, sentence in (
        (("--to", "earliest", "--topic", "nope"), "topic nope: there is no such topic"),
        (("--to", "earliest", "--topic", "again:7"), "topic again has no partition 7"),
        (("--shift-by", 1, "--topic", "again:0,1"), None),
    ):
        outcome = shell.try_("groups", "reset-offsets", "reader", *arguments)
        assert outcome.code == (0 if sentence is None else 2)
        assert sentence is None or sentence in outcome.err
    shell("topics", "delete", "again", "--yes")


def transacting(shell: Shell) -> None:
    """A transaction listed, described, and aborted from outside: by its id, and in its partition."""
    shell("topics", "create", "ledger", "--partitions", 2)
    producer = Producer({"bootstrap.servers": shell.server, "transactional.id": "tour-1"})
    producer.init_transactions(WAIT_S)
    (idle,) = shell.json("transactions", "describe", "tour-1")["transactions"]
    assert (idle["state"], idle["startTimeMs"], idle["partitions"]) == ("Empty", None, [])
    refused = shell.try_("transactions", "abort", "tour-1")
    assert refused == (2, "", "penstock: tour-1 has no transaction to abort, it is in state Empty\n")

    producer.begin_transaction()
    producer.produce("ledger", b"never", partition=1)
    assert producer.flush(WAIT_S) == 0
    listed = shell.json("transactions", "list", "--state", "Ongoing")["transactions"]
    assert [each["transactionalId"] for each in listed] == ["tour-1"]
    (open_one,) = shell.json("transactions", "describe", "tour-1")["transactions"]
    assert open_one["state"] == "Ongoing"
    assert open_one["startTimeMs"] > 0
    assert open_one["partitions"] == [{"topic": "ledger", "partition": 1}]
    told = shell("transactions", "describe", "tour-1")
    assert "partitions without a marker: ledger:1" in told
    assert "open since 2" in told
    assert shell.json("transactions", "list", "--older", "24h")["transactions"] == []
    assert shell("transactions", "list", "--pattern", "tour-.*").count("tour-1") == 1
    assert shell("transactions", "list", "--pattern", "tour-2") == "No transactions.\n"
    (writer,) = _producers(shell, 1)
    assert (writer["producerId"], writer["startOffset"]) == (open_one["producerId"], 0)
    assert shell.json("transactions", "list", "--hanging", "--older", "0s")["hanging"] == []

    assert (
        shell("transactions", "abort", "tour-1", "--yes") == "aborted the transaction of tour-1 on ledger:1\n"
    )
    assert _producers(shell, 1)[0]["startOffset"] is None
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)

    again = Producer({"bootstrap.servers": shell.server, "transactional.id": "tour-2"})
    again.init_transactions(WAIT_S)
    again.begin_transaction()
    again.produce("ledger", b"never", partition=0)
    assert again.flush(WAIT_S) == 0
    wrong = shell.try_("transactions", "abort", "--partition", "ledger:0", "--start-offset", 7)
    assert "no open transaction begins at offset 7 of ledger:0: they begin at 0" in wrong.err
    shell("transactions", "abort", "--partition", "ledger:0", "--start-offset", 0)
    assert _producers(shell, 0)[0]["startOffset"] is None
    with suppress(KafkaException):  # what is left of it at the coordinator
        again.abort_transaction(WAIT_S)
    assert shell.lines("consume", "ledger", "--isolation", "committed") == []

    _ended(shell)
    for arguments, sentence in (
        (("describe", "nobody"), "transactional id nobody: there is no such transactional id"),
        (("abort", "nobody"), "there is no such transactional id"),
        (("list", "--state", "Asleep"), "'Asleep' is no state of a transaction"),
        (("describe", "--partition", "nowhere:0"), "topic nowhere: there is no such topic"),
        (("describe", "--partition", "ledger:9"), "topic ledger has no partition 9"),
    ):
        outcome = shell.try_("transactions", *arguments)
        assert (outcome.code, outcome.out) == (2, ""), outcome
        assert sentence in outcome.err


def _ended(shell: Shell) -> None:
    """One that is done with is not told as open."""
    producer = Producer({"bootstrap.servers": shell.server, "transactional.id": "tour-3"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("ledger", b"done", partition=0)
    producer.commit_transaction(WAIT_S)
    for _ in range(1000):  # the commit is answered when it is decided; its markers follow
        told = shell("transactions", "describe", "tour-3")
        if "tour-3: CompleteCommit" in told:
            break
    assert "tour-3: CompleteCommit" in told
    assert "open since" not in told
    assert "the last one began 2" in told


def hanging(shell: Shell) -> None:
    """A transaction that no coordinator knows of: found, and ended where it hangs, so that readers go on."""
    shell("topics", "create", "stuck", "--partitions", 1)
    check = "transaction.partition.verification.enable"  # which keeps such a write out
    shell("configs", "set", "brokers", f"{check}=false")
    try:
        with Cluster(parse_servers(shell.server)) as cluster:
            reply = ask_leader(cluster, TopicPartition("stuck", 0), stray_batch(987_654), produced_code)
        assert produced_code(reply) == 0
    finally:
        shell("configs", "unset", "brokers", check)
    shell("produce", "stuck", stdin=b"behind\n")
    assert shell.lines("consume", "stuck", "--isolation", "committed") == []

    (found,) = shell.json("transactions", "list", "--hanging", "--older", "0s")["hanging"]
    assert (found["topic"], found["partition"], found["startOffset"]) == ("stuck", 0, 0)
    assert (found["producerId"], found["transactionalId"]) == (987_654, None)
    assert "stuck:0" in shell("transactions", "list", "--hanging")
    assert shell("transactions", "list", "--hanging", "--older", "5200w") == "No hanging transactions.\n"
    aborted = shell("transactions", "abort", "--partition", "stuck:0", "--start-offset", 0)
    assert aborted == "aborted the transaction of producer 987654 on stuck:0\n"
    assert shell.lines("consume", "stuck", "--isolation", "committed") == ["behind"]
    assert shell.json("transactions", "list", "--hanging", "--older", "0s")["hanging"] == []


def stray_batch(producer_id: int) -> Request[ProduceResponse]:
    batch = build_batch(
        [(None, b"stray", 1_767_225_600_000)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    topics = [ProduceTopic("stuck", [ProducePartition(0, memoryview(batch))])]
    request = ProduceRequest("stray", -1, 30_000, topics)
    # From version 12 on a write joins the transaction by itself.
    return Request(Api.PRODUCE, 9, 11, lambda version: produce_body(version, request), read_produce_response)


def produced_code(response: ProduceResponse) -> int:
    return response.topics[0][1][0].error_code


def _producers(shell: Shell, partition: int) -> list[dict[str, Any]]:
    document = shell.json("transactions", "describe", "--partition", f"ledger:{partition}")
    return list(document["producers"])


def absent(shell: Shell) -> None:
    """What a cluster without groups and transactions says."""
    assert shell("groups", "describe") == shell("groups", "list") == "No groups.\n"
    assert shell("transactions", "list") == "No transactions.\n"
    assert json.loads(shell("groups", "list", "--json")) == {"groups": []}
    assert shell("transactions", "list", "--hanging") == "No hanging transactions.\n"
