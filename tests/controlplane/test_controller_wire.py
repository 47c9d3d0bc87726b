"""Every kind of request says over the wire what it says in the controller's own process, and hears the same answer."""

from typing import Any

import pytest
from tests.controlplane.controllers import ADDRESS, ControllerPeers, make_router
from tests.handlers.cluster import CLUSTER_ID, Cluster, uuid

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.controlplane.controller_wire import to_wire
from penstock.metadata import records as s
from penstock.metadata.acls import Acl, AclFilter, AclResourceType, Operation, PatternType, Permission
from penstock.metadata.controller import controller as core
from penstock.metadata.controller import requests as r
from penstock.metadata.controller.requests import Result
from penstock.metadata.image import ALL_BROKERS, Resource, ResourceType
from penstock.metadata.versions import SUPPORTED
from penstock.security.authorizer import Authorizer

T = Resource(ResourceType.TOPIC, "t")

READS = Acl(
    AclResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW
)
WRITES = READS._replace(operation=Operation.WRITE)
OF_ALL = AclFilter(AclResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)
ENDPOINTS = (s.Endpoint(name="PLAINTEXT", host="h", port=9092),)


def epoch(cluster: Cluster, broker: int) -> int:
    found: int = cluster.image.brokers[broker].epoch
    return found


def registration(**changes: Any) -> r.RegisterBroker:
    plain = r.RegisterBroker(9, CLUSTER_ID, uuid(900), ENDPOINTS, SUPPORTED, (uuid(9),), "attic", 5)
    return plain._replace(**changes)


def isr(cluster: Cluster, *members: int, **changes: Any) -> r.IsrChange:
    held = cluster.image.topics["t"].partitions[0]
    plain = r.IsrChange(
        cluster.image.topics["t"].id,
        0,
        held.leader_epoch,
        held.partition_epoch,
        tuple(r.IsrMember(each, epoch(cluster, each)) for each in members),
    )
    return plain._replace(**changes)


def alter(cluster: Cluster, *changes: r.IsrChange) -> r.AlterPartition:
    return r.AlterPartition(1, epoch(cluster, 1), changes)


def set_topic(*changes: tuple[Any, ...]) -> r.IncrementalAlterConfigs:
    return r.IncrementalAlterConfigs({T: tuple(r.ConfigChange(*each) for each in changes)})


REQUESTS: dict[str, Any] = {
    "topics are created, placed by the controller or by the client": r.CreateTopics(
        (
            r.NewTopic("a", 3, 3),
            r.NewTopic("b", assignments=((0, (2, 3)), (1, (3, 1))), configs={"retention.ms": "7"}),
            r.NewTopic("t"),
            r.NewTopic("no name"),
            r.NewTopic("c", configs={"retention.ms": "x"}),
        )
    ),
    "topics are only looked at": r.CreateTopics((r.NewTopic("a", 3, 3),), validate_only=True),
    "topics are deleted": lambda cluster: r.DeleteTopics(
        ("t", "none"), (cluster.image.topics["u"].id, uuid(77))
    ),
    "topics grow": r.CreatePartitions((r.MorePartitions("t", 4), r.MorePartitions("none", 2))),
    "topics grow as the client says": r.CreatePartitions((r.MorePartitions("t", 2, ((3, 2, 1),)),)),
    "an ISR shrinks": lambda cluster: alter(cluster, isr(cluster, 1, 2)),
    "ISRs that may not be": lambda cluster: alter(
        cluster,
        isr(cluster, 1, 2, leader_epoch=-1),
        isr(cluster, 1, partition=7),
        isr(cluster, 1, topic_id=uuid(77)),
        isr(cluster, 1, topic_id=cluster.image.topics["u"].id, partition_epoch=5),
    ),
    "a leader of a former life": r.AlterPartition(1, 999, ()),
    "an unknown state of recovery": lambda cluster: alter(cluster, isr(cluster, 1, recovery_state=5)),
    "leaders are elected": r.ElectLeaders(r.Election.PREFERRED, (("t", 0), ("none", 0))),
    "all leaders are elected": r.ElectLeaders(r.Election.UNCLEAN),
    "an election that is none": r.ElectLeaders(5, (("t", 0),)),
    "replicas move": r.AlterReassignments(
        (
            r.PartitionTarget("t", 0, (2, 3)),
            r.PartitionTarget("u", 0, None),
            r.PartitionTarget("none", 0, (1,)),
        )
    ),
    "replicas move, but not in number": r.AlterReassignments((r.PartitionTarget("t", 0, (2, 3)),), False),
    "what moves": r.ListReassignments(),
    "what moves of some": r.ListReassignments((("m", 0), ("none", 0))),
    "all settings of a topic": r.AlterConfigs(
        {T: {"retention.ms": "5"}, Resource(ResourceType.TOPIC, "none"): {"retention.ms": "5"}}
    ),
    "a setting of a topic": set_topic(("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact")),
    "a setting with a value that may not be": set_topic(("retention.ms", 0, "x")),
    "a setting of another broker": r.IncrementalAlterConfigs(
        {
            Resource(ResourceType.BROKER, "2"): (r.ConfigChange("max.connections", 0, "7"),),
            Resource(ResourceType.BROKER, "8"): (r.ConfigChange("max.connections", 0, "7"),),
            ALL_BROKERS: (r.ConfigChange("max.connections", 0, "9"),),
        }
    ),
    "a feature": r.UpdateFeatures((r.FeatureUpdate("group.version", 0, r.UpgradeType.UNSAFE_DOWNGRADE),)),
    "a feature that may not be": r.UpdateFeatures((r.FeatureUpdate("group.version", 0),)),
    "a feature, only looked at": r.UpdateFeatures(
        (r.FeatureUpdate("group.version", 0, r.UpgradeType.UNSAFE_DOWNGRADE),), validate_only=True
    ),
    "users with passwords": r.AlterScramUsers(
        (r.ScramDeletion("nobody", 1),),
        (
            r.ScramUpsertion("alice", 1, 4096, b"salt", b"salted"),
            r.ScramUpsertion("bob", 9, 4096, b"salt", b"salted"),
        ),
    ),
    "quotas": r.AlterClientQuotas(
        (
            r.QuotaAlteration(
                (("user", "alice"),), (("producer_byte_rate", 5.0), ("request_percentage", None))
            ),
            r.QuotaAlteration((("client-id", None), ("user", "bob")), (("no such key", 5.0),)),
        )
    ),
    "quotas, only looked at": r.AlterClientQuotas(
        (r.QuotaAlteration((("ip", None),), (("connection_creation_rate", 5.0),)),), validate_only=True
    ),
    "ACLs are created": r.CreateAcls((READS, READS._replace(resource_name=""))),
    "ACLs are deleted": r.DeleteAcls((AclFilter(*READS), OF_ALL)),
    "a broker registers": registration(),
    "a broker of another cluster": registration(cluster_id="another"),
    "a broker that is there": registration(broker_id=1, log_dirs=(uuid(1),)),
    "a broker that supports too little": registration(features=SUPPORTED[:1]),
    "a broker without directories": registration(log_dirs=()),
    "a broker with an id that cannot be": registration(broker_id=-1),
    "a heartbeat": lambda cluster: r.BrokerHeartbeat(2, epoch(cluster, 2), cluster.image.offset),
    "a heartbeat of one that stops": lambda cluster: r.BrokerHeartbeat(
        2, epoch(cluster, 2), cluster.image.offset, want_shutdown=True
    ),
    "a heartbeat of one that wants out": lambda cluster: r.BrokerHeartbeat(
        2, epoch(cluster, 2), -1, want_fence=True, offline_dirs=(uuid(55),), cordoned_dirs=(uuid(2),)
    ),
    "a heartbeat of a former life": r.BrokerHeartbeat(2, 999, 0),
    "producer ids": lambda cluster: r.AllocateProducerIds(2, epoch(cluster, 2)),
    "producer ids for a former life": r.AllocateProducerIds(2, 999),
    "a controller registers": r.RegisterController(4, uuid(4), ENDPOINTS, SUPPORTED),
    "a controller that supports too little": r.RegisterController(4, uuid(4), ENDPOINTS, ()),
    "a broker is forgotten": r.UnregisterBroker(3),
    "a broker that is not there is forgotten": r.UnregisterBroker(8),
}


def cluster() -> Cluster:
    """Brokers 1 to 3; topic t on all, u on 1 alone, and m on its way from 1 to 2."""
    made = Cluster(brokers=(1, 2, 3))
    made.create("t", (1, 2, 3))
    made.create("u", (1,))
    made.create("m", (1,))
    made.decide(r.AlterReassignments((r.PartitionTarget("m", 0, (2,)),)))
    made.decide(r.CreateAcls((WRITES,)))
    made.context.authorizer = Authorizer(())
    return made


def plain(answer: Any) -> Any:
    """An answer without its sentences, some of which the protocol has no place for."""
    if isinstance(answer, Promise):
        return plain(answer.value) if answer.error is None else answer.error.code
    if isinstance(answer, Result):
        return answer.code
    if isinstance(answer, dict):
        return {key: plain(value) for key, value in answer.items()}
    if isinstance(answer, tuple) and hasattr(answer, "_fields"):
        return type(answer)(*map(plain, answer))
    return tuple(map(plain, answer)) if isinstance(answer, tuple) else answer


def decided(where: Cluster, request: Any) -> Any:
    """What the controller answers in its own process, as a handler sees it."""
    answer = where.port.submit(request)
    if isinstance(request, r.UpdateFeatures) and answer.error is None:
        # All or none: the protocol has one error for the whole.
        codes = {each.code for each in answer.value.values()} - {ErrorCode.NONE}
        return codes.pop() if codes else answer
    return answer


@pytest.mark.parametrize("version_max", [None, 0], ids=["latest", "earliest"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_is_decided_there_as_here(name: str, version_max: int | None) -> None:
    here, there = cluster(), cluster()
    asked = REQUESTS[name]
    request = asked(here) if callable(asked) else asked
    peers = ControllerPeers({ADDRESS: there}, version_max)
    router = make_router(there.world, peers=peers, leader=lambda: ADDRESS, image=lambda: there.image)
    answer = router.submit(request)
    assert answer.is_settled, "what is decided there is seen there at once"
    assert plain(answer) == plain(decided(here, request))
    assert there.image == here.image


def test_every_kind_is_said_but_what_a_controller_tells_itself() -> None:
    kinds = {type(asked(cluster()) if callable(asked) else asked) for asked in REQUESTS.values()}
    known = {r.RegisterBroker, r.BrokerHeartbeat, r.UnregisterBroker, *core._DECIDE}
    assert kinds == known
    assert to_wire(r.FenceBroker(1, 1), 1000) is None


@pytest.mark.parametrize(
    "request_",
    [
        r.CreateTopics((r.NewTopic("a"),)),
        r.DeleteTopics(("t",)),
        r.CreatePartitions((r.MorePartitions("t", 4),)),
        r.ElectLeaders(0, (("t", 0),)),
        r.AlterReassignments((r.PartitionTarget("t", 0, (2, 3)),)),
        r.ListReassignments(),
        r.AlterConfigs({T: {}}),
        set_topic(("retention.ms", 0, "5")),
        r.UpdateFeatures((r.FeatureUpdate("group.version", 1),)),
        registration(),
        r.BrokerHeartbeat(1, 1, 1),
        r.AlterPartition(1, 1, ()),
        r.AllocateProducerIds(1, 1),
        r.RegisterController(4, uuid(4), (), SUPPORTED),
        r.UnregisterBroker(1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_reply_of_not_controller_is_parsed(request_: Any) -> None:
    """Wherever a response has its errors: so that the question is put to the other one."""
    there = cluster()
    there.port.refusal = KafkaError("the controller is elsewhere", ErrorCode.NOT_CONTROLLER)
    words = to_wire(request_, 1000)
    assert words is not None
    answer = ControllerPeers({ADDRESS: there}).ask(ADDRESS, words, timeout_ms=1000)
    assert answer.error is not None
    assert answer.error.code is ErrorCode.NOT_CONTROLLER


def test_the_reason_of_a_refusal_comes_along_where_the_protocol_has_a_place_for_it() -> None:
    there = cluster()
    router = make_router(
        there.world,
        peers=ControllerPeers({ADDRESS: there}),
        leader=lambda: ADDRESS,
        image=lambda: there.image,
    )
    [created] = router.submit(r.CreateTopics((r.NewTopic("t"),))).value
    assert created.result == Result(ErrorCode.TOPIC_ALREADY_EXISTS, "topic t already exists")
    assert str(router.submit(r.UnregisterBroker(8)).error) == "broker 8 is not registered"
    assert "group.version" in str(
        router.submit(r.UpdateFeatures((r.FeatureUpdate("group.version", 0),))).error
    )


def test_what_has_no_place_in_the_protocol_is_refused_at_once() -> None:
    there = cluster()
    router = make_router(there.world, peers=ControllerPeers({ADDRESS: there}), leader=lambda: ADDRESS)
    answer = router.submit(r.CreateTopics((r.NewTopic("a", partitions=10**12),)))
    assert answer.error is not None
    assert answer.error.code is ErrorCode.INVALID_REQUEST
