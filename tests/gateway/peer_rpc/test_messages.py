"""What nodes' gateways write to each other is read as it was meant, and nothing else is believed."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import TopicPartition
from penstock.coordinator.groups import requests as groups
from penstock.coordinator.transactions import requests as transactions
from penstock.coordinator.transactions.hanging import PartitionProducer
from penstock.gateway.observing.event import Event
from penstock.gateway.observing.status import NodeStatus, QuorumReplica, QuorumStatus
from penstock.gateway.peer_rpc import messages
from penstock.gateway.peer_rpc.messages import Conflict
from penstock.gateway.shared.config_entries import ConfigEntry
from penstock.gateway.shared.health import Problem
from penstock.gateway.shared.topic_figures import TopicFigures
from penstock.registry.changes import DeleteSubject
from penstock.search.query import Chunk, Match, PartitionPlan, Portion, SearchQuery, Unsearched

ID = b"i" * 16

MESSAGES = [
    messages.Write(
        "orders",
        ID,
        (messages.RecordToWrite(0, None, b"v"), messages.RecordToWrite(1, b"k", None, (("h", None),), "key")),
    ),
    messages.FindKeys(ID, (b"d" * 16, b"e" * 16)),
    messages.GetBounds(((ID, 0), (ID, 7)), (0, 1_700_000_000_000)),
    messages.View(ID, (0, 1), 10, 3),
    messages.DeleteRecords(ID, 0, -1),
    messages.Join("g", "alice", ("orders", "users"), 300_000),
    messages.Leave("g", "alice"),
    messages.Consume("g", None, "orders", 0, 100, 0),
    messages.Commit("g", "alice", "orders", 0, 7),
    groups.OffsetCommit("g", (groups.CommittedPartition("orders", 0, 7, topic_id=ID),), "alice", 3),
    groups.OffsetFetch("g", (groups.WantedOffset("orders", 0, ID),), require_stable=True),
    groups.OffsetFetch("g", None),
    groups.ListGroups(frozenset({"stable"}), frozenset({"consumer"})),
    groups.DescribeGroups(("g",)),
    groups.DeleteGroups(("g",)),
    groups.ConsumerGroupDescribe(("g",)),
    messages.PlanSearch(ID, SearchQuery(b"\xff", "a+", "value.n > 1", "key", 1, 2), ((0, 5, 9),)),
    messages.SearchChunks(
        ID, SearchQuery(b"x"), (Chunk(0, 5, 9, 100, (4, 0, 60)), Chunk(1, 0, 3, 7)), 10, False
    ),
    messages.GetLagTimes(((ID, 0, 7),)),
    messages.WriteAudit("audit", ID, 0, (b"{}", b"{}")),
    messages.ChangeSchemas(DeleteSubject("orders-value", True)),
    messages.GetOffsetBack(ID, 0, 7, 100),
    messages.SummarizeGroups(("g", "h"), 100),
    groups.OffsetDelete("g", (("orders", 0),)),
    groups.LeaveGroup("g", (groups.LeavingMember("alice"), groups.LeavingMember("", "bob"))),
    messages.GetTopicFigures(ID),
    messages.GetReplicas(ID, (0, 4)),
    messages.InspectBatches(ID, 0, 7, 100),
    messages.InspectIndexes(ID, 0, 7, 20),
    messages.InspectLookup(ID, 0, 0, 1, 1_700_000_000_000),
    messages.GetHistory(("bytes_in",), 1_700_000_000_000, 5000),
    messages.GetLagHistory("g", 0),
    messages.GetLags(((ID, 0, 7),)),
    messages.GetEvents(7, 100, of_cluster=True),
    messages.GetNodeStatus(),
]

REPLIES: list[tuple[Any, Any]] = [
    (MESSAGES[0], [messages.WriteResult(0, 5), messages.WriteResult(-1, -1, 6, "not led here", True)]),
    (MESSAGES[1], [None, (2, 40)]),
    (
        MESSAGES[2],
        [
            messages.BoundsResult(0, "", messages.Bounds(0, 3, 4, 5, 600, 1, (None, 2))),
            messages.BoundsResult(6),
        ],
    ),
    (MESSAGES[4], 3),
    (MESSAGES[5], {"orders": [0, 2], "users": []}),
    (MESSAGES[6], None),
    (
        MESSAGES[7],
        messages.ConsumedRecords((messages.ConsumedRecord(1, 2, None, b"v", ((b"\xff", None),)),), 2),
    ),
    (MESSAGES[9], groups.PartitionsReply(ErrorCode.NONE, (groups.PartitionResult("orders", 0),))),
    (MESSAGES[10], groups.OffsetFetchReply(ErrorCode.NONE, (groups.FetchedOffset("orders", 0, 7),))),
    (
        MESSAGES[12],
        groups.ListReply(ErrorCode.NONE, (groups.ListedGroup("g", "consumer", "Stable", "consumer"),)),
    ),
]

REPLIES += [
    (MESSAGES[16], [PartitionPlan(0, (Chunk(0, 5, 9, 100),), 3), PartitionPlan(1, (), problem="gone")]),
    (
        MESSAGES[17],
        Portion(
            (Match(0, 5, 1, None, b"\xff", (("h", None),), (("value", 900),)),),
            1,
            (Chunk(0, 7, 9, 50),),
            50,
            (Unsearched(1, 0, 3, "damaged"),),
            2,
            "no such key",
        ),
    ),
    (MESSAGES[18], [None, 1.5]),
    (messages.GetTopicFigures(None), [TopicFigures(ID, 10, 2, None, 0.5)]),
    (
        messages.GetReplicas(ID, (0, 4)),
        [
            messages.HeldReplica(0, 5, 600, 1),
            messages.HeldReplica(
                4,
                5,
                600,
                1,
                messages.Bounds(0, 3, 4, 5, 600, 1),
                (messages.FollowerState(2, -1, None),),
            ),
        ],
    ),
    (
        messages.GetHistory((), 0, 5000),
        messages.NodeHistory([5000], {"bytes_in": [None]}, {"produce": [[0, 1]]}),
    ),
    (messages.GetLagHistory("g", 0), messages.LagSamples(True, [15_000], [7.0], [None])),
    (messages.GetLags(()), [None, (7, 1.5), (7, None)]),
    (messages.GetEvents(0, 1), messages.NodeEvents(1, [Event(1, 2, "k", "info", "t", topics=("a",))], [])),
    (
        messages.GetNodeStatus(),
        NodeStatus(
            "1.0",
            5,
            [Problem("fenced", "it is", True)],
            [],
            {"cpu": 0.5},
            QuorumStatus(1, 2, 9, [QuorumReplica(1, 9, 7)], []),
        ),
    ),
]

MESSAGES += [
    messages.ListTransactions(("Ongoing",), (7,), 60_000),
    messages.GetProducers(ID, 0),
    messages.FindOpenTransactions(0, 1_000),
    messages.AbortOpenTransaction(ID, 0, 42),
    messages.GetLogDirectory(True),
    messages.GetLogRanges(((ID, 0), (ID, 1))),
    messages.GetBrokerConfigs(5),
    messages.GetAudit(500),
    transactions.DescribeTransaction("billing"),
    transactions.InitProducerId("billing", 60_000, transactions.ProducerEpoch(7, 1)),
]
_PRODUCER = PartitionProducer(7, 1, 9, 1_700_000_000_000, -1, 42)
REPLIES += [
    (messages.ListTransactions(), [transactions.Listed("billing", 7, "Ongoing", 5)]),
    (messages.GetProducers(ID, 0), [_PRODUCER]),
    (messages.FindOpenTransactions(0, 1), [messages.OpenTransaction("orders", 0, _PRODUCER)]),
    (messages.AbortOpenTransaction(ID, 0, 42), _PRODUCER),
    (
        messages.GetLogDirectory(),
        messages.LogDirectory("/logs", 100, 60, 30, 2, (messages.TopicSize("orders", 2, 30),)),
    ),
    (messages.GetLogRanges(((ID, 0),)), [None, (0, 5)]),
    (
        messages.GetBrokerConfigs(),
        [ConfigEntry("node.id", "1", "file", False, True, "int", "The id.", "1", [], [], 0, None, True)],
    ),
    (messages.GetAudit(1), ["{}"]),
    (messages.GetAudit(1), None),
    (
        transactions.DescribeTransaction("billing"),
        transactions.Described(ErrorCode.NONE, "Ongoing", 7, 1, 60_000, 5, (TopicPartition("orders", 0),)),
    ),
    (transactions.InitProducerId("billing", 1), transactions.ProducerReply(ErrorCode.NONE, 7, 2)),
]


@pytest.mark.parametrize("letter", MESSAGES, ids=lambda letter: type(letter).__name__)
def test_a_letter_is_read_as_it_was_written(letter: Any) -> None:
    assert messages.read(messages.write(letter)) == letter


def test_every_kind_is_tried_here() -> None:
    assert {type(each) for each in MESSAGES} == {call.request for call in messages.CALLS.values()}


@pytest.mark.parametrize(("asked", "reply"), REPLIES, ids=lambda each: type(each).__name__)
def test_a_reply_is_read_as_it_was_written(asked: Any, reply: Any) -> None:
    assert messages.read_reply(asked, messages.write_reply(reply)) == reply


def test_a_refusal_and_a_conflict_come_back_as_they_were_raised() -> None:
    asked = messages.Leave("g", "alice")
    with pytest.raises(KafkaError) as refused:
        messages.read_reply(asked, messages.write_error(KafkaError("moved", ErrorCode.NOT_COORDINATOR)))
    assert (str(refused.value), refused.value.code) == ("moved", ErrorCode.NOT_COORDINATOR)
    for assignments in (None, {"orders": [1]}):
        with pytest.raises(Conflict) as raised:
            messages.read_reply(asked, messages.write_error(Conflict("not_assigned", "no", assignments)))
        conflict = raised.value
        assert (conflict.reason, str(conflict), conflict.assignments) == ("not_assigned", "no", assignments)


def test_who_does_not_know_the_partition_of_a_record_is_behind() -> None:
    """The sender has looked it up."""
    unknown = messages.WriteResult(
        -1, -1, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "no such partition"
    ).error
    assert unknown is not None
    assert unknown.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert messages.WriteResult(0, 1).error is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode("Write"),
        msgspec.msgpack.encode(("Unheard", [])),
        msgspec.msgpack.encode(("Write", ["orders", ID])),
        msgspec.msgpack.encode(("Commit", ["g", None, "orders", "0", 1])),
        messages.write(MESSAGES[0])[:-1],
        messages.write(MESSAGES[0]) + b"\0",
    ],
)
def test_what_is_no_letter_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaError) as refused:
        messages.read(data)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_newer_node_may_say_more() -> None:
    more = msgspec.msgpack.encode(("Leave", ["g", "alice", "of a later release"]))
    assert messages.read(more) == messages.Leave("g", "alice")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with suppress(KafkaError):
        messages.read(data)
    with suppress(KafkaError):
        messages.read_reply(MESSAGES[0], data)
