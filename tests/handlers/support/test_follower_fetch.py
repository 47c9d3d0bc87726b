"""Fetch as followers ask for it, and consumers that read from followers, on a whole node without sockets."""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from tests.nodes import StillClient, StillNode
from tests.placing import placed
from tests.wire_requests import fetch_body, produce_body, values_in
from tests.worlds import START_MS

from penstock.base.errors import ErrorCode, KafkaError
from penstock.handlers.support.fetch_sessions import ConsumerSession, FetchSessions, requested_partitions
from penstock.handlers.support.follower_sessions import FollowerSession
from penstock.metadata.config_table import RACK_AWARE
from penstock.metadata.image import Broker, ResourceType
from penstock.metadata.maps import FrozenMap
from penstock.records import build_batch
from penstock.replica import Partition
from penstock.wire import Api, FetchPartition, FetchRequest, request_module
from penstock.wire.fetch import FetchTopic, ForgottenTopic
from penstock.wire.fetch_client import fetch_body as replica_body

VERSION = 17
EPOCH = 4
GONE = KafkaError("led elsewhere", ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Leader:
    """Broker 1, which leads all partitions of `orders`; broker 2 follows, and is in sync."""

    def __init__(self, partitions: int = 1, **settings: str) -> None:
        self.node = StillNode(settings={name.replace("_", "."): value for name, value in settings.items()})
        self.node.create_topic("orders", partitions)
        self.world = self.node.world
        self.context = self.node.node.context
        self.topic_id: bytes = self.context.image.topics["orders"].id
        self.partitions = [self.context.replicas.find("orders", number) for number in range(partitions)]
        for each in self.partitions:
            each.lead(placed(EPOCH, replicas=(1, 2), partition_epoch=9), 1)
        self.client = self.node.client()

    @property
    def partition(self) -> Partition:
        return self.partitions[0]

    def produce(self, number: int, *values: bytes, acks: int = 1) -> StillClient:
        client = self.node.client()
        data = build_batch([(None, value, START_MS) for value in values])
        client.send(Api.PRODUCE, 12, produce_body(12, [("orders", [(number, data)])], acks))
        self.world.advance(0)
        return client

    def ask(
        self,
        *wanted: tuple[int, int],
        session: tuple[int, int] = (0, -1),
        forgotten: Iterable[int] = (),
        replica: int = 2,
        broker_epoch: int = -1,
        epoch: int = EPOCH,
        last_epoch: int = -1,
        log_start: int = 0,
        max_wait_ms: int = 0,
        max_bytes: int = 1 << 20,
        topic: bytes | None = None,
    ) -> None:
        """Fetch partitions from offsets."""
        topic_id = topic or self.topic_id
        asked = [
            FetchPartition(number, epoch, offset, last_epoch, log_start, 1 << 20) for number, offset in wanted
        ]
        request = FetchRequest(
            max_wait_ms,
            1,
            max_bytes,
            0,
            *session,
            [FetchTopic(topic_id, asked)] if asked else [],
            [ForgottenTopic(topic_id, tuple(forgotten))] if forgotten else [],
            "",
            replica,
            broker_epoch,
            None,
        )
        self.client.send(Api.FETCH, VERSION, replica_body(VERSION, request))

    def fetch(self, *wanted: tuple[int, int], **options: Any) -> dict[int, Any]:
        """What there is at once, by partition."""
        self.ask(*wanted, **options)
        self.world.advance(0)
        return self.reply()

    def reply(self) -> dict[int, Any]:
        reply = self.client.reply()
        assert reply is not None, "there is an answer"
        self.session_id = reply.session_id
        assert reply.error_code.value == 0
        return {each.partition_index: each for topic in reply.responses for each in topic.partitions}

    def is_waiting(self) -> bool:
        self.world.advance(0)
        return not self.client.transport.received


def test_a_follower_gets_what_is_not_committed_yet() -> None:
    leader = Leader()
    leader.produce(0, b"a", b"b")
    result = leader.fetch((0, 0))[0]
    assert (result.error_code.value, result.high_watermark, result.log_start_offset) == (0, 0, 0)
    assert values_in(result.records) == [b"a", b"b"]


def test_what_it_asks_for_next_commits_what_came_before() -> None:
    leader = Leader()
    producer = leader.produce(0, b"a", b"b", acks=-1)
    leader.fetch((0, 0))
    assert producer.reply() is None
    result = leader.fetch((0, 2))[0]
    assert (result.high_watermark, len(result.records or b"")) == (2, 0), "the answer knows of it"
    assert producer.wait().responses[0].partition_responses[0].base_offset == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"replica": 7}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica": 7, "epoch": -1}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"epoch": EPOCH - 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": EPOCH + 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"topic": bytes(15) + b"\xff"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ({"last_epoch": EPOCH + 1}, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_without_the_permission_a_fetch_fails_at_once(options: dict[str, Any], code: ErrorCode) -> None:
    leader = Leader()
    leader.produce(0, b"a")
    result = leader.fetch((0, 0), max_wait_ms=10_000, **options)[0]
    assert (result.error_code.value, result.high_watermark) == (code, -1)


@pytest.mark.parametrize("offset", [-1, 3])
def test_an_offset_that_is_not_in_the_log_is_reported_and_teaches_nothing(offset: int) -> None:
    leader = Leader()
    leader.produce(0, b"a")
    assert leader.fetch((0, offset))[0].error_code.value == ErrorCode.OFFSET_OUT_OF_RANGE
    assert leader.partition.isr is not None
    assert leader.partition.isr.followers[2].log_end == -1


def test_a_partition_that_is_led_elsewhere_is_reported() -> None:
    leader = Leader()
    leader.context.replicas.by_key.clear()
    assert leader.fetch((0, 0))[0].error_code.value == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_client_that_is_no_broker_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader()
    monkeypatch.setattr(type(leader.context), "authorize", lambda *_: False)
    assert leader.fetch((0, 0))[0].error_code.value == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_follower_whose_log_parts_from_this_one_is_told_where_and_teaches_nothing() -> None:
    leader = Leader()
    leader.produce(0, b"a", b"b")
    result = leader.fetch((0, 2), last_epoch=EPOCH - 1)[0]
    assert (result.error_code.value, result.diverging_epoch.end_offset) == (0, 0)
    assert leader.partition.high_watermark == 0


def test_an_answer_waits_for_records_and_has_those_of_all_logs_of_the_turn() -> None:
    leader = Leader(partitions=3)
    leader.ask((0, 0), (1, 0), (2, 0), max_wait_ms=500)
    assert leader.is_waiting()
    client = leader.node.client()
    batches = [(number, build_batch([(None, b"v", START_MS)])) for number in (0, 2)]
    client.send(Api.PRODUCE, 12, produce_body(12, [("orders", batches)], 1))
    leader.world.advance(0)
    answer = leader.reply()
    assert sorted(number for number, each in answer.items() if each.records) == [0, 2]


def test_an_answer_comes_in_time() -> None:
    leader = Leader()
    leader.ask((0, 0), max_wait_ms=500)
    leader.world.advance(499)
    assert leader.is_waiting()
    leader.world.advance(2)
    assert leader.reply()[0].error_code.value == 0


def test_a_leader_that_steps_down_says_so() -> None:
    leader = Leader()
    leader.ask((0, 0), max_wait_ms=500)
    leader.context.replicas.by_key.clear()
    leader.partition.follow(2, EPOCH + 1, GONE)
    leader.world.advance(0)
    assert leader.reply()[0].error_code.value == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_that_is_gone_is_waited_for_no_more() -> None:
    leader = Leader()
    leader.ask((0, 0), max_wait_ms=500)
    leader.client.connection.connection_lost(None)
    leader.produce(0, b"a")
    leader.world.advance(1000)
    assert not leader.client.transport.received


def test_deleted_records_are_reported_at_once() -> None:
    leader = Leader()
    leader.produce(0, b"a", b"b")
    leader.fetch((0, 0))
    leader.ask((0, 2), max_wait_ms=500)
    assert leader.is_waiting()
    leader.partition.delete_records(1)
    leader.world.advance(0)
    assert leader.reply()[0].log_start_offset == 1


class TestSessions:
    def open(self, leader: Leader, *wanted: tuple[int, int]) -> None:
        leader.fetch(*wanted, session=(0, 0))
        assert leader.session_id

    def test_quiet_partitions_are_not_looked_at(self) -> None:
        leader = Leader(partitions=50)
        self.open(leader, *((number, 0) for number in range(50)))
        session = leader.context.fetch_sessions._sessions[leader.session_id]
        assert isinstance(session, FollowerSession)
        assert len(session) == 50
        assert not session.due
        leader.produce(7, b"a")
        assert list(session.due) == [(leader.topic_id, 7)]
        answer = leader.fetch(session=(leader.session_id, 1))
        assert list(answer) == [7]
        assert session.due, "it has not said that it has it"
        answer = leader.fetch((7, 1), session=(leader.session_id, 2))
        assert answer[7].high_watermark == 1
        assert not session.due

    def test_what_was_not_taken_is_given_again(self) -> None:
        leader = Leader()
        self.open(leader, (0, 0))
        leader.produce(0, b"a")
        for epoch in (1, 2):
            assert values_in(leader.fetch(session=(leader.session_id, epoch))[0].records) == [b"a"]

    def test_a_high_watermark_is_told_with_the_next_answer(self) -> None:
        leader = Leader(partitions=2)
        self.open(leader, (0, 0), (1, 0))
        leader.produce(0, b"a")
        leader.fetch(session=(leader.session_id, 1))
        leader.ask((0, 1), session=(leader.session_id, 2), max_wait_ms=500)
        assert leader.partition.high_watermark == 1
        assert leader.is_waiting(), "it is not worth an answer of its own"
        leader.produce(1, b"b")
        answer = leader.reply()
        assert answer[0].high_watermark == 1
        assert values_in(answer[1].records) == [b"b"]

    def test_where_consumers_read_from_followers_it_is_told_at_once(self) -> None:
        """KAFKA-9731"""
        leader = Leader(replica_selector_class=RACK_AWARE)
        self.open(leader, (0, 0))
        leader.produce(0, b"a")
        leader.fetch(session=(leader.session_id, 1))
        assert leader.fetch((0, 1), session=(leader.session_id, 2), max_wait_ms=500)[0].high_watermark == 1

    def test_limits_leave_the_rest_for_the_next_answer(self) -> None:
        leader = Leader(partitions=3)
        self.open(leader, (0, 0), (1, 0), (2, 0))
        for number in range(3):
            leader.produce(number, bytes(500))
        seen = [
            list(leader.fetch(session=(leader.session_id, epoch), max_bytes=400)) for epoch in range(1, 4)
        ]
        assert seen == [[0], [1], [2]], "each has its turn"

    def test_a_partition_that_is_forgotten_says_nothing_more(self) -> None:
        leader = Leader(partitions=2)
        self.open(leader, (0, 0), (1, 0))
        leader.fetch(session=(leader.session_id, 1), forgotten=[1])
        leader.produce(1, b"a")
        assert leader.fetch(session=(leader.session_id, 2)) == {}
        assert not leader.partitions[1]._follower_fetches

    def test_a_follower_that_begins_anew_ends_its_session_and_its_waiting_fetch(self) -> None:
        leader = Leader()
        self.open(leader, (0, 0))
        first = leader.client
        leader.ask(session=(leader.session_id, 1), max_wait_ms=500)
        assert leader.is_waiting()
        leader.client = leader.node.client()
        leader.fetch((0, 0), session=(leader.session_id, 0))
        assert first.reply().responses == ()
        assert len(leader.context.fetch_sessions) == 1
        assert len(leader.partition._follower_fetches) == 1

    def test_who_is_not_in_sync_is_looked_at_each_time(self) -> None:
        """It may become eligible without anything being written."""
        leader = Leader()
        leader.partition.lead(placed(EPOCH, replicas=(1, 2), isr=(1,), partition_epoch=10), 1)
        self.open(leader, (0, 0))
        session = leader.context.fetch_sessions._sessions[leader.session_id]
        assert isinstance(session, FollowerSession)
        assert session.due
        leader.partition.lead(placed(EPOCH, replicas=(1, 2), partition_epoch=11), 1)
        leader.fetch(session=(leader.session_id, 1))
        assert not session.due

    def test_a_consumer_cannot_go_on_with_it(self) -> None:
        leader = Leader()
        self.open(leader, (0, 0))
        body = fetch_body(VERSION, [], session=(leader.session_id, 1))
        leader.client.send(Api.FETCH, VERSION, body)
        leader.world.advance(0)
        reply = leader.client.reply()
        assert reply.error_code.value == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def _request(replica_id: int, partitions: int = 1) -> FetchRequest:
    asked = [FetchPartition(number, -1, 0, -1, 0, 1) for number in range(partitions)]
    return FetchRequest(0, 1, 1, 0, 0, 0, [FetchTopic("orders", asked)], [], "", replica_id, -1, None)


def test_a_consumers_session_makes_way_for_a_followers_and_never_the_other_way() -> None:
    sessions = FetchSessions(2, Random(0))

    def consumer(now_ms: int = 0, partitions: int = 1) -> ConsumerSession | None:
        request = _request(-1, partitions)
        return sessions.open(request, lambda number: ConsumerSession(number, False, now_ms), now_ms)

    def follower(now_ms: int = 0) -> FollowerSession | None:
        return sessions.open(_request(2), lambda number: FollowerSession(number, False, now_ms, 2, 0), now_ms)

    assert consumer()
    assert consumer()
    assert consumer() is None
    assert follower()
    assert follower()
    assert (follower(), consumer(partitions=9), len(sessions)) == (None, None, 2)
    assert consumer(200_000), "unless they have not come for two minutes"


# -- consumers and the nearest replica -----------------------------------------------------------------


def racks(leader: Leader, **options: Any) -> None:
    """Broker 1 stands in rack a, broker 2 in rack b."""
    brokers = {
        number: Broker(number, 100 + number, bytes(16), rack=rack, fenced=False, **options)
        for number, rack in ((1, "a"), (2, "b"))
    }
    image = leader.context.image
    leader.context.image = type(image)(
        topics=image.topics, topic_names=image.topic_names, brokers=FrozenMap(brokers)
    )


def consume(leader: Leader, offset: int, rack: str, **options: Any) -> Any:
    version = options.pop("version", VERSION)
    topic = leader.topic_id if version >= 13 else "orders"
    request = FetchRequest(
        options.pop("max_wait_ms", 0),
        1,
        1 << 20,
        0,
        *options.pop("session", (0, -1)),
        [FetchTopic(topic, [FetchPartition(0, options.pop("epoch", -1), offset, -1, -1, 1 << 20)])],
        [],
        rack,
        -1,
        -1,
        None,
    )
    leader.client.send(Api.FETCH, version, replica_body(version, request))
    leader.world.advance(0)
    reply = leader.client.reply()
    assert reply is not None
    return reply.responses[0].partitions[0]


def test_a_consumer_is_sent_to_the_replica_in_its_rack() -> None:
    leader = Leader(replica_selector_class=RACK_AWARE)
    racks(leader)
    leader.produce(0, b"a")
    leader.fetch((0, 1))
    for rack, preferred in (("a", -1), ("b", 2), ("c", -1), ("", -1)):
        result = consume(leader, 0, rack, max_wait_ms=10_000)
        assert (result.preferred_read_replica, bool(result.records)) == (preferred, preferred < 0)


def test_a_replica_that_lacks_the_offset_is_not_recommended() -> None:
    leader = Leader(replica_selector_class=RACK_AWARE)
    racks(leader)
    leader.produce(0, b"a", b"b")
    leader.fetch((0, 1), log_start=1)
    assert consume(leader, 0, "b").preferred_read_replica == -1
    assert consume(leader, 1, "b").preferred_read_replica == 2
    leader.partition.lead(placed(EPOCH, replicas=(1, 2), isr=(1,), partition_epoch=10), 1)
    assert consume(leader, 1, "b").preferred_read_replica == -1, "it is not in sync"


def test_without_a_selector_racks_make_no_difference() -> None:
    leader = Leader()
    racks(leader)
    leader.fetch((0, 0))
    assert consume(leader, 0, "b").preferred_read_replica == -1


def set_(leader: Leader, kind: ResourceType, name: str, setting: str, value: str) -> None:
    module = request_module(Api.INCREMENTAL_ALTER_CONFIGS, 1)
    change = module.AlterableConfig(name=setting, config_operation=0, value=value)
    resource = module.AlterConfigsResource(resource_type=kind, resource_name=name, configs=(change,))
    reply = leader.node.client().call(
        Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=(resource,), validate_only=False
    )
    assert reply.responses[0].error_code.value == 0, reply


# -- throttled leaders -----------------------------------------------------------------------------------


def throttled(partitions: int = 1) -> Leader:
    """It gives a kilobyte a second of partition 0 to who is not in sync: broker 3 is, broker 2 is not."""
    leader = Leader(partitions)
    set_(leader, ResourceType.BROKER, "1", "leader.replication.throttled.rate", "1000")
    set_(leader, ResourceType.TOPIC, "orders", "leader.replication.throttled.replicas", "0:1")
    for each in leader.partitions:
        each.lead(placed(EPOCH, replicas=(1, 2, 3), isr=(1, 3), partition_epoch=10), 1)
    return leader


def in_debt(partitions: int = 1) -> Leader:
    """It gave three seconds' worth at once, one of which was saved; broker 2 has all of it but what came since."""
    leader = throttled(partitions)
    leader.produce(0, bytes(3000 - 80))
    assert 2950 < size(leader.fetch((0, 0))[0]) < 3050
    leader.produce(0, b"more")
    return leader


def test_throttled_leaders_hold_back_until_what_they_gave_is_paid_for() -> None:
    leader = in_debt()
    result = leader.fetch((0, 1))[0]
    assert (result.error_code.value, result.high_watermark, size(result)) == (0, 0, 0)
    leader.world.advance(1500)
    assert size(leader.fetch((0, 1))[0]) == 0
    leader.world.advance(600)
    assert values_in(leader.fetch((0, 1))[0].records) == [b"more"]


def test_a_fetch_waits_as_if_there_were_nothing_and_no_longer_than_it_must() -> None:
    leader = in_debt()
    leader.ask((0, 1), max_wait_ms=60_000)
    assert leader.is_waiting()
    leader.produce(0, b"still more")
    assert leader.is_waiting()
    leader.world.advance(1500)
    assert leader.is_waiting()
    leader.world.advance(600)
    assert values_in(leader.reply()[0].records) == [b"more", b"still more"]


def test_a_fetch_that_may_not_wait_so_long_is_answered_without() -> None:
    leader = in_debt()
    leader.ask((0, 1), max_wait_ms=500)
    assert leader.is_waiting()
    leader.world.advance(500)
    assert size(leader.reply()[0]) == 0


def test_what_is_not_throttled_comes_meanwhile() -> None:
    leader = in_debt(partitions=2)
    leader.ask((0, 1), (1, 0), session=(0, 0), max_wait_ms=60_000)
    assert leader.is_waiting()
    leader.produce(1, b"free")
    result = leader.reply()
    assert (size(result[0]), values_in(result[1].records)) == (0, [b"free"])


def test_who_is_in_sync_is_never_held_back_and_pays_all_the_same() -> None:
    leader = in_debt()
    assert values_in(leader.fetch((0, 1), replica=3)[0].records) == [b"more"]
    leader.produce(0, bytes(2000))
    assert size(leader.fetch((0, 2), replica=3)[0]) > 2000
    leader.world.advance(2100)
    assert size(leader.fetch((0, 1))[0]) == 0, "what broker 3 took is paid for as well"
    leader.world.advance(2100)
    assert size(leader.fetch((0, 1))[0]) > 2000


def test_a_list_without_this_leader_holds_nothing_back() -> None:
    leader = in_debt()
    set_(leader, ResourceType.TOPIC, "orders", "leader.replication.throttled.replicas", "0:2")
    assert values_in(leader.fetch((0, 1))[0].records) == [b"more"]


class TestFollowers:
    """This node follows, and consumers read from it."""

    def following(self, *values: bytes, high_watermark: int) -> Leader:
        leader = Leader()
        leader.produce(0, *values)
        leader.context.replicas.by_key.clear()
        leader.partition.follow(2, EPOCH + 1, GONE)
        leader.partition.follow_high_watermark(high_watermark, 0)
        return leader

    def test_they_give_what_they_know_to_be_committed(self) -> None:
        follower = self.following(b"a", high_watermark=0)
        result = consume(follower, 0, "b")
        assert (result.error_code.value, result.high_watermark, size(result)) == (0, 0, 0)
        follower.partition.follow_high_watermark(1, 0)
        assert values_in(consume(follower, 0, "b").records) == [b"a"]

    def test_a_reader_waits_for_the_high_watermark(self) -> None:
        follower = self.following(b"a", high_watermark=0)
        body = fetch_body(12, [("orders", [(0, 0)])], max_wait_ms=500)
        follower.client.send(Api.FETCH, 12, body)
        assert follower.is_waiting()
        follower.partition.follow_high_watermark(1, 0)
        follower.world.advance(0)
        assert values_in(follower.reply()[0].records) == [b"a"]

    @pytest.mark.parametrize(
        ("offset", "options", "code"),
        [
            (0, {"version": 10}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (0, {"epoch": EPOCH}, ErrorCode.FENCED_LEADER_EPOCH),
            (0, {"epoch": EPOCH + 2}, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (5, {}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ],
    )
    def test_they_refuse_as_leaders_do(self, offset: int, options: dict[str, Any], code: ErrorCode) -> None:
        follower = self.following(b"a", high_watermark=1)
        assert consume(follower, offset, "", **options).error_code.value == code

    def test_they_serve_no_followers(self) -> None:
        follower = self.following(b"a", high_watermark=1)
        assert follower.fetch((0, 0), epoch=EPOCH + 1)[0].error_code.value == ErrorCode.NOT_LEADER_OR_FOLLOWER


def size(partition: Any) -> int:
    return len(partition.records or b"")


def test_all_partitions_of_a_request_are_wanted() -> None:
    assert [each.partition.partition for each in requested_partitions(_request(2, 3))] == [0, 1, 2]


def test_a_follower_without_a_session_waits_though_nobody_knows_what_it_was_told() -> None:
    """Else the two would talk without a pause, where the sessions are used up."""
    leader = Leader(replica_selector_class=RACK_AWARE)
    leader.produce(0, b"a")
    leader.fetch((0, 0))
    leader.ask((0, 1), max_wait_ms=500)
    assert leader.is_waiting()
    leader.produce(0, b"b")
    assert values_in(leader.reply()[0].records) == [b"b"]
