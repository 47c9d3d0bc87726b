"""Producer ids and epochs.

    InitProducerId 0 to 5

No two producers of a cluster get the same id. The controller allocates blocks of a thousand to brokers. A broker
requests the next block when a tenth of its block is left, so that only its first producer waits for the quorum.
Producers that wait are served in order.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId
from penstock.base.promise import Promise
from penstock.base.steps import Steps, in_time
from penstock.coordinator.transactions.codes import for_client
from penstock.coordinator.transactions.requests import InitProducerId, ProducerEpoch, ProducerReply
from penstock.metadata.acls import CLUSTER_NAME, AclResourceType, Operation
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.controller.requests import AllocateProducerIds, ProducerIdBlock
from penstock.wire import Api

from .support.context import Call, Context
from .support.controller_call import default_wait_ms, wait_ms_of
from .support.response_fields import NO_THROTTLE
from .support.waiting import in_steps

PREFETCH_FRACTION = 0.1
"""The fraction of a block that is left when the next one is requested, as in Kafka."""


class ProducerIds:
    """The broker's blocks of producer ids. They are not stored: a restart drops the rest of a block."""

    def __init__(self, controller: ControllerPort, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._block = range(0)
        """The rest of the current block."""
        self._next_block: range | None = None
        self._prefetch_at = 0
        self._is_asking = False
        self._waiting: deque[Promise[ProducerId]] = deque()
        """Invariant: empty while an id is available."""

    def take(self) -> Promise[ProducerId]:
        """A new id. Fails where the controller rejects the request for a block; callers may retry."""
        taken: Promise[ProducerId] = Promise()
        self._waiting.append(taken)
        self._serve()
        return taken

    def _serve(self) -> None:
        while self._waiting:
            if not self._block and self._next_block is not None:
                self._use(self._next_block)
            if not self._block:
                break
            taken, self._block = self._block[0], self._block[1:]
            self._waiting.popleft().resolve(taken)
        if len(self._block) <= self._prefetch_at and self._next_block is None:
            self._ask()

    def _use(self, block: range) -> None:
        self._block, self._next_block = block, None
        self._prefetch_at = int(len(block) * PREFETCH_FRACTION)

    def _ask(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True
        request = AllocateProducerIds(self._node_id, self._broker_epoch())
        self._controller.submit(request).then(self._allocated, self._rejected)

    def _allocated(self, block: ProducerIdBlock) -> None:
        self._is_asking = False
        self._next_block = range(block.first, block.first + block.size)
        self._serve()

    def _rejected(self, error: KafkaError) -> None:
        """Fail those that wait. If none waits, the next producer requests the block again."""
        self._is_asking = False
        refused, self._waiting = self._waiting, deque()
        for each in refused:
            each.fail(error)


@in_steps
def init_producer_id(context: Context, call: Call) -> Steps[Any]:
    """InitProducerId 0 to 5: an idempotent producer gets a new id with epoch 0; a transactional producer gets the id
    of its transactional id with the next epoch.

    An idempotent producer needs IDEMPOTENT_WRITE on the cluster or WRITE on some topic. If it names its former id, it
    gets a new one all the same. If the controller allocates no ids in time, the reply is
    COORDINATOR_LOAD_IN_PROGRESS, which clients retry. A former id without its epoch, or an epoch without its id, gets
    INVALID_REQUEST.

    A transactional producer needs WRITE on its transactional id. The coordinator aborts an open transaction first,
    with CONCURRENT_TRANSACTIONS until it has, and fences the former producer. A producer that names its former id and
    epoch continues only if it was the last with that transactional id.

    Version notes: 2 is flexible; 3 adds the former id and epoch (KIP-360); 4 has PRODUCER_FENCED; 5
    TRANSACTION_ABORTABLE.
    """
    code = _refused(context, call)
    if code is not ErrorCode.NONE:
        return _response(call, code)
    if call.message.transactional_id is not None:
        return (yield from _init_transactional(context, call))
    try:
        late = "no producer ids were allocated in time"
        producer_id = yield in_time(
            context.world, context.producer_ids.take(), default_wait_ms(context), late
        )
    except KafkaError:
        return _response(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return _response(call, ErrorCode.NONE, producer_id, 0)


def _init_transactional(context: Context, call: Call) -> Steps[Any]:
    message = call.message
    former = ProducerEpoch(
        getattr(message, "producer_id", NO_PRODUCER_ID), getattr(message, "producer_epoch", NO_PRODUCER_EPOCH)
    )
    request = InitProducerId(
        message.transactional_id,
        wait_ms_of(message.transaction_timeout),
        None if former.producer_id == NO_PRODUCER_ID else former,
    )
    reply: ProducerReply = yield context.transactions.handle(message.transactional_id, request)
    code = for_client(reply.code, Api.INIT_PRODUCER_ID, call.version)
    return _response(call, code, reply.producer_id, reply.epoch)


def _refused(context: Context, call: Call) -> ErrorCode:
    request, session = call.message, call.session
    transactional_id = request.transactional_id
    if transactional_id is not None:
        if not context.authorize(
            session, Operation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
    elif not _may_write(context, call):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    has_id = getattr(request, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    has_epoch = getattr(request, "producer_epoch", NO_PRODUCER_EPOCH) != NO_PRODUCER_EPOCH
    return ErrorCode.INVALID_REQUEST if has_id != has_epoch else ErrorCode.NONE


def _may_write(context: Context, call: Call) -> bool:
    """IDEMPOTENT_WRITE on the cluster, or WRITE on any topic (KIP-679)."""
    session = call.session
    return context.permits_any(session, Operation.WRITE, AclResourceType.TOPIC) or context.authorize(
        session, Operation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, CLUSTER_NAME
    )


def _response(
    call: Call, code: ErrorCode, producer_id: ProducerId = NO_PRODUCER_ID, epoch: int = NO_PRODUCER_EPOCH
) -> Any:
    return call.make.InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=code, producer_id=producer_id, producer_epoch=epoch
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.INIT_PRODUCER_ID: init_producer_id}
