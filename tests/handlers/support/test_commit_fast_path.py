"""The short way of commits: it says and writes what the ordinary way does, to the byte, and leaves the rest to it."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.handlers.cluster import make_request
from tests.handlers.members import Groups, Member, call, gather
from tests.handlers.test_consumer_groups import join
from tests.nodes import StillClient

from penstock.handlers.support.commit_fast_path import MISSES_MAX, CommitFastPath, CommitReply
from penstock.handlers.support.context import Context
from penstock.vfs import MemoryDisk
from penstock.wire import Api, parse_response_header, read_response, request_frame, write_request

OFFSET_COMMIT = int(Api.OFFSET_COMMIT)


class Pair:
    """Two nodes that get the same requests; in one of them each comes over a connection that knows nothing yet."""

    def __init__(self, **settings: str) -> None:
        self.scenes = [Groups(settings), Groups(settings)]
        self.knowing = self.scenes[0].node.client()
        self._number = 0

    def commit(self, version: int, topics: list[dict[str, Any]], **said: Any) -> list[int]:
        """The errors that both say, which must be the same, and so must the bytes around them and what is written."""
        self._number += 1
        fields = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", **said}
        told = []
        for scene, client in zip(self.scenes, (self.knowing, self.scenes[1].node.client()), strict=True):
            request = make_request(
                Api.OFFSET_COMMIT, version, topics=self._named(scene, version, topics), **fields
            )
            body = write_request(Api.OFFSET_COMMIT, version, request)
            told.append(sent(client, request_frame(Api.OFFSET_COMMIT, version, self._number, "test", body)))
        assert told[0] == told[1]
        assert logs(self.scenes[0]) == logs(self.scenes[1])
        errors = [scene.node.node.context.metrics.api(OFFSET_COMMIT).errors for scene in self.scenes]
        assert errors[0] == errors[1]
        counts = [scene.node.node.context.metrics.api(OFFSET_COMMIT).times.count for scene in self.scenes]
        assert counts == [self._number] * 2
        return codes(told[0], version)

    @staticmethod
    def _named(scene: Groups, version: int, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if version < 10:
            return topics
        return [{"topic_id": scene.topic_id(each["name"]), **each} for each in topics]


def sent(client: StillClient, frame: bytes) -> bytes:
    """The reply to a request, to the byte."""
    client.feed(frame)
    client.node.world.advance(20)
    received = bytes(client.transport.received)
    client.transport.received.clear()
    assert len(received) == 4 + int.from_bytes(received[:4], "big")
    return received


def codes(reply: bytes, version: int) -> list[int]:
    frame = memoryview(reply)[4:]
    _, at = parse_response_header(frame, Api.OFFSET_COMMIT, version)
    response = read_response(Api.OFFSET_COMMIT, version, frame[at:])
    return [int(each.error_code.value) for topic in response.topics for each in topic.partitions]


def logs(scene: Groups) -> list[bytes]:
    disk = scene.node.disk
    assert isinstance(disk, MemoryDisk)
    return [
        bytes(disk.open(f"/data/logs/__consumer_offsets-{number}/{0:020d}.log").pread(1 << 20, 0))
        for number in range(3)
    ]


def row(partition: int = 0, offset: int = 5, text: str | None = "", epoch: int = -1) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": text,
    }


def of(*rows: dict[str, Any], name: str = "t") -> dict[str, Any]:
    return {"name": name, "partitions": list(rows)}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each commit that was offered to the short way, whether it went there."""
    seen: list[bool] = []
    take: Callable[[CommitFastPath, memoryview], CommitReply | None] = CommitFastPath.take

    def note(route: CommitFastPath, frame: memoryview) -> CommitReply | None:
        told = take(route, frame)
        if frame[1] == OFFSET_COMMIT:
            seen.append(told is not None)
        return told

    monkeypatch.setattr(CommitFastPath, "take", note)
    return seen


@pytest.mark.parametrize("version", range(6, 11))
def test_the_second_commit_of_a_kind_goes_the_short_way(version: int, taken: list[bool]) -> None:
    pair = Pair()
    for offset in (5, 6, 2**40):
        assert pair.commit(version, [of(row(1, offset), row(2, offset + 1, "so far", 3))]) == [0, 0]
    assert taken == [True, True]
    assert [scene.committed(partition=2) for scene in pair.scenes] == [2**40 + 1] * 2


@pytest.mark.parametrize("version", range(2, 6))
def test_old_versions_go_the_ordinary_way(version: int, taken: list[bool]) -> None:
    pair = Pair()
    for offset in (5, 6):
        assert pair.commit(version, [of(row(1, offset))]) == [0]
    assert taken == [False]


def test_partitions_of_a_topic_may_take_turns(taken: list[bool]) -> None:
    pair = Pair()
    for partition in (0, 3, 1):
        assert pair.commit(9, [of(row(partition))]) == [0]
    assert taken == [True, True]


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        pytest.param([of(row(4))], [3], id="a partition that is not there"),
        pytest.param([of(row(-1))], [3], id="no partition"),
        pytest.param([of(row(text="x"))], [0], id="another text"),
        pytest.param([of(row(), row(1))], [0, 0], id="another partition too"),
        pytest.param([of(row()), of(row(), name="u")], [0, 3], id="another topic too"),
        pytest.param([of(row(text="x" * 5000))], [12], id="a text that is too long"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_what_is_out_of_the_ordinary_goes_the_ordinary_way(
    topics: list[dict[str, Any]], expected: list[int], taken: list[bool]
) -> None:
    pair = Pair()
    for _ in range(2):
        pair.commit(9, [of(row())])
    taken.clear()
    assert pair.commit(9, topics) == expected
    assert taken == [False]


def test_what_is_refused_in_part_is_looked_at_each_time(taken: list[bool]) -> None:
    pair = Pair()
    for _ in range(3):
        assert pair.commit(9, [of(row(4), row(1))]) == [3, 0]
    assert taken == [False, False]


def test_a_text_that_is_too_long_is_refused_each_time(taken: list[bool]) -> None:
    pair = Pair(**{"offset.metadata.max.bytes": "10"})
    topics = [of(row(0, 5, "x" * 11), row(1, 5, "x"), row(0, 6, ""))]
    for _ in range(3):
        assert pair.commit(9, topics) == [0, 0, 0], "of a partition that comes twice, the last row counts"
        assert pair.commit(9, [of(row(0, 5, "x" * 11), row(1))]) == [12, 0]
        assert pair.commit(9, [of(row(0, 7, "x" * 11), row(1))]) == [12, 0]
    assert True in taken


# -- who may ------------------------------------------------------------------------------------------


def joined(pair: Pair) -> list[Member]:
    members = [scene.member() for scene in pair.scenes]
    for each in members:
        gather(each)
    return members


def by(member: Member) -> dict[str, Any]:
    return {"member_id": member.id, "generation_id_or_member_epoch": member.generation}


def test_a_member_is_fenced_by_its_generation(taken: list[bool]) -> None:
    pair = Pair()
    one, other = joined(pair)
    assert by(one) == by(other)
    for _ in range(2):
        assert pair.commit(9, [of(row())], **by(one)) == [0]
    assert taken == [True]
    for member in (one, other):
        second = member.scene.member()
        second.join()
        member.scene.advance(1)
    assert pair.commit(9, [of(row())], **by(one)) == [0], (
        "who has not heard of the rebalance may still commit"
    )
    for member in (one, other):
        member.join()
        assert member.joined() == 0
    stale = {"member_id": one.id, "generation_id_or_member_epoch": one.generation - 1}
    assert pair.commit(9, [of(row())], **stale) == [22]
    assert pair.commit(9, [of(row())], **stale) == [22]
    assert pair.commit(9, [of(row())], **by(one)) == [27], "the group rebalances"
    assert taken == [True, True, True, True, False]


def test_a_member_that_is_gone_is_unknown(taken: list[bool]) -> None:
    pair = Pair()
    members = joined(pair)
    for _ in range(2):
        assert pair.commit(9, [of(row())], **by(members[0])) == [0]
    assert [each.leave() for each in members] == [0, 0]
    assert pair.commit(9, [of(row())], **by(members[0])) == [25]
    assert taken == [True, True]


def test_a_simple_consumer_is_refused_once_the_group_has_members(taken: list[bool]) -> None:
    pair = Pair()
    for _ in range(2):
        assert pair.commit(9, [of(row())]) == [0]
    joined(pair)
    assert pair.commit(9, [of(row())]) == [25]
    assert taken == [True, True]


def test_a_member_of_the_consumer_protocol_is_fenced_by_its_epoch(taken: list[bool]) -> None:
    pair = Pair()
    [epoch, _] = [join(scene, "one").member_epoch for scene in pair.scenes]
    said = {"member_id": "one", "generation_id_or_member_epoch": epoch}
    for _ in range(3):
        assert pair.commit(9, [of(row())], **said) == [0]
    late = said | {"generation_id_or_member_epoch": epoch + 1}
    for _ in range(2):
        assert pair.commit(9, [of(row())], **late) == [113], "an epoch that is not there yet"
    assert pair.commit(8, [of(row())], **said) == [35]
    assert taken == [True, True, False, True, False]


# -- what changes in between --------------------------------------------------------------------------


def test_a_topic_that_was_deleted_is_not_there_any_more(taken: list[bool]) -> None:
    pair = Pair()
    for _ in range(2):
        assert pair.commit(9, [of(row())]) == [0]
    for scene in pair.scenes:
        reply = scene.call(Api.DELETE_TOPICS, 6, topics=[{"name": "t"}])
        assert reply.responses[0].error_code.value == 0
    assert pair.commit(9, [of(row())]) == [3]
    for scene in pair.scenes:
        scene.node.create_topic("t", 2)
    assert pair.commit(9, [of(row())]) == [0]
    assert pair.commit(9, [of(row(3))]) == [3], "it has two partitions now"
    assert taken == [True, False, False, False]


def test_what_a_client_may_is_asked_when_the_way_is_learned(
    taken: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair()
    monkeypatch.setattr(Context, "authorize", lambda *_: False)
    for _ in range(3):
        assert pair.commit(9, [of(row())]) == [30]
    assert taken == [False, False]


def test_a_coordinator_that_is_read_anew_is_asked_anew(taken: list[bool]) -> None:
    pair = Pair()
    for _ in range(2):
        assert pair.commit(9, [of(row())]) == [0]
    for scene in pair.scenes:
        shards = scene.node.node.context.groups.shards
        shards.reload(shards.number_of("g"))
        scene.advance(10)
    assert pair.commit(9, [of(row(offset=9))]) == [0]
    assert taken == [True, False]
    assert [scene.committed() for scene in pair.scenes] == [9, 9]


def test_replies_keep_the_order_of_the_requests(taken: list[bool]) -> None:
    """A commit of another kind, learned while the first waits, changes nothing about the first one's reply."""
    scene = Groups()
    client = scene.client

    def ask(*rows: dict[str, Any]) -> None:
        request = make_request(
            Api.OFFSET_COMMIT,
            9,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[of(*rows)],
        )
        client.send(Api.OFFSET_COMMIT, 9, write_request(Api.OFFSET_COMMIT, 9, request))

    for rows in ([row()], [row(1)], [row(), row(2)], [row(1), row(3)], [row()]):
        ask(*rows)
    told = [[each.partition_index for each in client.wait().topics[0].partitions] for _ in range(5)]
    assert told == [[0], [1], [0, 2], [1, 3], [0]]
    assert taken == [True, False, True, False]


def test_a_client_that_says_something_new_each_time_is_not_listened_to_for_ever(taken: list[bool]) -> None:
    pair = Pair()
    for number in range(MISSES_MAX + 3):
        assert pair.commit(9, [of(row(text=str(number)))]) == [0]
    assert not any(taken)
    for _ in range(3):
        assert pair.commit(9, [of(row())]) == [0]
    assert not any(taken)


def test_heartbeats_in_between_do_not_make_it_forget(taken: list[bool]) -> None:
    scene = Groups()
    member = scene.member()
    gather(member)
    for _ in range(2 * MISSES_MAX):
        assert member.commit(5) == 0
        assert member.heartbeat() == 0
    assert taken == [True] * (2 * MISSES_MAX - 1)


def test_an_offset_that_went_the_short_way_survives_a_kill(taken: list[bool]) -> None:
    scene = Groups()
    for offset in (5, 6, 7):
        assert scene.commit(offset=offset) == 0
    assert taken == [True, True]
    scene.node.crash()
    scene.reconnect()
    reply = call(
        scene.client,
        Api.OFFSET_FETCH,
        7,
        group_id="g",
        topics=[{"name": "t", "partition_indexes": [0]}],
        require_stable=True,
    )
    assert reply.topics[0].partitions[0].committed_offset == 7
