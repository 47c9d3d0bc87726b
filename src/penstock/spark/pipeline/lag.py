"""Reads the lag of flows from the brokers, and commits their positions.

A flow resumes at the position in its checkpoint. The source also commits it to a consumer group when the
next batch starts, so after a stop the group would show the last batch as unread: the runner commits
once more at the end. Both are only for monitoring, so errors of the brokers are ignored.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.base.errors import KafkaError
from penstock.base.ids import TopicPartition
from penstock.base.pipeline_report import COMMIT_METADATA
from penstock.client.group_offsets import commit_offsets
from penstock.client.offsets import LATEST, READ_COMMITTED, list_offsets
from penstock.client.settings import ClientSettings

from .build import group_of
from .graph import needed
from .options import Brokers
from .progress import FlowProgress, Positions, behind
from .spec import Flow, PipelineSpec, Source, TopicSource

PATIENCE = ClientSettings(connect_timeout_ms=2_000, request_timeout_ms=5_000, api_timeout_ms=8_000)


def _by_brokers(
    spec: PipelineSpec, flow: Flow, positions: Positions, brokers: Brokers
) -> list[tuple[Brokers, Positions]]:
    """Positions grouped by brokers."""
    found: list[tuple[Brokers, Positions]] = []
    for source in _topic_sources(spec, flow):
        at = brokers.of_part(source)
        for topic, partitions in positions.items():
            named = topic in source.topics
            if named or (source.pattern is not None and re.fullmatch(source.pattern, topic)):
                known = next((some for other, some in found if other == at), None)
                if known is None:
                    found.append((at, known := {}))
                known[topic] = partitions
    return found


def _topic_sources(spec: PipelineSpec, flow: Flow) -> Iterable[TopicSource]:
    for thing in needed(spec, flow.query):
        if isinstance(thing, Source) and isinstance(thing.reads, TopicSource) and not thing.is_static:
            yield thing.reads


def lag_now(spec: PipelineSpec, flow: Flow, positions: Positions, brokers: Brokers) -> int | None:
    """Records between positions and the current ends of their partitions. Raises KafkaError."""
    if not positions:
        return None
    total = 0
    for at, some in _by_brokers(spec, flow, positions, brokers):
        wanted = {
            TopicPartition(topic, each): LATEST for topic, partitions in some.items() for each in partitions
        }
        with at.connect(PATIENCE) as cluster:
            ends: Positions = {}
            for partition, end in list_offsets(cluster, wanted, isolation_level=READ_COMMITTED).items():
                ends.setdefault(partition.topic, {})[partition.partition] = end.offset
        total += behind(some, ends)
    return total


def commit_positions(spec: PipelineSpec, flows: Iterable[FlowProgress], brokers: Brokers) -> list[str]:
    """Commit the final position of each flow to its consumer group; return the failures."""
    by_name: Mapping[str, Flow] = {each.name: each for each in spec.flows}
    refused = []
    for progress in flows:
        flow = by_name[progress.flow]
        sources: list[Any] = list(_topic_sources(spec, flow))
        if any(name.lower() in ("group", "kafka.group.id") for each in sources for name in each.options):
            continue  # the user set a group, or none
        for at, some in _by_brokers(spec, flow, progress.positions, brokers):
            offsets = {
                TopicPartition(topic, each): offset
                for topic, found in some.items()
                for each, offset in found.items()
            }
            try:
                with at.connect(PATIENCE) as cluster:
                    commit_offsets(cluster, group_of(spec, flow), offsets, metadata=COMMIT_METADATA)
            except KafkaError as error:
                refused.append(f"the position of {group_of(spec, flow)} could not be committed: {error}")
    return refused
