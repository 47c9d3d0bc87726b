"""Commands and streams as one client sees them, at a whole node in a world that stands still."""

import re
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.line.conversing import StillLine
from tests.handlers.producers import Txn
from tests.nodes import StillNode

from penstock.base.hashing import partition_of_key
from penstock.base.steps import RunningSteps
from penstock.coordinator.groups.requests import ConsumerGroupHeartbeat, OffsetFetch, WantedOffset
from penstock.gateway.line.conversation import PIECES_MAX, SKIPPED_BYTES_MAX
from penstock.gateway.line.framing import LINE_BYTES_MAX
from penstock.gateway.line.produce_buffer import OPEN_MAX
from penstock.gateway.peer_rpc.messages import Join
from penstock.handlers.support.context import Session
from penstock.metadata.controller.requests import CreatePartitions, DeleteTopics, MorePartitions


@pytest.fixture
def node() -> StillNode:
    return StillNode()


@pytest.fixture
def line(node: StillNode) -> StillLine:
    return StillLine(node)


def topic_of(value: bytes, topic: bytes = b"orders", key: bytes = b"k") -> bytes:
    return b"TOPIC %b %b %d\n%b" % (topic, key, len(value), value)


def fill(node: StillNode, *values: bytes, topic: str = "orders", partitions: int = 1) -> StillLine:
    """A topic with these messages."""
    node.create_topic(topic, partitions)
    line = StillLine(node)
    said = line.ask(b"".join(topic_of(each, topic.encode()) for each in values))
    assert said.count(b"+OFFSET") == len(values)
    return line


# -- messages in ----------------------------------------------------------------------------------------


def test_a_message_is_answered_with_its_offset(line: StillLine) -> None:
    assert line.ask(b"TOPIC orders customer-7 5\nhello") == b"+OFFSET 0\n"
    assert line.ask(b"TOPIC orders customer-7 5\nworld") == b"+OFFSET 1\n"


def test_a_topic_appears_on_first_use_with_three_partitions(node: StillNode, line: StillLine) -> None:
    line.ask(b"TOPIC orders - 2\nhi")

    assert len(node.node.context.image.topics["orders"].partitions) == 3


def test_messages_with_the_same_key_go_to_the_same_partition(node: StillNode, line: StillLine) -> None:
    said = line.ask(b"".join(topic_of(b"x", key=b"one-key") for _ in range(20)))

    assert said == b"".join(b"+OFFSET %d\n" % offset for offset in range(20))


def test_messages_without_a_key_spread_evenly(node: StillNode, line: StillLine) -> None:
    line.ask(topic_of(b"x", key=b"-") * 30)

    replicas = node.node.context.replicas
    assert [replicas.find("orders", number).log.log_end for number in range(3)] == [10, 10, 10]


def test_many_messages_are_answered_in_their_order_with_what_is_wrong_in_between(
    node: StillNode, line: StillLine
) -> None:
    node.create_topic("orders")
    said = line.ask(
        topic_of(b"a") * 2
        + b"what?\n"
        + topic_of(b"lost", b"no/name")
        + topic_of(b"b")
        + topic_of(b"lost", key=b"%zz")
        + topic_of(b"c", b"others")
        + topic_of(b"d")
    )

    assert re.sub(rb"-ERR .*", b"-ERR", said).splitlines() == [
        b"+OFFSET 0",
        b"+OFFSET 1",
        b"-ERR",
        b"-ERR",
        b"+OFFSET 2",
        b"-ERR",
        b"+OFFSET 0",
        b"+OFFSET 3",
    ]


def test_messages_that_arrive_together_are_one_batch(node: StillNode, line: StillLine) -> None:
    node.create_topic("orders")
    line.ask(topic_of(b"value") * 100)

    log = node.node.context.replicas.find("orders", 0).log
    assert log.log_end == 100
    assert len(log.read(0, 1 << 20, visible=100)) < 100 * 20


def test_messages_to_a_topic_that_is_being_made_keep_their_order(node: StillNode, line: StillLine) -> None:
    line.say(*[topic_of(b"%d" % number) for number in range(50)])
    line.heard()
    reader = StillLine(node)
    reader.say(b"orders:g:-1\n")

    for number in range(50):
        assert reader.heard().rpartition(b" k\n")[2] == b"%d" % number
        reader.say(b"ACK\n")


def test_no_message_passes_one_whose_topic_is_being_made(node: StillNode, line: StillLine) -> None:
    """Others make topics too, so that the second message's question to the controller is answered after the first's:
    a third would find the topic there, and not ask."""
    node.create_topic("known")
    other = StillLine(node)
    line.say(topic_of(b"x", b"known"))
    for number in range(20):
        line.say(topic_of(b"%d" % number))
        other.say(topic_of(b"x", b"other-%d" % number))
        node.world.advance(0.4)
    assert line.heard(1000).count(b"+OFFSET") == 21

    said = StillLine(node).ask(b"orders:g:-1\n" + b"ACK\n" * 19, ms=5000)
    assert re.findall(rb" k\n(\d+)", said.replace(b"+OK", b"")) == [b"%d" % number for number in range(20)]


def test_the_reply_waits_for_the_disk(node: StillNode, line: StillLine) -> None:
    node.create_topic("orders")
    node.world.beside_ms = 50

    assert line.ask(topic_of(b"x"), ms=40) == b""
    assert line.heard(60) == b"+OFFSET 0\n"


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n\r\n"])
def test_a_line_end_behind_a_message_is_no_part_of_it(node: StillNode, end: bytes) -> None:
    line = StillLine(node)

    assert line.ask((topic_of(b"value") + end) * 2).count(b"+OFFSET") == 2
    assert StillLine(node).ask(b"orders:g:-1\n").endswith(b" 5 %d k\nvalue" % partition_of(node))


def partition_of(node: StillNode) -> int:
    replicas = node.node.context.replicas
    [number] = [number for number in range(3) if replicas.find("orders", number).log.log_end]
    return number


def test_a_message_may_have_any_bytes_and_none(node: StillNode, line: StillLine) -> None:
    values = [b"", bytes(range(256)), b"\n\r\nACK\n", b"\x00"]
    node.create_topic("orders")
    line.ask(b"".join(map(topic_of, values)))

    for offset, value in enumerate(values):
        said = line.ask(b"ACK\n" if offset else b"orders:g:0\n")
        assert said.removeprefix(b"+OK\n") == b"+MSG %d %d 0 k\n%b" % (offset, len(value), value)


@pytest.mark.parametrize("word", [b"-", b"%2D", b"", b"a%20b", b"%00%FF%0A", b"%25", "Grün".encode()])
def test_odd_keys_come_back_as_they_were_sent(line: StillLine, word: bytes) -> None:
    line.ask(topic_of(b"x", key=word))

    assert line.ask(b"orders:g:-1\n").split(b"\n")[0].split(b" ", 4)[4] == word


# -- however they arrive ---------------------------------------------------------------------------------

lines = st.sampled_from(
    [
        topic_of(b"first"),
        topic_of(b"second", key=b"-"),
        topic_of(b"\nACK\n", key=b"%00"),
        topic_of(b"x", b"others"),
        topic_of(b"lost", b"no/name"),
        topic_of(b"lost", key=b"\xff"),
        b"\r\n",
        b"ACK\n",
        b"orders:g:0\r\n",
        b"orders:g:-1\n",
        b"orders:g:1:0\n",
        b"SET_OFFSET orders:g BEGIN\n",
        b"SET_OFFSET orders:g 1\n",
        b"hello\n",
    ]
)


@settings(max_examples=15)
@given(
    st.lists(lines, max_size=12), st.sampled_from([b"", b"TOPIC orders k 99\nhalf", b"orders:g"]), st.data()
)
def test_a_conversation_is_the_same_whole_byte_by_byte_and_with_a_tail(
    commands: list[bytes], tail: bytes, data: st.DataObject
) -> None:
    text = b"".join(commands)
    cut = data.draw(st.integers(0, len(text)))

    def spoken(*portions: bytes) -> tuple[list[bytes], list[int]]:
        node = StillNode()
        for topic in ("orders", "others"):
            node.create_topic(topic, 2)
        line = StillLine(node)
        for each in portions:
            line.say(each)
        said = line.heard(900)
        ends = [node.node.context.replicas.find("orders", number).log.log_end for number in range(2)]
        return re.findall(rb"(?:\+OFFSET|\+OK|-ERR).*", said), ends

    whole = spoken(text)
    assert spoken(text + tail) == whole
    assert spoken(text[:cut], text[cut:] + tail) == whole
    assert spoken(*(text[at : at + 1] for at in range(len(text)))) == whole


# -- messages out ----------------------------------------------------------------------------------------


def test_each_message_waits_for_its_ack(node: StillNode) -> None:
    line = fill(node, b"one", b"two")

    assert line.ask(b"orders:billing:0\n") == b"+MSG 0 3 0 k\none"
    assert line.heard(5000) == b""
    assert line.ask(b"ACK\n") == b"+OK\n+MSG 1 3 0 k\ntwo"
    assert line.ask(b"ACK\n") == b"+OK\n+EMPTY\n"


def test_what_is_not_acknowledged_comes_again_after_a_reconnect(node: StillNode) -> None:
    first = fill(node, b"one", b"two")
    first.ask(b"orders:billing:0\n")
    first.ask(b"ACK\n")
    first.conversation.ended()

    assert StillLine(node).ask(b"orders:billing:0\n") == b"+MSG 1 3 0 k\ntwo"


def test_what_is_not_acknowledged_comes_again_with_the_next_request(node: StillNode) -> None:
    line = fill(node, b"one")

    assert line.ask(b"orders:billing:0\n") == line.ask(b"orders:billing:0\n") == b"+MSG 0 3 0 k\none"


def test_groups_go_their_own_ways(node: StillNode) -> None:
    line = fill(node, b"one", b"two")
    line.ask(b"orders:billing:0\n")
    line.ask(b"ACK\n")

    assert line.ask(b"orders:shipping:0\n") == b"+MSG 0 3 0 k\none"
    assert line.ask(b"orders:a%3Ab%20c:0\n") == b"+MSG 0 3 0 k\none"


def test_minus_one_reads_all_partitions(node: StillNode) -> None:
    line = fill(node, *(b"%d" % number for number in range(3)), partitions=4)
    line.ask(b"".join(topic_of(b"x", key=b"key%d" % number) for number in range(17)))
    said = line.ask(b"orders:g:-1\n")
    for _ in range(19):
        said += line.ask(b"ACK\n")

    found = re.findall(rb"\+MSG (\d+) \d+ (\d+)", said)
    ends = [node.node.context.replicas.find("orders", number).log.log_end for number in range(4)]
    assert sorted((int(partition), int(offset)) for offset, partition in found) == [
        (number, offset) for number, end in enumerate(ends) for offset in range(end)
    ]
    assert line.ask(b"ACK\n") == b"+OK\n+EMPTY\n"


def test_new_messages_come_by_themselves(node: StillNode) -> None:
    reader = fill(node)
    assert reader.ask(b"orders:g:0\n") == b"+EMPTY\n"

    StillLine(node).ask(topic_of(b"news"), ms=0)

    assert reader.heard(10) == b"+MSG 0 4 0 k\nnews"


def test_empty_is_said_at_most_once_a_second(node: StillNode) -> None:
    reader, writer = fill(node), StillLine(node)
    reader.say(b"orders:g:0\n")
    node.world.run_until(lambda: bool(reader.wire.sent))
    assert reader.heard(0) == b"+EMPTY\n"
    said = b""
    for _ in range(9):
        writer.say(topic_of(b"x"))
        said += reader.heard(50)
        reader.say(b"ACK\n")
        said += reader.heard(50)
    assert said.count(b"+MSG") == said.count(b"+OK") == 9
    assert b"+EMPTY" not in said

    assert reader.heard(100) == b"+EMPTY\n"
    assert reader.heard(3000) == b"+EMPTY\n" * 3


def test_a_request_that_is_sent_again_is_told_empty_no_more_often(node: StillNode) -> None:
    line = fill(node)
    line.say(b"orders:g:0\n")
    node.world.run_until(lambda: bool(line.wire.sent))
    assert line.heard(0) == b"+EMPTY\n"

    assert line.ask(b"orders:g:0\n" * 5, ms=999) == b""
    assert line.heard(1) == b"+EMPTY\n"


@pytest.mark.parametrize("partition", [b"-1", b"%d" % partition_of_key(b"k", 3)])
def test_a_topic_that_is_not_there_is_waited_for_and_not_made(
    node: StillNode, line: StillLine, partition: bytes
) -> None:
    assert line.ask(b"orders:g:%b\n" % partition) == b"+EMPTY\n"
    assert line.heard(2000) == b"+EMPTY\n+EMPTY\n"
    assert "orders" not in node.node.context.image.topics
    node.create_topic("others", 1)
    StillLine(node).ask(topic_of(b"news"), ms=0)

    assert line.heard(50).endswith(b" k\nnews")
    assert line.ask(b"ACK\n") == b"+OK\n"
    assert line.heard(1000) == b"+EMPTY\n"
    assert not node.node.context.image_watchers


def test_a_topic_that_is_waited_for_may_turn_out_to_lack_the_partition(
    node: StillNode, line: StillLine
) -> None:
    assert line.ask(b"orders:g:7\n") == b"+EMPTY\n"
    node.create_topic("orders", 2)

    assert line.heard(50) == b"-ERR topic 'orders' has no partition 7, only 0 to 1\n"
    assert line.conversation.is_idle


def test_an_end_is_not_reached_before_the_topic_is_there(node: StillNode, line: StillLine) -> None:
    assert line.ask(b"orders:g:0:0\n") == b"+EMPTY\n"
    node.create_topic("orders", 1)
    StillLine(node).ask(topic_of(b"news"), ms=0)

    assert line.heard(50).endswith(b"+MSG 0 4 0 k\nnews")
    assert line.ask(b"ACK\n") == b"+OK\n+END 1\n"


@pytest.mark.parametrize("end", ["said", "gone"])
def test_a_request_that_waits_for_its_topic_ends_like_any_other(
    node: StillNode, line: StillLine, end: str
) -> None:
    node.create_topic("others", 1)
    line.ask(b"orders:g:0\n")
    assert node.node.context.image_watchers
    if end == "said":
        line.ask(b"others:g:0\n")
    else:
        line.conversation.ended()

    assert not node.node.context.image_watchers


def test_a_name_that_no_topic_may_have_is_not_waited_for(line: StillLine) -> None:
    assert line.ask(b"a/b:g:0\n").startswith(b"-ERR ")
    assert line.conversation.is_idle


def test_two_clients_of_a_group_both_get_messages_and_the_last_ack_counts(node: StillNode) -> None:
    first, second = fill(node, b"one", b"two"), StillLine(node)
    for each in (first, second):
        assert each.ask(b"orders:g:0\n") == b"+MSG 0 3 0 k\none"
    assert first.ask(b"ACK\n") == b"+OK\n+MSG 1 3 0 k\ntwo"
    assert first.ask(b"ACK\n") == b"+OK\n+EMPTY\n"

    assert second.ask(b"ACK\n") == b"+OK\n+MSG 1 3 0 k\ntwo"
    assert StillLine(node).ask(b"orders:g:0\n") == b"+MSG 1 3 0 k\ntwo"


# -- the end ---------------------------------------------------------------------------------------------


def test_to_offset_is_the_last_one_wanted(node: StillNode) -> None:
    line = fill(node, b"0", b"1", b"2")

    assert line.ask(b"orders:g:0:1\n") == b"+MSG 0 1 0 k\n0"
    assert line.ask(b"ACK\n") == b"+OK\n+MSG 1 1 0 k\n1"
    assert line.ask(b"ACK\n") == b"+OK\n+END 2\n"
    assert line.heard(5000) == b""
    assert line.conversation.is_idle
    assert line.ask(b"orders:g:0:1\n") == b"+END 2\n"
    assert line.ask(b"orders:g:0\n") == b"+MSG 2 1 0 k\n2"


def test_a_stream_that_begins_behind_its_end_says_where_the_group_is(node: StillNode) -> None:
    line = fill(node, b"0", b"1", b"2")
    line.ask(b"SET_OFFSET orders:g 3\n")

    assert line.ask(b"orders:g:0:0\n") == b"+END 3\n"


def test_the_end_is_waited_for(node: StillNode) -> None:
    line = fill(node, b"0")
    line.ask(b"orders:g:0:1\n")
    assert line.ask(b"ACK\n") == b"+OK\n+EMPTY\n"

    StillLine(node).ask(topic_of(b"1"), ms=0)
    assert line.heard(50) == b"+MSG 1 1 0 k\n1"
    assert line.ask(b"ACK\n") == b"+OK\n+END 2\n"


def test_with_all_partitions_the_end_is_reached_in_each(node: StillNode) -> None:
    line = fill(node, partitions=3)
    line.ask(topic_of(b"x", key=b"-") * 9)
    said = line.ask(b"orders:g:-1:1\n" + b"ACK\n" * 6)

    found = re.findall(rb"\+MSG (\d+) \d+ (\d+)", said)
    assert sorted((int(p), int(o)) for o, p in found) == [(p, o) for p in range(3) for o in range(2)]
    assert said.endswith(b"+OK\n+END 2\n")


# -- commands during a stream ----------------------------------------------------------------------------


def test_an_ack_without_a_message_is_refused(node: StillNode) -> None:
    line = fill(node)

    assert line.ask(b"ACK\n") == b"-ERR there is no message to acknowledge\n"
    line.ask(b"orders:g:0\n")
    assert line.ask(b"ACK\n") == b"-ERR there is no message to acknowledge\n"


def test_commands_are_carried_out_in_their_order_whether_or_not_replies_are_waited_for(
    node: StillNode,
) -> None:
    line = fill(node, b"0", b"1")

    assert (
        line.ask(b"orders:g:0\nACK\n" + topic_of(b"2") + b"ACK\nACK\nACK\n")
        == b"+MSG 0 1 0 k\n0+OK\n+MSG 1 1 0 k\n1+OFFSET 2\n+OK\n+MSG 2 1 0 k\n2+OK\n+EMPTY\n"
        b"-ERR there is no message to acknowledge\n"
    )


def test_what_is_produced_before_an_ack_is_durable_before_it(node: StillNode) -> None:
    node.create_topic("results")
    line = fill(node, b"0")
    line.ask(b"orders:g:0\n")
    node.world.beside_ms = 50

    line.say(topic_of(b"result", b"results") + b"ACK\n")

    assert line.heard(40) == b""
    assert line.heard(20) == b"+OFFSET 0\n"
    assert line.heard(100).startswith(b"+OK\n")


def test_a_new_request_takes_the_place_of_the_stream(node: StillNode) -> None:
    fill(node, b"other", topic="others")
    line = fill(node, b"0", b"1")
    line.ask(b"orders:g:0\n")

    assert line.ask(b"others:g:0\n") == b"+MSG 0 5 0 k\nother"
    assert line.ask(b"ACK\n") == b"+OK\n+EMPTY\n"
    StillLine(node).ask(topic_of(b"2"))
    assert b"+MSG" not in line.heard(100), "the first stream is over"
    assert line.ask(b"orders:g:0\n") == b"+MSG 0 1 0 k\n0", "and its message was not acknowledged"


def test_a_request_that_is_refused_ends_the_stream_too(node: StillNode) -> None:
    line = fill(node, b"0")
    line.ask(b"orders:g:0\n")

    assert line.ask(b"orders:g:7\n").startswith(b"-ERR topic 'orders' has no partition 7")
    assert line.ask(b"ACK\n") == b"-ERR there is no message to acknowledge\n"


# -- SET_OFFSET ------------------------------------------------------------------------------------------


def test_set_offset_moves_all_partitions(node: StillNode) -> None:
    line = fill(node, partitions=3)
    line.ask(topic_of(b"x", key=b"-") * 9)

    assert line.ask(b"SET_OFFSET orders:g 2\n") == b"+OK\n"
    said = line.ask(b"orders:g:-1\n" + b"ACK\n" * 3)
    assert sorted(re.findall(rb"\+MSG (\d+) \d+ (\d+)", said)) == [(b"2", b"0"), (b"2", b"1"), (b"2", b"2")]

    assert line.ask(b"SET_OFFSET orders:g BEGIN\n").startswith(b"+OK\n+MSG 0 ")


def test_a_stream_goes_on_from_where_set_offset_moves_it(node: StillNode) -> None:
    line = fill(node, b"0", b"1", b"2")
    line.ask(b"orders:g:0\n")

    assert line.ask(b"SET_OFFSET orders:g 2\n") == b"+OK\n+MSG 2 1 0 k\n2"
    assert line.ask(b"SET_OFFSET orders:others 0\n") == b"+OK\n", "of another group: not this stream's"
    assert line.ask(b"ACK\n") == b"+OK\n+EMPTY\n"


def test_an_offset_past_the_end_is_waited_for(node: StillNode) -> None:
    line = fill(node, b"0")
    line.ask(b"SET_OFFSET orders:g 2\n")
    assert line.ask(b"orders:g:0\n") == b"+EMPTY\n"

    StillLine(node).ask(topic_of(b"1") + topic_of(b"2"), ms=0)

    assert line.heard(100) == b"+MSG 2 1 0 k\n2"


def test_begin_is_where_the_log_begins_now(node: StillNode) -> None:
    line = fill(node, b"0", b"1", b"2")
    node.node.context.replicas.find("orders", 0).delete_records(1)

    assert line.ask(b"orders:g:0\n") == b"+MSG 1 1 0 k\n1"
    assert line.ask(b"SET_OFFSET orders:g BEGIN\n") == b"+OK\n+MSG 1 1 0 k\n1"
    assert line.ask(b"SET_OFFSET orders:g 0\n") == b"+OK\n+MSG 1 1 0 k\n1"


def test_set_offset_makes_no_topic(line: StillLine) -> None:
    assert line.ask(b"SET_OFFSET orders:g 0\n") == b"-ERR no such topic: 'orders'\n"


def test_end_is_behind_the_last_message_that_can_be_read(node: StillNode) -> None:
    line = fill(node, b"0", b"1")
    line.ask(b"orders:g:0\n")
    producer = Txn(node, "theirs")
    producer.init()
    producer.send("orders", 0, b"not yet")

    assert line.ask(b"SET_OFFSET orders:g END\n", ms=2000).startswith(b"+OK\n+EMPTY\n")
    assert committed_of(node) == 2
    producer.end(commit=True)

    assert line.heard(50).endswith(b"\nnot yet"), "it was not there to be passed over"


# -- groups that others use ------------------------------------------------------------------------------


def heartbeat(node: StillNode, epoch: int) -> Any:
    request = ConsumerGroupHeartbeat(
        "g",
        "member-1",
        epoch,
        "their-client",
        "10.0.0.9",
        rebalance_timeout_ms=10_000,
        subscribed_names=("orders",) if not epoch else None,
        owned=() if not epoch else None,
    )
    later = node.node.context.groups.handle("g", request)
    node.world.advance(50)
    return later.value


def test_a_group_with_live_members_is_not_committed_to_and_the_message_waits(node: StillNode) -> None:
    line = fill(node, b"0", b"1")
    line.ask(b"orders:g:0\n")
    assert heartbeat(node, 0).member_epoch > 0

    said = line.ask(b"ACK\n")
    assert said.startswith(b"-ERR group 'g' has members ('their-client' at 10.0.0.9): only they")
    assert line.ask(b"SET_OFFSET orders:g BEGIN\n").startswith(b"-ERR group 'g' has members")

    heartbeat(node, -1)
    assert line.ask(b"ACK\n") == b"+OK\n+MSG 1 1 0 k\n1"


def test_a_member_that_came_over_http_is_named_as_it_named_itself(node: StillNode) -> None:
    line = fill(node, b"0")
    line.ask(b"orders:g:0\n")
    joined: list[Any] = []
    join = node.node.gateway.members.join(
        Session("", 0, "10.0.0.7:4711"), Join("g", "alice", ("orders",), 60_000)
    )
    RunningSteps(join, joined.append, joined.append)
    node.world.advance(100)
    assert joined == [{"orders": [0]}]

    assert line.ask(b"ACK\n").startswith(b"-ERR group 'g' has members ('alice' over HTTP at 10.0.0.7): only")


# -- what happens to the log meanwhile -------------------------------------------------------------------


def test_records_that_are_deleted_are_passed_over(node: StillNode) -> None:
    line = fill(node, b"0", b"1", b"2")
    line.ask(b"SET_OFFSET orders:g 3\n")
    line.ask(b"orders:g:0\n")
    StillLine(node).ask(b"SET_OFFSET orders:g 0\n")
    node.node.context.replicas.find("orders", 0).delete_records(-1)

    assert StillLine(node).ask(b"orders:g:0\n") == b"+EMPTY\n"
    StillLine(node).ask(topic_of(b"3"), ms=0)
    assert line.heard(50).endswith(b"+MSG 3 1 0 k\n3")


def test_a_stream_ends_with_its_topic(node: StillNode) -> None:
    line = fill(node)
    line.ask(b"orders:g:0\n")

    node.node.context.controller.submit(DeleteTopics(names=("orders",)))

    assert line.heard(100) == b"-ERR orders-0 is no longer led by this broker\n"
    assert line.conversation.is_idle
    assert line.heard(3000) == b""


def test_a_stream_of_all_partitions_has_the_new_ones_too(node: StillNode) -> None:
    line = fill(node, partitions=1)
    line.ask(b"orders:g:-1\n")

    node.node.context.controller.submit(CreatePartitions((MorePartitions("orders", 3),)))
    node.world.advance(50)
    StillLine(node).ask(topic_of(b"x", key=b"-") * 3, ms=0)
    said = line.heard(1100) + line.ask(b"ACK\n" * 3, ms=2000)

    assert sorted(re.findall(rb"\+MSG \d+ \d+ (\d+)", said)) == [b"0", b"1", b"2"]


def test_what_a_transaction_took_back_is_not_shown_and_the_end_is_found_behind_it(node: StillNode) -> None:
    line = fill(node, b"0")
    producer = Txn(node, "theirs")
    producer.init()
    producer.send("orders", 0, b"taken back")
    assert line.ask(b"orders:g:0:2\nACK\n") == b"+MSG 0 1 0 k\n0+OK\n+EMPTY\n", "it is open: nothing to see"

    producer.end(commit=False)

    assert line.heard(100) == b"+END 3\n", "offset 1 was taken back, and 2 is the marker that says so"


def committed_of(node: StillNode, number: int = 0, topic: str = "orders") -> int | None:
    """What group g has committed."""
    later = node.node.context.groups.handle("g", OffsetFetch("g", (WantedOffset(topic, number),)))
    node.world.advance(10)
    [row] = later.value.offsets
    return None if row.offset < 0 else int(row.offset)


def test_the_group_is_moved_behind_what_nobody_can_acknowledge_once(node: StillNode) -> None:
    """As a consumer commits its position: markers and what was taken back leave no lag."""
    line = fill(node, b"0")
    producer = Txn(node, "theirs")
    producer.init()
    producer.send("orders", 0, b"kept")
    producer.end(commit=True)
    assert line.ask(b"orders:g:0\nACK\n") == b"+MSG 0 1 0 k\n0+OK\n+MSG 1 4 0 -\nkept"
    assert committed_of(node) == 1
    assert line.ask(b"ACK\n") == b"+OK\n+EMPTY\n"
    assert committed_of(node) == 3, "offset 2 is the marker"

    replicas = node.node.context.replicas.by_key
    ends = {name: each.log.log_end for name, each in replicas.items()}
    assert line.heard(5000) == b"+EMPTY\n" * 5
    assert {name: each.log.log_end for name, each in replicas.items()} == ends, "nothing is committed again"
    assert StillLine(node).ask(b"orders:g:0\n") == b"+EMPTY\n"


def test_a_group_that_has_nothing_to_pass_over_commits_nothing_by_itself(node: StillNode) -> None:
    line = fill(node, b"0")
    node.node.context.replicas.find("orders", 0).delete_records(-1)
    assert line.ask(b"orders:g:0\n") == b"+EMPTY\n"
    assert committed_of(node) is None


def test_what_lies_behind_the_end_of_a_request_is_not_passed_over(node: StillNode) -> None:
    line = fill(node, b"0", b"1", b"2")
    producer = Txn(node, "theirs")
    producer.init()
    producer.send("orders", 0, b"taken back")
    producer.end(commit=False)
    assert line.ask(b"orders:g:0:1\nACK\nACK\n").endswith(b"+OK\n+END 2\n")
    assert committed_of(node) == 2
    assert line.ask(b"orders:g:0:3\nACK\n") == b"+MSG 2 1 0 k\n2+OK\n+END 4\n"
    assert committed_of(node) == 4, "offset 3 was taken back"


def test_a_group_with_members_is_looked_at_past_a_marker_all_the_same(node: StillNode) -> None:
    line = fill(node)
    assert line.ask(b"orders:g:0\n") == b"+EMPTY\n"
    assert heartbeat(node, 0).member_epoch > 0
    producer = Txn(node, "theirs")
    producer.init()
    producer.send("orders", 0, b"taken back")
    producer.end(commit=False)

    assert line.heard(3000) == b"+EMPTY\n" * 3
    assert committed_of(node) is None
    StillLine(node).ask(topic_of(b"news"), ms=0)
    assert line.heard(50) == b"+MSG 2 4 0 k\nnews"


def test_a_long_stretch_without_messages_is_passed_in_portions(node: StillNode) -> None:
    line = fill(node)
    producer = Txn(node, "theirs")
    for _ in range(40):
        producer.init()
        producer.send("orders", 0, bytes(70_000))
        producer.end(commit=False)
    line.ask(topic_of(b"at last"))

    said = line.ask(b"orders:g:0\n")

    assert re.fullmatch(rb"\+MSG \d+ 7 0 k\nat last", said)


# -- bounds ----------------------------------------------------------------------------------------------


def test_a_message_that_is_too_large_is_refused_and_read_over(node: StillNode, line: StillLine) -> None:
    node.create_topic("orders", max_message_bytes="200000")
    line.say(b"TOPIC orders k 300000\n")
    assert line.heard() == b"-ERR the message has 300000 bytes, and topic 'orders' allows at most 200000\n"

    line.say(*[bytes(50_000)] * 6)

    assert line.ask(b"\n" + topic_of(b"next")) == b"+OFFSET 0\n"


def test_a_message_that_its_batch_makes_too_large_is_refused(node: StillNode, line: StillLine) -> None:
    node.create_topic("orders", max_message_bytes="1000")

    assert re.match(rb"-ERR .* at most 1000 are allowed\n", line.ask(topic_of(bytes(1000)) + b"\n"))
    assert line.ask(topic_of(bytes(900))) == b"+OFFSET 0\n"


@pytest.mark.parametrize(
    "command",
    [
        b"TOPIC orders k %d\n" % (SKIPPED_BYTES_MAX + 1),
        b"TOPIC orders k -5\nhello",
        b"TOPIC orders k 99999999999999999999999\n",
        b"TOPIC orders hello\n",
        b"TOPIC\n",
        b"x" * LINE_BYTES_MAX,
        b"TOPIC orders " + b"k" * LINE_BYTES_MAX + b" 5\nhello",
        b"\x00" * (LINE_BYTES_MAX + 5),
    ],
)
def test_where_the_next_command_cannot_be_found_the_connection_is_closed(
    node: StillNode, line: StillLine, command: bytes
) -> None:
    node.create_topic("orders")

    said = line.ask(topic_of(b"x") + command + topic_of(b"y") + b"SET_OFFSET orders:g 0\n")

    assert re.fullmatch(rb"\+OFFSET 0\n-ERR [^\n]+\n", said), "what was before it is answered, nothing after"
    assert line.wire.is_closed
    line.conversation.ended()
    assert line.ask(b"ACK\n") == b""


@pytest.mark.parametrize(
    "command", [b"\x00\n", b"\xff\xfe\n", b"orders:g:" + b"1" * 5000 + b"\n", b"ACK ACK\n", b"orders\n"]
)
def test_what_is_wrong_with_a_line_costs_nothing_else(line: StillLine, command: bytes) -> None:
    assert re.fullmatch(rb"-ERR [^\n]+\n", line.ask(command))
    assert line.ask(topic_of(b"x")) == b"+OFFSET 0\n"


def test_empty_lines_are_not_answered(line: StillLine) -> None:
    assert line.ask(b"\n\r\n\n") == b""


def test_an_error_is_one_line_and_not_long(line: StillLine) -> None:
    said = line.ask(b"TOPIC " + b"n" * 5000 + b" k 5\nhello" + b"\x85\xe2\x80\xa8" * 50 + b"\n")

    assert len(said.decode().splitlines()) == 2
    assert all(len(each) < 500 for each in said.splitlines())


# -- clients that are slow, or gone ----------------------------------------------------------------------


def test_a_client_that_reads_nothing_is_sent_nothing_and_not_read_from(node: StillNode) -> None:
    line = fill(node, b"0", b"1")
    line.ask(b"orders:g:0\n")
    line.wire.is_full = True

    assert line.ask(b"ACK\n") == b""
    assert not line.wire.is_reading
    line.wire.is_full = False
    line.conversation.drained()

    assert line.heard() == b"+OK\n+MSG 1 1 0 k\n1"
    assert line.wire.is_reading


def test_a_stream_does_not_go_on_while_its_client_does_not_read(node: StillNode) -> None:
    line = fill(node)
    line.ask(b"orders:g:0\n")
    line.wire.is_full = True
    StillLine(node).ask(topic_of(b"0"))

    assert line.heard(5000) == b""
    line.wire.is_full = False
    line.conversation.drained()
    assert line.heard() == b"+MSG 0 1 0 k\n0"


def test_a_client_that_sends_nothing_but_line_ends_lets_others_have_their_turn(node: StillNode) -> None:
    line = fill(node)
    happened: list[str] = []
    line.say(b"\n" * (3 * PIECES_MAX) + topic_of(b"0"))
    node.world.call_soon(lambda: happened.append("others"))
    node.world.run_until(lambda: bool(happened))
    assert not line.wire.sent

    assert line.heard() == b"+OFFSET 0\n"


def test_no_more_messages_are_under_way_than_the_bound(node: StillNode, line: StillLine) -> None:
    node.create_topic("orders")
    node.world.beside_ms = 50
    line.say(topic_of(b"x") * (OPEN_MAX + 10))
    line.say(topic_of(b"x"))

    assert not line.wire.is_reading
    node.world.advance(40)
    assert node.node.context.replicas.find("orders", 0).log.log_end == OPEN_MAX
    assert line.heard(100).count(b"+OFFSET") == OPEN_MAX + 11
    assert line.wire.is_reading


def test_a_large_topic_setting_is_kept_to_with_many_bytes_under_way(node: StillNode, line: StillLine) -> None:
    node.create_topic("orders")
    value = bytes(900_000)

    said = line.ask(topic_of(value) * 12)

    assert said.count(b"+OFFSET") == 12


@pytest.mark.parametrize(
    "command",
    [
        topic_of(b"x"),
        topic_of(b"x", b"new"),
        b"orders:g:0\n",
        b"SET_OFFSET orders:g 0\n",
        b"orders:g:0\nACK\n",
    ],
)
def test_nothing_is_said_to_a_client_that_is_gone(node: StillNode, command: bytes) -> None:
    line = fill(node, b"0")
    line.say(command)
    line.wire.sent.clear()

    line.conversation.ended()
    line.conversation.drained()

    assert line.heard(3000) == b""


@pytest.mark.parametrize(
    ("text", "replies"),
    [
        (b"", b""),
        (b"ACK\n" * 2, b"-ERR there is no message to acknowledge\n" * 2),
        (topic_of(b"1"), b"+OFFSET 1\n"),
        (topic_of(b"1", b"new") * 2, b"+OFFSET 0\n+OFFSET 1\n"),
        (b"orders:g:0\nACK\n", b"+MSG 0 1 0 k\n0+OK\n+EMPTY\n"),
        (b"orders:g:0\nACK\n" + topic_of(b"1") + b"ACK\norders:g:0\n", None),
        (b"orders:g:0\n", b"+MSG 0 1 0 k\n0"),
        (b"SET_OFFSET orders:g 1\norders:g:0:1\norders:g:0\n", b"+OK\n+EMPTY\n"),
        (b"TOPIC orders k 99\nhalf", b""),
        (b"half", b""),
    ],
)
def test_a_client_that_sends_nothing_more_has_its_answers_and_then_the_end(
    node: StillNode, text: bytes, replies: bytes | None
) -> None:
    line = fill(node, b"0")
    line.say(text)
    line.conversation.finished()

    said = line.heard(200)

    assert replies in (None, said)
    assert line.wire.is_closed
    assert line.heard(3000) == b""


def test_a_stream_ends_when_its_client_sends_nothing_more(node: StillNode) -> None:
    line = fill(node, b"0")
    line.ask(b"orders:g:0\n")

    line.conversation.finished()

    assert line.wire.is_closed


def test_a_conversation_is_idle_when_nothing_is_asked_of_it(node: StillNode) -> None:
    line = fill(node, b"0")
    assert line.conversation.is_idle

    line.say(topic_of(b"1"))
    assert not line.conversation.is_idle
    line.heard()
    assert line.conversation.is_idle

    line.say(b"orders:g:0\n")
    assert not line.conversation.is_idle
    line.heard()
    assert not line.conversation.is_idle, "a message waits for its ACK"
    line.ask(b"ACK\n")
    line.ask(b"ACK\n")
    assert not line.conversation.is_idle, "and then it waits for messages"


# -- crashes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_what_was_answered_is_there_after_a_power_cut(seed: int) -> None:
    node = StillNode(seed=seed)
    line = StillLine(node)
    values = [b"%d" % number for number in range(10)]
    assert line.ask(b"".join(map(topic_of, values))).count(b"+OFFSET") == 10
    said = line.ask(b"orders:g:-1\n" + b"ACK\n" * 4)
    assert said.count(b"+OK") == 4
    line.say(b"ACK\n")

    node.crash(Random(seed))

    line = StillLine(node)
    again = line.ask(b"orders:g:-1\n")
    found = re.match(rb"\+MSG (\d+) ", again)
    assert found is not None
    assert int(found[1]) in (4, 5), "the fifth ACK was not answered: it may count or not"


def test_a_stream_ends_when_its_node_stops(node: StillNode) -> None:
    line = fill(node)
    line.ask(b"orders:g:0\n")

    node.stop()

    assert line.wire.sent.startswith(b"-ERR orders-0 is no longer led by this broker")
