"""What nodes' gateways write to each other is read as it was meant, and nothing else is believed."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode, KafkaError
from penstock.coordinator.groups import requests as groups
from penstock.gateway.peer_rpc import messages as letters
from penstock.gateway.peer_rpc.messages import Conflict

ID = b"i" * 16

LETTERS = [
    letters.Write(
        "orders", ID, (letters.Line(0, None, b"v"), letters.Line(1, b"k", None, (("h", None),), "key"))
    ),
    letters.FindKeys(ID, (b"d" * 16, b"e" * 16)),
    letters.Look(((ID, 0), (ID, 7)), (0, 1_700_000_000_000)),
    letters.View(ID, (0, 1), 10, 3),
    letters.Shorten(ID, 0, -1),
    letters.Join("g", "alice", ("orders", "users"), 300_000),
    letters.Leave("g", "alice"),
    letters.Consume("g", None, "orders", 0, 100, 0),
    letters.Commit("g", "alice", "orders", 0, 7),
    groups.OffsetCommit("g", (groups.CommittedPartition("orders", 0, 7, topic_id=ID),), "alice", 3),
    groups.OffsetFetch("g", (groups.WantedOffset("orders", 0, ID),), require_stable=True),
    groups.OffsetFetch("g", None),
    groups.ListGroups(frozenset({"stable"}), frozenset({"consumer"})),
    groups.DescribeGroups(("g",)),
    groups.DeleteGroups(("g",)),
    groups.ConsumerGroupDescribe(("g",)),
]

REPLIES: list[tuple[Any, Any]] = [
    (LETTERS[0], [letters.Written(0, 5), letters.Written(-1, -1, 6, "not led here", True)]),
    (LETTERS[1], [None, (2, 40)]),
    (LETTERS[2], [letters.Looked(0, "", letters.Bounds(0, 3, 4, 5, 600, 1, (None, 2))), letters.Looked(6)]),
    (LETTERS[4], 3),
    (LETTERS[5], {"orders": [0, 2], "users": []}),
    (LETTERS[6], None),
    (LETTERS[7], letters.ConsumedRecords((letters.ConsumedRecord(1, 2, None, b"v", ((b"\xff", None),)),), 2)),
    (LETTERS[9], groups.PartitionsReply(ErrorCode.NONE, (groups.PartitionResult("orders", 0),))),
    (LETTERS[10], groups.OffsetFetchReply(ErrorCode.NONE, (groups.FetchedOffset("orders", 0, 7),))),
    (
        LETTERS[12],
        groups.ListReply(ErrorCode.NONE, (groups.ListedGroup("g", "consumer", "Stable", "consumer"),)),
    ),
]


@pytest.mark.parametrize("letter", LETTERS, ids=lambda letter: type(letter).__name__)
def test_a_letter_is_read_as_it_was_written(letter: Any) -> None:
    assert letters.read(letters.write(letter)) == letter


def test_every_kind_is_tried_here() -> None:
    assert {type(each).__name__ for each in LETTERS} == set(letters.KINDS)


@pytest.mark.parametrize(("asked", "reply"), REPLIES, ids=lambda each: type(each).__name__)
def test_a_reply_is_read_as_it_was_written(asked: Any, reply: Any) -> None:
    assert letters.read_reply(asked, letters.write_reply(reply)) == reply


def test_a_refusal_and_a_conflict_come_back_as_they_were_raised() -> None:
    asked = letters.Leave("g", "alice")
    refused = letters.read_reply(asked, letters.write_reply(KafkaError("moved", ErrorCode.NOT_COORDINATOR)))
    assert isinstance(refused, KafkaError)
    assert (str(refused), refused.code) == ("moved", ErrorCode.NOT_COORDINATOR)
    for assignments in (None, {"orders": [1]}):
        conflict = letters.read_reply(asked, letters.write_reply(Conflict("not_assigned", "no", assignments)))
        assert isinstance(conflict, Conflict)
        assert (conflict.code, str(conflict), conflict.assignments) == ("not_assigned", "no", assignments)


def test_who_does_not_know_the_partition_of_a_record_is_behind() -> None:
    """The sender has looked it up."""
    unknown = letters.Written(-1, -1, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "no such partition").error
    assert unknown is not None
    assert unknown.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert letters.Written(0, 1).error is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode("Write"),
        msgspec.msgpack.encode(("Unheard", [])),
        msgspec.msgpack.encode(("Write", ["orders", ID])),
        msgspec.msgpack.encode(("Commit", ["g", None, "orders", "0", 1])),
        letters.write(LETTERS[0])[:-1],
        letters.write(LETTERS[0]) + b"\0",
    ],
)
def test_what_is_no_letter_is_refused(data: bytes) -> None:
    with pytest.raises(KafkaError) as refused:
        letters.read(data)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_newer_node_may_say_more() -> None:
    more = msgspec.msgpack.encode(("Leave", ["g", "alice", "of a later release"]))
    assert letters.read(more) == letters.Leave("g", "alice")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    with suppress(KafkaError):
        letters.read(data)
    letters.read_reply(LETTERS[0], data)
