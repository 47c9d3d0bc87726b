"""Committed offsets over the wire: what is kept, what is refused partition by partition, and what is forgotten."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.handlers.members import Groups, call, commit, gather

from penstock.handlers.support.context import Context, Session
from penstock.metadata.acls import AclResourceType, Operation
from penstock.wire import Api


def rows(reply: Any) -> list[tuple[int, int]]:
    return [
        (each.partition_index, each.error_code.value) for topic in reply.topics for each in topic.partitions
    ]


def offsets(scene: Groups, version: int, **said: Any) -> list[tuple[Any, ...]]:
    """Of all that group `g` has committed."""
    asked = {"group_id": "g", "topics": None, "member_id": None, "member_epoch": -1}
    reply = scene.call(Api.OFFSET_FETCH, version, **asked, groups=[asked], **said)
    if version >= 8:
        [reply] = reply.groups
    assert reply.error_code.value == 0
    return [
        (
            topic.topic_id if version >= 10 else topic.name,
            each.partition_index,
            each.committed_offset,
            each.metadata,
        )
        for topic in reply.topics
        for each in topic.partitions
    ]


def test_an_offset_is_kept_with_its_epoch_and_its_text() -> None:
    scene = Groups()
    row = {
        "partition_index": 1,
        "committed_offset": 7,
        "committed_leader_epoch": 3,
        "committed_metadata": "so far",
    }
    scene.call(
        Api.OFFSET_COMMIT,
        9,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": "t", "partitions": [row]}],
    )
    asked = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0, 1]}], "member_id": None}
    [group] = scene.call(Api.OFFSET_FETCH, 9, groups=[asked]).groups
    told = [
        (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata)
        for each in group.topics[0].partitions
    ]
    assert told == [(0, -1, -1, ""), (1, 7, 3, "so far")]


@pytest.mark.parametrize("version", range(2, 10))
def test_what_is_not_there_is_refused_and_the_rest_is_committed(version: int) -> None:
    scene = Groups()
    row = {"committed_offset": 7, "committed_metadata": ""}
    reply = scene.call(
        Api.OFFSET_COMMIT,
        version,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        retention_time=timedelta(milliseconds=-1),
        topics=[
            {"name": "nowhere", "partitions": [{"partition_index": 0, **row}]},
            {"name": "t", "partitions": [{"partition_index": each, **row} for each in (4, 0, -1)]},
        ],
    )
    assert [topic.name for topic in reply.topics] == ["nowhere", "t"]
    assert rows(reply) == [(0, 3), (4, 3), (0, 0), (-1, 3)]
    assert scene.committed() == 7


def test_topics_may_be_named_by_id() -> None:
    scene = Groups()
    assert rows(commit(scene.client, "g", 7, topic=scene.topic_id(), version=10)) == [(0, 0)]
    assert rows(commit(scene.client, "g", 7, topic=UUID(int=77), version=10)) == [(0, 100)]
    assert rows(commit(scene.client, "g", 7, topic=None, version=10)) == [(0, 100)]
    assert rows(commit(scene.client, "g", 7, topic=scene.topic_id(), partition=9, version=10)) == [(9, 3)]
    asked = {
        "group_id": "g",
        "topics": [
            {"topic_id": UUID(int=77), "partition_indexes": [0]},
            {"topic_id": scene.topic_id(), "partition_indexes": [0]},
        ],
        "member_id": None,
    }
    [group] = scene.call(Api.OFFSET_FETCH, 10, groups=[asked]).groups
    told = [
        (each.error_code.value, each.committed_offset) for topic in group.topics for each in topic.partitions
    ]
    assert told == [(100, -1), (0, 7)]
    assert offsets(scene, 10) == [(scene.topic_id(), 0, 7, "")]


@pytest.mark.parametrize("version", range(2, 10))
def test_all_that_a_group_has_is_reported(version: int) -> None:
    scene = Groups()
    for partition in (0, 2):
        assert scene.commit(partition=partition) == 0
    assert offsets(scene, version) == [("t", 0, 5, ""), ("t", 2, 5, "")]


@pytest.mark.parametrize("version", range(1, 11))
def test_a_group_that_is_not_there_has_committed_nothing(version: int) -> None:
    scene = Groups()
    named: dict[str, Any] = {"topic_id": scene.topic_id()} if version >= 10 else {"name": "t"}
    asked = {
        "group_id": "g",
        "topics": [{**named, "partition_indexes": [0]}],
        "member_id": None,
        "member_epoch": -1,
    }
    reply = scene.call(Api.OFFSET_FETCH, version, **asked, groups=[asked])
    if version >= 8:
        [reply] = reply.groups
    if version >= 2:
        assert reply.error_code.value == 0
        assert offsets(scene, version) == []
    [row] = reply.topics[0].partitions
    assert (row.committed_offset, row.error_code.value, row.metadata) == (-1, 0, "")


def test_the_only_place_for_an_error_of_version_1_is_each_partition() -> None:
    scene = Groups(find=None)
    reply = scene.call(Api.OFFSET_FETCH, 1, group_id="g", topics=[{"name": "t", "partition_indexes": [0, 1]}])
    assert rows(reply) == [(0, 15), (1, 15)]


class Denying:
    """In place of `Context.authorize`: a topic that the client may not use."""

    def __init__(self, operation: Operation, topic: str) -> None:
        self.denied = (operation, AclResourceType.TOPIC, topic)

    def __call__(self, _: Session, operation: Operation, on: AclResourceType, name: str) -> bool:
        return (operation, on, name) != self.denied


def deny(monkeypatch: pytest.MonkeyPatch, operation: Operation, topic: str) -> None:
    for name in ("authorize", "permits"):
        monkeypatch.setattr(Context, name, staticmethod(Denying(operation, topic)))


def test_topics_that_a_client_may_not_use_are_refused_and_the_rest_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Groups()
    scene.node.create_topic("secret")
    for topic in ("t", "secret"):
        assert scene.commit(topic=topic) == 0
    deny(monkeypatch, Operation.READ, "secret")
    assert [scene.commit(topic=each) for each in ("t", "secret")] == [0, 29]
    reply = scene.call(
        Api.OFFSET_DELETE,
        0,
        group_id="g",
        topics=[
            {"name": each, "partitions": [{"partition_index": 0}]} for each in ("secret", "t", "nowhere")
        ],
    )
    assert rows(reply) == [(0, 29), (0, 0), (0, 3)]
    monkeypatch.undo()
    assert [scene.committed(topic=each) for each in ("t", "secret")] == [-1, 5]
    deny(monkeypatch, Operation.DESCRIBE, "secret")
    assert scene.commit() == 0
    assert [name for name, *_ in offsets(scene, 9)] == ["t"]
    topics = [{"name": each, "partition_indexes": [0]} for each in ("secret", "t")]
    [group] = scene.call(
        Api.OFFSET_FETCH, 9, groups=[{"group_id": "g", "topics": topics, "member_id": None}]
    ).groups
    told = [
        (each.error_code.value, each.committed_offset) for topic in group.topics for each in topic.partitions
    ]
    assert told == [(29, -1), (0, 5)]


def test_only_members_commit_for_a_group_that_has_some() -> None:
    scene = Groups()
    member = scene.member()
    gather(member)
    assert scene.commit() == 25
    assert member.commit(3) == 0
    [topic] = commit(scene.client, "gone", 3, generation=1, member_id="me", version=9).topics
    assert topic.partitions[0].error_code.value == 69  # GROUP_ID_NOT_FOUND
    [topic] = commit(scene.client, "gone", 3, generation=1, member_id="me", version=8).topics
    assert topic.partitions[0].error_code.value == 22  # older clients know ILLEGAL_GENERATION alone


def test_offsets_that_are_deleted_are_gone_for_good() -> None:
    scene = Groups()
    assert scene.commit() == 0
    reply = scene.call(
        Api.OFFSET_DELETE, 0, group_id="g", topics=[{"name": "t", "partitions": [{"partition_index": 0}]}]
    )
    assert (reply.error_code.value, rows(reply)) == (0, [(0, 0)])
    assert scene.committed() == -1
    scene.node.crash()
    scene.reconnect()
    assert scene.committed() == -1


def test_offsets_of_topics_that_a_member_is_subscribed_to_stay() -> None:
    scene = Groups()
    member = scene.member()
    gather(member)
    assert member.commit(3) == 0
    reply = scene.call(
        Api.OFFSET_DELETE, 0, group_id="g", topics=[{"name": "t", "partitions": [{"partition_index": 0}]}]
    )
    assert rows(reply) == [(0, 86)]  # GROUP_SUBSCRIBED_TO_TOPIC
    assert scene.committed() == 3
    unknown = scene.call(Api.OFFSET_DELETE, 0, group_id="nobody", topics=[])
    assert unknown.error_code.value == 69


@pytest.mark.parametrize("version", range(3))
def test_empty_groups_are_deleted_with_their_offsets(version: int) -> None:
    scene = Groups()
    gather(scene.member("busy"))
    assert scene.commit("idle") == 0
    reply = scene.call(Api.DELETE_GROUPS, version, groups_names=["idle", "busy", "nobody", "idle"])
    assert [(each.group_id, each.error_code.value) for each in reply.results] == [
        ("idle", 0),
        ("busy", 68),  # NON_EMPTY_GROUP
        ("nobody", 69),
    ]
    assert scene.states() == {"busy": "Stable"}
    scene.node.crash()
    scene.reconnect()
    assert scene.states() == {"busy": "Stable"}
    assert scene.committed("idle") == -1


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_is_not_there_is_dead(version: int) -> None:
    described = Groups().describe("nobody", version)
    assert described.group_state == "Dead"
    assert described.error_code.value == (69 if version >= 6 else 0)


def test_what_a_client_may_do_with_a_group_is_reported_where_it_asks() -> None:
    scene = Groups()
    assert scene.commit() == 0
    for asks, bits in ((True, sum(1 << each for each in (3, 6, 8, 10, 11))), (False, -(2**31))):
        [group] = scene.call(Api.DESCRIBE_GROUPS, 6, groups=["g"], include_authorized_operations=asks).groups
        assert group.authorized_operations == bits


def test_groups_are_listed_by_state_and_type() -> None:
    scene = Groups()
    gather(scene.member("busy"))
    assert scene.commit("idle") == 0

    def listed(version: int = 5, **filters: Any) -> list[str]:
        return sorted(each.group_id for each in scene.call(Api.LIST_GROUPS, version, **filters).groups)

    assert listed() == listed(0) == ["busy", "idle"]
    assert listed(states_filter=["stable"]) == ["busy"]
    assert listed(4, states_filter=["Empty", "Dead"]) == ["idle"]
    assert listed(types_filter=["Classic"]) == ["busy", "idle"]
    assert listed(types_filter=["consumer"]) == []
    assert listed(states_filter=["no state"]) == []


def test_offsets_expire_when_no_member_is_subscribed() -> None:
    scene = Groups({"offsets.retention.minutes": "60"})
    member = scene.member("busy", session_ms=60_000)
    gather(member)

    def wait(minutes: int) -> None:
        for _ in range(2 * minutes):
            scene.advance(30_000)
            assert member.heartbeat() == 0
        scene.reconnect()

    assert member.commit(3) == 0
    assert scene.commit("idle") == 0
    assert scene.commit("brief", version=2, retention_ms=60_000) == 0
    wait(9)
    assert scene.committed("brief") == 5, "it is looked for every ten minutes"
    wait(2)
    assert [scene.committed(each) for each in ("busy", "idle", "brief")] == [3, 5, -1]
    wait(60)
    assert [scene.committed(each) for each in ("busy", "idle")] == [3, -1]
    assert scene.states() == {"busy": "Stable"}


def test_a_text_that_is_too_long_is_refused() -> None:
    scene = Groups()
    assert scene.commit(metadata="x" * 4096) == 0
    assert scene.commit(metadata="x" * 4097, offset=9) == 12  # OFFSET_METADATA_TOO_LARGE
    assert scene.committed() == 5


def test_many_groups_are_asked_for_at_once_and_answered_in_their_order() -> None:
    scene = Groups()
    names = [f"g{number}" for number in range(10)]
    for place, name in enumerate(names):
        assert scene.commit(name, offset=place) == 0
    asked = [
        {"group_id": name, "topics": [{"name": "t", "partition_indexes": [0]}], "member_id": None}
        for name in names
    ]
    reply = call(scene.client, Api.OFFSET_FETCH, 8, groups=asked)
    told = [(each.group_id, each.topics[0].partitions[0].committed_offset) for each in reply.groups]
    assert told == list(zip(names, range(10), strict=True))
