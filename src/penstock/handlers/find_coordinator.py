"""The coordinator of a group or a transactional id: the leader of the partition that stores its state.

FindCoordinator 0 to 6
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.hashing import partition_for
from penstock.base.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.base.steps import Steps
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.controller.requests import CreateTopics
from penstock.wire import Api

from .metadata import CREATION_WAIT_MS
from .support.automatic_topics import automatic_topic
from .support.client_view import NO_BROKER, ClientView
from .support.context import Call, Context, Endpoint
from .support.controller_call import submit
from .support.response_fields import NO_THROTTLE
from .support.waiting import in_steps

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Key types."""

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


@in_steps
def find_coordinator(context: Context, call: Call) -> Steps[Any]:
    """FindCoordinator 0 to 6: the broker that coordinates a group or a transactional id. Needs DESCRIBE on it.

    If the internal topic does not exist, it is created first, whatever `auto.create.topics.enable` says. Kafka replies
    COORDINATOR_NOT_AVAILABLE meanwhile; here the reply waits for the topic, and is COORDINATOR_NOT_AVAILABLE only if
    that takes too long or the partition has no leader.

    An unknown key type gets INVALID_REQUEST, and so does that of share groups, which are not supported.

    Version notes: 1 adds transactional ids and messages; 3 is flexible; 4 has many keys (KIP-699); 5 has
    TRANSACTION_ABORTABLE; 6 share groups.
    """
    request = call.message
    kind = getattr(request, "key_type", GROUP)
    keys = request.coordinator_keys if call.version >= 4 else (request.key,)
    refused = {key: _refused(context, call, kind, key) for key in keys}
    allowed = any(error is None for error in refused.values())
    topic = TRANSACTIONS_TOPIC if kind == TRANSACTION else OFFSETS_TOPIC

    if allowed and topic not in context.image.topics:
        new = automatic_topic(topic, context.image, context.settings)
        assert new is not None, f"{topic} is created automatically"
        with suppress(KafkaError):  # then the topic is missing below
            yield submit(context, CreateTopics((new,)), CREATION_WAIT_MS)
    view = ClientView(context, call.session)
    found = {
        key: _find(context, view, topic, key) if error is None else Coordinator(error)
        for key, error in refused.items()
    }
    return _response(call, [(key, found[key]) for key in keys])


def _refused(context: Context, call: Call, kind: int, key: str) -> KafkaError | None:
    """Why a key is rejected; None if it is not."""
    if kind == SHARE:
        return KafkaError("Share groups are not supported.", ErrorCode.INVALID_REQUEST)
    if kind not in _RESOURCES:
        return KafkaError(
            f"Unknown coordinator key type {kind}, expected 0 (group) or 1 (transaction).",
            ErrorCode.INVALID_REQUEST,
        )
    on, code, words = _RESOURCES[kind]
    if context.authorize(call.session, Operation.DESCRIBE, on, key):
        return None
    return KafkaError(f"not authorized for this {words}", code)


def _find(context: Context, view: ClientView, topic: str, key: str) -> Coordinator:
    held = context.image.topics.get(topic)
    if held is None:
        return Coordinator(_absent(f"Topic {topic} does not exist yet; retry."))
    number = partition_for(key, len(held.partitions))
    leader = held.partitions[number].leader
    if leader not in view.brokers:
        return Coordinator(_absent(f"{topic}-{number} has no leader that this client can reach; retry."))
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
