"""Reassignments of partitions to other brokers (KIP-455): start, replace, cancel and list.

While a partition moves, it has all its replicas, old and new, and lists those being added and removed:

    1 2 3                              before
    4 2 1 3   adding 4, removing 1 3   the target 4 2 is requested: 4 follows, all others stay in sync meanwhile
    4 2                                4 is in sync: 1 and 3 are removed

A target that replaces an unfinished one starts from all current replicas: replicas that were being added and are not
in the new target are removed too. A cancelled reassignment keeps the replicas that were not being added. A target
without new replicas (a new order or fewer replicas) takes effect in the same step. The last step is not taken here: it
is part of every ISR change (`elections`).
"""

from collections import Counter

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.outcome import Outcome
from penstock.metadata import records as s
from penstock.metadata.configs import unclean_election_allowed
from penstock.metadata.image import ClusterImage, PartitionRegistration, Topic

from .elections import Elect, PartitionEdit, acceptance
from .requests import (
    OK,
    AlterReassignments,
    ListReassignments,
    PartitionTarget,
    Reassignment,
    ReassignmentResult,
    refused,
)
from .topics import PARTITIONS_MAX
from .view import ControllerView


def alter_reassignments(
    view: ControllerView, request: AlterReassignments
) -> Outcome[tuple[ReassignmentResult, ...]]:
    counts = Counter((each.topic, each.partition) for each in request.targets)
    records: list[s.AnyRecord] = []
    replies = []
    for target in request.targets:
        result = OK
        try:
            if counts[target.topic, target.partition] > 1:
                raise KafkaError(
                    f"the request names {target.topic}-{target.partition} twice", ErrorCode.INVALID_REQUEST
                )
            if len(records) == PARTITIONS_MAX:
                raise KafkaError(
                    f"a request can move at most {PARTITIONS_MAX} partitions", ErrorCode.POLICY_VIOLATION
                )
            record = _altered(view, target, request.allow_factor_change)
            if record is not None:
                records.append(record)
        except KafkaError as error:
            result = refused(error)
        replies.append(ReassignmentResult(target.topic, target.partition, result))
    return Outcome(tuple(replies), tuple(records))


def _altered(
    view: ControllerView, target: PartitionTarget, allow_factor_change: bool
) -> s.PartitionChangeRecord | None:
    topic: Topic | None = view.image.topics.get(target.topic)
    partition = None if topic is None else topic.partitions.get(target.partition)
    if topic is None or partition is None:
        raise KafkaError(
            f"partition {target.topic}-{target.partition} does not exist",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    edit = PartitionEdit(view, topic, target.partition, partition, acceptance(view.image, partition))
    if target.replicas is None:
        _take_back(edit)
    else:
        _check_replicas(view.image, target.replicas)
        if not allow_factor_change:
            _check_factor(partition, len(target.replicas))
        _move(edit, target.replicas)
    return edit.record()


def _move(edit: PartitionEdit, target: s.Ids) -> None:
    held = edit.partition
    edit.removing = tuple(sorted(set(held.replicas) - set(target)))
    # A replica that is still being added stays so, and is removed by a cancellation.
    edit.adding = tuple(sorted(set(target) - set(_settled(held))))
    edit.replicas = (*target, *edit.removing)


def _take_back(edit: PartitionEdit) -> None:
    held, name = edit.partition, f"{edit.topic.name}-{edit.number}"
    if not is_moving(held):
        raise KafkaError(f"{name} is not being reassigned", ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    allowed = unclean_election_allowed(edit.topic.name, edit.view.image, edit.view.settings)
    edit.replicas, edit.adding, edit.removing = _settled(held), (), ()
    edit.isr = tuple(each for each in held.isr if each not in held.adding)
    if not edit.isr:
        if not allowed:
            raise KafkaError(
                f"{name}: only replicas that are being added are in sync, and unclean leader election is disabled",
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
        edit.isr, edit.recovery_state = edit.replicas[:1], s.RECOVERING
    if allowed:
        edit.elect = Elect.UNCLEAN


def _settled(partition: PartitionRegistration) -> s.Ids:
    """Return the replicas without those that are being added."""
    return tuple(each for each in partition.replicas if each not in partition.adding)


def _check_replicas(image: ClusterImage, replicas: s.Ids) -> None:
    unknown = [each for each in replicas if each not in image.brokers]
    if not replicas:
        problem = "a partition needs replicas"
    elif unknown:
        problem = f"replicas are wanted on brokers {unknown}, which are not registered"
    elif len(set(replicas)) != len(replicas):
        problem = f"{list(replicas)} has a broker twice"
    else:
        return
    raise KafkaError(problem, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def _check_factor(partition: PartitionRegistration, wanted: int) -> None:
    """Return the replication factor; for a partition that moves, that of its target."""
    factor = len(partition.replicas) - len(partition.removing)
    if wanted != factor:
        raise KafkaError(
            f"the replication factor is {factor}, and the request has {wanted} replicas",
            ErrorCode.INVALID_REPLICATION_FACTOR,
        )


def is_moving(partition: PartitionRegistration) -> bool:
    return bool(partition.adding or partition.removing)


def list_reassignments(view: ControllerView, request: ListReassignments) -> Outcome[tuple[Reassignment, ...]]:
    """List partitions that move, by name and number; unknown partitions are left out."""
    if request.partitions is None:
        found = [(topic.name, number, each) for topic, number, each in view.partitions()]
    else:
        wanted = sorted(set(request.partitions))
        found = [(*name, each) for name in wanted if (each := view.image.partition(*name)) is not None]
    return Outcome(
        tuple(
            Reassignment(topic, number, each.replicas, each.adding, each.removing)
            for topic, number, each in found
            if is_moving(each)
        )
    )
