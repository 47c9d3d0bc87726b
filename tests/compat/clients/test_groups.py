"""Groups of real consumers: members come, go, crash and stall while records are written.

Every record is processed at least once, a partition has one owner at a time, nobody commits for a partition that is
not its own, and when the dust has settled everything is assigned, and evenly. Each member is a process of its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.crowd import Committed, Crowd, Owned, foreign, overlaps
from tests.compat.clients.driver import SECONDS_MAX, Driver, Record
from tests.compat.clients.feed import Feed
from tests.compat.clients.lives import GROUP_SETTINGS, SESSION_MS, Lives, kafka_lives, penstock_lives
from tests.compat.clients.patient import Patient

PARTITIONS = 6

KINDS = [
    pytest.param("confluent", "range", id="confluent-range", marks=pytest.mark.long),
    pytest.param("confluent", "cooperative-sticky", id="confluent-cooperative-sticky"),
    pytest.param("confluent", "consumer", id="confluent-consumer"),
    pytest.param("kafka-python", "range", id="kafka-python-range", marks=pytest.mark.long),
    pytest.param("aiokafka", "roundrobin", id="aiokafka-roundrobin", marks=pytest.mark.long),
]
"""Libraries, and who assigns in what way. Not kafka-python's cooperative assignor: its leader now and then gives away
at once, and not in a second round, what a member has just got; with Kafka as with us."""

kinds = pytest.mark.parametrize(("library", "assignor"), KINDS)


@pytest.fixture(
    scope="module",
    params=["penstock", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.long])],
)
def lives(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """A server with short sessions. A test that kills it starts it again."""
    data = tmp_path_factory.mktemp("groups") / "data"
    if request.param == "kafka":
        with kafka_lives(request.getfixturevalue("kafka"), data, GROUP_SETTINGS) as kafka:
            yield kafka
    else:
        with penstock_lives(data, GROUP_SETTINGS) as penstock:
            yield penstock


@pytest.fixture
def admin(lives: Lives) -> Driver:
    made = ConfluentDriver(lives.bootstrap)
    return Patient(made) if lives.kind == "kafka" else made


@contextmanager
def work(lives: Lives, admin: Driver, name: str) -> Iterator[tuple[Crowd, Feed]]:
    """A topic that is written to, and a group for it; at the end everything that was written was processed."""
    admin.create_topic(name, PARTITIONS)
    with Crowd(lives.bootstrap, name, name, PARTITIONS) as crowd:
        with Feed(lives.bootstrap, name, PARTITIONS) as feed:
            yield crowd, feed
            written = feed.finish()
        crowd.wait_balanced()
        crowd.wait_read(written)
        assert crowd.read == written
        ends = {
            number: 1 + max(offset for partition, offset in written if partition == number)
            for number in range(PARTITIONS)
        }
        crowd.wait_committed(ends)
        assert crowd.double_owners() == []
        assert crowd.strangers() == []
        for member in crowd.members:
            if member.is_in:
                member.leave()
        assert committed(lives, name) == ends


def committed(lives: Lives, name: str) -> dict[int, int]:
    driver = ConfluentDriver(lives.bootstrap)
    places = ConsumerGroupTopicPartitions(name, [TopicPartition(name, each) for each in range(PARTITIONS)])
    [asked] = driver.admin.list_consumer_group_offsets([places]).values()
    return {each.partition: each.offset for each in asked.result(SECONDS_MAX).topic_partitions}


@kinds
def test_members_join_leave_crash_and_stall_while_records_come(
    lives: Lives, admin: Driver, name: str, library: str, assignor: str
) -> None:
    with work(lives, admin, name) as (crowd, _):
        leaver, crasher, stopped = (crowd.join(library, assignor) for _ in range(3))
        crowd.wait_balanced()
        leaver.leave()
        idler, keeper = crowd.join(library, assignor), crowd.join(library, assignor)
        crowd.wait_balanced()
        crasher.crash()
        stopped.stop()
        idler.idle()
        crowd.wait_balanced()
        assert sorted(keeper.owned) == list(range(PARTITIONS))
        stopped.go_on()
        idler.go_on()
        crowd.wait_balanced()


@pytest.mark.parametrize(
    ("library", "assignor"),
    [
        ("confluent", "range"),
        ("confluent", "consumer"),
        pytest.param("kafka-python", "range", marks=pytest.mark.long),
        pytest.param("aiokafka", "range", marks=pytest.mark.long),
    ],
)
def test_a_static_member_that_returns_keeps_its_partitions_without_a_rebalance(
    lives: Lives, admin: Driver, name: str, library: str, assignor: str
) -> None:
    """KIP-345: an instance that is back within its session takes its place again.

    In the new protocol only after it has said that it would be back: until its session ends nobody else may use the
    name of one that has crashed.
    """
    patience = {"session_ms": 4 * SESSION_MS, "poll_ms_max": 4 * SESSION_MS}
    with work(lives, admin, name) as (crowd, _):
        first = crowd.join(library, assignor, "one", **patience)
        others = [crowd.join(library, assignor, each, **patience) for each in ("two", "three")]
        crowd.wait_balanced()
        owned = sorted(first.owned)
        changes = [each.changes for each in others]
        if assignor == "consumer":
            first.leave()
        else:
            first.crash()
        again = crowd.join(library, assignor, "one", **patience)
        crowd.wait_balanced()
        again.wait(lambda: bool(again.committed), "go on")
        assert sorted(again.owned) == owned
        assert [each.changes for each in others] == changes


def test_libraries_share_a_group_and_the_broker_is_killed_in_the_middle(
    lives: Lives, admin: Driver, name: str
) -> None:
    with work(lives, admin, name) as (crowd, _):
        members = [crowd.join(library, "range") for library in ("confluent", "kafka-python", "aiokafka")]
        crowd.wait_balanced()
        lives.kill()
        lives.start()
        for member in members:
            before = len(member.committed)
            member.wait(lambda member=member, before=before: len(member.committed) > before, "commit again")
        crowd.wait_balanced()
        newcomer = crowd.join("confluent", "range")
        crowd.wait_balanced()
        members[0].leave()
        crowd.wait_balanced()
        assert newcomer.owned


@pytest.mark.long
@pytest.mark.parametrize("assignor", ["cooperative-sticky", "consumer"])
def test_the_broker_is_killed_while_members_come(
    lives: Lives, admin: Driver, name: str, assignor: str
) -> None:
    with work(lives, admin, name) as (crowd, _):
        first = crowd.join("confluent", assignor)
        crowd.wait_balanced()
        crowd.join("confluent", assignor)
        first.wait(lambda: len(first.owned) < PARTITIONS, "let go of anything")
        lives.kill()
        crowd.join("confluent", assignor)
        lives.start()
        crowd.wait_balanced()


def test_a_group_changes_to_the_new_protocol_and_back_without_a_stop(
    lives: Lives, admin: Driver, name: str
) -> None:
    """KIP-848: each member changes when it is restarted; in between both kinds share the work."""
    with work(lives, admin, name) as (crowd, _):
        old = [crowd.join("confluent", "range") for _ in range(2)]
        crowd.wait_balanced()
        for assignor in ("consumer", "range"):
            new = []
            for member in old:
                new.append(crowd.join("confluent", assignor))
                crowd.wait_balanced()
                member.leave()
                crowd.wait_balanced()
            old = new


def test_a_group_goes_on_where_it_was_after_all_have_left_and_the_broker_was_killed(
    lives: Lives, admin: Driver, name: str
) -> None:
    admin.create_topic(name)
    admin.produce(name, [Record(b"%d" % number) for number in range(10)])
    settings = {
        "bootstrap.servers": lives.bootstrap,
        "group.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([name])
    seen = [consumer.poll(SECONDS_MAX) for _ in range(4)]
    assert [each.value() for each in seen] == [b"0", b"1", b"2", b"3"]
    place = TopicPartition(name, 0, 4, metadata="four are done")
    assert consumer.commit(offsets=[place], asynchronous=False)[0].error is None
    consumer.close()
    lives.kill()
    lives.start()
    consumer = Consumer(settings)
    consumer.subscribe([name])
    try:
        assert consumer.poll(SECONDS_MAX).value() == b"4"
        [found] = consumer.committed([TopicPartition(name, 0)], SECONDS_MAX)
        assert (found.offset, found.metadata) == (4, "four are done")
    finally:
        consumer.close()


def test_an_owner_that_overlaps_another_is_found() -> None:
    first = Owned(0, "a", 10, 20)
    assert overlaps([first, Owned(0, "b", 20, 30), Owned(1, "b", 5, 40), Owned(0, "a", 31, 40)]) == []
    assert overlaps([first, Owned(0, "b", 19, 30)]) == [(first, Owned(0, "b", 19, 30))]
    long = Owned(0, "a", 0, 100)
    assert overlaps([long, Owned(0, "a", 10, 20), Owned(0, "b", 50, 60)]) == [(long, Owned(0, "b", 50, 60))]


def test_a_commit_from_outside_is_found() -> None:
    owned = [Owned(0, "a", 10, 20), Owned(0, "b", 25, 30)]
    inside = [Committed(0, "a", 10, 1), Committed(0, "b", 30, 2)]
    outside = [Committed(0, "a", 26, 3), Committed(1, "b", 26, 3), Committed(0, "b", 24, 3)]
    assert foreign([*inside, *outside], owned) == outside
