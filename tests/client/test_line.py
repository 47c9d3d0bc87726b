"""The line protocol's client: against a broker, and against servers that do not do what they should."""

import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.client.errors import ClientError, ConnectionLost, TimedOut, Unreachable
from penstock.client.line import IN_FLIGHT_MAX, LineClient, LineError
from penstock.testing import Broker

NUMBERS = itertools.count()

ODD_KEYS = [None, b"-", b"", b"two words", b"100%", b"a\nb", b"\x00\xff", "Grüße".encode(), b"a:b", b"%41"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(line=True, settings={"durability.fsync": "never"}) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[LineClient]:
    with LineClient("127.0.0.1", broker.line_port) as client:
        yield client


def test_a_message_comes_back_with_its_key_and_place(client: LineClient) -> None:
    offset = client.produce("one", b"paid\n", key=b"customer-7")

    with client.consume("one", "billing", until_empty=True) as messages:
        [message] = [(each, each.ack())[0] for each in messages]

    assert (message.offset, message.key, message.value) == (offset, b"customer-7", b"paid\n")
    with client.consume("one", "billing", message.partition, to_offset=offset) as messages:
        assert not list(messages)
        assert messages.end_offset == 1


def test_odd_keys_and_values_make_the_round_trip(client: LineClient) -> None:
    sent = [(key, bytes([number]) * number) for number, key in enumerate(ODD_KEYS)]
    client.produce_many("odd", sent)

    found = []
    with client.consume("odd", "a group: with ödd % name", until_empty=True) as messages:
        for each in messages:
            found.append((each.key, each.value))
            each.ack()

    assert sorted(found, key=repr) == sorted(sent, key=repr)


def test_many_messages_are_sent_ahead_of_their_replies_and_keep_their_order(
    broker: Broker, client: LineClient
) -> None:
    broker.create_topic("many")
    count = 5 * IN_FLIGHT_MAX + 7

    assert client.produce_many("many", (b"%d" % number for number in range(count))) == list(range(count))
    assert client.produce_many("many", []) == []


def test_large_messages_are_sent_ahead_as_well(broker: Broker, client: LineClient) -> None:
    broker.create_topic("large")

    assert client.produce_many("large", [bytes(800_000)] * 30) == list(range(30))


def test_a_refusal_is_raised_and_the_rest_is_written(broker: Broker, client: LineClient) -> None:
    broker.create_topic("small", max_message_bytes=1000)

    with pytest.raises(LineError, match="at most 1000 are allowed"):
        client.produce_many("small", [b"a", bytes(2000), b"b"])
    with pytest.raises(
        LineError, match="the message has 2000000 bytes, and topic 'small' allows at most 1000"
    ):
        client.produce("small", bytes(2_000_000))

    assert client.produce("small", b"c") == 2, "on the same connection"


def test_a_message_must_be_acknowledged_before_the_next(broker: Broker, client: LineClient) -> None:
    client.produce_many("two", [b"a", b"b"])
    with client.consume("two", "g") as messages:
        first = next(messages)
        with pytest.raises(LineError, match="is not acknowledged"):
            next(messages)
        first.ack()
        with pytest.raises(LineError, match="waits for no ACK"):
            first.ack()
        second = next(messages)

    with client.consume("two", "g") as messages:
        again = next(messages)
        assert (again.partition, again.offset) == (second.partition, second.offset)


def test_a_stream_waits_for_what_is_still_to_come(client: LineClient) -> None:
    with client.consume("late", "g") as messages:
        timer = threading.Timer(0.05, lambda: client.produce("late", b"news"))
        timer.start()
        assert next(messages).value == b"news"
        timer.join()


def test_a_group_is_moved(broker: Broker, client: LineClient) -> None:
    broker.create_topic("moved")
    client.produce_many("moved", [b"0", b"1", b"2"])
    client.set_offset("moved", "g", 2)
    with client.consume("moved", "g") as messages:
        assert next(messages).offset == 2
    client.set_offset("moved", "g", None)
    with client.consume("moved", "g") as messages:
        assert next(messages).offset == 0
    with pytest.raises(LineError, match="no such topic: 'nothing'"):
        client.set_offset("nothing", "g", None)


def test_a_request_that_is_refused_says_why(broker: Broker, client: LineClient) -> None:
    broker.create_topic("narrow")

    with (
        client.consume("narrow", "g", partition=4) as messages,
        pytest.raises(LineError, match="no partition 4"),
    ):
        next(messages)


@pytest.mark.parametrize("topic", ["", "two words", "a:b", "a\nSET_OFFSET x:y 0"])
def test_a_name_that_would_end_its_field_is_not_sent(client: LineClient, topic: str) -> None:
    with pytest.raises(LineError, match="no name of a topic"):
        client.produce(topic, b"x")
    with pytest.raises(LineError, match="no name of a topic"):
        client.consume(topic, "g")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (None, "value is None, expected bytes: the line protocol has no tombstones"),
        ("text", "value is str, expected bytes"),
        ((b"k", "text"), "value is str, expected bytes"),
        ((b"k", None), "no tombstones"),
        (("key", b"v"), "key is str, expected bytes or None"),
        ((b"k", b"v", b"w"), "value is tuple, expected bytes"),
    ],
)
def test_what_is_no_message_is_reported_and_the_next_command_has_its_own_reply(
    broker: Broker, client: LineClient, message: Any, words: str
) -> None:
    topic = f"typed-{next(NUMBERS)}"
    broker.create_topic(topic)
    with pytest.raises(TypeError, match=words):
        client.produce_many(topic, [b"0", message, b"2"])
    client.produce_many(topic, [b"good", bytearray(b"bytes")])

    with client.consume(topic, "g", until_empty=True) as messages:
        found = [(each.value, each.ack())[0] for each in messages]
    assert found[-2:] == [b"good", b"bytes"]
    assert b"2" not in found


def test_none_and_text_are_no_values(client: LineClient) -> None:
    for value in (None, "text"):
        with pytest.raises(TypeError, match="expected bytes"):
            client.produce("one", value)  # type: ignore[arg-type]


def test_an_iterator_that_fails_does_not_mix_up_replies(broker: Broker, client: LineClient) -> None:
    broker.create_topic("cut-short")

    def messages() -> Iterator[bytes]:
        yield from [b"x"] * (IN_FLIGHT_MAX + 1)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        client.produce_many("cut-short", messages())

    client.set_offset("cut-short", "g", "BEGIN")


def test_an_offset_is_a_number_or_an_end(client: LineClient) -> None:
    with pytest.raises(TypeError, match="expected a number, BEGIN or END"):
        client.set_offset("one", "g", "0\nTOPIC evil - 0")  # type: ignore[arg-type]


def test_the_client_dials_anew_after_its_broker_was_away() -> None:
    with Broker(line=True) as broker, LineClient("127.0.0.1", broker.line_port) as client:
        assert client.produce("orders", b"a", key=b"k") == 0
        broker.kill()
        with pytest.raises((ConnectionLost, Unreachable)):
            client.produce("orders", b"b", key=b"k")
        with pytest.raises(Unreachable):
            client.produce("orders", b"b", key=b"k")
        broker.start()

        assert client.produce("orders", b"c", key=b"k") == 1


# -- servers that do not do what they should -------------------------------------------------------------


@contextmanager
def server(serve: Callable[[socket.socket], None], timeout_s: float = 60) -> Iterator[LineClient]:
    """One that takes a single client, which waits for so long."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        with LineClient("127.0.0.1", listening.getsockname()[1], timeout_s=timeout_s) as client:
            yield client
        thread.join()


def says(text: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(text)

    return serve


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (b"", ConnectionLost, "has closed the connection"),
        (b"+OFF", ConnectionLost, "has closed the connection"),
        (b"-ERR nobody knows\n", LineError, "nobody knows"),
        (b"+OK\n", LineError, "not expected"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", LineError, "not expected"),
        (b"x" * 100_000, ClientError, "without an end|closed|lost"),
    ],
)
def test_what_a_server_says_instead_is_an_error(text: bytes, kind: type[Exception], words: str) -> None:
    with server(says(text)) as client, pytest.raises(kind, match=words):
        client.produce("orders", b"x")


def test_a_server_that_says_nothing_is_not_waited_for_forever() -> None:
    done = threading.Event()
    with server(lambda _: (done.wait(60), None)[1], timeout_s=0.3) as client:
        with pytest.raises(TimedOut):
            client.produce("orders", b"x")
        done.set()


@pytest.mark.parametrize("text", [b"+MSG 0 five 0 -\n", b"+MSG 0 1\nx", b"+MSG 0 1 0 %zz\nx", b"+WHAT\n"])
def test_a_message_that_is_none_is_an_error(text: bytes) -> None:
    with server(says(text)) as client, client.consume("orders", "g") as messages:
        with pytest.raises(LineError, match="not expected"):
            next(messages)
        assert list(messages) == [], "and the stream is over"


def test_the_first_refusal_is_reported_where_the_connection_ends_with_it() -> None:
    with (
        server(says(b"+OFFSET 0\n-ERR enough; the connection is closed\n")) as client,
        pytest.raises(LineError, match="enough"),
    ):
        client.produce_many("orders", [b"a", b"b", b"c"])
