"""The benchmark's groups are real ones: members speak as clients do, and a group has settled only when it has."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from benchmarks.broker.admin import Admin
from benchmarks.broker.crowd import Crowd, gathered, settle
from benchmarks.broker.groups import PROTOCOLS, settle_sizes
from benchmarks.broker.load import BadReply
from benchmarks.broker.members import (
    COMMIT_VERSION,
    CONSUMER_HEARTBEAT_ERROR_AT,
    CONSUMER_VERSION,
    HEARTBEAT_ERROR_AT,
    HEARTBEAT_VERSION,
    Group,
    Joined,
    commit_error_at,
    commit_frame,
    consumer_heartbeat_frame,
    heartbeat_frame,
    ranges,
)

from penstock.base.errors import ErrorCode
from penstock.testing import Broker
from penstock.wire import Api, parse_header, read_request, request_module

PARTITIONS = 12


class Bench:
    def __init__(self, broker: Broker) -> None:
        self.port = int(broker.bootstrap.rpartition(":")[2])
        self.pid = os.getpid()
        self._serial = 0
        with Admin(self.port) as admin:
            self._topic_id = admin.create_topic("read", PARTITIONS, {})

    def group(self, protocol: str) -> Group:
        self._serial += 1
        return Group(f"group-{self._serial}", "read", self._topic_id, PARTITIONS, protocol)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Broker(settings={"offsets.topic.num.partitions": 3}) as broker:
        yield Bench(broker)


def state_of(admin: Admin, group: Group) -> str:
    module = request_module(Api.DESCRIBE_GROUPS, 5)
    request = module.DescribeGroupsRequest(groups=(group.name,), include_authorized_operations=False)
    [found] = admin.ask(Api.DESCRIBE_GROUPS, 5, request).groups
    return str(found.group_state)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_that_has_settled_shares_all_partitions(bench: Bench, protocol: str) -> None:
    settled = settle(bench.port, bench.pid, bench.group(protocol), 5)

    assert len({each.member_id for each in settled.members}) == 5
    assert len({each.generation for each in settled.members}) == 1
    assert sorted(number for each in settled.members for number in each.partitions) == list(range(PARTITIONS))
    assert {len(each.partitions) for each in settled.members} == {2, 3}
    assert settled.seconds > 0
    assert settled.cpu_seconds > 0
    # Of those who came, and of the one that was there: each joins, and takes what it got.
    assert settled.requests >= 2 * 5 - 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_members_of_a_group_are_gone_afterwards(bench: Bench, protocol: str) -> None:
    group = bench.group(protocol)

    with Admin(bench.port) as admin, gathered(bench.port, [group], 3) as members:
        assert len(members) == 3
        if protocol == "classic":
            assert state_of(admin, group) == "Stable"
    with Admin(bench.port) as admin:
        again = gathered(bench.port, [group], 2)
        with again as members:
            assert len(members) == 2
        if protocol == "classic":
            assert state_of(admin, group) == "Empty"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_settled_members_beat_and_commit(bench: Bench, protocol: str) -> None:
    """The places at which the generator looks for errors are those where replies have them."""
    with gathered(bench.port, [bench.group(protocol)], 2) as members, Admin(bench.port) as admin:
        for each in members:
            gone = each._replace(member_id="x" * len(each.member_id))
            for frame, stale, error_at in (
                beat(protocol, each, gone),
                (commit_frame(each, "read", 7), commit_frame(gone, "read", 7), commit_error_at("read")),
            ):
                assert code_at(admin, frame, error_at) == 0
                assert code_at(admin, stale, error_at) == ErrorCode.UNKNOWN_MEMBER_ID


def beat(protocol: str, member: Joined, gone: Joined) -> tuple[bytes, bytes, int]:
    if protocol == "classic":
        return heartbeat_frame(member), heartbeat_frame(gone), HEARTBEAT_ERROR_AT
    return consumer_heartbeat_frame(member), consumer_heartbeat_frame(gone), CONSUMER_HEARTBEAT_ERROR_AT


def code_at(admin: Admin, frame: bytes, error_at: int) -> int:
    reply = admin.send(frame)
    return int.from_bytes(reply[error_at : error_at + 2], "big", signed=True)


def test_a_member_that_is_told_an_error_ends_the_run(bench: Bench) -> None:
    crowd = Crowd(bench.port, bench.group("classic")._replace(name=""))
    try:
        with pytest.raises(BadReply, match=r"a member was told .*24.*, expected .*0"):
            crowd.settle(crowd.add(1))
    finally:
        crowd.close()


def test_frames_of_members_read_back() -> None:
    member = Joined("group", "member", 3, (4, 5))

    def read(frame: bytes, api: Api, version: int) -> Any:
        header = parse_header(memoryview(frame)[4:])
        assert (header.api_key, header.api_version) == (api, version)
        return read_request(api, version, memoryview(frame)[4 + header.body_at :])

    beat = read(heartbeat_frame(member), Api.HEARTBEAT, HEARTBEAT_VERSION)
    assert (beat.group_id, beat.member_id, beat.generation_id) == ("group", "member", 3)
    beat = read(consumer_heartbeat_frame(member), Api.CONSUMER_GROUP_HEARTBEAT, CONSUMER_VERSION)
    assert (beat.group_id, beat.member_id, beat.member_epoch) == ("group", "member", 3)
    assert (beat.topic_partitions, beat.subscribed_topic_names) == (None, None)
    [topic] = read(commit_frame(member, "read", 9), Api.OFFSET_COMMIT, COMMIT_VERSION).topics
    assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(4, 9), (5, 9)]


@pytest.mark.parametrize(
    ("partitions", "members", "expected"),
    [(4, 2, [[0, 1], [2, 3]]), (5, 3, [[0, 1], [2, 3], [4]]), (1, 2, [[0], []]), (3, 0, [])],
)
def test_ranges_are_neighbours_and_as_even_as_can_be(
    partitions: int, members: int, expected: list[list[int]]
) -> None:
    assert [list(each) for each in ranges(partitions, members)] == expected


def test_the_goal_is_about_500_members_on_1000_partitions() -> None:
    assert settle_sizes(1.0) == (500, 1000)
    assert settle_sizes(0.001) == (2, 4)
