"""The other doors of a real node, from outside: they open, stay bounded, end with the node and come back with it."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.processes import Process, refusal

from penstock.testing import Broker, BrokerFailed

RESIDENT_BYTES_MAX = 60 << 20
"""DESIGN section 1: a broker on a laptop."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http=True, line=True, settings={"max.connections.per.ip": 100}) as broker:
        yield broker


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def ask(url: str, path: str = "/openapi.json") -> int:
    """The status that a new client is answered with."""
    with closing(http.client.HTTPConnection("127.0.0.1", port_of(url), timeout=30)) as client:
        client.request("GET", path)
        response = client.getresponse()
        response.read()
        return response.status


def test_a_broker_has_the_doors_that_it_is_asked_for(broker: Broker) -> None:
    assert ask(broker.http_url) == 200
    with socket.create_connection(("127.0.0.1", broker.line_port), timeout=30) as line:
        line.sendall(b"TOPIC doors - 5\nhello\n")
        assert line.recv(100).startswith(b"+OFFSET 0\n")


def test_a_broker_without_doors_says_how_to_have_them() -> None:
    with Broker() as broker:
        with pytest.raises(BrokerFailed, match=r"create it with Broker\(http=True\)"):
            _ = broker.http_url
        with pytest.raises(BrokerFailed, match=r"create it with Broker\(line=True\)"):
            _ = broker.line_port


def test_doors_come_back_at_their_ports(tmp_path: Path) -> None:
    with Broker(http=True, line=True, data=tmp_path) as broker:
        before = broker.http_url, broker.line_port
        assert ask(broker.http_url) == 200
        broker.kill()
        with pytest.raises(ConnectionRefusedError):
            ask(before[0])
        broker.restart()
        assert (broker.http_url, broker.line_port) == before
        assert ask(broker.http_url) == 200
    with Broker(http=port_of(before[0])) as broker:
        assert broker.http_url == before[0]


def test_a_broker_that_stops_at_once_answers_all_waiting_requests() -> None:
    """A client that came while the door was still being loaded is let go."""
    for end in (Broker.stop, Broker.kill):
        broker = Broker(http=True, line=True).start()
        with socket.create_connection(("127.0.0.1", broker.line_port), timeout=30) as line:
            end(broker)
            line.settimeout(30)
            with suppress(ConnectionResetError):
                assert line.recv(1) == b""
        broker.close()


def test_a_stopping_broker_closes_who_is_connected() -> None:
    with Broker(http=True) as broker:
        client = http.client.HTTPConnection("127.0.0.1", port_of(broker.http_url), timeout=30)
        client.request("GET", "/docs")
        assert client.getresponse().read()
        broker.stop()
        assert client.sock.recv(1) == b""
        client.close()


# -- connections ---------------------------------------------------------------------------------------


def test_requests_that_come_together_are_answered_in_order(broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", port_of(broker.http_url)), timeout=30) as client:
        one = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"
        client.sendall(
            one % b"a"
            + one % b"docs"
            + one % b"b"
            + b"GET /c HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        data = b"".join(iter(lambda: client.recv(65536), b""))
    assert data.count(b"HTTP/1.1 404") == 3
    assert data.index(b"'/a'") < data.index(b"<html") < data.index(b"'/b'") < data.index(b"'/c'")


def test_a_client_that_has_said_all_it_wants_is_answered(broker: Broker) -> None:
    """As `nc -N` and other plain tools do: they close their half and listen."""
    body = b'{"topic":"half","value":"aGVsbG8="}'
    with socket.create_connection(("127.0.0.1", port_of(broker.http_url)), timeout=30) as client:
        client.sendall(
            b"POST /produce HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        client.shutdown(socket.SHUT_WR)
        data = b"".join(iter(lambda: client.recv(65536), b""))
    assert data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert json.loads(data.partition(b"\r\n\r\n")[2])["topic"] == "half"


def test_a_body_in_many_packets_arrives_whole(broker: Broker) -> None:
    body = json.dumps({"topic": "parts", "value": "QUFB" * 200_000}).encode()
    client = http.client.HTTPConnection("127.0.0.1", port_of(broker.http_url), timeout=30)
    client.request("POST", "/produce", body=(body[at : at + 30_000] for at in range(0, len(body), 30_000)))
    response = client.getresponse()
    assert response.status == 200, response.read()
    client.close()


def test_a_body_that_is_too_large_is_refused_while_it_is_sent(broker: Broker) -> None:
    """The refusal arrives although the client is still sending, and does not read before it has sent all."""
    client = http.client.HTTPConnection("127.0.0.1", port_of(broker.http_url), timeout=30)
    client.putrequest("POST", "/produce")
    client.putheader("Content-Length", str(20 << 20))
    client.endheaders()
    for _ in range(20):
        client.send(b"x" * (1 << 20))
    response = client.getresponse()
    assert response.status == 413
    assert json.load(response)["error"]["code"] == "body_too_large"
    client.close()


def test_too_many_connections_are_closed_and_the_others_go_on() -> None:
    with Broker(http=True, settings={"max.connections.per.ip": 2}) as broker:
        clients = [
            http.client.HTTPConnection("127.0.0.1", port_of(broker.http_url), timeout=30) for _ in range(2)
        ]
        for client in clients:
            client.request("GET", "/nothing")
            assert client.getresponse().read()
        with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
            ask(broker.http_url)
        for client in clients:
            client.request("GET", "/nothing")
            assert client.getresponse().status == 404
            client.close()
        deadline = time.monotonic() + 30
        while True:  # the broker learns of it when it gets to it
            try:
                assert ask(broker.http_url) == 200
                break
            except (ConnectionError, http.client.RemoteDisconnected):
                assert time.monotonic() < deadline


def test_a_client_that_is_idle_for_long_is_closed() -> None:
    with Broker(http=True, settings={"connections.max.idle.ms": 1000}) as broker:
        client = http.client.HTTPConnection("127.0.0.1", port_of(broker.http_url), timeout=30)
        client.request("GET", "/docs")
        assert client.getresponse().read()
        assert client.sock.recv(1) == b""
        client.close()


# -- a process -----------------------------------------------------------------------------------------


def test_a_node_says_where_its_doors_are_and_is_small(tmp_path: Path) -> None:
    """With everything loaded and used, DESIGN's 60 MB."""
    with Process(data=tmp_path, http=True, line=True) as process:
        assert ask(process.http_url) == 200
        with socket.create_connection(("127.0.0.1", process.line_port), timeout=30) as line:
            line.sendall(b"TOPIC doors - 5\nhello\n")
            assert line.recv(100).startswith(b"+OFFSET 0\n")
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert int(status.split("VmRSS:")[1].split()[0]) * 1024 < RESIDENT_BYTES_MAX
        before = process.http_url
        process.kill()
        process.start()
        assert process.http_url == before
        assert ask(process.http_url) == 200
        assert process.stop() == 0
        assert "Traceback" not in process.stderr


def test_a_door_whose_port_is_taken_is_told_with_its_flag(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for door in ("http", "line"):
            refused = refusal(f"--{door}", f"127.0.0.1:{port}", data=tmp_path / "data")
            assert refused == (
                2,
                "",
                f"penstock: cannot listen on 127.0.0.1:{port}: the port is in use by another process; choose another "
                f"port with --{door}, or none with --{door} off\n",
            )
    assert not (tmp_path / "data").exists()
