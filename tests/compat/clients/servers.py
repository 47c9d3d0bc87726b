"""What the clients are run against: Penstock in this process, or a real Apache Kafka.

Both are set up alike: topics appear on first use, with three partitions, and old timestamps are kept.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.compat.kafka.peer import KafkaPeer

SETTINGS: Mapping[str, str] = {
    "auto.create.topics.enable": "true",
    "num.partitions": "3",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "100",
}

beside_kafka = pytest.mark.parametrize(
    "server", ["penstock", pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.long])], indirect=True
)
"""For a test that runs on Kafka in every run, not only in the long one."""


@dataclass(frozen=True)
class Server:
    kind: str
    bootstrap: str

    @property
    def is_kafka(self) -> bool:
        return self.kind == "kafka"


@contextmanager
def running_penstock(settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    from penstock.testing import Broker  # noqa: PLC0415 - not before a test needs it

    with Broker(settings={**SETTINGS, **(settings or {})}) as broker:
        yield Server("penstock", broker.bootstrap)


@contextmanager
def running_kafka(
    kafka: KafkaPeer, log_dir: Path, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    kafka.format_storage(log_dir)
    with kafka.running_kafka(log_dir, {**SETTINGS, **(settings or {})}) as running:
        yield Server("kafka", running.bootstrap)
