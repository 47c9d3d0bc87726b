"""Clients with TLS that do not read, or do not finish what they send: what the node keeps for them is bounded as
without TLS, as the kernel counts the memory of a real `penstock up`."""

import resource
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trustme
from tests.processes import Process
from tests.server.raw import FETCH, PRODUCE, batch, create_topics_request, fetch_request, produce_request
from tests.server.test_crowds import produce, resident_bytes
from tests.server.test_slow_readers import COUNTS, GROWN_BYTES_MAX, MB, frames, settled
from tests.server.tls_nodes import TlsRawClient, client_context, issue, tls_settings, write_store

from penstock.wire import Api

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("what", ["fetch", "produce"])
def test_slow_clients_cost_no_more_than_the_bound(tmp_path: Path, what: str, count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 500)), hard))
    ca = trustme.CA()
    settings = {
        **tls_settings(write_store(tmp_path / "node.pem", issue(ca))),
        "num.partitions": "1",
    }
    flags = [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]
    context = client_context(ca)
    with Process(*flags, data=tmp_path / "data") as process, ExitStack() as stack:
        other = stack.enter_context(TlsRawClient(process.port, context))
        other.ask(Api.CREATE_TOPICS, 7, create_topics_request({"big": 1, "small": 1}))
        for _ in range(110):
            produce(other, "big", batch(*[bytes(16_000)] * 32))
        before = resident_bytes(process)
        for _ in range(count):
            client = stack.enter_context(TlsRawClient(process.port, context))
            if what == "fetch":
                client.send(frames(Api.FETCH, FETCH, fetch_request("big", 0, bytes_max=50 * MB)))
            else:
                begin_to_produce(client)
        assert settled(process) - before < GROWN_BYTES_MAX
        produce(other, "small", batch(b"others go on"))
        response = other.ask(Api.FETCH, FETCH, fetch_request("small", 0))
        assert response.responses[0].partitions[0].records


def begin_to_produce(client: TlsRawClient) -> None:
    """A hundred megabytes are announced, and five are sent."""
    whole = frames(Api.PRODUCE, PRODUCE, produce_request("big", bytes(16)))
    client.socket.settimeout(0.2)
    with suppress(OSError):  # it may be closed for want of memory
        client.send((100 * MB).to_bytes(4, "big") + whole[4:] + bytes(5 * MB))
