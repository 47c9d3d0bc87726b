"""Every API of groups in every version that is served, on a whole node: what goes well, and what is refused."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.members import Groups, Member, gather, subscription
from tests.handlers.test_every_version import codes_in

from penstock.handlers import classic_groups as groups
from penstock.handlers import consumer_groups, group_admin, offset_commits
from penstock.handlers import find_coordinator as coordinators
from penstock.handlers.support.context import Context
from penstock.wire import KAFKA_RANGES, Api


def topic(scene: Groups, version: int, **values: Any) -> dict[str, Any]:
    """By name or by id; requests leave out what their version does not have."""
    named: dict[str, Any] = {"topic_id": scene.topic_id()} if version >= 10 else {"name": "t"}
    return {**named, **values}


def find(scene: Groups, _: Member, version: int) -> dict[str, Any]:
    return {"key": "g", "coordinator_keys": ["g", "other"]}


def join(scene: Groups, member: Member, version: int) -> dict[str, Any]:
    """Of the member that leads: a round of one, at once."""
    return {
        "group_id": "g",
        "member_id": member.id,
        "session_timeout": timedelta(seconds=10),
        "rebalance_timeout": timedelta(seconds=10),
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": subscription("t")}],
    }


def sync(scene: Groups, member: Member, version: int) -> dict[str, Any]:
    return {
        "group_id": "g",
        "member_id": member.id,
        "generation_id": member.generation,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [],
    }


def heartbeat(scene: Groups, member: Member, version: int) -> dict[str, Any]:
    return {"group_id": "g", "member_id": member.id, "generation_id": member.generation}


def leave(scene: Groups, member: Member, version: int) -> dict[str, Any]:
    return {"group_id": "g", "member_id": member.id, "members": [{"member_id": member.id}]}


def commit(scene: Groups, member: Member, version: int) -> dict[str, Any]:
    return {
        "group_id": "g",
        "member_id": member.id,
        "generation_id_or_member_epoch": member.generation,
        "retention_time": timedelta(milliseconds=-1),
        "topics": [
            topic(
                scene,
                version,
                partitions=[{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}],
            )
        ],
    }


def fetch(scene: Groups, member: Member, version: int) -> dict[str, Any]:
    topics = [topic(scene, version, partition_indexes=[0, 1])]
    asked = {"topics": topics, "member_id": None, "member_epoch": -1}
    return {
        "group_id": "g",
        "topics": topics,
        "groups": [{"group_id": "g", **asked}, {"group_id": "h", **asked}],
    }


def delete_offsets(scene: Groups, member: Member, version: int) -> dict[str, Any]:
    return {"group_id": "idle", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}


def consumer_heartbeat(scene: Groups, member: Member, version: int) -> dict[str, Any]:
    return {
        "group_id": "modern",
        "member_id": "me" if version else "",
        "member_epoch": 0,
        "rebalance_timeout": timedelta(seconds=10),
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }


REQUESTS: dict[Api, Callable[[Groups, Member, int], dict[str, Any]]] = {
    Api.FIND_COORDINATOR: find,
    Api.JOIN_GROUP: join,
    Api.SYNC_GROUP: sync,
    Api.HEARTBEAT: heartbeat,
    Api.LEAVE_GROUP: leave,
    Api.OFFSET_COMMIT: commit,
    Api.OFFSET_FETCH: fetch,
    Api.OFFSET_DELETE: delete_offsets,
    Api.LIST_GROUPS: lambda *_: {},
    Api.DESCRIBE_GROUPS: lambda *_: {"groups": ["g", "idle"], "include_authorized_operations": True},
    Api.DELETE_GROUPS: lambda *_: {"groups_names": ["idle"]},
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: lambda *_: {
        "group_ids": ["consumers"],
        "include_authorized_operations": True,
    },
}

EVERY_VERSION = pytest.mark.parametrize(
    ("api", "version"),
    [
        (api, version)
        for api in REQUESTS
        for version in range(KAFKA_RANGES[api].min, KAFKA_RANGES[api].max + 1)
    ],
    ids=lambda each: str(getattr(each, "label", each)),
)


def scene_with_groups() -> tuple[Groups, Member]:
    """A classic group with a member, one without any, and a consumer group."""
    scene = Groups()
    member = scene.member()
    gather(member)
    assert scene.commit("idle") == 0
    joined = consumer_heartbeat(scene, member, 1) | {"group_id": "consumers"}
    assert scene.call(Api.CONSUMER_GROUP_HEARTBEAT, 1, **joined).error_code is ErrorCode.none
    return scene, member


def test_every_api_of_groups_is_asked_for() -> None:
    modules = (consumer_groups, coordinators, group_admin, groups, offset_commits)
    assert {api for module in modules for api in module.HANDLERS} == set(REQUESTS)


@EVERY_VERSION
def test_it_is_answered_in_every_version(api: Api, version: int) -> None:
    scene, member = scene_with_groups()
    reply = scene.call(api, version, **REQUESTS[api](scene, member, version))
    assert codes_in(reply) == {ErrorCode.none}, reply


@EVERY_VERSION
def test_a_client_without_permissions_gets_an_error(
    api: Api, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, member = scene_with_groups()
    asked = REQUESTS[api](scene, member, version)
    for name in ("authorize", "permits"):
        monkeypatch.setattr(Context, name, lambda *_: False)
    reply = scene.call(api, version, **asked)
    if api is Api.LIST_GROUPS:
        assert (reply.error_code, reply.groups) == (ErrorCode.none, ())
        return
    assert ErrorCode.group_authorization_failed in codes_in(reply)
    assert codes_in(reply) <= {ErrorCode.group_authorization_failed, ErrorCode.none}
    monkeypatch.undo()
    assert member.heartbeat() == 0, "nothing has changed"
    assert scene.committed("idle") == 5


@EVERY_VERSION
def test_it_is_answered_where_there_is_no_coordinator(api: Api, version: int) -> None:
    scene = Groups(find=None)
    reply = scene.call(api, version, **REQUESTS[api](scene, Member(scene), version))
    if api in (Api.FIND_COORDINATOR, Api.LIST_GROUPS):
        assert codes_in(reply) == {ErrorCode.none}
        return
    assert ErrorCode.coordinator_not_available in codes_in(reply)
    assert codes_in(reply) <= {ErrorCode.coordinator_not_available, ErrorCode.none}


@EVERY_VERSION
def test_it_is_answered_while_the_coordinator_reads_its_partition(api: Api, version: int) -> None:
    scene, member = scene_with_groups()
    asked = REQUESTS[api](scene, member, version)
    shards = scene.node.node.context.groups.shards
    for number in range(shards.count):
        shards.reload(number)
    reply = scene.call(api, version, **asked)
    if api in (Api.FIND_COORDINATOR, Api.HEARTBEAT):
        assert codes_in(reply) == {ErrorCode.none}
        return
    assert ErrorCode.coordinator_load_in_progress in codes_in(reply)
    assert codes_in(reply) <= {ErrorCode.coordinator_load_in_progress, ErrorCode.none}
    scene.advance(10)
    assert member.heartbeat() == 0, "it is loaded"


EMPTY_NAMES = {
    Api.JOIN_GROUP: ErrorCode.invalid_group_id,
    Api.SYNC_GROUP: ErrorCode.invalid_group_id,
    Api.HEARTBEAT: ErrorCode.invalid_group_id,
    Api.LEAVE_GROUP: ErrorCode.invalid_group_id,
    Api.OFFSET_DELETE: ErrorCode.invalid_group_id,
    Api.CONSUMER_GROUP_HEARTBEAT: ErrorCode.invalid_request,
}


@pytest.mark.parametrize("api", EMPTY_NAMES, ids=lambda api: api.label)
def test_a_group_needs_a_name(api: Api) -> None:
    scene, member = scene_with_groups()
    for version in range(KAFKA_RANGES[api].min, KAFKA_RANGES[api].max + 1):
        asked = REQUESTS[api](scene, member, version) | {"group_id": ""}
        assert EMPTY_NAMES[api] in codes_in(scene.call(api, version, **asked))


@pytest.mark.parametrize("version", range(6))
def test_no_member_of_a_group_that_is_not_there_is_known(version: int) -> None:
    """GroupCoordinatorService.leaveGroup: from 3 on it is said of each member, and nothing is wrong with the whole."""
    scene, _ = scene_with_groups()
    asked = {"member_id": "m", "members": [{"member_id": "m"}, {"member_id": "", "group_instance_id": "i"}]}
    reply = scene.call(Api.LEAVE_GROUP, version, group_id="nobody", **asked)
    if version < 3:
        assert reply.error_code is ErrorCode.unknown_member_id
        return
    assert reply.error_code is ErrorCode.none
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in reply.members] == [
        ("m", None, ErrorCode.unknown_member_id),
        ("", "i", ErrorCode.unknown_member_id),
    ]
    empty = scene.call(Api.LEAVE_GROUP, version, group_id="nobody", members=[])
    assert (empty.error_code, empty.members) == (ErrorCode.none, ())


def test_offsets_may_be_committed_for_the_group_without_a_name() -> None:
    """Old clients that assign partitions themselves do so, and Kafka lets them."""
    scene = Groups(find="")
    assert scene.commit("", offset=3) == 0
    assert scene.committed("") == 3
