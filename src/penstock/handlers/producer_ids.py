"""Numbers for producers: no two producers of a cluster ever get the same.

The controller gives out blocks of a thousand. A broker hands its block out one by one, and asks for the next block
when a tenth is left, so that no producer waits for the quorum but the first. Where they do wait, they are served in
the order in which they came.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerId
from penstock.base.promise import Promise
from penstock.coordinator.transactions import InitProducerId, ProducerEpoch, ProducerReply
from penstock.coordinator.transactions.codes import for_client
from penstock.metadata.controller.port import ControllerPort
from penstock.metadata.controller.requests import AllocateProducerIds, ProducerIdBlock
from penstock.wire import Api

from .support.context import CLUSTER_NAME, AclResourceType, Call, Context, Operation
from .support.controller_call import default_wait_ms, wait_ms_of
from .support.response_fields import NO_THROTTLE
from .support.waiting import after

PREFETCH_FRACTION = 0.1
"""How much of a block is left when the next one is asked for; Kafka's."""


class ProducerIds:
    """Ids to hand out. Nothing is written down: what is left of a block when the node stops is never used."""

    def __init__(self, controller: ControllerPort, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._block = range(0)
        """What is left of the block in use."""
        self._next_block: range | None = None
        self._prefetch_at = 0
        self._is_asking = False
        self._waiting: deque[Promise[ProducerId | KafkaError]] = deque()
        """Invariant: empty while there is an id to give."""

    def take(self) -> Promise[ProducerId | KafkaError]:
        """An id that nobody else has; or why there is none now, and another try may be luckier."""
        later: Promise[ProducerId | KafkaError] = Promise()
        self._waiting.append(later)
        self._serve()
        return later

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
        self._controller.submit(request).then(self._answered)

    def _answered(self, answer: ProducerIdBlock | KafkaError) -> None:
        self._is_asking = False
        if isinstance(answer, KafkaError):
            # Who waits is told; a block that was asked for early is asked for again with the next producer.
            refused, self._waiting = self._waiting, deque()
            for later in refused:
                later.resolve(answer)
            return
        self._next_block = range(answer.first, answer.first + answer.size)
        self._serve()


def init_producer_id(context: Context, call: Call) -> Any | Promise[Any]:
    """InitProducerId 0 to 5: who a producer is. An idempotent one gets a new id, with epoch 0; a transactional one
    the id that its transactional id has, with the next epoch.

    An idempotent producer that says which id and epoch it had gets a new id all the same. Where the controller has no
    ids to give, or not in time, the answer is COORDINATOR_LOAD_IN_PROGRESS, and every client tries again. To name a
    former id without its epoch, or the other way round, is INVALID_REQUEST.

    A transactional id is its coordinator's: an open transaction is aborted first, for which the producer is told
    CONCURRENT_TRANSACTIONS and comes again, and whoever had the id before is fenced. Who says which id and epoch it
    had goes on only if it was the last to have it.

    Version 2 is flexible, 3 has the former id and epoch (KIP-360), 4 PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE.
    """
    code = _refused(context, call)
    if code is not ErrorCode.NONE:
        return _response(call, code)
    if call.message.transactional_id is not None:
        return _init_transactional(context, call)
    taken = context.producer_ids.take()
    if taken.is_settled:
        return _given(call, taken.value)
    reply: Promise[Any] = Promise()
    timer = context.world.call_later(
        default_wait_ms(context),
        lambda: reply.resolve(_response(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
    )

    def given(answer: ProducerId | KafkaError) -> None:
        if not reply.is_settled:
            timer.cancel()
            reply.resolve(_given(call, answer))

    taken.then(given)
    return reply


def _init_transactional(context: Context, call: Call) -> Any | Promise[Any]:
    message = call.message
    former = ProducerEpoch(
        getattr(message, "producer_id", NO_PRODUCER_ID), getattr(message, "producer_epoch", NO_PRODUCER_EPOCH)
    )
    request = InitProducerId(
        message.transactional_id,
        wait_ms_of(message.transaction_timeout),
        None if former.producer_id == NO_PRODUCER_ID else former,
    )

    def respond(reply: ProducerReply) -> Any:
        code = for_client(reply.code, Api.INIT_PRODUCER_ID, call.version)
        return _response(call, code, reply.producer_id, reply.epoch)

    return after(context.transactions.handle(message.transactional_id, request), respond)


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
    """IDEMPOTENT_WRITE on the cluster, or WRITE on any topic there is (KIP-679)."""
    if context.authorize(call.session, Operation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, CLUSTER_NAME):
        return True
    return any(
        context.authorize(call.session, Operation.WRITE, AclResourceType.TOPIC, name)
        for name in context.image.topics
    )


def _given(call: Call, answer: ProducerId | KafkaError) -> Any:
    if isinstance(answer, KafkaError):
        return _response(call, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return _response(call, ErrorCode.NONE, answer, 0)


def _response(
    call: Call, code: ErrorCode, producer_id: ProducerId = NO_PRODUCER_ID, epoch: int = NO_PRODUCER_EPOCH
) -> Any:
    return call.make.InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=code, producer_id=producer_id, producer_epoch=epoch
    )


HANDLERS: dict[Api, Callable[[Context, Call], Any]] = {Api.INIT_PRODUCER_ID: init_producer_id}
