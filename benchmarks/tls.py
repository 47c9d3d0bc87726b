"""What TLS costs a node: `python -m benchmarks.tls`.

One `penstock up` has a listener without TLS and one with it. A client sends requests one after the other to each, and
the node's CPU is measured: a Produce of one record, a Produce of a batch of 128 KB, a Fetch of 1 MB. Of several rounds
the least counts. It needs `trustme`.
"""

import argparse
import os
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import trustme

from penstock.records import BatchBuilder
from penstock.server.ports import free_ports
from penstock.wire import Api, request_frame, request_module, write_request

TOPIC: Final = "bench"
MB: Final = 1 << 20


def batch(*values: bytes) -> bytes:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, 1_600_000_000_000)
    return builder.build()


def frame(api: Api, version: int, message: Any) -> bytes:
    return request_frame(api, version, 1, "bench", write_request(api, version, message))


def produce(records: bytes) -> bytes:
    of = request_module(Api.PRODUCE, 9)
    data = of.TopicProduceData(
        name=TOPIC, partition_data=(of.PartitionProduceData(index=0, records=records),)
    )
    return frame(Api.PRODUCE, 9, of.ProduceRequest(acks=1, timeout=timedelta(seconds=10), topic_data=(data,)))


def fetch() -> bytes:
    of = request_module(Api.FETCH, 12)
    partition = of.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MB)
    return frame(
        Api.FETCH,
        12,
        of.FetchRequest(
            max_wait=timedelta(),
            min_bytes=1,
            max_bytes=MB,
            topics=(of.FetchTopic(topic=TOPIC, partitions=(partition,)),),
            forgotten_topics_data=(),
            rack_id="",
        ),
    )


def create_topic() -> bytes:
    of = request_module(Api.CREATE_TOPICS, 7)
    topic = of.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=())
    return frame(Api.CREATE_TOPICS, 7, of.CreateTopicsRequest(topics=(topic,)))


def ask(connection: socket.socket, request: bytes, room: memoryview) -> None:
    connection.sendall(request)
    taken = 0
    wanted = 4
    while taken < wanted:
        taken += connection.recv_into(room[taken:], wanted - taken)
        if taken >= 4:
            wanted = 4 + int.from_bytes(room[:4], "big")


def cpu_seconds(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU of the node per round")
    options = parser.parse_args()
    ca = trustme.CA()
    cert = ca.issue_cert("localhost")
    plain, tls = free_ports(2)
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory, "node.pem")
        store.write_bytes(cert.private_key_and_cert_chain_pem.bytes())
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{tls}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "num.partitions": "1",
            "http.listener": "off",
            "line.listener": "off",
        }
        flags = [word for name, text in settings.items() for word in ("--set", f"{name}={text}")]
        command = [sys.executable, "-m", "penstock", "up", "--data", f"{directory}/data", *flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as node:
            assert node.stdout is not None
            node.stdout.readline()
            try:
                measure(node.pid, plain, tls, ca, options.rounds, options.seconds)
            finally:
                node.terminate()


def measure(pid: int, plain: int, tls: int, ca: trustme.CA, rounds: int, seconds: float) -> None:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    open_plain = socket.create_connection(("127.0.0.1", plain))
    open_tls = context.wrap_socket(socket.create_connection(("127.0.0.1", tls)), server_hostname="localhost")
    room = memoryview(bytearray(4 * MB))
    for each in (open_plain, open_tls):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ask(open_plain, create_topic(), room)
    for _ in range(32):
        ask(open_plain, produce(batch(*[bytes(1000)] * 128)), room)
    kinds = {
        "Produce, one record": produce(batch(bytes(100))),
        "Produce, 128 KB": produce(batch(*[bytes(1000)] * 128)),
        "Fetch, 1 MB": fetch(),
    }
    print(f"{'':22}{'plain':>10}{'TLS':>10}  CPU of the node, µs per request")
    for name, request in kinds.items():
        least = {
            each: min(one_round(pid, lambda: ask(each, request, room), seconds) for _ in range(rounds))  # noqa: B023
            for each in (open_plain, open_tls)
        }
        print(f"{name:22}{least[open_plain] * 1e6:10.0f}{least[open_tls] * 1e6:10.0f}", flush=True)


def one_round(pid: int, call: Callable[[], None], seconds: float) -> float:
    for _ in range(20):
        call()
    began, count = cpu_seconds(pid), 0
    while (used := cpu_seconds(pid) - began) < seconds:
        for _ in range(20):
            call()
        count += 20
    return used / count


if __name__ == "__main__":
    main()
