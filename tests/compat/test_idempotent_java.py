"""The Java producer, while disks are full for moments, replicas are too few and leaders move: see `tests/cluster`."""

import subprocess
from pathlib import Path
from threading import Event

import pytest
from tests.cluster.idempotent import (
    PARTITIONS,
    TOPIC,
    assert_once_and_in_order,
    fill_disk,
    meanwhile,
    prepare,
)
from tests.cluster.processes import ClusterProcesses
from tests.compat.clients.patient import wait_until
from tests.compat.kafka.peer import KafkaPeer

PROGRAM = Path(__file__).parent / "kafka" / "ProduceInOrder.java"
SECONDS_MAX = 150
"""More than `delivery.timeout.ms`, after which the producer fails what it could not deliver."""


class JavaProducer:
    def __init__(self, kafka: KafkaPeer, bootstrap: str) -> None:
        self._process = subprocess.Popen(
            [*kafka._java_command("warn"), str(PROGRAM), bootstrap, TOPIC, str(PARTITIONS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def delivered(self, over: Event) -> list[bytes]:
        """Have it produce until the event is set; the values that were delivered."""
        try:
            over.wait()
            said, complaints = self._process.communicate(b"\n", timeout=SECONDS_MAX)
        except BaseException:
            self._process.kill()
            self._process.communicate()
            raise
        assert self._process.returncode == 0, complaints.decode()[-3000:]
        return said.split()


def is_written(data: Path) -> bool:
    """Whether the producer has begun."""
    return any(b"/10" in each.read_bytes()[-4000:] for each in data.glob(f"logs/{TOPIC}-*/*.log"))


@pytest.mark.long
@pytest.mark.kafka
def test_a_disk_that_is_full_for_moments_duplicates_nothing(kafka: KafkaPeer, tmp_path: Path) -> None:
    data = tmp_path / "node-1"
    with ClusterProcesses(tmp_path, count=1) as cluster:
        prepare(cluster, replicas=1)
        producer = JavaProducer(kafka, cluster.bootstrap)

        def trouble() -> None:
            wait_until(lambda: is_written(data))
            fill_disk(cluster.nodes[1], data, times=12)

        with meanwhile(trouble) as over:
            delivered = producer.delivered(over)
        assert "cannot write" in cluster.nodes[1].stderr, "the disk was never full"
    assert_once_and_in_order(data, delivered)


@pytest.mark.long
@pytest.mark.kafka
def test_too_few_replicas_and_leaders_that_move_duplicate_nothing(kafka: KafkaPeer, tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, settings={"min.insync.replicas": "3"}) as cluster:
        seen = prepare(cluster, replicas=3)
        producer = JavaProducer(kafka, cluster.bootstrap)

        def trouble() -> None:
            wait_until(lambda: is_written(tmp_path / "node-1"))
            fill_disk(cluster.nodes[1], tmp_path / "node-1", times=4)
            cluster.nodes[3].kill()
            wait_until(lambda: seen.isr(TOPIC) == {1, 2})
            cluster.nodes[3].start()
            wait_until(lambda: len(seen.isr(TOPIC)) == 3)

        with meanwhile(trouble) as over:
            delivered = producer.delivered(over)
        wait_until(seen.is_whole)
    for number in (1, 2, 3):
        assert_once_and_in_order(tmp_path / f"node-{number}", delivered)
