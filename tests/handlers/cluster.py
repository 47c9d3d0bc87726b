"""A cluster as handlers see it: a real controller behind a port, a still world, and calls that go over the wire.

What a handler is asked is written and read back, and so is what it answers: a test that passes has an answer that
every client of that version can read.

    cluster = Cluster(brokers=(1, 2, 3))
    reply = cluster.call(Api.METADATA, 12, topics=None)

The port answers at once, unless a test `hold`s it; then `release` lets decisions be made.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from random import Random
from types import NoneType
from typing import Any, cast, get_args
from uuid import UUID

from tests.worlds import StillWorld

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.handlers.producer_ids import ProducerIds
from penstock.handlers.support.api_table import SERVED
from penstock.handlers.support.context import Call, Context, Session
from penstock.metadata import records as s
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.bootstrap import bootstrap_records
from penstock.metadata.configs import BrokerSettings
from penstock.metadata.controller import requests as r
from penstock.metadata.controller.controller import Controller
from penstock.metadata.image import ALL_BROKERS, EMPTY, ClusterImage, Resource, ResourceType
from penstock.metadata.versions import SUPPORTED
from penstock.raft.describe import QuorumDescription, ReplicaDescription
from penstock.raft.messages import Reply, Request
from penstock.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.replica.broker_client import BrokerClient
from penstock.wire import Api, read_request, read_response, write_request, write_response
from penstock.wire.messages import request_type, response_builder
from penstock.wire.peers import Address

CLUSTER_ID = "a-cluster-of-brokers00"


def uuid(number: int) -> bytes:
    return (1_000 + number).to_bytes(16, "big")


class Port:
    """The controller on this very node; `asked` has every request that was submitted."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.asked: list[Any] = []
        self.refusal: KafkaError | None = None
        """What to answer instead of deciding."""
        self.held: list[tuple[Any, Promise[Any]]] | None = None

    def hold(self) -> None:
        self.held = []

    def release(self) -> None:
        held, self.held = self.held or [], None
        for request, later in held:
            self._decide(request, later)

    def submit(self, request: Any) -> Promise[Any]:
        self.asked.append(request)
        later: Promise[Any] = Promise()
        if self.held is not None:
            self.held.append((request, later))
        else:
            self._decide(request, later)
        return later

    def _decide(self, request: Any, promise: Promise[Any]) -> None:
        if self.refusal is not None:
            promise.fail(self.refusal)
            return
        try:
            reply = self._cluster.decide(request)
        except KafkaError as error:
            promise.fail(error)
        else:
            promise.resolve(reply)


class Quorum:
    """One voter, node 1, which leads; or as a test has it."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image
        self.description: QuorumDescription | None = None

        self.leader_address: Address | None = None
        self.epoch = 1
        self.elections = 1
        self.is_recovering = False
        self.cluster_id_in_log = ""
        self.request_timeout_ms = 2000
        self.second_listeners: frozenset[str] = frozenset()
        self.received: list[Request] = []
        self.answer = Promise[Reply]()
        """What the next request is answered with."""

    @property
    def leader_id(self) -> int:
        return self.describe().leader_id

    @property
    def is_leader(self) -> bool:
        return self.leader_id == 1

    @property
    def role(self) -> str:
        return "leader" if self.is_leader else "follower"

    @property
    def high_watermark(self) -> int:
        return self.describe().high_watermark

    @property
    def end_offset(self) -> int:
        return self._image().offset + 1

    @property
    def voters(self) -> VoterSet:
        return VoterSet.of(Voter(each.key, each.endpoints) for each in self.describe().voters)

    def receive(self, request: Request) -> Promise[Reply]:
        self.received.append(request)
        return self.answer

    def describe(self) -> QuorumDescription:
        if self.description is not None:
            return self.description
        end = self._image().offset + 1
        voter = ReplicaDescription(
            ReplicaKey(1, UUID(int=7)), end, 5, 5, (Endpoint("CONTROLLER", "localhost", 9093),)
        )
        return QuorumDescription(1, 1, end, (voter,))


class GuardedContext(Context):
    """A context in which a test says what is denied."""

    denied: set[tuple[Operation, AclResourceType, str]]

    def authorize(self, session: Session, operation: Operation, on: AclResourceType, name: str) -> bool:
        return (operation, on, name) not in self.denied and (operation, on, "*") not in self.denied

    permits = authorize

    def permits_any(self, session: Session, operation: Operation, on: AclResourceType) -> bool:
        return self.permits(session, operation, on, "*")


class Cluster:
    def __init__(
        self,
        brokers: Iterable[int] = (1,),
        static: Mapping[str, str] | None = None,
        replicas: Any = None,
        world: StillWorld | None = None,
    ) -> None:
        self.world = world or StillWorld()
        settings = BrokerSettings(1, {"num.partitions": "2", **(static or {})})
        self.controller = Controller(
            EMPTY,
            cluster_id=CLUSTER_ID,
            rng=Random(0),
            now_ms=self.world.now_ms(),
            settings=settings,
            session_timeout_ms=9000,
        )
        self._offset = -1
        self.served = SERVED
        """What the listener that is asked serves: a broker's, unless a test says otherwise."""
        self.port = Port(self)
        self.quorum = Quorum(lambda: self.controller.image)
        self.producer_ids = ProducerIds(self.port, 1, lambda: self.context.image.brokers[1].epoch)
        self.context = GuardedContext(
            world=self.world,
            node_id=1,
            cluster_id=CLUSTER_ID,
            settings=settings,
            replicas=cast("Any", replicas),
            controller=self.port,
            quorum=self.quorum,
            fetch_sessions=cast("Any", None),
            producer_ids=self.producer_ids,
            groups=cast("Any", None),
            transactions=cast("Any", None),
            markers=cast("Any", None),
            broker_client=BrokerClient(
                self.world, cast("Any", None), lambda: self.context.image, "PLAINTEXT"
            ),
            image=EMPTY,
        )
        self.context.denied = set()
        self.session = Session("127.0.0.1", 9092, "127.0.0.1:50000")
        self.write(bootstrap_records())
        for broker in brokers:
            self.start(broker)

    # The cluster.

    @property
    def image(self) -> ClusterImage:
        return self.context.image

    def write(self, records: Iterable[s.AnyRecord]) -> None:
        batch = list(records)
        if batch:
            self._offset += len(batch)
            self.controller.replay(batch, self._offset, 1)
        self.context.image = self.controller.image

    def decide(self, request: Any) -> Any:
        outcome = self.controller.handle(request, self.world.now_ms())
        self.write(outcome.records)
        return outcome.reply

    def start(self, broker: int, rack: str | None = None, listener: str = "PLAINTEXT") -> None:
        epoch = self.decide(
            r.RegisterBroker(
                broker_id=broker,
                cluster_id=CLUSTER_ID,
                incarnation_id=uuid(100 + broker),
                endpoints=(s.Endpoint(name=listener, host=f"host-{broker}", port=9000 + broker),),
                features=SUPPORTED,
                log_dirs=(uuid(broker),),
                rack=rack,
            )
        )
        self.decide(r.BrokerHeartbeat(broker, epoch, self.image.offset))

    def fence(self, broker: int) -> None:
        self.decide(r.FenceBroker(broker, self.image.brokers[broker].epoch))

    def create(self, name: str, *replicas: tuple[int, ...], **configs: str) -> None:
        """A topic with these replicas, a tuple for each partition; one on broker 1 where none are given."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        assignments = tuple(enumerate(replicas or ((1,),)))
        (created,) = self.decide(r.CreateTopics((r.NewTopic(name, assignments=assignments, configs=named),)))
        assert created.result == r.OK, created

    def set(self, resource: Resource, **configs: str) -> None:
        changes = tuple(
            r.ConfigChange(key.replace("_", "."), r.ConfigOp.SET, value) for key, value in configs.items()
        )
        replies = self.decide(r.IncrementalAlterConfigs({resource: changes}))
        assert replies[resource] == r.OK, replies

    def set_topic(self, topic: str, **configs: str) -> None:
        self.set(Resource(ResourceType.TOPIC, topic), **configs)

    def set_all_brokers(self, **configs: str) -> None:
        self.set(ALL_BROKERS, **configs)

    def topic_id(self, name: str) -> UUID:
        return UUID(bytes=self.image.topics[name].id)

    def deny(self, operation: Operation, on: AclResourceType, name: str = "*") -> None:
        self.context.denied.add((operation, on, name))

    # Calls.

    def ask(self, api: Api, version: int, **values: Any) -> Promise[Any]:
        """The answer as a client reads it, when it is there. Fields that are not named have their defaults."""
        request = make_request(api, version, **values)
        message = read_request(api, version, memoryview(write_request(api, version, request)))
        versions, handler = self.served[api]
        assert version in versions
        answer = handler(
            self.context, Call(self.session, version, message, response_builder(api, version), "tests")
        )
        read: Promise[Any] = Promise()

        def reply(entity: Any) -> None:
            read.resolve(read_response(api, version, memoryview(write_response(api, version, entity))))

        if isinstance(answer, Promise):
            answer.then(reply)
        else:
            reply(answer)
        return read

    def call(self, api: Api, version: int, **values: Any) -> Any:
        """The answer, which has to be there at once."""
        later = self.ask(api, version, **values)
        assert later.is_settled
        return later.value


def make_request(api: Api, version: int, **values: Any) -> Any:
    """A request from plain data, lists and dicts for what is nested. What a version lacks is left out."""
    return _entity(request_type(api, version), values)


def _entity(entity_type: type[Any], values: Mapping[str, Any]) -> Any:
    made = {}
    for each in fields(entity_type):
        if each.name in values:
            made[each.name] = _value(each.type, values[each.name])
        elif each.default is MISSING:
            made[each.name] = _ZEROS.get(each.metadata.get("kafka_type", ""), ())
    return entity_type(**made)


_ZEROS = {"bool": False, "timedelta_i32": timedelta(seconds=60), "uuid": None, "string": None, "int64": 0}
"""For fields of requests that have no default and that a test does not care for."""


def _value(annotation: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_value(annotation, each) for each in value)
    if isinstance(value, dict):
        return _entity(_entity_type(annotation), value)
    return value


def _entity_type(annotation: Any) -> type[Any]:
    if is_dataclass(annotation):
        return cast("type[Any]", annotation)
    return next(_entity_type(each) for each in get_args(annotation) if each not in (Ellipsis, NoneType))
