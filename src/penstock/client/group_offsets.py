"""What a group has committed, read, set and forgotten over the wire; and how far it lags behind."""

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
"""The last version of OffsetFetch and OffsetCommit that names topics; after it they go by their ids, and then a
topic that was deleted has no name any more."""

NO_MEMBER = -1
"""The generation, or member epoch, of a commit from outside of the group."""

END_OFFSETS_WAIT_MS = 5_000
"""How long to wait for leaders to tell where their partitions end, before the lag there is not known."""


class Committed(NamedTuple):
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str


def fetch_offsets(cluster: Cluster, group_id: str) -> dict[TopicPartition, Committed]:
    """Everything that a group has committed; nothing for a group that is not there."""

    def build(make: Any) -> Any:
        if make.version >= 8:
            group = make.OffsetFetchRequestGroup(
                group_id=group_id, member_id=None, member_epoch=NO_MEMBER, topics=None
            )
            return make.OffsetFetchRequest(groups=(group,), require_stable=False)
        return make.OffsetFetchRequest(group_id=group_id, topics=None, require_stable=False)

    # No topics means all topics, since version 2.
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


def commit_offsets(cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, Offset]) -> None:
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
                            committed_metadata="",
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
        if code == ErrorCode.UNKNOWN_MEMBER_ID:  # a group with members rejects others so
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
