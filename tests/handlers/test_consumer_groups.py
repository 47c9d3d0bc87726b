"""The consumer protocol over the wire on a whole node: members join, share, come back after a restart, and leave."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from tests.handlers.members import Groups

from penstock.handlers.support.context import Session
from penstock.handlers.support.response_fields import client_host
from penstock.metadata.acls import Acl, AclResourceType, Operation, PatternType, Permission
from penstock.security.authorizer import Authorizer
from penstock.wire import Api

LEAVING = -1


def join(scene: Groups, member_id: str, version: int = 1, **said: Any) -> Any:
    fields: dict[str, Any] = {
        "rebalance_timeout": timedelta(seconds=10),
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    return beat(scene, member_id, 0, version, **(fields | said))


def beat(scene: Groups, member_id: str, epoch: int, version: int = 1, **said: Any) -> Any:
    fields: dict[str, Any] = {
        "rebalance_timeout": timedelta(milliseconds=-1),
        "subscribed_topic_names": None,
        "topic_partitions": None,
    }
    return scene.call(
        Api.CONSUMER_GROUP_HEARTBEAT,
        version,
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        **(fields | said),
    )


def partitions(reply: Any) -> list[int]:
    return sorted(each for topic in reply.assignment.topic_partitions for each in topic.partitions)


def owned(scene: Groups, *numbers: int) -> dict[str, Any]:
    return {"topic_partitions": [{"topic_id": scene.topic_id(), "partitions": numbers}]}


def test_members_share_once_the_first_has_given_up_what_the_second_gets() -> None:
    scene = Groups()
    first = join(scene, "one")
    assert (first.error_code.value, partitions(first)) == (0, [0, 1, 2, 3])
    second = join(scene, "two")
    assert partitions(second) == [], "nothing is granted before its owner gave it up"
    told = beat(scene, "one", first.member_epoch)
    kept = partitions(told)
    assert len(kept) == 2
    done = beat(
        scene, "one", told.member_epoch, rebalance_timeout=timedelta(seconds=10), **owned(scene, *kept)
    )
    assert done.member_epoch == second.member_epoch
    got = beat(scene, "two", second.member_epoch)
    assert sorted(kept + partitions(got)) == [0, 1, 2, 3]


@pytest.mark.parametrize("power_cut", [False, True])
def test_members_go_on_after_a_restart(power_cut: bool) -> None:
    scene = Groups()
    epoch = join(scene, "one").member_epoch
    assert scene.commit(offset=7, member_id="one", generation=epoch) == 0
    scene.node.crash(Random(3) if power_cut else None)
    scene.reconnect()
    reply = beat(scene, "one", epoch)
    assert (reply.error_code.value, reply.member_epoch, reply.assignment) == (0, epoch, None)
    assert scene.committed(member_id="one", member_epoch=epoch) == 7
    [group] = scene.call(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups
    [member] = group.members
    assert (group.group_state, group.assignor_name, member.client_host) == ("Stable", "uniform", "/10.0.0.1")
    [assigned] = member.assignment.topic_partitions
    assert (assigned.topic_name, list(assigned.partitions)) == ("t", [0, 1, 2, 3])


def test_stale_epochs_are_errors_in_versions_that_have_them() -> None:
    scene = Groups()
    epoch = join(scene, "one").member_epoch
    assert beat(scene, "one", epoch + 1).error_code.value == 110  # FENCED_MEMBER_EPOCH
    assert scene.commit(member_id="one", generation=epoch - 1) == 113  # STALE_MEMBER_EPOCH
    asked = {"group_id": "g", "topics": None, "member_id": "one", "member_epoch": epoch - 1}
    [group] = scene.call(Api.OFFSET_FETCH, 9, groups=[asked]).groups
    assert group.error_code.value == 113
    assert beat(scene, "nobody", 1).error_code.value == 25
    assert beat(scene, "one", LEAVING).error_code.value == 0
    assert scene.states() == {"g": "Empty"}


def test_a_member_of_version_0_is_named_by_the_coordinator() -> None:
    scene = Groups()
    assert join(scene, "", version=0).member_id
    refused = join(scene, "", version=1)
    assert (refused.error_code.value, bool(refused.error_message)) == (42, True)


def test_topics_may_be_subscribed_to_by_expression() -> None:
    scene = Groups()
    scene.node.create_topic("u1")
    reply = join(scene, "one", subscribed_topic_names=None, subscribed_topic_regex="u.*")
    [topic] = reply.assignment.topic_partitions
    assert topic.topic_id == scene.topic_id("u1")
    refused = join(scene, "two", subscribed_topic_names=None, subscribed_topic_regex="(")
    assert refused.error_code.value == 128  # INVALID_REGULAR_EXPRESSION


def test_an_expression_matches_topics_that_the_client_may_describe() -> None:
    """As in Kafka. Others are not in the assignment, which has their ids."""
    scene = Groups()
    for name in ("t1", "t2"):
        scene.node.create_topic(name)
    described = Acl(
        AclResourceType.TOPIC, "t", PatternType.LITERAL, "User:*", "*", Operation.DESCRIBE, Permission.ALLOW
    )
    group = described._replace(
        resource_type=AclResourceType.GROUP, resource_name="g", operation=Operation.READ
    )
    scene.node.node.context.authorizer = Authorizer((described, group))
    assert join(scene, "one", subscribed_topic_names=["t"]).error_code.value == 0
    reply = join(scene, "two", subscribed_topic_names=None, subscribed_topic_regex="t.*")
    assert reply.error_code.value == 0
    target = scene.node.node.context.groups
    [resolved] = [
        each.topics
        for shard in target.shards
        for group in shard.coordinator.groups
        for each in group.regexes.values()
    ]
    assert resolved == {"t"}


def test_without_the_feature_clients_are_sent_to_the_classic_protocol() -> None:
    scene = Groups()
    off = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
    assert scene.call(Api.UPDATE_FEATURES, 1, feature_updates=[off]).error_code.value == 0
    assert join(scene, "one").error_code.value == 35  # UNSUPPORTED_VERSION
    [group] = scene.call(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups
    assert group.error_code.value == 35


@pytest.mark.parametrize("group", ["", "nobody", "classic"])
def test_a_group_of_another_kind_is_not_found(group: str) -> None:
    scene = Groups(find="classic")
    assert scene.commit("classic") == 0
    [described] = scene.call(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group]).groups
    assert described.error_code.value == (69 if group else 24)  # GROUP_ID_NOT_FOUND, INVALID_GROUP_ID


@pytest.mark.parametrize(
    ("peer", "told"),
    [
        ("127.0.0.1:4711", "/127.0.0.1"),
        ("::1:4711", "/0:0:0:0:0:0:0:1"),
        ("fe80::1%eth0:4711", "/fe80:0:0:0:0:0:0:1%eth0"),
        ("?", "/"),
    ],
)
def test_addresses_are_written_as_java_writes_them(peer: str, told: str) -> None:
    assert client_host(Session("h", 1, peer)) == told
