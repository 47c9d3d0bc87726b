"""Settings of groups and committed offsets, each in a test in which it changes what happens."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from tests.handlers.members import Groups, gather

from penstock.base.settings import BadSetting
from penstock.server.config import config_from
from penstock.wire import Api

Test = TypeVar("Test", bound=Callable[..., None])

SHOWN: dict[str, str] = {}
"""By setting, the test that shows it."""


def shows(*names: str) -> Callable[[Test], Test]:
    def note(test: Test) -> Test:
        SHOWN.update(dict.fromkeys(names, f"tests/server/test_group_settings.py::{test.__name__}"))
        return test

    return note


@shows("group.min.session.timeout.ms", "group.max.session.timeout.ms")
@pytest.mark.parametrize(
    ("settings", "session_ms", "code"),
    [
        ({}, 6000, 0),
        ({}, 5999, 26),  # INVALID_SESSION_TIMEOUT
        ({"group.min.session.timeout.ms": "100"}, 5999, 0),
        ({}, 1_800_000, 0),
        ({}, 1_800_001, 26),
        ({"group.max.session.timeout.ms": "20000"}, 20_001, 26),
    ],
)
def test_session_timeouts_are_within_their_bounds(
    settings: dict[str, str], session_ms: int, code: int
) -> None:
    member = Groups(settings).member(version=3, session_ms=session_ms)
    member.join()
    assert member.joined() == code


@shows("group.initial.rebalance.delay.ms")
def test_a_new_group_waits_for_more_members_as_long_as_it_should() -> None:
    for settings, waits in (({"group.initial.rebalance.delay.ms": "0"}, False), ({}, True)):
        scene = Groups(settings)
        member = scene.member()
        member.join()
        scene.advance(40)
        assert (member.client.reply() is None) is waits


@shows("group.coordinator.append.linger.ms")
def test_commits_in_quick_succession_share_a_sync() -> None:
    for settings, waits in (({}, True), ({"group.coordinator.append.linger.ms": "0"}, False)):
        scene = Groups(settings)
        assert scene.commit() == 0
        scene.advance(100)
        began_ms = scene.node.world.now_ms()
        assert scene.commit() == 0
        assert scene.node.world.now_ms() - began_ms <= 1, "after a pause nothing is waited for"
        assert scene.commit() == 0
        assert (scene.node.world.now_ms() - began_ms >= 5) is waits


@shows("offsets.commit.timeout.ms")
def test_a_commit_is_waited_for_as_long_as_it_should_be() -> None:
    for settings, wait_ms in (({}, 5000), ({"offsets.commit.timeout.ms": "700"}, 700)):
        scene = Groups(settings)
        scene.advance(100)
        scene.node.world.beside_ms = 20_000
        began_ms = scene.node.world.now_ms()
        assert scene.commit() == 15  # COORDINATOR_NOT_AVAILABLE
        assert scene.node.world.now_ms() - began_ms == pytest.approx(wait_ms, abs=2)


@shows("group.max.size")
def test_a_classic_group_has_no_more_members_than_it_may() -> None:
    for settings, code in (({}, 0), ({"group.max.size": "1"}, 81)):  # GROUP_MAX_SIZE_REACHED
        scene = Groups(settings)
        one, two = scene.member(version=3), scene.member(version=3)
        one.join()
        two.join()
        assert sorted([one.joined(), two.joined()]) == [0, code]


@shows("offset.metadata.max.bytes")
def test_a_committed_offset_carries_no_more_text_than_it_may() -> None:
    for settings, code in (({}, 0), ({"offset.metadata.max.bytes": "10"}, 12)):  # OFFSET_METADATA_TOO_LARGE
        assert Groups(settings).commit(metadata="eleven char") == code


@shows("offsets.retention.minutes", "offsets.retention.check.interval.ms")
def test_offsets_are_kept_as_long_as_they_should_be_and_looked_for_as_often() -> None:
    hour = {"offsets.retention.minutes": "60"}
    often = {"offsets.retention.check.interval.ms": "1000"}
    for settings, offset in (({}, 5), (hour, 5), (often, 5), (hour | often, -1)):
        scene = Groups(settings)
        scene.advance(595_000)  # it is looked every ten minutes from now on, unless more often
        scene.reconnect()
        assert scene.commit() == 0
        scene.advance(3_602_000)
        scene.reconnect()
        assert scene.committed() == offset


# -- the consumer protocol -----------------------------------------------------------------------------


def heartbeat(scene: Groups, member_id: str = "me", epoch: int = 0, **said: Any) -> Any:
    joining: dict[str, Any] = {
        "rebalance_timeout": timedelta(seconds=10),
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    going_on = {
        "rebalance_timeout": timedelta(milliseconds=-1),
        "subscribed_topic_names": None,
        "topic_partitions": None,
    }
    fields = {"group_id": "g", "member_id": member_id, "member_epoch": epoch}
    return scene.call(Api.CONSUMER_GROUP_HEARTBEAT, 1, **fields, **((going_on if epoch else joining) | said))


@shows("group.consumer.heartbeat.interval.ms")
def test_members_are_told_how_often_to_be_heard_of() -> None:
    for settings, interval_ms in (({}, 5000), ({"group.consumer.heartbeat.interval.ms": "700"}, 700)):
        reply = heartbeat(Groups(settings))
        assert reply.heartbeat_interval == timedelta(milliseconds=interval_ms)
        assert [list(each.partitions) for each in reply.assignment.topic_partitions] == [[0, 1, 2, 3]]


@shows("group.consumer.session.timeout.ms")
def test_a_silent_consumer_is_out_when_it_should_be() -> None:
    for settings, code in (({}, 0), ({"group.consumer.session.timeout.ms": "2000"}, 25)):  # UNKNOWN_MEMBER_ID
        scene = Groups(settings)
        epoch = heartbeat(scene).member_epoch
        assert (
            heartbeat(scene, "other").error_code.value == 0
        )  # without it the group would be empty, and gone
        scene.advance(1000)
        assert heartbeat(scene, "other", 2).error_code.value in (0, 110)
        scene.advance(1500)
        assert heartbeat(scene, epoch=epoch).error_code.value == code


@shows("group.consumer.max.size")
def test_a_consumer_group_has_no_more_members_than_it_may() -> None:
    for settings, code in (({}, 0), ({"group.consumer.max.size": "1"}, 81)):
        scene = Groups(settings)
        assert heartbeat(scene, "one").error_code.value == 0
        assert heartbeat(scene, "two").error_code.value == code


@shows("group.consumer.assignors")
def test_members_name_an_assignor_that_there_is() -> None:
    for settings, code in (({}, 0), ({"group.consumer.assignors": "uniform"}, 112)):  # UNSUPPORTED_ASSIGNOR
        assert heartbeat(Groups(settings), server_assignor="range").error_code.value == code
    with pytest.raises(BadSetting, match=r"group\.consumer\.assignors"):
        config_from("/data", {"group.consumer.assignors": "uniform,mine"})


@shows("group.consumer.migration.policy")
@pytest.mark.parametrize(
    ("policy", "may_upgrade"),
    [("bidirectional", True), ("upgrade", True), ("downgrade", False), ("disabled", False)],
)
def test_a_live_group_changes_its_protocol_where_it_may(policy: str, may_upgrade: bool) -> None:
    scene = Groups({"group.consumer.migration.policy": policy})
    gather(scene.member())
    assert heartbeat(scene).error_code.value == (0 if may_upgrade else 69)  # GROUP_ID_NOT_FOUND
    described = scene.call(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups[0]
    assert (described.error_code.value == 0) is may_upgrade
    if may_upgrade:
        assert sorted(each.member_type for each in described.members) == [0, 1]
