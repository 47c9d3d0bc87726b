"""A refusal that ends a client leaves a line in the log that says why."""

import logging
import time
from datetime import timedelta

import pytest
from tests.server.raw import RawClient
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode
from penstock.handlers.support.context import Call, Session
from penstock.handlers.support.refusal_log import SAY_AGAIN_NS, Refusals
from penstock.testing import Broker
from penstock.wire import Api, request_module
from penstock.wire.messages import response_builder

COMING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Response:
    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.error_code = code
        self.error_message = message


def call() -> Call:
    session = Session("10.0.0.2", 9092, "10.0.0.1:4711")
    return Call(session, 1, None, response_builder(Api.HEARTBEAT, 1), "app-7")


def test_a_consumer_that_gives_up_finds_the_reason_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    of = request_module(Api.CONSUMER_GROUP_HEARTBEAT, 1)
    request = of.ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id="member",
        member_epoch=0,
        rebalance_timeout=timedelta(milliseconds=-1),
        subscribed_topic_names=None,
        topic_partitions=None,
    )
    find = request_module(Api.FIND_COORDINATOR, 3).FindCoordinatorRequest(key="group", key_type=0)
    with Broker() as broker, RawClient(broker.port) as client, caplog.at_level(logging.WARNING):
        end = time.monotonic() + 60
        while time.monotonic() < end:
            client.ask(Api.FIND_COORDINATOR, 3, find)
            answer = client.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, request)
            if int(answer.error_code) not in COMING:
                break
            time.sleep(0.05)
        assert int(answer.error_code) == ErrorCode.INVALID_REQUEST
        assert answer.error_message
    [line] = [each.getMessage() for each in caplog.records if "refused" in each.getMessage()]
    assert line.startswith("ConsumerGroupHeartbeat 1 from 127.0.0.1:")
    assert line.endswith(f"(client id 'raw') is refused with INVALID_REQUEST: {answer.error_message}")


def test_many_refusals_of_one_kind_are_one_line_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    world = StillWorld()
    refusals = Refusals(world)
    for _ in range(1000):
        refusals.look_at(Api.JOIN_GROUP, call(), Response(ErrorCode.INVALID_SESSION_TIMEOUT))
    assert len(caplog.records) == 1
    refusals.look_at(Api.JOIN_GROUP, call(), Response(ErrorCode.INVALID_GROUP_ID))
    assert len(caplog.records) == 2
    world.advance(SAY_AGAIN_NS // 1_000_000)
    refusals.look_at(Api.JOIN_GROUP, call(), Response(ErrorCode.INVALID_SESSION_TIMEOUT))
    assert caplog.records[-1].getMessage() == (
        "JoinGroup 1 from 10.0.0.1:4711 (client id 'app-7') is refused with INVALID_SESSION_TIMEOUT; "
        "999 more like it since the last line"
    )


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID],
)
def test_what_clients_expect_is_not_logged(code: ErrorCode, caplog: pytest.LogCaptureFixture) -> None:
    Refusals(StillWorld()).look_at(Api.HEARTBEAT, call(), Response(code))
    assert not caplog.records
