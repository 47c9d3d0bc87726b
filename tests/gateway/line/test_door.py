"""The line protocol from outside: real sockets, real processes, and other doors of the same broker."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.processes import Process

from penstock.client.errors import ClientError
from penstock.client.line import LineClient, LineError
from penstock.testing import Broker

WAIT_S_MAX = 60.0

PAGE = (Path(__file__).parents[3] / "docs/line.md").read_text()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(line=True) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[LineClient]:
    with LineClient("127.0.0.1", broker.line_port, timeout_s=WAIT_S_MAX) as client:
        yield client


# -- the page --------------------------------------------------------------------------------------------


class Terminal(Protocol):
    """What a person types into, and sees answers in."""

    def type(self, text: bytes) -> None: ...

    def read(self, count: int) -> bytes:
        """So many bytes, or fewer if some are there; none at the end."""
        ...

    def close(self) -> None: ...


class SocketTerminal:
    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WAIT_S_MAX)

    def type(self, text: bytes) -> None:
        self._socket.sendall(text)

    def read(self, count: int) -> bytes:
        return self._socket.recv(count)

    def close(self) -> None:
        self._socket.close()


class NcTerminal:
    def __init__(self, port: int) -> None:
        nc = shutil.which("nc")
        if nc is None:
            pytest.skip("nc is not installed; a plain socket has played the same session")
        self._nc = subprocess.Popen(
            [nc, "127.0.0.1", str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._overdue = threading.Timer(WAIT_S_MAX, self._nc.kill)
        self._overdue.start()

    def type(self, text: bytes) -> None:
        assert self._nc.stdin is not None
        self._nc.stdin.write(text)

    def read(self, count: int) -> bytes:
        assert self._nc.stdout is not None
        return self._nc.stdout.read(count) or b""

    def close(self) -> None:
        self._overdue.cancel()
        self._nc.kill()
        self._nc.communicate()


def play(terminal: Terminal, session: str) -> None:
    """Type what the page has somebody type, and see what it has the broker say."""
    received = b""
    lines = iter(session.encode().splitlines(keepends=True))
    for line in lines:
        if line[:1] not in b"+-":
            terminal.type(line)
            continue
        expected = line
        if line.startswith(b"+MSG "):
            value = next(lines)
            assert len(value) == int(line.split()[2])
            expected += value
        while True:
            while len(received) < len(expected):
                more = terminal.read(len(expected) - len(received))
                assert more, f"the broker has closed the connection, and not said {expected!r}"
                received += more
            if expected == b"+EMPTY\n" or not received.startswith(b"+EMPTY\n"):
                break
            received = received.removeprefix(b"+EMPTY\n")  # a second has passed on a busy machine
        assert received[: len(expected)] == expected
        received = received[len(expected) :]


@pytest.mark.parametrize("terminal", [SocketTerminal, NcTerminal])
def test_the_session_that_the_page_shows_is_what_happens(terminal: type[Terminal]) -> None:
    [session] = re.findall(r"```console\n\$ nc 127\.0\.0\.1 9090\n(.*?)```", PAGE, re.DOTALL)
    with Broker(line=True) as broker, closing(terminal(broker.line_port)) as opened:  # type: ignore[call-arg]
        play(opened, session)


def test_the_python_example_of_the_page_runs() -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with Broker(line=True) as broker:
        done = subprocess.run(
            [sys.executable, "-c", example.replace("9090", str(broker.line_port))],
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "None b'no key'",
        "b'customer-7' b'paid'",
        "b'customer-8' b'paid'",
    ]


# -- other doors -----------------------------------------------------------------------------------------


def test_a_kafka_client_reads_what_was_written_here(broker: Broker, client: LineClient) -> None:
    sent = [(b"customer-%d" % (number % 5), b"%d" % number) for number in range(50)] + [(None, b"no key")]
    client.produce_many("from-here", sent)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "theirs", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("from-here", number, 0) for number in range(3)])
    found = []
    while len(found) < len(sent):
        message = consumer.poll(WAIT_S_MAX)
        assert message is not None
        assert message.error() is None
        found.append((message.key(), message.value()))
    consumer.close()

    assert sorted(found, key=repr) == sorted(sent, key=repr)


def test_what_a_kafka_client_wrote_is_read_here(broker: Broker, client: LineClient) -> None:
    broker.create_topic("from-kafka", 3)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "gzip", "linger.ms": 5})
    sent = [(b"customer-%d" % (number % 5), b"%d" % number) for number in range(40)]
    for key, value in [*sent, (b"gone", None), (None, b"no key"), (b"\xff\x00 odd", b"x")]:
        producer.produce("from-kafka", key=key, value=value)
    assert producer.flush(WAIT_S_MAX) == 0

    found = []
    with client.consume("from-kafka", "here", until_empty=True) as messages:
        for each in messages:
            found.append((each.key, each.value))
            each.ack()

    expected = [*sent, (b"gone", b""), (None, b"no key"), (b"\xff\x00 odd", b"x")]
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_keys_go_where_a_kafka_client_puts_them(broker: Broker, client: LineClient) -> None:
    keys = [b"customer-%d" % number for number in range(20)]
    broker.create_topic("keys", 5)
    placed: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(
            "keys",
            key=key,
            on_delivery=lambda _, message: placed.update({message.key(): message.partition()}),
        )
    producer.flush(WAIT_S_MAX)
    client.produce_many("keys", [(key, b"") for key in keys])

    with client.consume("keys", "g", until_empty=True) as messages:
        for each in messages:
            assert each.key is not None
            assert each.partition == placed[each.key]
            each.ack()


def test_the_groups_offsets_are_seen_by_everybody(broker: Broker, client: LineClient) -> None:
    broker.create_topic("shown")
    client.produce_many("shown", [b"%d" % number for number in range(5)])
    with client.consume("shown", "line-group") as messages:
        for _ in range(2):
            next(messages).ack()

    row = describe_group(broker, "line-group")
    assert row["lag"] == 3
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "line-group"})
    [committed] = consumer.committed([TopicPartition("shown", 0)], timeout=WAIT_S_MAX)
    assert committed.offset == 2
    committed.offset = 4
    consumer.commit(offsets=[committed], asynchronous=False)
    consumer.close()

    with client.consume("shown", "line-group") as messages:
        assert next(messages).offset == 4, "and what a Kafka client commits counts here"


def describe_group(broker: Broker, group: str) -> dict[str, object]:
    """What `penstock groups describe` says of the topic's only partition."""
    described = subprocess.run(
        [sys.executable, "-m", "penstock", "groups", "describe", group, "--json"],
        env={**os.environ, "PENSTOCK_SERVER": broker.bootstrap},
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=True,
    )
    return next(each for each in rows(json.loads(described.stdout)) if each.get("endOffset") is not None)


def test_a_reader_that_has_seen_everything_does_not_lag_behind_a_transaction(
    broker: Broker, client: LineClient
) -> None:
    broker.create_topic("bought")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "shop"})
    producer.init_transactions()
    for keeps in (True, False):
        producer.begin_transaction()
        producer.produce("bought", b"kept" if keeps else b"taken back")
        producer.flush(WAIT_S_MAX)
        if keeps:
            producer.commit_transaction()
        else:
            producer.abort_transaction()

    with client.consume("bought", "stock", until_empty=True) as messages:
        assert [(each.value, each.ack()) for each in messages] == [(b"kept", None)]

    row = describe_group(broker, "stock")
    assert (row["committedOffset"], row["endOffset"], row["lag"]) == (4, 4, 0)


def test_reading_makes_no_topic_and_waits_for_it(broker: Broker, client: LineClient) -> None:
    with client.consume("not-yet", "g", until_empty=True) as messages:
        assert list(messages) == []
    assert "not-yet" not in Producer({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20).topics

    with client.consume("not-yet", "g") as messages:
        client.produce("not-yet", b"first")
        message = next(messages)
        assert (message.offset, message.value) == (0, b"first")
        message.ack()


def test_a_group_is_moved_to_the_end(broker: Broker, client: LineClient) -> None:
    broker.create_topic("to-the-end")
    client.produce_many("to-the-end", [b"0", b"1", b"2"])
    client.set_offset("to-the-end", "g", "END")
    client.produce("to-the-end", b"3")

    with client.consume("to-the-end", "g", until_empty=True) as messages:
        assert [(each.offset, each.ack()) for each in messages] == [(3, None)]


def rows(page: object) -> Iterator[dict[str, object]]:
    """All objects within a JSON document."""
    if isinstance(page, dict):
        yield page
        page = list(page.values())
    if isinstance(page, list):
        for each in page:
            yield from rows(each)


def test_a_group_of_kafka_consumers_is_theirs_alone(broker: Broker, client: LineClient) -> None:
    broker.create_topic("theirs")
    client.produce("theirs", b"0")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "kafka-group",
            "client.id": "their-consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["theirs"])
    assert consumer.poll(WAIT_S_MAX) is not None

    with client.consume("theirs", "kafka-group") as messages:
        message = next(messages)
        with pytest.raises(LineError, match="'kafka-group' has members \\('their-consumer' at"):
            message.ack()
        consumer.close()
        message.ack()


# -- connections -----------------------------------------------------------------------------------------


def test_many_clients_send_at_once(broker: Broker) -> None:
    broker.create_topic("busy", 3)
    failures: list[BaseException] = []

    def send(number: int) -> None:
        try:
            with LineClient("127.0.0.1", broker.line_port, timeout_s=WAIT_S_MAX) as client:
                offsets = client.produce_many("busy", [(b"%d" % number, b"%d" % each) for each in range(200)])
                assert offsets == sorted(offsets)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(16)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert not failures
    with LineClient("127.0.0.1", broker.line_port) as client:
        client.set_offset("busy", "g", 0)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "counts"})
    ends = [consumer.get_watermark_offsets(TopicPartition("busy", each))[1] for each in range(3)]
    consumer.close()
    assert sum(ends) == 16 * 200


def test_what_was_sent_is_answered_though_nothing_more_comes(broker: Broker) -> None:
    """`printf ... | nc -N`: the client closes its side and reads on."""
    with socket.create_connection(("127.0.0.1", broker.line_port), WAIT_S_MAX) as connection:
        connection.sendall(b"TOPIC half k 5\nhelloTOPIC half k 5\nworldhalf:g:-1\nACK\n")
        connection.shutdown(socket.SHUT_WR)
        said = b""
        while data := connection.recv(1000):
            said += data

    assert re.fullmatch(rb"\+OFFSET 0\n\+OFFSET 1\n\+MSG 0 5 \d k\nhello\+OK\n\+MSG 1 5 \d k\nworld", said), (
        said
    )


def test_a_client_that_does_not_read_delays_no_other(broker: Broker, client: LineClient) -> None:
    with socket.create_connection(("127.0.0.1", broker.line_port), WAIT_S_MAX) as deaf:
        deaf.settimeout(0.3)
        with pytest.raises(TimeoutError):
            deaf.sendall(b"what?\n" * 10_000_000)  # each is answered, and nobody reads that: it is not taken
        assert client.produce("others", b"x") >= 0


def test_a_line_without_end_and_a_huge_length_end_the_connection(broker: Broker, client: LineClient) -> None:
    for text in (b"x" * 100_000, b"TOPIC orders k 99999999999\n" + b"x" * 100_000):
        with socket.create_connection(("127.0.0.1", broker.line_port), WAIT_S_MAX) as connection:
            said = b""
            try:
                connection.sendall(text)
                while data := connection.recv(1000):
                    said += data
            except ConnectionError:
                pass  # it is closed with bytes of ours unread
            assert said.startswith(b"-ERR ") or not said
    assert client.produce("orders", b"x") >= 0


# -- kill -9 ---------------------------------------------------------------------------------------------


def test_after_kill_9_a_stream_goes_on_at_the_first_message_that_is_not_acknowledged(tmp_path: Path) -> None:
    values = [b"%d" % number for number in range(12)]
    with Process(data=tmp_path / "data", line=True) as penstock:
        client = LineClient("127.0.0.1", penstock.line_port, timeout_s=WAIT_S_MAX)
        client.produce_many("orders", [(b"k", each) for each in values])
        seen: list[int] = []
        answered: set[int] = set()
        for acks in (3, 0, 2):
            with client.consume("orders", "g") as messages:
                for _ in range(acks):
                    message = next(messages)
                    assert message.offset not in answered
                    seen.append(message.offset)
                    message.ack()
                    answered.add(message.offset)
                message = next(messages)
                assert message.offset not in answered
                seen.append(message.offset)
                messages._say(b"ACK")  # and whether it is answered, nobody will know
                penstock.kill()
                with pytest.raises(ClientError):
                    next_of(messages)
            penstock.start()
        with client.consume("orders", "g", to_offset=11, partition=message.partition) as messages:
            for each in messages:
                assert each.offset not in answered
                assert each.value == values[each.offset]
                seen.append(each.offset)
                each.ack()
            assert messages.end_offset == 12
        client.close()

    assert sorted(set(seen)) == list(range(12)), "and none is left out"


def next_of(messages: object) -> None:
    """Read until the connection ends: the reply to the last ACK may have come before."""
    connection = messages._connection  # type: ignore[attr-defined]
    while True:
        connection.line()
