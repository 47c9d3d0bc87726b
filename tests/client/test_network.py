"""Real sockets, on loopback: what goes wrong is told in one sentence that names the address."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer
from penstock.client.errors import ClientError, ConnectionLost, TimedOut, Unreachable
from penstock.client.network import SocketLink, SocketNetwork
from penstock.client.producer import Producer, ProducerSettings
from penstock.client.settings import Address, ClientSettings, SystemClock
from penstock.testing import Broker
from penstock.wire import Api
from penstock.wire.request import through_kio

QUICK = ClientSettings(connect_timeout_ms=200, request_timeout_ms=200)
PATIENT = ClientSettings()
METADATA = through_kio(
    Api.METADATA,
    lambda make: make.MetadataRequest(
        topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False
    ),
)


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """Something that accepts one connection and does with it what it likes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield Address(*server.getsockname())
        finally:
            thread.join()


def dial(address: Address, settings: ClientSettings = PATIENT) -> SocketLink:
    return SocketNetwork(settings, SystemClock()).connect(address)


def test_a_connection_to_a_port_without_a_listener_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = Address(*server.getsockname())
    with pytest.raises(Unreachable) as refused:
        dial(address)
    assert str(refused.value) == f"cannot reach {address}: connection refused"


def test_a_name_without_a_host_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "create_connection", unknown)
    with pytest.raises(Unreachable, match="cannot reach nowhere:9: no such host"):
        dial(Address("nowhere", 9))


def test_a_peer_that_hangs_up_is_reported() -> None:
    with listening(lambda _: None) as address, pytest.raises(ConnectionLost, match="was lost"):
        dial(address)


def test_a_peer_that_says_nothing_is_reported_after_a_while() -> None:
    gone = threading.Event()

    def silent(_: socket.socket) -> None:
        gone.wait(30)

    with listening(silent) as address:
        with pytest.raises(TimedOut, match=r"did not answer a greeting within 0\.2 s"):
            dial(address, QUICK)
        gone.set()


def test_a_peer_that_is_no_broker_is_reported() -> None:
    def http(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.recv(1000)

    with (
        listening(http) as address,
        pytest.raises(ClientError, match="does not answer as a Kafka broker does"),
    ):
        dial(address)


def test_requests_on_their_way_are_answered_in_order(penstock_broker: Broker) -> None:
    penstock_broker.create_topic("orders", 3)
    network = SocketNetwork(PATIENT, SystemClock())
    link = network.connect(Address("127.0.0.1", penstock_broker.port))
    calls = [link.start(METADATA) for _ in range(5)]
    assert [each.name for each in link.ask(METADATA).topics] == ["orders"]
    assert all(call.is_done for call in calls)
    last = link.start(METADATA)
    assert network.wait([link], 10_000) == [link]
    assert link.read() == [last]
    assert network.wait([link], 0) == []
    link.close()
    with pytest.raises(ConnectionLost):
        link.start(METADATA)


def test_a_broker_that_was_away_is_dialled_again(penstock_broker: Broker) -> None:
    with Cluster([Address("127.0.0.1", penstock_broker.port)]) as cluster:
        cluster.refresh(None)
        penstock_broker.restart()
        assert cluster.refresh(None).controller_id >= 0


def test_records_are_there_once_and_in_order_after_a_crash_in_between(tmp_path: Path) -> None:
    """What was acknowledged before the crash, and what was sent while the broker was down."""
    orders = TopicPartition("orders", 0)
    expected = [b"%d" % number for number in range(3000)]
    with Broker(data=tmp_path / "data") as broker, Cluster([Address("127.0.0.1", broker.port)]) as cluster:
        broker.create_topic("orders")
        producer = Producer(cluster, ProducerSettings(batch_bytes_max=2000, linger_ms=0))
        for value in expected[:1000]:
            producer.send("orders", None, value)
        broker.kill()
        restarting = threading.Thread(target=broker.start)
        restarting.start()
        for value in expected[1000:]:
            producer.send("orders", None, value)
        producer.flush()
        restarting.join()
        consumer = Consumer(cluster, {orders: 0})
        values: list[bytes | None] = []
        while len(values) < len(expected):
            values += [record.value for each in consumer.poll(60_000) for record in each.records]
        assert values == expected
        assert consumer.positions == {orders: len(expected)}
