"""Events from the differences between metadata images: what they say, and that a storm is a few of them."""

from itertools import count, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worlds import StillWorld

from penstock.base.steps import RunningSteps
from penstock.gateway.observing.cluster_events import SINGLE_MAX, ClusterChanges
from penstock.gateway.observing.event import Event, Kind
from penstock.gateway.observing.event_feed import EventRing
from penstock.metadata.image import (
    EMPTY,
    Broker,
    ClusterImage,
    PartitionRegistration,
    Resource,
    ResourceType,
    Topic,
)
from penstock.metadata.maps import FrozenMap
from penstock.metadata.records import NO_LEADER, RECOVERING

ID = b"i" * 16
OTHER = b"o" * 16


def broker(
    broker_id: int, incarnation: bytes = ID, *, fenced: bool = False, stopping: bool = False
) -> Broker:
    return Broker(broker_id, 1, incarnation, fenced=fenced, in_controlled_shutdown=stopping)


def placed(leader: int, *isr: int, **more: object) -> PartitionRegistration:
    fields = {"replicas": (1, 2, 3), "directories": (ID,) * 3, "isr": isr or (1, 2, 3), "leader": leader}
    return PartitionRegistration(**(fields | more))  # type: ignore[arg-type]


def image(
    brokers: list[Broker],
    topics: dict[str, list[PartitionRegistration]] | None = None,
    configs: dict[Resource, dict[str, str]] | None = None,
    ids: dict[str, bytes] | None = None,
) -> ClusterImage:
    made = {
        name: Topic(
            name, (ids or {}).get(name, name.encode().ljust(16)), FrozenMap(dict(enumerate(partitions)))
        )
        for name, partitions in (topics or {}).items()
    }
    return ClusterImage(
        brokers=FrozenMap({each.id: each for each in brokers}),
        topics=FrozenMap(made),
        configs=FrozenMap(configs or {}),
    )


def happened(*images: ClusterImage) -> list[Event]:
    world = StillWorld()
    changes = ClusterChanges()
    for old, new in pairwise(images):
        running = RunningSteps(changes.compare(world, old, new), lambda _: None, pytest.fail)
        world.run_until_idle()
        assert running.is_over
    ids = count(1)
    return list(changes.events(7, lambda: next(ids)))


def texts(*images: ClusterImage) -> list[str]:
    return [each.text for each in happened(*images)]


UP = [broker(1), broker(2), broker(3)]
DOWN = [broker(1), broker(2, fenced=True), broker(3)]


def test_nothing_has_happened_between_an_image_and_itself() -> None:
    same = image(UP, {"orders": [placed(1)]})
    assert happened(same, same) == []


def test_broker_that_is_fenced_is_three_events_however_many_partitions_it_led() -> None:
    topics = {f"t{number}": [placed(2)] * 10 for number in range(40)}
    after = {f"t{number}": [placed(1, 1, 3, leader_epoch=1)] * 10 for number in range(40)}
    found = happened(image(UP, topics), image(DOWN, after))
    assert [(each.kind, each.count, each.broker, each.severity) for each in found] == [
        (Kind.BROKER_FENCED, 1, 2, "error"),
        (Kind.LEADERS_CHANGED, 400, 2, "info"),
        (Kind.ISR_SHRUNK, 400, 2, "warning"),
    ]
    assert found[1].text == "400 partitions of more than 20 topics changed leader: broker 2 was fenced"
    assert found[1].topic is None
    assert len(found[1].topics) == 20


def test_changes_of_several_images_are_summed_up() -> None:
    """The controller may write the changes of one cause in several batches."""
    first = image(UP, {"orders": [placed(2), placed(2)]})
    second = image(DOWN, {"orders": [placed(1, 1, 3), placed(2)]})
    third = image(DOWN, {"orders": [placed(1, 1, 3), placed(3, 1, 3)]})
    assert texts(first, second, third) == [
        "Broker 2 was fenced: the controller got no heartbeats of it",
        "2 partitions of orders changed leader: broker 2 was fenced",
        "2 partitions of orders lost broker 2 from their ISR",
    ]


def test_one_partition_is_named() -> None:
    assert texts(image(UP, {"orders": [placed(2)]}), image(UP, {"orders": [placed(1, leader_epoch=1)]})) == [
        "orders-0 changed leader: broker 1 is the preferred leader"
    ]
    assert texts(image(UP, {"orders": [placed(1, 1)]}), image(UP, {"orders": [placed(1, 1, 2)]})) == [
        "orders-0 has broker 2 in its ISR again"
    ]
    assert texts(image(UP, {"orders": [placed(1)]}), image(UP, {"orders": [placed(NO_LEADER, 1)]}))[0] == (
        "orders-0 has no leader: no in-sync replica is alive"
    )
    assert texts(image(UP, {"orders": [placed(NO_LEADER, 1)]}), image(UP, {"orders": [placed(1, 1)]})) == [
        "orders-0 has a leader again"
    ]
    unclean = happened(
        image(UP, {"orders": [placed(NO_LEADER, 1)]}),
        image(UP, {"orders": [placed(2, 2, recovery_state=RECOVERING)]}),
    )
    assert (unclean[0].kind, unclean[0].severity) == (Kind.UNCLEAN_ELECTION, "error")


def test_brokers_come_stop_and_go() -> None:
    none, one = image([]), image([broker(2, fenced=True)])
    assert texts(none, one, image([broker(2)])) == ["Broker 2 joined the cluster", "Broker 2 is up"]
    assert texts(image([broker(2)]), image([broker(2, stopping=True)]), one) == [
        "Broker 2 is shutting down",
        "Broker 2 was fenced: it has shut down",
    ]
    assert texts(one, image([broker(2, OTHER, fenced=True)]), image([broker(2, OTHER)])) == [
        "Broker 2 was restarted and registered again",
        "Broker 2 is up",
    ]
    assert texts(one, none) == ["Broker 2 was unregistered"]


def test_topics_are_created_widened_deleted_and_made_anew() -> None:
    one, two = image(UP, {"orders": [placed(1)]}), image(UP, {"orders": [placed(1), placed(2)]})
    assert texts(image(UP), one, two, image(UP)) == [
        "Topic orders was deleted",
        "Topic orders was created with 1 partition",
        "Topic orders was widened from 1 to 2 partitions",
    ]
    anew = image(UP, {"orders": [placed(1)]}, ids={"orders": OTHER})
    assert [each.kind for each in happened(one, anew)] == [Kind.TOPIC_DELETED, Kind.TOPIC_CREATED]


def test_many_topics_share_an_event() -> None:
    found = happened(image(UP), image(UP, {f"t{number}": [placed(1)] for number in range(200)}))
    assert len(found) == SINGLE_MAX + 1
    assert sum(each.count for each in found) == 200
    assert found[-1].text == "195 further topics were created"


def test_settings_are_named_without_their_values() -> None:
    topic, brokers = Resource(ResourceType.TOPIC, "orders"), Resource(ResourceType.BROKER, "")
    before = image(UP, {"orders": [placed(1)]}, {topic: {"retention.ms": "1"}})
    after = image(
        UP,
        {"orders": [placed(1)]},
        {topic: {"cleanup.policy": "compact"}, brokers: {"ssl.keystore.password": "secret"}},
    )
    found = happened(before, after)
    assert {each.text for each in found} == {
        "Settings of topic orders changed: cleanup.policy, retention.ms",
        "Settings of all brokers changed: ssl.keystore.password",
    }
    assert {each.topic for each in found} == {"orders", None}


def test_settings_that_come_and_go_with_a_topic_are_no_event() -> None:
    topic = Resource(ResourceType.TOPIC, "orders")
    with_topic = image(UP, {"orders": [placed(1)]}, {topic: {"retention.ms": "1"}})
    assert [each.kind for each in happened(image(UP), with_topic)] == [Kind.TOPIC_CREATED]
    assert [each.kind for each in happened(with_topic, image(UP))] == [Kind.TOPIC_DELETED]


def test_reassignment_begins_and_ends_or_is_cancelled() -> None:
    at_rest = image(UP, {"orders": [placed(1)]})
    moving = image(UP, {"orders": [placed(1, replicas=(1, 2, 3, 4), adding=(4,), removing=(3,))]})
    done = image(UP, {"orders": [placed(1, 1, 2, 4, replicas=(1, 2, 4))]})
    assert texts(at_rest, moving) == ["orders-0 is being reassigned"]
    assert "orders-0 was reassigned" in texts(moving, done)
    assert texts(moving, at_rest) == ["orders-0 is no longer being reassigned: it was cancelled"]


@given(st.integers(1, 3000), st.integers(1, 30))
def test_number_of_events_is_bounded_whatever_changes(partitions: int, topics: int) -> None:
    share = max(partitions // topics, 1)
    before = image(UP, {f"t{number}": [placed(2)] * share for number in range(topics)})
    after = image(DOWN, {f"t{number}": [placed(1, 1, 3)] * share for number in range(topics)})
    found = happened(before, after)
    assert len(found) == 3
    assert [each.count for each in found[1:]] == [share * topics] * 2


@given(st.lists(st.integers(0, 100)), st.integers(1, 20), st.integers(0, 200), st.integers(1, 20))
def test_ring_of_events_keeps_the_latest_with_rising_ids(
    hints: list[int], capacity: int, after: int, limit: int
) -> None:
    ring = EventRing(capacity)
    ids = []
    for hint in hints:
        ids.append(ring.next_id(hint))
        ring.add(Event(ids[-1], 0, "k", "info", "t"))
    assert ids == sorted(set(ids))
    kept = ids[-capacity:]
    assert [each.id for each in ring.after(after, limit)] == [each for each in kept if each > after][:limit]
    assert [each.id for each in ring.latest(limit)] == kept[-limit:]


def test_first_image_of_a_node_is_compared_with_what_it_has_seen() -> None:
    assert [each.kind for each in happened(EMPTY, image([broker(1)]))] == [
        Kind.BROKER_REGISTERED,
        Kind.BROKER_UNFENCED,
    ]
