"""Sums over an image: right, once for each image, and in slices whatever the topics look like."""

from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.observing.test_cluster_events import DOWN, UP, image, placed
from tests.nodes import StillNode

from penstock.base.steps import RunningSteps, Steps
from penstock.gateway.observing.cluster_events import CHANGES_A_TICK, ClusterChanges
from penstock.gateway.observing.partition_counts import PARTITIONS_A_TICK, PartitionCounter, PartitionCounts
from penstock.metadata.image import ClusterImage
from penstock.metadata.records import NO_LEADER


def counter_of(shown: ClusterImage) -> tuple[StillNode, PartitionCounter]:
    node = StillNode()
    return node, PartitionCounter(replace(node.node.context, image=shown))


def waits(steps: Steps[Any]) -> int:
    """How often steps let others have their turn."""
    count = 0
    for promise in steps:
        assert not promise.is_settled
        count += 1
    return count


def test_partitions_are_counted_by_what_is_wrong_with_them() -> None:
    shown = image(
        DOWN,
        {
            "orders": [placed(1), placed(NO_LEADER, 2), placed(1, 1), placed(3)],
            "moving": [placed(1, replicas=(1, 2, 3, 4), adding=(4,))],
        },
    )
    node, counter = counter_of(shown)
    found: list[PartitionCounts] = []
    RunningSteps(counter.counts(), found.append, pytest.fail)
    node.world.advance(10)
    [counts] = found
    assert (counts.partitions, counts.offline, counts.reassigning) == (5, 1, 1)
    assert (counts.under_replicated, counts.under_min_isr, counts.unpreferred) == (2, 0, 1)
    assert counts.leaders == {1: 3, 3: 1}
    assert counts.replicas == {1: 5, 2: 5, 3: 5, 4: 1}
    assert {each.code for each in counts.problems} == {
        "brokers_fenced",
        "partitions_offline",
        "partitions_under_replicated",
    }
    RunningSteps(counter.counts(), found.append, pytest.fail)
    assert found[1] is counts, "the image is the same"


@pytest.mark.parametrize(("topics", "partitions"), [(1, 20_000), (20_000, 1), (4, 5_000)])
def test_large_image_is_read_in_slices(topics: int, partitions: int) -> None:
    before = image(UP, {f"t{number}": [placed(2)] * partitions for number in range(topics)})
    after = image(DOWN, {f"t{number}": [placed(1, 1, 3)] * partitions for number in range(topics)})
    node, counter = counter_of(after)
    assert waits(counter.counts()) >= 2 * topics * partitions // PARTITIONS_A_TICK
    compared = ClusterChanges().compare(node.world, before, after)
    assert waits(compared) == topics * partitions // CHANGES_A_TICK
