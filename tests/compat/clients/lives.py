"""A server that is killed and started again, on one port and one directory: Penstock as a process, or Apache Kafka."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from tests.compat.kafka.peer import KafkaPeer, RunningKafka
from tests.processes import Process

from penstock.server.ports import hold_port

SESSION_MS = 3000
"""After so long a silent member is out. A live one sends ten heartbeats meanwhile."""

HEARTBEAT_MS = 300

GROUP_SETTINGS: Mapping[str, str] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


class Lives(Protocol):
    """One server, over as many lives as a test gives it."""

    kind: str
    port: int

    @property
    def bootstrap(self) -> str: ...

    def start(self) -> None:
        """Begin the next life, on the same port; returns when clients are served."""

    def stop(self) -> None:
        """End it cleanly."""

    def kill(self) -> None:
        """End it with SIGKILL."""


class PenstockLives:
    kind = "penstock"

    def __init__(self, data: Path, settings: Mapping[str, str], port: int = 0) -> None:
        flags = [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]
        self.process = Process(*flags, data=data, port=port)

    @property
    def port(self) -> int:
        return self.process.port

    @property
    def bootstrap(self) -> str:
        return self.process.bootstrap

    def start(self) -> None:
        self.process.start()

    def stop(self) -> None:
        assert self.process.stop() == 0, self.process.stderr

    def kill(self) -> None:
        self.process.kill()


class KafkaLives:
    kind = "kafka"

    def __init__(self, kafka: KafkaPeer, data: Path, settings: Mapping[str, str], port: int = 0) -> None:
        self.kafka, self.data, self.settings = kafka, data, settings
        self.port = port or free_port()
        self._controller_port = free_port()
        self._life = ExitStack()
        self.running: RunningKafka | None = None
        if not (data / "meta.properties").exists():
            kafka.format_storage(data)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        own = {
            # How late Kafka sees that a transaction has run out of time.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
        }
        self.running = self._life.enter_context(self.kafka.running_kafka(self.data, {**own, **self.settings}))

    def stop(self) -> None:
        self._life.close()

    def kill(self) -> None:
        if self.running is not None and not self.running.ended:
            self.running.kill()
        self._life.close()


_HELD: list[socket.socket] = []
"""What keeps ports from being given to anybody else, as long as the tests run."""


def free_port() -> int:
    """A port that is nobody else's, in all lives of who listens there and between them."""
    _HELD.append(hold_port())
    return int(_HELD[-1].getsockname()[1])


@contextmanager
def penstock_lives(data: Path, settings: Mapping[str, str], port: int = 0) -> Iterator[PenstockLives]:
    lives = PenstockLives(data, settings, port)
    try:
        lives.start()
        yield lives
    finally:
        lives.process.close()


@contextmanager
def kafka_lives(
    kafka: KafkaPeer, data: Path, settings: Mapping[str, str], port: int = 0
) -> Iterator[KafkaLives]:
    lives = KafkaLives(kafka, data, settings, port)
    try:
        lives.start()
        yield lives
    finally:
        lives.kill()
