"""A broker's life in its cluster, with a controller that may be slow, away, forgetful or gone."""

import logging
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.controlplane.broker_lifecycle import (
    LEAVE_MS_MAX,
    NO_CONTROLLER_MS_MAX,
    RETRY_MS,
    BrokerLifecycle,
)
from penstock.metadata.controller.requests import BrokerHeartbeat, HeartbeatReply, RegisterBroker
from penstock.metadata.image import EMPTY, Broker

REGISTRATION = RegisterBroker(1, "cluster", bytes(16), (), (), ())
FENCED, UNFENCED = HeartbeatReply(True, True, False), HeartbeatReply(True, False, False)
LET_GO = HeartbeatReply(True, True, True)
INTERVAL_MS = 2000
SESSION_MS = 9000


def refusal(code: ErrorCode) -> KafkaError:
    return KafkaError(f"refused with {code.name}", code)


class Controller:
    """A `ControllerPort` that answers with what a test has ready, or later."""

    def __init__(self, world: StillWorld) -> None:
        self._world = world
        self.answers: list[Any] = []
        """For the questions that come; without one, a question waits."""
        self.asked: list[tuple[int, Any]] = []
        """When, and what."""
        self.waiting: list[Promise[Any]] = []

    def submit(self, request: Any) -> Promise[Any]:
        self.asked.append((self._world.now_ms(), request))
        later: Promise[Any] = Promise()
        if self.answers and isinstance(self.answers[0], KafkaError):
            later.fail(self.answers.pop(0))
        elif self.answers:
            later.resolve(self.answers.pop(0))
        else:
            self.waiting.append(later)
        return later

    def kinds(self) -> list[type]:
        return [type(request) for _, request in self.asked]


class Scene:
    def __init__(self, *answers: Any, session_ms: int = SESSION_MS) -> None:
        self.world = StillWorld()
        self.controller = Controller(self.world)
        self.controller.answers = list(answers)
        self.failures: list[str] = []
        self.is_refused = False
        self.unfenced = 0
        self.gone = 0
        self.lifecycle = BrokerLifecycle(
            self.world,  # type: ignore[arg-type]  # it needs no connections
            self.controller,
            heartbeat_interval_ms=INTERVAL_MS,
            metadata_offset=lambda: 40,
            failed=self.failures.append,
            registration_timeout_ms=60_000,
            session_timeout_ms=session_ms,
            is_refused=lambda: self.is_refused,
        )
        self.lifecycle.join(REGISTRATION, self._unfenced)

    def _unfenced(self) -> None:
        self.unfenced += 1

    def leave(self) -> None:
        def gone() -> None:
            self.gone += 1

        self.lifecycle.leave(gone)


def test_a_broker_registers_and_heartbeats_until_it_is_unfenced() -> None:
    scene = Scene(7, FENCED, FENCED, UNFENCED)
    assert not scene.unfenced
    scene.world.advance(2 * RETRY_MS)
    assert scene.unfenced == 1
    assert scene.lifecycle.epoch == 7
    assert scene.controller.asked[-1][1] == BrokerHeartbeat(1, 7, 40)


def test_heartbeats_go_out_at_every_interval() -> None:
    scene = Scene(7, *[UNFENCED] * 6)
    scene.world.advance(5 * INTERVAL_MS)
    times = [at for at, request in scene.controller.asked if isinstance(request, BrokerHeartbeat)]
    assert [later - sooner for sooner, later in pairwise(times)] == [INTERVAL_MS] * 5


def test_a_heartbeat_that_is_not_answered_does_not_keep_the_next_one() -> None:
    """The controller hears them at once, and so knows that the broker lives, whatever its quorum does."""
    scene = Scene(7, UNFENCED)
    scene.world.advance(3 * INTERVAL_MS)
    assert len(scene.controller.waiting) == 3
    for late in scene.controller.waiting[::-1]:
        late.resolve(UNFENCED)
    assert scene.unfenced == 1


def test_an_old_answer_does_not_undo_a_newer_one() -> None:
    scene = Scene(7, UNFENCED)
    scene.world.advance(2 * INTERVAL_MS)
    first, second = scene.controller.waiting
    second.resolve(UNFENCED)
    asked = len(scene.controller.asked)
    first.fail(refusal(ErrorCode.STALE_BROKER_EPOCH))
    scene.world.advance(RETRY_MS)
    assert len(scene.controller.asked) == asked, "nothing is asked because of it"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    ],
)
def test_a_registration_is_tried_again_after_what_will_pass(code: ErrorCode) -> None:
    scene = Scene(refusal(code), refusal(code), 7, UNFENCED)
    scene.world.advance(2 * RETRY_MS)
    assert scene.unfenced == 1
    assert not scene.failures


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION],
)
def test_a_registration_that_can_never_be_ends_the_broker(code: ErrorCode) -> None:
    scene = Scene(refusal(code))
    assert scene.failures == [f"the controller rejected this broker's registration: refused with {code.name}"]
    scene.world.advance(100_000)
    assert len(scene.failures) == len(scene.controller.asked) == 1


def test_a_broker_that_no_controller_takes_gives_up_after_its_time() -> None:
    scene = Scene(*[refusal(ErrorCode.NOT_CONTROLLER)] * 5000)
    scene.world.advance(59_999)
    assert not scene.failures
    scene.world.advance(2)
    [why] = scene.failures
    assert why == (
        "this broker could not register within 60000 ms (initial.broker.registration.timeout.ms): "
        "refused with NOT_CONTROLLER"
    )
    asked = len(scene.controller.asked)
    scene.world.advance(10_000)
    assert len(scene.controller.asked) == asked


def test_a_broker_whose_credentials_are_refused_goes_on_trying() -> None:
    """What is wrong may be mended while it runs; then its time begins anew."""
    scene = Scene()
    scene.is_refused = True
    scene.world.advance(150_000)
    assert not scene.failures
    scene.is_refused = False
    scene.world.advance(60_000)
    assert len(scene.failures) == 1


def test_a_broker_without_cluster_action_says_so_once_and_goes_on_trying(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene = Scene(*[refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)] * 3000, 7, UNFENCED)
    while scene.controller.answers:
        scene.world.advance(1000)
    assert not scene.failures
    assert scene.unfenced == 1
    assert [each.levelno for each in caplog.records] == [logging.ERROR]
    assert "add it to super.users of all nodes, or allow it" in caplog.text


def test_one_that_was_taken_has_all_the_time_there_is() -> None:
    scene = Scene(7, *[FENCED] * 3000)
    scene.world.advance(100_000)
    assert not scene.failures


def test_a_broker_that_the_controller_does_not_know_registers_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Unregistered by an operator, or from a time that the controllers have lost."""
    scene = Scene(7, UNFENCED, refusal(ErrorCode.STALE_BROKER_EPOCH), 12, UNFENCED)
    scene.world.advance(INTERVAL_MS)
    assert scene.controller.kinds()[2:] == [BrokerHeartbeat, RegisterBroker, BrokerHeartbeat]
    assert scene.lifecycle.epoch == 12
    assert scene.unfenced == 1
    assert "registering again" in caplog.text


def test_a_lost_heartbeat_is_followed_by_another_soon() -> None:
    scene = Scene(7, UNFENCED, refusal(ErrorCode.NETWORK_EXCEPTION), UNFENCED)
    scene.world.advance(INTERVAL_MS + RETRY_MS)
    times = [at for at, _ in scene.controller.asked]
    assert times[-1] - times[-2] == RETRY_MS


def test_a_controller_that_is_missed_for_a_session_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(7, UNFENCED, *[refusal(ErrorCode.NOT_CONTROLLER)] * 1000)
    scene.world.advance(8000)
    assert "has not answered" not in caplog.text
    scene.world.advance(20_000)
    assert caplog.text.count("has not answered") == 1


def test_a_broker_that_was_fenced_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    scene = Scene(7, UNFENCED, FENCED, FENCED, UNFENCED)
    scene.world.advance(INTERVAL_MS + 2 * RETRY_MS)
    assert caplog.text.count("has fenced this broker") == 1
    assert caplog.text.count("has unfenced this broker again") == 1
    assert scene.unfenced == 1


@pytest.mark.parametrize(
    ("changes", "hurries"),
    [
        ({"fenced": False, "in_controlled_shutdown": True}, True),
        ({"fenced": True, "in_controlled_shutdown": True}, False),
        ({"fenced": False}, False),
    ],
    ids=str,
)
def test_another_that_leaves_does_not_wait_for_the_next_heartbeat(
    changes: dict[str, bool], hurries: bool
) -> None:
    scene = Scene(7, *[UNFENCED] * 5)
    scene.world.advance(500)
    image = replace(EMPTY, brokers=EMPTY.brokers.changed({2: Broker(2, 5, bytes(16), **changes)}))
    asked = len(scene.controller.asked)
    scene.lifecycle.follow(image, {2, 3})
    scene.world.advance(0)
    assert len(scene.controller.asked) - asked == hurries


# -- leaving -------------------------------------------------------------------------------------------


def test_a_broker_that_leaves_waits_until_the_controller_lets_it_go() -> None:
    scene = Scene(7, UNFENCED, UNFENCED, refusal(ErrorCode.NOT_CONTROLLER), LET_GO)
    scene.leave()
    assert scene.controller.asked[-1][1].want_shutdown
    assert not scene.gone
    scene.world.advance(2 * RETRY_MS)
    assert scene.gone == 1
    asked = len(scene.controller.asked)
    scene.world.advance(60_000)
    assert (scene.gone, len(scene.controller.asked)) == (1, asked)


def test_a_broker_goes_without_leave_after_a_while() -> None:
    scene = Scene(7, UNFENCED)
    scene.leave()
    scene.world.advance(LEAVE_MS_MAX - 1)
    assert not scene.gone
    scene.world.advance(1)
    assert scene.gone == 1
    for late in scene.controller.waiting:
        late.resolve(LET_GO)
    assert scene.gone == 1


def test_the_last_of_a_cluster_that_stops_does_not_wait_for_a_controller() -> None:
    scene = Scene(7, UNFENCED, UNFENCED, *[refusal(ErrorCode.NOT_CONTROLLER)] * 1000)
    scene.leave()
    scene.world.advance(NO_CONTROLLER_MS_MAX - RETRY_MS)
    assert not scene.gone, "one may be elected yet"
    scene.world.advance(2 * RETRY_MS)
    assert scene.gone == 1


@pytest.mark.parametrize("answers", [(), (7, UNFENCED, refusal(ErrorCode.STALE_BROKER_EPOCH))])
def test_a_broker_that_is_not_registered_may_go_at_once(answers: tuple[Any, ...]) -> None:
    scene = Scene(*answers)
    scene.leave()
    assert scene.gone == 1


# -- in touch --------------------------------------------------------------------------------------------


LEASE_MS = SESSION_MS // 2


def test_a_broker_has_its_lease_from_when_it_is_unfenced_and_while_heartbeats_are_answered() -> None:
    scene = Scene(7, FENCED, UNFENCED, *[UNFENCED] * 5)
    assert not scene.lifecycle.has_lease
    scene.world.advance(RETRY_MS)
    assert scene.lifecycle.has_lease
    for _ in range(5):
        scene.world.advance(INTERVAL_MS)
        assert scene.lifecycle.has_lease


def test_a_lease_begins_when_the_heartbeat_was_sent_and_not_when_it_was_answered() -> None:
    """The controller counts from when it heard it, which was between the two."""
    scene = Scene(7, UNFENCED)
    scene.world.advance(INTERVAL_MS)
    [late] = scene.controller.waiting
    scene.world.advance(INTERVAL_MS - 1)
    late.resolve(UNFENCED)
    scene.world.advance(LEASE_MS - INTERVAL_MS)
    assert scene.lifecycle.has_lease
    scene.world.advance(1)
    assert not scene.lifecycle.has_lease


def test_heartbeats_that_are_refused_or_not_answered_do_not_prolong_it() -> None:
    scene = Scene(7, UNFENCED, refusal(ErrorCode.NOT_CONTROLLER))
    scene.world.advance(LEASE_MS - 1)
    assert scene.lifecycle.has_lease
    scene.world.advance(1)
    assert not scene.lifecycle.has_lease


def test_after_a_silence_the_second_answer_counts() -> None:
    """The first may be of a controller in this very process, which stood still with it and is deposed as well."""
    scene = Scene(7, UNFENCED)
    scene.world.advance(3 * INTERVAL_MS)
    scene.controller.answers = [UNFENCED]
    scene.world.advance(INTERVAL_MS)
    assert not scene.controller.answers
    assert not scene.lifecycle.has_lease
    for old in scene.controller.waiting[::-1]:
        old.resolve(UNFENCED)
    assert not scene.lifecycle.has_lease, "those were sent in the silence"
    scene.controller.answers = [UNFENCED]
    scene.world.advance(INTERVAL_MS)
    assert scene.lifecycle.has_lease


def test_a_broker_that_is_told_that_it_is_fenced_is_out_of_touch_until_it_is_taken_back() -> None:
    scene = Scene(7, UNFENCED, FENCED, FENCED, UNFENCED)
    scene.world.advance(INTERVAL_MS)
    assert not scene.lifecycle.has_lease
    scene.world.advance(RETRY_MS)
    assert not scene.lifecycle.has_lease
    scene.world.advance(RETRY_MS)
    assert scene.lifecycle.has_lease


def test_a_broker_that_is_not_known_any_more_is_out_of_touch() -> None:
    scene = Scene(7, UNFENCED, refusal(ErrorCode.STALE_BROKER_EPOCH))
    scene.world.advance(INTERVAL_MS)
    assert not scene.lifecycle.has_lease


def test_a_lease_outlasts_a_late_heartbeat_however_short_the_session_is() -> None:
    scene = Scene(7, *[UNFENCED] * 3, session_ms=INTERVAL_MS)
    scene.world.advance(2 * INTERVAL_MS - 1)
    assert scene.lifecycle.has_lease
