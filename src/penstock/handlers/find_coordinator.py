"""Who coordinates a group or a transactional id: the leader of the partition that keeps it."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_for
from penstock.base.promise import Promise
from penstock.metadata.controller.requests import CreateTopics
from penstock.wire import Api

from .metadata import CREATION_WAIT_MS
from .support.client_view import NO_BROKER, ClientView
from .support.context import AclResourceType, Call, Context, Endpoint, Operation
from .support.controller_call import ask
from .support.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, automatic_topic
from .support.response_fields import NO_THROTTLE

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Types of keys."""

_RESOURCES: Final = {
    GROUP: (AclResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, "group"),
    TRANSACTION: (
        AclResourceType.TRANSACTIONAL_ID,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "transactional id",
    ),
}

NOWHERE: Final = Endpoint("", -1)


class Coordinator(NamedTuple):
    error: KafkaError | None
    broker: int = NO_BROKER
    endpoint: Endpoint = NOWHERE


def find_coordinator(context: Context, call: Call) -> Any | Promise[Any]:
    """FindCoordinator 0 to 6: the broker to which requests of a group, or of a transactional id, go.

    Where the topic that keeps them is not there, it is created first, whatever `auto.create.topics.enable` says. Kafka
    starts that and answers COORDINATOR_NOT_AVAILABLE, and its client asks again; here the answer waits for the
    topic, and is Kafka's where that takes too long or the partition has no leader.

    A type of key that is not known gets INVALID_REQUEST, and so does that of share groups, which are not there: a
    Kafka without them says the same.

    Version 1 has transactional ids and messages, 3 is flexible, 4 asks for many keys at once (KIP-699), 5 knows
    TRANSACTION_ABORTABLE, 6 share groups.
    """
    request = call.message
    kind = getattr(request, "key_type", GROUP)
    keys = request.coordinator_keys if call.version >= 4 else (request.key,)
    refused = {key: _refused(context, call, kind, key) for key in keys}
    allowed = any(error is None for error in refused.values())
    topic = TRANSACTIONS_TOPIC if kind == TRANSACTION else OFFSETS_TOPIC

    def respond(_: Any = None) -> Any:
        view = ClientView(context, call.session)
        found = {
            key: _find(context, view, topic, key) if error is None else Coordinator(error)
            for key, error in refused.items()
        }
        return _response(call, [(key, found[key]) for key in keys])

    if not allowed or topic in context.image.topics:
        return respond()
    new = automatic_topic(topic, context.image, context.settings)
    assert new is not None, f"{topic} is one that is created"
    return ask(context, CreateTopics((new,)), CREATION_WAIT_MS, respond)


def _refused(context: Context, call: Call, kind: int, key: str) -> KafkaError | None:
    """Why a key is not even looked for."""
    if kind == SHARE:
        return KafkaError("there are no share groups here", ErrorCode.INVALID_REQUEST)
    if kind not in _RESOURCES:
        return KafkaError(f"{kind} is no type of coordinator", ErrorCode.INVALID_REQUEST)
    on, code, words = _RESOURCES[kind]
    if context.authorize(call.session, Operation.DESCRIBE, on, key):
        return None
    return KafkaError(f"not authorized for this {words}", code)


def _find(context: Context, view: ClientView, topic: str, key: str) -> Coordinator:
    held = context.image.topics.get(topic)
    if held is None:
        return Coordinator(_absent(f"there is no topic {topic} yet"))
    number = partition_for(key, len(held.partitions))
    leader = held.partitions[number].leader
    if leader not in view.brokers:
        return Coordinator(_absent(f"{topic}-{number} has no leader that can be reached"))
    return Coordinator(None, leader, view.brokers[leader][1])


def _absent(why: str) -> KafkaError:
    return KafkaError(why, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _response(call: Call, rows: list[tuple[str, Coordinator]]) -> Any:
    make = call.make
    if call.version >= 4:
        coordinators = tuple(make.Coordinator(key=key, **_row(found)) for key, found in rows)
        return make.FindCoordinatorResponse(throttle_time=NO_THROTTLE, coordinators=coordinators)
    [(_, found)] = rows
    return make.FindCoordinatorResponse(throttle_time=NO_THROTTLE, **_row(found))


def _row(found: Coordinator) -> dict[str, Any]:
    error = found.error
    return {
        "error_code": ErrorCode.NONE if error is None else error.code,
        "error_message": None if error is None else str(error),
        "node_id": found.broker,
        "host": found.endpoint.host,
        "port": found.endpoint.port,
    }


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.FIND_COORDINATOR: find_coordinator}
