from datetime import timedelta
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.fake import feed

from penstock.base.errors import ErrorCode
from penstock.client import buffer_pool as spares
from penstock.client import connection
from penstock.client.connection import Call, Conversation
from penstock.client.errors import BrokerRefused, ConnectionLost, NotServed
from penstock.wire import (
    KAFKA_RANGES,
    Api,
    MalformedResponse,
    VersionRange,
    api_versions_error,
    api_versions_reply,
    parse_header,
    read_request,
    response_frame,
)
from penstock.wire.errors import BadFrame
from penstock.wire.request import Request, through_kio

SERVED = {
    Api.API_VERSIONS: VersionRange(0, 4),
    Api.METADATA: VersionRange(0, 9),
    Api.PRODUCE: VersionRange(3, 9),
}


def echo(
    api: Api = Api.METADATA, low: int = 0, high: int = 12, **options: bool
) -> Request[tuple[int, bytes]]:
    """A request whose answer is its version and the bytes that came."""
    return Request(
        api,
        low,
        high,
        lambda version: b"v%d" % version,
        lambda body, version: (version, bytes(body)),
        **options,
    )


def ready(bytes_max: int = 10_000) -> Conversation:
    conversation = Conversation("peer", "me", bytes_max)
    conversation.take()
    feed(conversation, response_frame(Api.API_VERSIONS, 4, 0, api_versions_reply(SERVED, {}, {}, 4)))
    assert conversation.is_ready
    return conversation


def test_it_greets_in_the_latest_version_and_says_who_it_is() -> None:
    frame = memoryview(Conversation("peer", "me", 1000).take())[4:]
    header = parse_header(frame)
    assert (header.api_key, header.api_version) == (Api.API_VERSIONS, KAFKA_RANGES[Api.API_VERSIONS].max)
    assert header.client_id == "me"
    request = read_request(Api.API_VERSIONS, header.api_version, frame[header.body_at :])
    assert request.client_software_name == "penstock"


def test_an_older_broker_is_greeted_again_in_its_own_version() -> None:
    """KIP-511: an unknown version is answered in the form of version 0, with the versions there are."""
    old = {Api.API_VERSIONS: VersionRange(0, 2)}
    conversation = Conversation("peer", "me", 1000)
    conversation.take()
    refusal = api_versions_error(old, 4, ErrorCode.UNSUPPORTED_VERSION)
    feed(conversation, response_frame(Api.API_VERSIONS, 0, 0, refusal))
    assert not conversation.is_ready
    again = parse_header(memoryview(conversation.take())[4:])
    assert (again.api_version, again.correlation_id) == (2, 1)
    feed(conversation, response_frame(Api.API_VERSIONS, 2, 1, api_versions_reply(old, {}, {}, 2)))
    assert conversation.is_ready
    assert conversation.versions == {Api.API_VERSIONS: VersionRange(0, 2)}


def test_a_broker_that_refuses_a_version_which_it_says_it_has_is_not_asked_for_ever() -> None:
    conversation = Conversation("peer", "me", 1000)
    refusal = b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\4"
    with pytest.raises(BrokerRefused, match="UNSUPPORTED_VERSION"):
        feed(conversation, response_frame(Api.API_VERSIONS, 0, 0, refusal))


@given(cuts=st.lists(st.integers(1, 60), max_size=30))
def test_answers_come_in_order_however_the_bytes_are_cut(cuts: list[int]) -> None:
    conversation = ready()
    calls = [conversation.send(echo()) for _ in range(3)]
    assert conversation.take().count(b"v9") == 3
    stream = b"".join(
        response_frame(Api.METADATA, 9, call.correlation_id, b"reply %d" % index)
        for index, call in enumerate(calls)
    )
    answered: list[Call[object]] = []
    for cut in [*cuts, len(stream)]:
        piece, stream = stream[:cut], stream[cut:]
        answered += feed(conversation, piece)
    assert answered == calls
    assert [call.result() for call in calls] == [(9, b"reply %d" % index) for index in range(3)]
    assert conversation.pending == 0


@given(
    sizes=st.lists(st.integers(0, 400), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 300), max_size=20),
    limits=st.tuples(st.integers(8, 64), st.integers(0, 64), st.integers(8, 200)),
)
def test_answers_that_are_kept_stay_what_they_were_whatever_comes_after(
    sizes: list[int], cuts: list[int], limits: tuple[int, int, int]
) -> None:
    with (
        patch.object(connection, "BUFFER_BYTES", limits[0]),
        patch.object(connection, "COPIED_BYTES", min(limits[1], limits[0])),
        patch.object(connection, "BELIEVED_BYTES", limits[2]),
        patch.object(spares, "SPARE_BYTES_MIN", 0),
    ):
        conversation = ready()
        kept: Request[memoryview] = Request(Api.METADATA, 0, 12, lambda _: b"", lambda body, _: body)
        calls = [conversation.send(kept) for _ in sizes]
        bodies = [bytes([index + 1]) * size for index, size in enumerate(sizes)]
        stream = b"".join(
            response_frame(Api.METADATA, 9, call.correlation_id, body)
            for call, body in zip(calls, bodies, strict=True)
        )
        for cut in [*cuts, len(stream)]:
            feed(conversation, stream[:cut])
            stream = stream[cut:]
    assert [bytes(call.result()) for call in calls] == bodies


def test_large_answers_that_are_let_go_come_into_memory_that_was_there_before() -> None:
    conversation = ready(1 << 24)
    kept: Request[memoryview] = Request(Api.METADATA, 0, 12, lambda _: b"", lambda body, _: body)
    buffers = []
    for number in range(8):
        call = conversation.send(kept)
        body = bytes([number]) * (connection.BELIEVED_BYTES + number)
        feed(conversation, response_frame(Api.METADATA, 9, call.correlation_id, body))
        answer = call.result()
        assert answer == body
        buffers.append(answer.obj)  # which is not looking at it
        del answer, call
    assert len({id(each) for each in buffers}) <= spares.COUNT_MAX + 1


def test_answers_byte_by_byte() -> None:
    conversation = ready()
    call = conversation.send(echo())
    frame = response_frame(Api.METADATA, 9, call.correlation_id, b"x" * 300)
    for index in range(len(frame)):
        assert not call.is_done
        feed(conversation, frame[index : index + 1])
    assert call.result() == (9, b"x" * 300)


def test_the_highest_version_that_both_have_is_taken() -> None:
    conversation = ready()
    assert conversation.version_for(echo(high=12)) == 9
    assert conversation.version_for(echo(high=7)) == 7


def test_an_api_or_version_that_they_do_not_share_is_reported() -> None:
    conversation = ready()
    with pytest.raises(NotServed, match="peer does not serve Fetch"):
        conversation.send(echo(Api.FETCH))
    with pytest.raises(NotServed, match="peer serves Metadata 0 to 9, expected one of 10 to 12"):
        conversation.send(echo(low=10))


def test_a_request_without_an_answer_is_done_when_it_is_sent() -> None:
    conversation = ready()
    silent = conversation.send(echo(Api.PRODUCE, 3, 9, has_response=False))
    spoken = conversation.send(echo())
    assert silent.is_done
    feed(conversation, response_frame(Api.METADATA, 9, spoken.correlation_id, b"yes"))
    assert spoken.result() == (9, b"yes")


def test_an_answer_to_something_else_is_refused() -> None:
    conversation = ready()
    call = conversation.send(echo())
    with pytest.raises(MalformedResponse, match=r"answered request 77, expected 1 \(Metadata\)"):
        feed(conversation, response_frame(Api.METADATA, 9, 77, b""))
    with pytest.raises(MalformedResponse, match="answer nothing"):
        feed(ready(), response_frame(Api.METADATA, 9, call.correlation_id, b""))


def test_a_length_beyond_the_limit_is_refused_as_soon_as_it_is_there() -> None:
    conversation = ready(bytes_max=500)
    conversation.send(echo())
    with pytest.raises(BadFrame, match="A frame has length 501, expected 0 to 500"):
        feed(conversation, (501).to_bytes(4, "big"))
    with pytest.raises(BadFrame):
        feed(ready(), b"HTTP/1.1 400 Bad Request\r\n")


def test_when_the_connection_ends_all_waiting_requests_fail() -> None:
    conversation = ready()
    call = conversation.send(echo())
    with pytest.raises(RuntimeError, match="not answered yet"):
        call.result()
    conversation.fail(ConnectionLost("it broke"))
    assert call.is_done
    with pytest.raises(ConnectionLost, match="it broke"):
        call.result()


def test_a_field_that_an_older_version_lacks_is_left_out_and_a_wrong_one_is_not() -> None:
    request = through_kio(
        Api.INIT_PRODUCER_ID,
        lambda make: make.InitProducerIdRequest(
            transactional_id=None, transaction_timeout=timedelta(seconds=1), producer_id=7, producer_epoch=1
        ),
    )
    for version in range(request.version_min, request.version_max + 1):
        read = read_request(Api.INIT_PRODUCER_ID, version, memoryview(request.write(version)))
        assert getattr(read, "producer_id", 7) == 7
    wrong = through_kio(Api.INIT_PRODUCER_ID, lambda make: make.InitProducerIdRequest(nonsense=1))
    with pytest.raises(TypeError):
        wrong.write(wrong.version_max)
