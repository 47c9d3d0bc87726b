"""The way to the active controller, wherever it is: in this process, on another node, or being elected just now.

    submit --> the controller here, while it is active
           \\-> the quorum's leader, over the wire --> the reply --> (this node's image shows it) --> answer
           \\-> nobody leads, or it does not answer: again in a moment, until `request.timeout.ms` has passed

A question is asked again when whoever was asked is not the controller (any more), when no answer came, and when
another leads than was asked. It may have been heard and decided all the same. Kafka's brokers ask again too: there as
here a topic that was created by the first question gets TOPIC_ALREADY_EXISTS from the second, and one that was deleted
UNKNOWN_TOPIC_OR_PARTITION. Nothing is done twice: registrations are known by their incarnation, ISRs and features by
what they were before, and producer ids that were given out unheard are never used.

Heartbeats are not asked again: the next one comes soon enough, and says more. One that is not answered within their
interval is taken for lost, so that none waits behind another.
"""

from collections.abc import Callable, MutableSet
from functools import partial
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.world import Timer, World
from penstock.controlplane.active_controller import ActiveController
from penstock.controlplane.controller_wire import to_wire
from penstock.controlplane.image_wait import image_shows
from penstock.controlplane.wire_conversion import check_encodable
from penstock.metadata import ClusterImage
from penstock.metadata.controller.requests import AlterPartition, BrokerHeartbeat, RegisterBroker
from penstock.wire.peers import Address, PeerFailed, Peers

RETRY_MS: Final = 50
"""How soon it is looked again who leads. An election takes a few times as long."""

_PURPOSES: Final[dict[type, str]] = {
    RegisterBroker: "heartbeat",
    BrokerHeartbeat: "heartbeat",
    AlterPartition: "alter-partition",
}
"""What must not wait behind a slow answer to somebody else has a connection of its own; Kafka's division."""


class ControllerRouter:
    """A `ControllerPort`."""

    def __init__(
        self,
        world: World,
        local: ActiveController | None,
        peers: Peers | None,
        *,
        leader_address: Callable[[], Address | None],
        image: Callable[[], ClusterImage],
        watchers: Callable[[], MutableSet[Callable[[], None]]],
        timeout_ms: Callable[[], int],
        heartbeat_interval_ms: int,
    ) -> None:
        """`local` is None on a node that is no controller, `peers` on one that has no others. `leader_address` says
        where the quorum's leader listens, None where that is not known or is here; `image` and `watchers` are those of
        the node's context."""
        self._world = world
        self._local = local
        self._peers = peers
        self._leader_address = leader_address
        self._image = image
        self._watchers = watchers
        self._timeout_ms = timeout_ms
        self._heartbeat_wait_ms = heartbeat_interval_ms
        self._open: dict[_Question, None] = {}
        """Without an answer so far, in the order in which they were asked."""
        self._timer: Timer | None = None
        """Runs while there are any."""
        self._is_closed = False

    def submit(self, request: Any) -> Promise[Any]:
        later: Promise[Any] = Promise()
        if self._is_closed:
            later.resolve(_nobody())
            return later
        is_heartbeat = isinstance(request, BrokerHeartbeat)
        wait_ms = self._heartbeat_wait_ms if is_heartbeat else self._timeout_ms()
        question = _Question(self._world, request, later, wait_ms, is_tried_once=is_heartbeat)
        self._ask(question)
        if not later.is_settled:
            question.keep(self._overdue)
            self._open[question] = None
            self._look_later()
        return later

    def look_again(self) -> None:
        """The leader may be another: whoever waits for one does not wait for the next look."""
        for question in list(self._open):
            if not question.is_decided and (not question.is_asked or self._is_elsewhere(question)):
                self._ask(question)

    def close(self) -> None:
        """The node stops: nothing is asked any more, and whoever waits is told."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for question in list(self._open):
            self._settle(question, _nobody())

    # -- asking ----------------------------------------------------------------------------------------

    def _ask(self, question: "_Question") -> None:
        if self._local is not None and self._local.is_active:
            turn = question.ask(None)
            self._local.submit(question.request).then(partial(self._answered_here, question, turn))
            return
        address = self._leader_address()
        if address is None or self._peers is None:
            question.is_asked = False
            if question.is_tried_once:
                self._settle(question, _nobody())
            return
        wait_ms = question.left_ms()
        try:
            said = to_wire(question.request, wait_ms)
            if said is None:
                raise _nobody()
            check_encodable(said)
        except KafkaError as error:
            self._settle(question, error)
            return
        purpose = _PURPOSES.get(type(question.request), "controller")
        turn = question.ask(address)
        answer = self._peers.ask(address, said, timeout_ms=wait_ms, purpose=purpose)
        answer.then(partial(self._answered_there, question, turn))

    def _is_elsewhere(self, question: "_Question") -> bool:
        """Whether another leads than was asked."""
        if self._local is not None and self._local.is_active:
            return question.asked_at is not None
        address = self._leader_address()
        return address is not None and address != question.asked_at

    def _answered_here(self, question: "_Question", turn: int, answer: Any) -> None:
        if question.waits_for(turn):
            if _is_deposed(answer):
                self._try_again(question, answer)
            else:
                self._settle(question, answer)

    def _answered_there(self, question: "_Question", turn: int, answer: Any) -> None:
        if not question.waits_for(turn):
            return
        if isinstance(answer, PeerFailed) or _is_deposed(answer):
            self._try_again(question, answer)
        elif isinstance(answer, KafkaError):
            self._settle(question, answer)
        else:
            self._await_sight(question, answer)

    def _try_again(self, question: "_Question", why: KafkaError) -> None:
        question.is_asked = False
        if question.is_tried_once:
            self._settle(question, why)

    # -- seeing ----------------------------------------------------------------------------------------

    def _await_sight(self, question: "_Question", reply: Any) -> None:
        if image_shows(question.request, reply, self._image()):
            self._settle(question, reply)
            return
        question.decided(reply)

        def look() -> None:
            if question.later.is_settled:
                self._watchers().discard(look)
            elif image_shows(question.request, reply, self._image()):
                self._watchers().discard(look)
                self._settle(question, reply)

        self._watchers().add(look)

    # -- the end of a question -------------------------------------------------------------------------

    def _settle(self, question: "_Question", answer: Any) -> None:
        self._open.pop(question, None)
        question.settle(answer)

    def _overdue(self, question: "_Question") -> None:
        if question.is_decided:
            # It is done and committed; this node is behind, and will see it.
            self._settle(question, question.reply)
        elif question.is_asked:
            why = f"the controller has not answered in {question.wait_ms} ms"
            self._settle(question, KafkaError(why, ErrorCode.REQUEST_TIMED_OUT))
        else:
            self._settle(question, _nobody())

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = self._world.call_later(RETRY_MS, self._look)

    def _look(self) -> None:
        self._timer = None
        self.look_again()
        if self._open:
            self._look_later()


class _Question:
    """One request on its way: it may be asked several times, and is answered once."""

    __slots__ = (
        "_began_ns",
        "_timer",
        "_turn",
        "_world",
        "asked_at",
        "is_asked",
        "is_decided",
        "is_tried_once",
        "later",
        "reply",
        "request",
        "wait_ms",
    )

    def __init__(
        self, world: World, request: Any, later: Promise[Any], wait_ms: int, *, is_tried_once: bool
    ) -> None:
        self.request = request
        self.later = later
        self.wait_ms = wait_ms
        self.is_tried_once = is_tried_once
        self.is_asked = False
        """Somebody has been asked, and nothing is heard yet."""
        self.asked_at: Address | None = None
        """Who; None for the controller in this process."""
        self.is_decided = False
        """The controller has replied, and this node does not see what it did yet."""
        self.reply: Any = None
        self._world = world
        self._began_ns = world.clock_ns()
        self._timer: Timer | None = None
        self._turn = 0

    def keep(self, overdue: "Callable[[_Question], None]") -> None:
        self._timer = self._world.call_later(self.wait_ms, lambda: overdue(self))

    def left_ms(self) -> float:
        return max(1.0, self.wait_ms - (self._world.clock_ns() - self._began_ns) / 1e6)

    def ask(self, at: Address | None) -> int:
        """Note that somebody is asked; answers to earlier askings do not count any more."""
        self.is_asked, self.asked_at = True, at
        self._turn += 1
        return self._turn

    def waits_for(self, turn: int) -> bool:
        return turn == self._turn and not self.later.is_settled

    def decided(self, reply: Any) -> None:
        self.is_decided, self.reply = True, reply

    def settle(self, answer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.later.is_settled:
            self.later.resolve(answer)


def _is_deposed(answer: Any) -> bool:
    return isinstance(answer, KafkaError) and answer.code is ErrorCode.NOT_CONTROLLER


def _nobody() -> KafkaError:
    return KafkaError("no controller is known to be there", ErrorCode.NOT_CONTROLLER)
