"""ISR changes requested by leaders and by replicas with a failing disk, and elections requested by operators."""

from collections import Counter

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import uuid_text
from penstock.base.outcome import Outcome
from penstock.metadata import records as s
from penstock.metadata.configs import unclean_election_allowed
from penstock.metadata.image import PartitionRegistration, Topic
from penstock.metadata.replay import merge

from .elections import Elect, PartitionEdit, acceptance, leaderless
from .requests import (
    DAMAGED,
    OK,
    UNWRITABLE,
    AlterPartition,
    Election,
    ElectionResult,
    ElectLeaders,
    IsrChange,
    IsrChanged,
    Result,
    refused,
)
from .view import ControllerView

UNCLEAN = "unclean.leader.election.enable"

_LEAVING = (DAMAGED, UNWRITABLE)
"""Recovery states with which a replica requests an ISR without itself."""


def alter_partition(view: ControllerView, request: AlterPartition) -> Outcome[tuple[IsrChanged, ...]]:
    view.broker(request.broker_id, request.broker_epoch)
    counts = Counter((change.topic_id, change.partition) for change in request.changes)
    records: list[s.AnyRecord] = []
    replies = []
    for change in request.changes:
        try:
            if counts[change.topic_id, change.partition] > 1:
                raise KafkaError("the request changes a partition twice", ErrorCode.INVALID_REQUEST)
            record, reply = _altered(view, request.broker_id, change)
        except KafkaError as error:
            replies.append(IsrChanged(change.topic_id, change.partition, refused(error)))
            continue
        if record is not None:
            records.append(record)
        replies.append(reply)
    return Outcome(tuple(replies), tuple(records))


def _altered(
    view: ControllerView, broker_id: int, change: IsrChange
) -> tuple[s.PartitionChangeRecord | None, IsrChanged]:
    topic = view.image.topic_by_id(change.topic_id)
    if topic is None:
        raise KafkaError(f"no topic has id {uuid_text(change.topic_id)}", ErrorCode.UNKNOWN_TOPIC_ID)
    partition: PartitionRegistration | None = topic.partitions.get(change.partition)
    if partition is None:
        raise KafkaError(
            f"topic {topic.name} has no partition {change.partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    _check_change(view, broker_id, change, partition)
    edit = PartitionEdit(view, topic, change.partition, partition, acceptance(view.image, partition))
    edit.isr = tuple(member.broker_id for member in change.isr)
    if change.recovery_state in _LEAVING:
        leave = _handed_over if broker_id == partition.leader else _left
        return leave(broker_id, change, edit)
    edit.recovery_state = change.recovery_state
    if unclean_election_allowed(topic.name, view.image, view.settings):
        edit.elect = Elect.UNCLEAN
    record = edit.record()
    after = partition if record is None else merge(partition, record)
    if after.leader != broker_id:
        # The change completed a reassignment that removed the leader: it takes effect, and another replica leads.
        lost = Result(ErrorCode.NEW_LEADER_ELECTED, f"broker {after.leader} is the new leader")
        return record, IsrChanged(change.topic_id, change.partition, lost)
    return record, _changed(change, after)


def _changed(change: IsrChange, after: PartitionRegistration) -> IsrChanged:
    return IsrChanged(
        change.topic_id,
        change.partition,
        OK,
        after.leader,
        after.leader_epoch,
        after.isr,
        after.recovery_state,
        after.partition_epoch,
    )


def _left(
    broker_id: int, change: IsrChange, edit: PartitionEdit
) -> tuple[s.PartitionChangeRecord | None, IsrChanged]:
    """Remove a follower whose replica is damaged, or whose disk fails, from the ISR, if it is in it."""
    edit.isr = tuple(each for each in edit.partition.isr if each != broker_id)
    if change.recovery_state == DAMAGED:
        edit.unclean_broker = broker_id
    record = edit.record()
    after = edit.partition if record is None else merge(edit.partition, record)
    return record, _changed(change, after)


def _handed_over(
    broker_id: int, change: IsrChange, edit: PartitionEdit
) -> tuple[s.PartitionChangeRecord | None, IsrChanged]:
    """Depose a leader whose replica is damaged, as after an unclean stop, if another replica may lead; otherwise it
    stays, since it has the only copy. A leader whose disk takes no writes is deposed too, but stays eligible."""
    is_acceptable = edit.acceptable
    edit.acceptable = lambda replica: replica != broker_id and is_acceptable(replica)
    if change.recovery_state == DAMAGED:
        edit.unclean_broker = broker_id
    record = edit.record()
    if record is None or record.leader < 0 or edit.recovery_state == s.RECOVERING:
        raise KafkaError(
            f"no replica other than broker {broker_id} can lead {edit.topic.name}-{edit.number}",
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        )
    lost = Result(ErrorCode.NEW_LEADER_ELECTED, f"broker {record.leader} is the new leader")
    return record, IsrChanged(change.topic_id, change.partition, lost)


def _check_change(
    view: ControllerView, broker_id: int, change: IsrChange, held: PartitionRegistration
) -> None:
    wanted = [member.broker_id for member in change.isr]
    is_leaving = change.recovery_state in _LEAVING
    may_ask = broker_id == held.leader or (is_leaving and broker_id in held.replicas)
    problems = (
        (change.leader_epoch > held.leader_epoch, ErrorCode.NOT_CONTROLLER,
         f"leader epoch {change.leader_epoch} is ahead of {held.leader_epoch}"),
        (change.partition_epoch > held.partition_epoch, ErrorCode.NOT_CONTROLLER,
         f"partition epoch {change.partition_epoch} is ahead of {held.partition_epoch}"),
        (change.leader_epoch < held.leader_epoch, ErrorCode.FENCED_LEADER_EPOCH,
         f"leader epoch {change.leader_epoch} is stale, the current one is {held.leader_epoch}"),
        (not may_ask, ErrorCode.INVALID_REQUEST,
         f"broker {broker_id} is not the leader; broker {held.leader} is"),
        (change.partition_epoch < held.partition_epoch, ErrorCode.INVALID_UPDATE_VERSION,
         f"partition epoch {change.partition_epoch} is stale, the current one is {held.partition_epoch}"),
        ((not wanted and not is_leaving) or len(set(wanted)) != len(wanted) or not set(wanted) <= set(held.replicas),
         ErrorCode.INVALID_REQUEST, f"an ISR of {wanted} is not among the replicas {list(held.replicas)}"),
        (held.leader not in wanted and not is_leaving, ErrorCode.INVALID_REQUEST,
         f"an ISR of {wanted} is without its leader {held.leader}"),
        (is_leaving and (broker_id in wanted or not set(wanted) <= set(held.isr)), ErrorCode.INVALID_REQUEST,
         f"an ISR of {wanted} is not {list(held.isr)} without the replica {broker_id} that leaves it"),
        (change.recovery_state not in (s.RECOVERED, s.RECOVERING, *_LEAVING), ErrorCode.INVALID_REQUEST,
         f"{change.recovery_state} is not a state of recovery"),
        (change.recovery_state == s.RECOVERING and len(wanted) > 1, ErrorCode.INVALID_REQUEST,
         f"an ISR of {wanted} is more than a leader that still recovers"),
        (change.recovery_state == s.RECOVERING and held.recovery_state == s.RECOVERED,
         ErrorCode.INVALID_REQUEST, "a leader that has recovered does not recover again"),
    )  # fmt: skip
    for holds, code, message in problems:
        if holds:
            raise KafkaError(message, code)
    for member in () if is_leaving and broker_id != held.leader else change.isr:
        broker = view.image.brokers.get(member.broker_id)
        if broker is None or not broker.is_active or member.broker_epoch not in (-1, broker.epoch):
            raise KafkaError(
                f"broker {member.broker_id} is fenced, shutting down, not registered, or has another epoch",
                ErrorCode.INELIGIBLE_REPLICA,
            )


def elect_leaders(view: ControllerView, request: ElectLeaders) -> Outcome[tuple[ElectionResult, ...]]:
    if request.election not in tuple(Election):
        raise KafkaError(f"unknown election type {request.election}", ErrorCode.INVALID_REQUEST)
    election = Election(request.election)
    records: list[s.AnyRecord] = []
    replies = []
    if request.partitions is None:
        asked = [(topic.name, number) for topic, number, _ in view.partitions()]
    else:
        asked = list(dict.fromkeys(request.partitions))
    for name, number in asked:
        result, record = _elected(view, name, number, election)
        if request.partitions is None and result.code is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        if record is not None:
            records.append(record)
        replies.append(ElectionResult(name, number, result))
    return Outcome(tuple(replies), tuple(records))


def _elected(
    view: ControllerView, name: str, number: int, election: Election
) -> tuple[Result, s.PartitionChangeRecord | None]:
    topic: Topic | None = view.image.topics.get(name)
    partition = None if topic is None else topic.partitions.get(number)
    if topic is None or partition is None:
        return Result(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name}-{number} does not exist"), None
    preferred = election is Election.PREFERRED
    if partition.leader == partition.replicas[0] if preferred else partition.leader != s.NO_LEADER:
        return Result(
            ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} already leads {name}-{number}"
        ), None
    edit = PartitionEdit(view, topic, number, partition, acceptance(view.image, partition))
    edit.elect = Elect.PREFERRED if preferred else Elect.UNCLEAN
    record = edit.record()
    if record is not None:
        return OK, record
    if preferred:
        message = (
            f"the preferred leader {partition.replicas[0]} of {name}-{number} is not in sync or not alive"
        )
        return Result(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message), None
    message = f"none of the replicas {list(partition.replicas)} of {name}-{number} is available"
    return Result(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message), None


def elect_where_unclean_is_allowed(view: ControllerView) -> list[s.AnyRecord]:
    """Elect leaders for partitions without one whose topics allow unclean elections."""
    records: list[s.AnyRecord] = []
    static = view.settings.static or {}
    if UNCLEAN not in static and not any(UNCLEAN in values for _, values in view.image.configs.entries()):
        return records  # no topic enables it: skip the scan of all partitions
    for topic, number, partition in leaderless(view):
        if unclean_election_allowed(topic.name, view.image, view.settings):
            edit = PartitionEdit(view, topic, number, partition, acceptance(view.image, partition))
            edit.elect = Elect.UNCLEAN
            record = edit.record()
            if record is not None:
                records.append(record)
    return records
