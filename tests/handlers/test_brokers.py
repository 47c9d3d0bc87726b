"""What nodes ask of the controller for themselves, in every version, and what is refused with which code."""

from typing import Any
from uuid import UUID

import pytest
from tests.handlers.cluster import CLUSTER_ID, Cluster, make_request, uuid

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.handlers import brokers
from penstock.handlers.support.api_table import SERVED, SERVED_BY_CONTROLLERS
from penstock.handlers.support.context import Call, Session
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.controller.requests import AlterPartition, IsrMember
from penstock.metadata.versions import SUPPORTED
from penstock.wire import KAFKA_RANGES, Api, read_request, read_response, write_request, write_response
from penstock.wire.messages import response_builder

SESSION = Session("127.0.0.1", 9093, "127.0.0.1:50000", "CONTROLLER")
STALE = 999


def ask(cluster: Cluster, api: Api, version: int, **values: Any) -> Promise[Any]:
    request = make_request(api, version, **values)
    message = read_request(api, version, memoryview(write_request(api, version, request)))
    versions, handler = SERVED_BY_CONTROLLERS[api]
    assert version in versions
    answer = handler(
        cluster.context, Call(SESSION, version, message, response_builder(api, version), "tests")
    )
    read: Promise[Any] = Promise()

    def reply(entity: Any) -> None:
        read.resolve(read_response(api, version, memoryview(write_response(api, version, entity))))

    if isinstance(answer, Promise):
        answer.then(reply)
    else:
        reply(answer)
    return read


def call(cluster: Cluster, api: Api, version: int, **values: Any) -> Any:
    later = ask(cluster, api, version, **values)
    assert later.is_settled
    return later.value


def registration(**changes: Any) -> dict[str, Any]:
    return {
        "broker_id": 9,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": UUID(bytes=uuid(900)),
        "listeners": [{"name": "PLAINTEXT", "host": "h", "port": 9092, "security_protocol": 0}],
        "features": [
            {
                "name": each.name,
                "min_supported_version": each.min_level,
                "max_supported_version": each.max_level,
            }
            for each in SUPPORTED
        ],
        "rack": "attic",
        "log_dirs": (UUID(bytes=uuid(9)),),
        **changes,
    }


def heartbeat(cluster: Cluster, broker: int = 2, **changes: Any) -> dict[str, Any]:
    return {
        "broker_id": broker,
        "broker_epoch": cluster.image.brokers[broker].epoch,
        "current_metadata_offset": cluster.image.offset,
        **changes,
    }


def isr(cluster: Cluster, *members: int, asker: int = 1, broker_epoch: int = -1, **changes: Any) -> Any:
    """A leader's wish, in the words of all versions."""
    partition = {
        "partition_index": 0,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "new_isr": members,
        "new_isr_with_epochs": [{"broker_id": each, "broker_epoch": broker_epoch} for each in members],
        **changes,
    }
    topic_id = partition.pop("topic_id", cluster.topic_id("t"))
    return {
        "broker_id": asker,
        "broker_epoch": cluster.image.brokers[asker].epoch,
        "topics": [{"topic_id": topic_id, "partitions": [partition]}],
    }


@pytest.fixture
def three() -> Cluster:
    made = Cluster(brokers=(1, 2, 3))
    made.create("t", (1, 2, 3))
    return made


def versions(api: Api) -> list[int]:
    low, high = KAFKA_RANGES[api]
    return list(range(low, high + 1))


def test_only_controllers_serve_them() -> None:
    assert brokers.HANDLERS.keys() <= SERVED_BY_CONTROLLERS.keys()
    assert not brokers.HANDLERS.keys() & SERVED.keys()
    assert Api.ASSIGN_REPLICAS_TO_DIRS not in SERVED_BY_CONTROLLERS


# -- BrokerRegistration --------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(Api.BROKER_REGISTRATION))
def test_a_broker_registers(three: Cluster, version: int) -> None:
    """Before version 2 it has no word for its directories, which a cluster of today asks for."""
    reply = call(three, Api.BROKER_REGISTRATION, version, **registration())
    if version < 2:
        assert (reply.error_code, reply.broker_epoch) == (ErrorCode.INVALID_REGISTRATION, -1)
        return
    broker = three.image.brokers[9]
    assert (reply.error_code, reply.broker_epoch) == (ErrorCode.NONE, broker.epoch)
    assert (broker.rack, broker.fenced, broker.log_dirs) == ("attic", True, (uuid(9),))
    assert [(each.name, each.host, each.port) for each in broker.endpoints] == [("PLAINTEXT", "h", 9092)]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"broker_id": 1, "log_dirs": (UUID(bytes=uuid(1)),)}, ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        ({"broker_id": -1}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (None,)}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": (UUID(bytes=uuid(1)),)}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
    ids=str,
)
def test_a_registration_is_refused_with_kafkas_code(
    three: Cluster, changes: dict[str, Any], code: ErrorCode
) -> None:
    before = three.image
    reply = call(three, Api.BROKER_REGISTRATION, 4, **registration(**changes))
    assert (reply.error_code, reply.broker_epoch) == (code, -1)
    assert three.image is before


# -- BrokerHeartbeat -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(Api.BROKER_HEARTBEAT))
def test_a_broker_is_alive_wants_out_and_goes(three: Cluster, version: int) -> None:
    def beat(**changes: Any) -> Any:
        return call(three, Api.BROKER_HEARTBEAT, version, **heartbeat(three, **changes))

    reply = beat()
    assert (reply.error_code, reply.is_caught_up, reply.is_fenced) == (ErrorCode.NONE, True, False)
    assert beat(want_fence=True).is_fenced
    reply = beat(want_shut_down=True)
    assert (reply.is_fenced, reply.should_shut_down) == (True, True)
    assert three.image.topics["t"].partitions[0].isr == (1, 3)


@pytest.mark.parametrize("changes", [{"broker_epoch": STALE}, {"broker_id": 8}], ids=str)
def test_a_heartbeat_of_one_that_is_not_known_is_stale(three: Cluster, changes: dict[str, Any]) -> None:
    reply = call(three, Api.BROKER_HEARTBEAT, 2, **heartbeat(three, **changes))
    assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_heartbeat_waits_half_an_interval_for_the_quorum(three: Cluster) -> None:
    three.port.hold()
    answer = ask(three, Api.BROKER_HEARTBEAT, 2, **heartbeat(three))
    three.world.advance(999)
    assert not answer.is_settled
    three.world.advance(1)
    assert answer.value.error_code == ErrorCode.REQUEST_TIMED_OUT


# -- AlterPartition ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", versions(Api.ALTER_PARTITION))
def test_an_isr_is_changed(three: Cluster, version: int) -> None:
    reply = call(three, Api.ALTER_PARTITION, version, **isr(three, 1, 2))
    [[row]] = [each.partitions for each in reply.topics]
    assert reply.error_code == row.error_code == ErrorCode.NONE
    assert (row.leader_id, row.leader_epoch, tuple(row.isr), row.partition_epoch) == (1, 0, (1, 2), 1)
    assert three.image.topics["t"].partitions[0].isr == (1, 2)


def test_the_epochs_of_the_isr_are_heard_from_version_3_on(three: Cluster) -> None:
    """KIP-903: a broker that has restarted is not its former self."""
    wanted = isr(three, 1, 2, broker_epoch=STALE)
    call(three, Api.ALTER_PARTITION, 2, **wanted)
    asked: AlterPartition = three.port.asked[-1]
    assert asked.changes[0].isr == (IsrMember(1, -1), IsrMember(2, -1))
    wanted = isr(three, 1, broker_epoch=STALE, partition_epoch=1)
    [[row]] = [each.partitions for each in call(three, Api.ALTER_PARTITION, 3, **wanted).topics]
    assert row.error_code == ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.parametrize(
    ("members", "changes", "code"),
    [
        ((1,), {"topic_id": UUID(int=5)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ((1,), {"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((1,), {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ((1,), {"leader_epoch": 5}, ErrorCode.NOT_CONTROLLER),
        ((1,), {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ((1, 8), {}, ErrorCode.INVALID_REQUEST),
        ((2,), {}, ErrorCode.INVALID_REQUEST),
        ((1,), {"asker": 2}, ErrorCode.INVALID_REQUEST),
        ((1,), {"leader_recovery_state": 5}, ErrorCode.INVALID_REQUEST),
        ((1, 3), {}, ErrorCode.INELIGIBLE_REPLICA),
    ],
    ids=str,
)
def test_an_isr_is_refused_with_kafkas_code(
    three: Cluster, members: tuple[int, ...], changes: dict[str, Any], code: ErrorCode
) -> None:
    three.fence(3)
    wanted = isr(three, *members, **{"partition_epoch": 1, **changes})
    before = three.image
    reply = call(three, Api.ALTER_PARTITION, 3, **wanted)
    [[row]] = [each.partitions for each in reply.topics]
    assert (reply.error_code, row.error_code) == (ErrorCode.NONE, code)
    assert three.image is before


def test_a_partition_that_is_changed_twice_is_not_changed(three: Cluster) -> None:
    wanted = isr(three, 1, 2)
    wanted["topics"] *= 2
    reply = call(three, Api.ALTER_PARTITION, 3, **wanted)
    assert {row.error_code for topic in reply.topics for row in topic.partitions} == {
        ErrorCode.INVALID_REQUEST
    }
    assert three.image.topics["t"].partitions[0].isr == (1, 2, 3)


def test_a_leader_of_a_former_life_changes_nothing(three: Cluster) -> None:
    wanted = {**isr(three, 1), "broker_epoch": STALE}
    reply = call(three, Api.ALTER_PARTITION, 3, **wanted)
    assert (reply.error_code, reply.topics) == (ErrorCode.STALE_BROKER_EPOCH, ())


# -- AllocateProducerIds, ControllerRegistration -------------------------------------------------------


def test_producer_ids_are_given_in_blocks_to_those_who_are_registered(three: Cluster) -> None:
    epoch = three.image.brokers[2].epoch
    first = call(three, Api.ALLOCATE_PRODUCER_IDS, 0, broker_id=2, broker_epoch=epoch)
    second = call(three, Api.ALLOCATE_PRODUCER_IDS, 0, broker_id=2, broker_epoch=epoch)
    assert second.producer_id_start == first.producer_id_start + first.producer_id_len
    stale = call(three, Api.ALLOCATE_PRODUCER_IDS, 0, broker_id=2, broker_epoch=STALE)
    assert (stale.error_code, stale.producer_id_len) == (ErrorCode.STALE_BROKER_EPOCH, 0)


def test_a_controller_registers_if_it_supports_what_the_cluster_is_at(three: Cluster) -> None:
    told = registration()
    values = {"controller_id": 4, "incarnation_id": told["incarnation_id"], "listeners": told["listeners"]}
    reply = call(three, Api.CONTROLLER_REGISTRATION, 0, **values, features=told["features"])
    assert reply.error_code == ErrorCode.NONE
    assert three.image.controllers[4].endpoints[0].port == 9092
    reply = call(three, Api.CONTROLLER_REGISTRATION, 0, **values, features=[])
    assert reply.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "supports" in reply.error_message


# -- all of them ---------------------------------------------------------------------------------------


def everything(cluster: Cluster) -> dict[Api, dict[str, Any]]:
    epoch = cluster.image.brokers[2].epoch
    told = registration()
    return {
        Api.BROKER_REGISTRATION: told,
        Api.BROKER_HEARTBEAT: heartbeat(cluster),
        Api.ALTER_PARTITION: isr(cluster, 1),
        Api.ALLOCATE_PRODUCER_IDS: {"broker_id": 2, "broker_epoch": epoch},
        Api.CONTROLLER_REGISTRATION: {
            "controller_id": 4,
            "incarnation_id": None,
            "listeners": [],
            "features": told["features"],
        },
    }


@pytest.mark.parametrize("api", brokers.HANDLERS)
def test_a_node_that_is_not_the_controller_replies_not_controller(three: Cluster, api: Api) -> None:
    three.port.refusal = KafkaError("elsewhere", ErrorCode.NOT_CONTROLLER)
    for version in versions(api):
        reply = call(three, api, version, **everything(three)[api])
        assert reply.error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("api", brokers.HANDLERS)
def test_only_those_who_may_act_for_the_cluster_are_heard(three: Cluster, api: Api) -> None:
    three.deny(Operation.CLUSTER_ACTION, AclResourceType.CLUSTER)
    before = three.image
    reply = call(three, api, KAFKA_RANGES[api].max, **everything(three)[api])
    assert reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert three.image is before
