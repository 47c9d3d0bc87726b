"""A third of 10,000 partitions loses its leader at once."""

import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message
from tests.cluster.processes import ClusterProcesses
from tests.cluster.views import Seen
from tests.compat.clients.driver import SECONDS_MAX
from tests.compat.clients.patient import wait_until

TOPICS, PARTITIONS = 10, 1000
WRITTEN = 300
"""To so many of the partitions that lost their leader a client writes; the rest are looked at."""


@pytest.mark.long
def test_all_partitions_of_a_broker_that_dies_have_other_leaders_soon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"auto.leader.rebalance.enable": "false"}
    with ClusterProcesses(tmp_path, settings=settings) as cluster:
        try:
            pause_s, count = _lose_a_third(cluster)
        except BaseException:
            print(cluster.complaints)
            raise
    with capsys.disabled():
        print(
            f"\n  {count} partitions lost their leader: the last one was written to after {pause_s * 1000:.0f} ms"
        )


def _lose_a_third(cluster: ClusterProcesses) -> tuple[float, int]:
    """How long it took until all could be written to again, and how many they were."""
    seen = Seen(cluster.bootstrap)
    names = [f"topic-{number}" for number in range(TOPICS)]
    for name in names:
        seen.create_topic(name, PARTITIONS, replicas=2)
    wait_until(seen.is_whole)
    led = [
        (name, number) for name in names for number, each in seen.partitions(name).items() if each.leader == 1
    ]
    assert abs(len(led) - TOPICS * PARTITIONS / 3) < 100
    producer = seen.producer(acks="all", enable_idempotence=True)
    heard: list[float] = []

    def told(error: KafkaError | None, _: Message) -> None:
        assert error is None
        heard.append(time.monotonic())

    def write() -> None:
        for name, number in led[:: len(led) // WRITTEN]:
            producer.produce(name, b"x", partition=number, on_delivery=told)
            producer.poll(0)
        assert producer.flush(SECONDS_MAX) == 0

    write()
    cluster.nodes[1].kill()
    killed = time.monotonic()
    write()
    pause_s = heard[-1] - killed

    topics = seen.driver.described().values()
    assert {each.leader for topic in topics for each in topic.partitions.values()} == {2, 3}
    cluster.nodes[1].start()
    wait_until(seen.is_whole)
    return pause_s, len(led)
