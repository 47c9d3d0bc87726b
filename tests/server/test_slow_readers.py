"""Many clients at once that do not take what they asked for, or do not finish what they send: what the node keeps for
them together is bounded, other clients go on, and the memory is given back.

Memory is that of a real `penstock up`, as the kernel counts it. Without the bound, 60 clients that fetch 50 MB each
cost 2.4 GB, and 60 tails of records of 16 KB each 100 MB.
"""

import re
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from tests.processes import Process
from tests.server.raw import (
    FETCH,
    METADATA,
    PRODUCE,
    RawClient,
    batch,
    create_topic,
    create_topics_request,
    fetch_request,
    metadata_request,
    produce_request,
)
from tests.server.test_crowds import fetched, produce, resident_bytes

from penstock.wire import Api, request_frame, write_request

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")

MB = 1 << 20
SETTLE_S_MAX = 60.0
GROWN_BYTES_MAX = 190 * MB
"""For any number of clients: the bound is 128 MB, and one request may grow beyond it."""

COUNTS = [30, pytest.param(1000, marks=pytest.mark.long)]

Sockets = list[socket.socket]


@contextmanager
def crowd(tmp_path: Path, count: int, *settings: str) -> Iterator[tuple[Process, Sockets]]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 500:
        pytest.skip(f"only {hard} files may be open here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 500), hard))
    arguments = [word for each in ("num.partitions=1", *settings) for word in ("--set", each)]
    with Process(*arguments, data=tmp_path / "data", http=True, line=True) as process, ExitStack() as stack:
        create_topic(process.port, "big")
        create_topic(process.port, "small")
        with RawClient(process.port) as client:
            for _ in range(110):
                produce(client, "big", batch(*[bytes(16_000)] * 32))
            produce(client, "small", batch(b"there"))
        sockets: Sockets = []
        stack.callback(lambda: close_all(sockets))
        yield process, sockets


def close_all(sockets: Sockets) -> None:
    for each in sockets:
        each.close()


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def settled(process: Process) -> int:
    """What it keeps when it has stopped growing."""
    before, end = 0, time.monotonic() + SETTLE_S_MAX
    while time.monotonic() < end:
        now = resident_bytes(process)
        if now <= before + MB:
            break
        before = now
        time.sleep(0.5)
    return resident_bytes(process)


def frames(api: Api, version: int, message: object) -> bytes:
    return request_frame(api, version, 1, "slow", write_request(api, version, message))


def fetch_much(process: Process, sockets: Sockets, count: int) -> None:
    asked = frames(Api.FETCH, FETCH, fetch_request("big", 0, bytes_max=50 * MB))
    for _ in range(count):
        sockets.append(connected(process.port))
        sockets[-1].sendall(asked)


def fetch_again_and_again(process: Process, sockets: Sockets, count: int) -> None:
    asked = frames(Api.FETCH, FETCH, fetch_request("big", 0, bytes_max=2 * MB))
    for _ in range(count):
        sockets.append(connected(process.port))
        sockets[-1].sendall(asked * 100)


def ask_about_everything(process: Process, sockets: Sockets, count: int) -> None:
    """Each answer is about a megabyte."""
    of = {f"topic-with-a-long-name-{number:03}": 100 for number in range(40)}
    with RawClient(process.port) as client:
        client.ask(Api.CREATE_TOPICS, 7, create_topics_request(of))
    asked = frames(Api.METADATA, METADATA, metadata_request())
    for _ in range(count):
        sockets.append(connected(process.port))
        sockets[-1].sendall(asked * 20)


def tail(process: Process, sockets: Sockets, count: int) -> None:
    port = urlsplit(process.http_url).port or 0
    for _ in range(count):
        sockets.append(connected(port))
        sockets[-1].sendall(b"GET /topics/big/tail?from=beginning HTTP/1.1\r\nHost: x\r\n\r\n")


def read_lines(process: Process, sockets: Sockets, count: int) -> None:
    port = urlsplit(process.http_url).port or 0
    for _ in range(count):
        sockets.append(connected(port))
        sockets[-1].sendall(
            b"GET /topics/big/records HTTP/1.1\r\nHost: x\r\nAccept: application/x-ndjson\r\n\r\n"
        )


def read_messages(process: Process, sockets: Sockets, count: int) -> None:
    for number in range(count):
        sockets.append(connected(process.line_port))
        sockets[-1].sendall(b"big:group-%d:-1\n" % number)


def begin_to_produce(process: Process, sockets: Sockets, count: int) -> None:
    """A hundred megabytes are announced, and five are sent."""
    whole = frames(Api.PRODUCE, PRODUCE, produce_request("big", bytes(16)))
    begun = (100 * MB).to_bytes(4, "big") + whole[4:]
    for _ in range(count):
        sockets.append(connected(process.port))
        with suppress(OSError):  # it may be closed for want of memory
            sockets[-1].settimeout(0.2)
            sockets[-1].sendall(begun + bytes(5 * MB))


CROWDS: list[Callable[[Process, Sockets, int], None]] = [
    fetch_much,
    fetch_again_and_again,
    ask_about_everything,
    tail,
    read_lines,
    read_messages,
    begin_to_produce,
]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("come", CROWDS, ids=lambda each: each.__name__)
def test_clients_that_do_not_read_are_bounded_together(
    tmp_path: Path, come: Callable[[Process, Sockets, int], None], count: int
) -> None:
    with crowd(tmp_path, count) as (process, sockets), RawClient(process.port) as honest:
        before = resident_bytes(process)
        come(process, sockets, count)
        for _ in range(20):
            offset = produce(honest, "small", batch(b"more"))
            assert b"more" in fetched(honest, "small", offset)
        grown = settled(process) - before
        assert grown < GROWN_BYTES_MAX, f"{grown / MB:.0f} MB for {count} clients"
        assert b"more" in fetched(honest, "small", offset)
        close_all(sockets)
        end = time.monotonic() + SETTLE_S_MAX
        while resident_bytes(process) - before > 60 * MB and time.monotonic() < end:
            assert b"more" in fetched(honest, "small", offset)
            time.sleep(0.2)
        kept = resident_bytes(process) - before
        assert kept <= 60 * MB, f"{kept / MB:.0f} MB are not given back"
        assert process.stop() == 0


def test_the_bound_for_all_clients_is_a_setting(tmp_path: Path) -> None:
    with crowd(tmp_path, 20, "client.buffers.max.bytes=4194304") as (process, sockets):
        with RawClient(process.port) as honest:
            begin_to_produce(process, sockets, 10)
            end = time.monotonic() + SETTLE_S_MAX
            while "client.buffers.max.bytes, 4194304" not in process.stderr and time.monotonic() < end:
                produce(honest, "small", batch(b"more"))
                time.sleep(0.1)
        assert "neither took replies nor completed requests" in process.stderr
        page = urlopen(f"{process.http_url}/metrics", timeout=60).read().decode()
        [closed] = re.findall(r"^penstock_connections_closed_for_memory_total (\d+)", page, re.MULTILINE)
        assert 1 <= int(closed) <= 10


def test_a_client_that_comes_back_for_its_reply_gets_all_of_it(tmp_path: Path) -> None:
    with crowd(tmp_path, 1) as (process, _), RawClient(process.port) as honest:
        whole = fetched(honest, "big")
        with RawClient(process.port, receive_bytes=4096) as slow:
            slow.send_request(Api.FETCH, FETCH, fetch_request("big", 0, bytes_max=40 * MB))
            for _ in range(20):
                produce(honest, "small", batch(b"more"))
            of = frames(Api.METADATA, METADATA, metadata_request("big"))
            slow.send(of)
            frame = slow.receive_frame()
            assert frame is not None
            assert len(frame) > 39 * MB
            assert whole[:1000] in frame
            assert slow.receive_frame() is not None
        assert process.stop() == 0


def test_a_client_that_never_reads_is_closed_when_it_has_been_idle_for_long(tmp_path: Path) -> None:
    with crowd(tmp_path, 2, "connections.max.idle.ms=1000") as (process, sockets):
        fetch_much(process, sockets, 1)
        tail(process, sockets, 1)
        end = time.monotonic() + SETTLE_S_MAX
        for each in sockets:
            while time.monotonic() < end and not _is_reset(process, each):
                time.sleep(0.1)
            assert _is_reset(process, each)


def _is_reset(process: Process, client: socket.socket) -> bool:
    """Whether the node has let go of the connection, although the client has not read what was sent."""
    port = client.getsockname()[1]
    local = f":{port:04X}"
    for line in Path(f"/proc/{process.pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[2].endswith(local) and words[3] == "01":
            return False
    return True
