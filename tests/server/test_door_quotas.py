"""Quotas of users and client ids at the HTTP and line ports."""

import json
from typing import Any

import pytest
from tests.nodes import StillNode
from tests.server.test_door_guests import Client, Doors
from tests.server.test_quotas import alter

OPEN = {"http.listener": "127.0.0.1:0", "line.listener": "127.0.0.1:0"}
ANONYMOUS: dict[str, str | None] = {"user": "ANONYMOUS"}
RATE = 1000.0
WINDOW_MS = 11_000


@pytest.fixture
def at() -> Doors:
    made = Doors(OPEN)
    made.node.create_topic("orders")
    return made


def ask(
    client: Client, method: str, path: str, body: Any = None, agent: str = "app"
) -> tuple[int, dict[str, str], bytes]:
    data = b"" if body is None else json.dumps(body).encode()
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    answer = client.ask(head.encode() + data, 100)
    head_bytes, _, rest = answer.partition(b"\r\n\r\n")
    lines = head_bytes.decode().split("\r\n")
    return int(lines[0].split()[1]), dict(each.split(": ", 1) for each in lines[1:]), rest


def produce(client: Client, size: int = 1000, agent: str = "app") -> tuple[int, dict[str, str], bytes]:
    return ask(client, "POST", "/produce", {"topic": "orders", "value": "AAAA" * (size // 3)}, agent)


def set_quota(node: StillNode, entity: dict[str, str | None] = ANONYMOUS, **limits: float | None) -> None:
    assert alter(node, entity, **limits) == "none"


def test_a_producer_above_its_quota_gets_429_and_goes_on_after_the_time_it_is_told(at: Doors) -> None:
    set_quota(at.node, producer_byte_rate=RATE)
    client = at.client("http")
    assert produce(client, 20_000)[0] == 200, "what exceeds the quota is written"
    status, headers, body = produce(client)
    assert status == 429
    assert json.loads(body)["error"]["code"] == "throttling_quota_exceeded"
    wait_s = int(headers["Retry-After"])
    assert 1 <= wait_s <= 30
    other = at.client("http")
    assert produce(other)[0] == 429, "all connections of a user share its quota"
    assert ask(client, "GET", "/health/live")[0] == 200
    at.world.advance(1000 * wait_s)
    assert produce(client)[0] == 200


def test_a_client_that_connects_anew_for_each_request_is_held_to_its_part_of_the_loop(at: Doors) -> None:
    set_quota(at.node, request_percentage=1e-6)
    statuses = [ask(at.client("http"), "GET", "/topics")[0] for _ in range(5)]
    assert (statuses[0], statuses[-1]) == (200, 429)
    at.world.advance(2 * WINDOW_MS)
    assert ask(at.client("http"), "GET", "/topics")[0] == 200


def test_a_changed_quota_counts_at_once(at: Doors) -> None:
    set_quota(at.node, producer_byte_rate=RATE)
    client = at.client("http")
    produce(client, 20_000)
    assert produce(client)[0] == 429
    set_quota(at.node, producer_byte_rate=None)
    assert produce(client)[0] == 200


def test_client_ids_are_user_agents(at: Doors) -> None:
    set_quota(at.node, {"client-id": "greedy"}, producer_byte_rate=RATE)
    client = at.client("http")
    assert produce(client, 20_000, "greedy")[0] == 200
    assert produce(client, 1000, "greedy")[0] == 429
    assert produce(client, 1000, "modest")[0] == 200


def test_a_reader_above_its_quota_gets_429_and_a_tail_is_slowed_down(at: Doors) -> None:
    writer = at.client("http")
    for _ in range(20):
        assert produce(writer, 1000)[0] == 200
    set_quota(at.node, consumer_byte_rate=RATE)
    client = at.client("http")
    assert ask(client, "GET", "/topics/orders/records")[0] == 200
    assert ask(client, "GET", "/topics/orders/records")[0] == 429
    assert ask(client, "GET", "/topics")[0] in (200, 429)
    at.world.advance(60_000)
    tail = at.client("http")
    tail.say(b"GET /topics/orders/tail?from=earliest HTTP/1.1\r\nHost: a\r\n\r\n")
    at.world.advance(50)
    for _ in range(3):
        produce(writer, 30_000)
    at.world.advance(2000)
    some = len(tail.transport.received)
    at.world.advance(240_000)
    assert tail.is_open
    assert len(tail.transport.received) > some, "and it goes on"


def test_changes_of_topics_beyond_the_quota_are_refused(at: Doors) -> None:
    set_quota(at.node, controller_mutation_rate=1.0)
    client = at.client("http")
    statuses = [
        ask(client, "POST", "/topics", {"name": f"t{number}", "partitions": 10})[0] for number in range(3)
    ]
    assert statuses in ([201, 201, 429], [201, 429, 429])
    status, headers, _ = ask(client, "DELETE", "/topics/t0")
    assert (status, int(headers["Retry-After"]) >= 1) == (429, True)
    at.world.advance(60_000)
    assert ask(client, "DELETE", "/topics/t0")[0] == 200


def test_a_client_of_the_line_protocol_is_muted(at: Doors) -> None:
    set_quota(at.node, producer_byte_rate=RATE)
    client = at.client("line")
    assert client.ask(b"TOPIC orders - 20000\n" + b"x" * 20_000) == b"+OFFSET 0\n"
    assert client.ask(b"TOPIC orders - 2\nhi", 2000) == b""
    at.world.advance(30_000)
    assert bytes(client.transport.received) == b"+OFFSET 1\n"
    client.transport.received.clear()
    client.ask(b"TOPIC orders - 20000\n" + b"x" * 20_000)
    assert client.ask(b"TOPIC orders - 2\nhi") == b""
    set_quota(at.node, producer_byte_rate=None)
    at.world.advance(100)
    assert bytes(client.transport.received).startswith(b"+OFFSET ")


def test_a_stream_of_the_line_protocol_is_slowed_down(at: Doors) -> None:
    writer = at.client("line")
    for _ in range(4):
        writer.ask(b"TOPIC orders - 20000\n" + b"x" * 20_000)
    set_quota(at.node, consumer_byte_rate=RATE)
    client = at.client("line")
    received = client.ask(b"orders:g:0\n", 1000)
    began_ms = at.world.now_ms()
    for _ in range(2):
        received += client.ask(b"ACK\n", 100)
        while received.count(b"+MSG ") < 2 and at.world.now_ms() < began_ms + 60_000:
            at.world.advance(500)
            received += bytes(client.transport.received)
            client.transport.received.clear()
    assert received.count(b"+MSG ") >= 2
    assert at.world.now_ms() - began_ms > 5000


def test_a_connection_that_closes_leaves_its_quotas(at: Doors) -> None:
    set_quota(at.node, producer_byte_rate=RATE)
    quotas = at.node.node.context.quotas
    assert quotas is not None
    for door in ("http", "line"):
        client = at.client(door)
        if door == "http":
            produce(client)
        else:
            client.ask(b"TOPIC orders - 2\nhi")
        assert [each.connections for each in quotas._buckets.values()] == [1]
        client.connection.connection_lost(None)
        assert [each.connections for each in quotas._buckets.values()] == [0]
