"""Committed offsets of groups: lists, sets and deletes them; and their lag."""

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.base.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition
from penstock.wire import Api
from penstock.wire.request import through_kio

from .cluster import Cluster
from .coordinators import AGAIN, Kind, ask_coordinator
from .errors import BrokerRefused, ClientError, check, refused
from .offsets import LATEST, list_offsets
from .topology import by_topic

NAMES_MAX = 9
"""The last version of OffsetFetch and OffsetCommit with topic names. Later ones have topic ids, by which the name of a
deleted topic cannot be found."""

NO_MEMBER = -1
"""The generation, or member epoch, of a commit by a client that is not a member."""

END_OFFSETS_WAIT_MS = 5_000
"""How long to wait for the log end offsets of partitions, before their lag is unknown."""


class Committed(NamedTuple):
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str


def fetch_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, Committed]:
    """All committed offsets of a group; empty if the group does not exist."""

    def build(make: Any) -> Any:
        if make.version >= 8:
            group = make.OffsetFetchRequestGroup(
                group_id=group_id, member_id=None, member_epoch=NO_MEMBER, topics=None
            )
            return make.OffsetFetchRequest(groups=(group,), require_stable=False)
        return make.OffsetFetchRequest(group_id=group_id, topics=None, require_stable=False)

    # From version 2 on, null topics stand for all topics.
    request = through_kio(Api.OFFSET_FETCH, build, version_min=2, version_max=NAMES_MAX)

    def code_of(reply: Any) -> int:
        return int(_group(reply).error_code)

    _, reply = ask_coordinator(cluster, Kind.GROUP, group_id, request, code_of)
    code = code_of(reply)
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    if code:
        raise refused(f"offsets of group {group_id}", code)
    found = {}
    for topic in _group(reply).topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            check(f"offset of group {group_id} for {partition}", each)
            if each.committed_offset >= 0:
                epoch = getattr(each, "committed_leader_epoch", NO_LEADER_EPOCH)
                found[partition] = Committed(each.committed_offset, epoch, each.metadata or "")
    return dict(sorted(found.items()))


def _group(reply: Any) -> Any:
    return reply.groups[0] if getattr(reply, "groups", None) else reply


def commit_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, Offset], *, metadata: str = ""
) -> None:
    """Commit offsets of a group without members. Raises the first error of a partition."""

    def build(make: Any) -> Any:
        return make.OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=NO_MEMBER,
            member_id="",
            group_instance_id=None,
            retention_time=timedelta(milliseconds=-1),
            topics=tuple(
                make.OffsetCommitRequestTopic(
                    name=topic,
                    partitions=tuple(
                        make.OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=offsets[TopicPartition(topic, number)],
                            committed_leader_epoch=NO_LEADER_EPOCH,
                            committed_metadata=metadata,
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(offsets).items()
            ),
        )

    request = through_kio(Api.OFFSET_COMMIT, build, version_max=NAMES_MAX)
    _, reply = ask_coordinator(cluster, Kind.GROUP, group_id, request, _again)
    for partition, code in _codes(reply).items():
        if code == ErrorCode.UNKNOWN_MEMBER_ID:  # the group has members, and only they may commit
            raise refused(f"group {group_id}", ErrorCode.NON_EMPTY_GROUP)
        if code:
            raise refused(f"offset of group {group_id} for {partition}", code)


def delete_offsets(
    cluster: Cluster, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, BrokerRefused | None]:
    """Delete committed offsets of partitions; return the errors."""
    wanted = list(partitions)

    def build(make: Any) -> Any:
        return make.OffsetDeleteRequest(
            group_id=group_id,
            topics=tuple(
                make.OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=tuple(
                        make.OffsetDeleteRequestPartition(partition_index=number) for number in numbers
                    ),
                )
                for topic, numbers in by_topic(wanted).items()
            ),
        )

    request = through_kio(Api.OFFSET_DELETE, build)
    _, reply = ask_coordinator(
        cluster, Kind.GROUP, group_id, request, lambda reply: int(reply.error_code) or _again(reply)
    )
    check(f"group {group_id}", reply)
    return {
        partition: refused(f"offset of group {group_id} for {partition}", code) if code else None
        for partition, code in sorted(_codes(reply).items())
    }


def _codes(reply: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): int(each.error_code)
        for topic in reply.topics
        for each in topic.partitions
    }


def _again(reply: Any) -> int:
    return next((code for code in _codes(reply).values() if code in AGAIN), 0)


def known_offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    time: int = LATEST,
    on_error: Callable[[Exception], None] = lambda _: None,
) -> dict[TopicPartition, Offset]:
    """The log ends of partitions, or their offsets at another `time`. Leaves out partitions without a leader, and
    topics that do not exist: a group may have committed offsets for a topic that was deleted since.
    """
    wanted = list(partitions)
    cluster.refresh({each.topic for each in wanted})
    led = [each for each in wanted if cluster.leader(each) is not None]
    if not led:
        return {}
    try:
        found = list_offsets(cluster, dict.fromkeys(led, time), timeout_ms=END_OFFSETS_WAIT_MS)
    except ClientError as error:
        on_error(error)
        return {}
    return {partition: each.offset for partition, each in found.items()}
