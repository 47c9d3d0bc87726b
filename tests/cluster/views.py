"""What can be seen of a cluster from outside: through its clients, and in its directories."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import SECONDS_MAX, Refused
from tests.compat.clients.patient import wait_until

QUICK = {
    "linger.ms": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 500,
    "log_level": 0,
}
"""A client on the same machine has no reason to wait."""

LOGS = "logs"


class Seen:
    """A cluster as its clients see it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.driver = ConfluentDriver(bootstrap)

    def partitions(self, topic: str) -> dict[int, Any]:
        """By number, with `leader`, `replicas` and `isrs`. Any broker is asked; one that has not heard of it yet
        is asked again."""
        found: dict[int, Any] = {}

        def is_known() -> bool:
            found.update(self.driver.described(topic)[topic].partitions)
            return bool(found)

        wait_until(is_known)
        return found

    def create_topic(
        self, topic: str, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
    ) -> None:
        """One that is not there. Where the controller changes meanwhile, the next one is asked again, as by Kafka's
        brokers, and may have it from the first."""
        assert topic not in self.driver.topics()
        try:
            self.driver.create_topic(topic, partitions, configs, replicas)
        except Refused as refusal:
            if refusal.code != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        assert len(self.partitions(topic)) == partitions

    def leader(self, topic: str, number: int = 0) -> int:
        """-1: none."""
        return int(self.partitions(topic)[number].leader)

    def isr(self, topic: str, number: int = 0) -> set[int]:
        return set(self.partitions(topic)[number].isrs)

    def is_whole(self) -> bool:
        """Whether every replica of every partition is in sync."""
        topics = self.driver.described().values()
        return all(set(p.isrs) == set(p.replicas) for topic in topics for p in topic.partitions.values())

    def producer(self, **settings: Any) -> Producer:
        said = {name.replace("_", "."): value for name, value in settings.items()}
        return Producer({"bootstrap.servers": self.bootstrap, **QUICK, **said})

    def send(self, topic: str, values: Iterable[bytes], *, partition: int = 0, **settings: Any) -> list[int]:
        """Produce to a partition and wait for all; their offsets. The first refusal is raised."""
        producer = self.producer(**settings)
        deliveries = Deliveries()
        for value in values:
            producer.produce(topic, value, partition=partition, on_delivery=deliveries.told)
            producer.poll(0)
        assert producer.flush(SECONDS_MAX) == 0
        if deliveries.failures:
            raise AssertionError(f"not acknowledged: {deliveries.failures[0].name()}")
        return deliveries.offsets

    def refusal(self, topic: str, value: bytes = b"x", **settings: Any) -> str:
        """Kafka's name for why a record is not taken, for a producer that does not try again."""
        producer = self.producer(**{"retries": 0, "message_timeout_ms": 20_000, **settings})
        deliveries = Deliveries()
        producer.produce(topic, value, partition=0, on_delivery=deliveries.told)
        assert producer.flush(SECONDS_MAX) == 0
        assert deliveries.failures, f"taken at {deliveries.offsets}"
        return str(deliveries.failures[0].name())


class Deliveries:
    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.failures: list[KafkaError] = []

    def told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
        else:
            self.offsets.append(message.offset())


# -- directories -----------------------------------------------------------------------------------------


def log_directory(data: Path, topic: str, number: int) -> Path:
    return data / LOGS / f"{topic}-{number}"


def log_bytes(data: Path, topic: str, number: int = 0) -> bytes:
    """All of a partition's segments, one after the other."""
    directory = log_directory(data, topic, number)
    return b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))


def assert_equal_replicas(directories: Sequence[Path], topic: str, numbers: Iterable[int] = (0,)) -> None:
    """Byte for byte, in nodes that have stopped."""
    for number in numbers:
        first, *others = directories
        expected = log_bytes(first, topic, number)
        assert expected, f"{topic}-{number} is empty"
        for other in others:
            assert log_bytes(other, topic, number) == expected, f"{topic}-{number} in {other}"


def assert_same_metadata(directories: Sequence[Path]) -> None:
    """As far as all of them have it: who stops first misses what the others write of that."""
    logs = [log_bytes(each, "__cluster_metadata") for each in directories]
    common = min(map(len, logs))
    assert common
    assert len({log[:common] for log in logs}) == 1


def directories_of(data: Path, holds: Callable[[str], bool] = lambda _: True) -> set[str]:
    """The names of the partitions' directories, also of those that are being deleted."""
    return {each.name for each in (data / LOGS).iterdir() if each.is_dir() and holds(each.name)}
