"""A cluster of 10,000 partitions with three replicas each: how much work it is to know of them all."""

import time
from dataclasses import replace

import pytest
from tests.controlplane.quorum_bench import ALONE, Bench

from penstock.metadata.bootstrap import bootstrap_records
from penstock.metadata.delta import delta
from penstock.metadata.image import EMPTY, PartitionRegistration
from penstock.metadata.records import TopicRecord
from penstock.metadata.snapshot import partition_record
from penstock.metadata.versions import METADATA_VERSION_LATEST

TOPICS, PARTITIONS = 10, 1000
LOAD_CPU_S_MAX = 3.0
"""What a node may take to load them from a snapshot: of its processor's time, whatever else runs."""


def make(bench: Bench) -> None:
    bench.commit(*bootstrap_records(min_insync_replicas=1))
    directories = tuple(bytes([each]) * 16 for each in (1, 2, 3))
    for topic in range(TOPICS):
        topic_id = (1000 + topic).to_bytes(16, "big")
        placed = [
            PartitionRegistration(replicas=order, directories=directories, isr=order, leader=order[0])
            for order in ((1, 2, 3), (2, 3, 1), (3, 1, 2))
        ]
        bench.commit(
            TopicRecord(name=f"topic-{topic}", topic_id=topic_id),
            *(
                partition_record(topic_id, number, placed[number % 3], METADATA_VERSION_LATEST)
                for number in range(PARTITIONS)
            ),
        )


@pytest.mark.long
def test_ten_thousand_partitions_are_loaded_from_a_snapshot_in_little_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench = Bench(settings=replace(ALONE, snapshot_bytes=1)).start()
    make(bench)
    assert len(bench.names(".checkpoint")) > 1
    began = time.process_time()
    again = bench.restart()
    loaded_s = time.process_time() - began
    image = again.hearer.now
    assert sum(len(topic.partitions) for topic in image.topics.values()) == TOPICS * PARTITIONS
    assert image == bench.hearer.now
    began = time.process_time()
    assert len(delta(EMPTY, image).partitions) == TOPICS * PARTITIONS
    compared_s = time.process_time() - began
    assert loaded_s + compared_s < LOAD_CPU_S_MAX
    with capsys.disabled():
        print(f"\n  10,000 partitions: loaded in {loaded_s:.2f} s, compared in {compared_s:.2f} s, of CPU")
