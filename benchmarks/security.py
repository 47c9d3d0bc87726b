"""What security costs: `python -m benchmarks.security [--peer kafka]`.

TLS and log-ins: a broker has listeners for PLAINTEXT, SSL and SASL_SSL with SCRAM-SHA-256. One client sends requests
one after the other, and the broker's CPU is measured; with `--peer kafka` also that of Apache Kafka, with the same
listeners, key and requests, in turns.

ACLs and quotas: three Penstock nodes, one with neither, one with ACLs and one with quotas, in turns.

Of several rounds the least counts. Before a round of Produce its topic is deleted and made again, so that its files
lie in pages that the last round gave back: the first touch of a page costs a virtual machine more than a broker does.
The exit code is 1 if a goal is missed.
"""

import argparse
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from secrets import token_urlsafe
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.broker.admin import Admin
from benchmarks.broker.rows import TOPIC_CONFIGS
from benchmarks.broker.servers import KAFKA_JVM, child
from penstock.records import BatchBuilder
from penstock.security.sasl.client import ScramLogin
from penstock.server.certificate_authority import CertificateAuthority
from penstock.server.ports import free_ports
from penstock.wire import Api, read_response, request_frame, request_module, write_request
from penstock.wire.frames import parse_response_header

TOPIC: Final = "bench"
EMPTY: Final = "empty"
USER, PASSWORD = "alice", "alice-secret"
MECHANISM: Final = "SCRAM-SHA-256"
MB: Final = 1 << 20
PEER_GOAL: Final = 0.6
LOGIN_GOAL: Final = 1.0
EXTRA_GOAL: Final = 1.03
LISTENERS: Final = ("PLAINTEXT", "SSL", "SASL_SSL")
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, eq=False)
class Broker:
    pid: int
    ports: Mapping[str, int]
    warm_seconds: float = 0.2
    """CPU that it uses before a row counts: a JVM compiles what it has run often."""

    def renew_topic(self, requests: int = 0) -> None:
        """Delete the topic and make it again, with the records of that many requests."""
        with Admin(self.ports["PLAINTEXT"]) as admin:
            admin.delete_topic(TOPIC)
            admin.create_topic(TOPIC, 1, TOPIC_CONFIGS)
            for _ in range(requests):
                admin.send(FULL)

    def cpu_seconds(self) -> float:
        """The time that all of its threads have run."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


# -- requests --------------------------------------------------------------------------------------------------


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


def fetch(topic: str) -> bytes:
    of = request_module(Api.FETCH, 12)
    partition = of.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MB)
    return frame(
        Api.FETCH,
        12,
        of.FetchRequest(
            max_wait=timedelta(),
            min_bytes=1,
            max_bytes=MB,
            topics=(of.FetchTopic(topic=topic, partitions=(partition,)),),
            forgotten_topics_data=(),
            rack_id="",
        ),
    )


ONE_RECORD: Final = produce(batch(bytes(100)))
FULL: Final = produce(batch(*[bytes(1000)] * 128))
PRODUCE_ROWS: Final = {
    "Produce, one record": ONE_RECORD,
    "Produce, 16 KB": produce(batch(*[bytes(1000)] * 16)),
    "Produce, 128 KB": FULL,
}
TLS_ROWS: Final = {**PRODUCE_ROWS, "Fetch, 1 MB": fetch(TOPIC)}
EXTRA_ROWS: Final = {"Produce, one record": ONE_RECORD, "poll without records": fetch(EMPTY)}


# -- the client ------------------------------------------------------------------------------------------------


def ask(connection: socket.socket, request: bytes, room: memoryview) -> memoryview:
    connection.sendall(request)
    taken = 0
    wanted = 4
    while taken < wanted:
        received = connection.recv_into(room[taken:], wanted - taken)
        if not received:
            raise ConnectionError("the broker closed the connection")
        taken += received
        if taken >= 4:
            wanted = 4 + int.from_bytes(room[:4], "big")
    return room[4:taken]


def connected(port: int, context: ssl.SSLContext | None = None) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection if context is None else context.wrap_socket(connection, server_hostname="localhost")


def log_in(port: int, context: ssl.SSLContext, login: ScramLogin, room: memoryview) -> None:
    """Connect with TLS, log in with SCRAM, and close."""
    with connected(port, context) as connection:

        def call(api: Api, version: int, **fields: Any) -> Any:
            message = getattr(request_module(api, version), f"{api.label}Request")(**fields)
            body = ask(connection, frame(api, version, message), room)
            _, start = parse_response_header(body, api, version)
            return read_response(api, version, body[start:])

        call(Api.SASL_HANDSHAKE, 1, mechanism=MECHANISM)
        exchange = login.begin()
        token: bytes | None = exchange.first()
        while token is not None:
            answer = call(Api.SASL_AUTHENTICATE, 2, auth_bytes=token)
            if answer.error_code:
                raise ConnectionError(f"{answer.error_code}: {answer.error_message}")
            token = exchange.respond(bytes(answer.auth_bytes))


# -- the brokers -----------------------------------------------------------------------------------------------


@contextmanager
def penstock(
    directory: Path, settings: Mapping[str, str], listeners: Sequence[str] = LISTENERS[:1]
) -> Iterator[Broker]:
    ports = dict(zip(listeners, free_ports(len(listeners)), strict=True))
    own = {
        **settings,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "http.listener": "off",
        "line.listener": "off",
    }
    flags = [word for name, text in own.items() for word in ("--set", f"{name}={text}")]
    command = [sys.executable, "-m", "penstock", "up", "--data", str(directory), *flags]
    with child(command, "penstock ready ") as (process, _, _):
        yield Broker(process.pid, ports)


@contextmanager
def kafka(directory: Path, settings: Mapping[str, str]) -> Iterator[Broker]:
    from tests.compat.kafka.peer import KafkaPeer, jars  # noqa: PLC0415  # fetched with Maven the first time

    *used, controller = free_ports(len(LISTENERS) + 1)
    ports = dict(zip(LISTENERS, used, strict=True))
    listeners = ",".join(f"{name}://localhost:{port}" for name, port in ports.items())
    own = {
        **settings,
        "listeners": f"{listeners},CONTROLLER://localhost:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:{name}" for name in LISTENERS),
        "controller.quorum.voters": f"1@localhost:{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    peer = KafkaPeer(jars(), jvm=KAFKA_JVM)
    peer.format_storage(directory)
    with peer.running_kafka(directory, own) as running:
        yield Broker(running.process.pid, ports, warm_seconds=6.0)


def run_penstock(*words: str, port: int, stdin: str = "") -> None:
    command = [sys.executable, "-m", "penstock", *words, "--server", f"127.0.0.1:{port}"]
    subprocess.run(command, input=stdin, text=True, check=True, stdout=subprocess.DEVNULL)


# -- rounds ----------------------------------------------------------------------------------------------------


def least_cpu(
    calls: Mapping[Broker, Callable[[], object]],
    rounds: int,
    seconds: float,
    before: Callable[[Broker], object] = lambda _: None,
) -> dict[Broker, float]:
    """The CPU of each broker for one call, the least of some rounds that they take in turns."""
    for broker, call in calls.items():
        one_round(broker, call, broker.warm_seconds)
    found: dict[Broker, float] = {}
    for _ in range(rounds):
        for broker, call in calls.items():
            before(broker)
            used = one_round(broker, call, seconds)
            found[broker] = min(used, found.get(broker, used))
    return found


def one_round(broker: Broker, call: Callable[[], object], seconds: float) -> float:
    began, count = broker.cpu_seconds(), 0
    while (used := broker.cpu_seconds() - began) < seconds:
        for _ in range(20):
            call()
        count += 20
    return used / count


class Report:
    def __init__(self, title: str, *columns: str) -> None:
        self._table = Table("work", *columns, "goal", "", title=title)
        self.is_held = True

    def add(self, work: str, *figures: str, ratio: float | None, goal: float) -> None:
        is_held = ratio is None or ratio <= goal
        self.is_held &= is_held
        verdict = "" if ratio is None else "ok" if is_held else "missed"
        self._table.add_row(work, *figures, f"at most {goal:g}", verdict)

    def show(self) -> bool:
        Console(width=120).print(self._table)
        return self.is_held


def measure_tls(directory: Path, with_kafka: bool, rounds: int, seconds: float) -> bool:
    authority = CertificateAuthority.create("of the benchmark", days=1)
    store = directory / "node.pem"
    store.write_bytes(authority.issue("broker", ["localhost"], days=1).pem)
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
    room = memoryview(bytearray(4 * MB))
    report = Report(
        "TLS: CPU of the broker, us", "Penstock", "with TLS", "Kafka with TLS", "Penstock / Kafka"
    )
    with ExitStack() as stack:
        brokers = [stack.enter_context(penstock(directory / "penstock", settings, LISTENERS))]
        if with_kafka:
            brokers.append(stack.enter_context(kafka(directory / "kafka", settings)))
        plain, secured = {}, {}
        for broker in brokers:
            plain[broker] = stack.enter_context(connected(broker.ports["PLAINTEXT"]))
            create_topics(broker)
            secured[broker] = stack.enter_context(connected(broker.ports["SSL"], context))
            words = ("users", "add", USER, "--mechanism", MECHANISM, "--password-file", "-")
            run_penstock(*words, port=broker.ports["PLAINTEXT"], stdin=PASSWORD)

        def add(work: str, bare: float | None, found: Mapping[Broker, float], goal: float) -> None:
            ours, theirs = found[brokers[0]], found[brokers[1]] if with_kafka else None
            ratio = None if theirs is None else ours / theirs
            figures = [micros(bare), micros(ours), micros(theirs), "" if ratio is None else f"{ratio:.2f}"]
            report.add(work, *figures, ratio=ratio, goal=goal)

        for work, request in TLS_ROWS.items():
            ours = brokers[0]
            before = Broker.renew_topic if work in PRODUCE_ROWS else partial(Broker.renew_topic, requests=32)
            bare = least_cpu({ours: partial(ask, plain[ours], request, room)}, rounds, seconds, before)
            calls = {each: partial(ask, secured[each], request, room) for each in brokers}
            add(work, bare[ours], least_cpu(calls, rounds, seconds, before), PEER_GOAL)
        login = ScramLogin(MECHANISM, USER, PASSWORD, lambda: token_urlsafe(24))
        logins = {each: partial(log_in, each.ports["SASL_SSL"], context, login, room) for each in brokers}
        found = least_cpu(logins, rounds, seconds)
        add("TLS and SCRAM log-in", None, found, LOGIN_GOAL)
    return report.show()


def measure_extras(directory: Path, rounds: int, seconds: float) -> bool:
    room = memoryview(bytearray(4 * MB))
    report = Report("ACLs and quotas: CPU of the node, us", "neither", "with", "ratio")
    acls = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
    with ExitStack() as stack:
        nodes = {
            kind: stack.enter_context(penstock(directory / kind, settings))
            for kind, settings in {"neither": {}, "ACLs": acls, "quotas": {}}.items()
        }
        open_to = {node: stack.enter_context(connected(node.ports["PLAINTEXT"])) for node in nodes.values()}
        for node in nodes.values():
            create_topics(node)
        port = nodes["ACLs"].ports["PLAINTEXT"]
        for name in (TOPIC, EMPTY):
            run_penstock("acls", "allow", "ANONYMOUS", "read,write,describe", "topic", name, port=port)
        run_penstock("acls", "deny", "mallory", "all", "topic", "bench", "--prefix", port=port)
        limits = ("producer_byte_rate=1e12", "consumer_byte_rate=1e12", "request_percentage=1000000")
        port = nodes["quotas"].ports["PLAINTEXT"]
        run_penstock("quotas", "set", *limits, "--client-id", "default", port=port)
        for work, request in EXTRA_ROWS.items():
            calls = {node: partial(ask, connection, request, room) for node, connection in open_to.items()}
            found = least_cpu(calls, 2 * rounds, seconds, Broker.renew_topic)
            bare = found[nodes["neither"]]
            for kind in ("ACLs", "quotas"):
                used = found[nodes[kind]]
                report.add(
                    f"{work}, {kind}",
                    micros(bare),
                    micros(used),
                    f"{used / bare:.3f}",
                    ratio=used / bare,
                    goal=EXTRA_GOAL,
                )
    return report.show()


def create_topics(broker: Broker) -> None:
    with Admin(broker.ports["PLAINTEXT"]) as admin:
        for name in (TOPIC, EMPTY):
            admin.create_topic(name, 1, TOPIC_CONFIGS)


def micros(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", choices=("kafka",))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU of the broker per round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        tls = measure_tls(Path(directory), options.peer == "kafka", options.rounds, options.seconds)
        extras = measure_extras(Path(directory), options.rounds, options.seconds)
    return 0 if tls and extras else 1


if __name__ == "__main__":
    sys.exit(main())
