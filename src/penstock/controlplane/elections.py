"""What a controller's decisions mean for whoever reads its log: leaders lost, found, and chosen uncleanly."""

import logging
from collections.abc import Sequence
from typing import Final

from penstock.base.metrics import Elections
from penstock.metadata import AnyRecord, ClusterImage, Partition
from penstock.metadata.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

logger = logging.getLogger(__name__)


NAMED_MAX: Final = 5
"""Partitions that are named where many lose or find their leader at once."""


def log_leader_changes(records: Sequence[AnyRecord], before: ClusterImage) -> None:
    """Say who leads where nobody did, and the other way round; `before` does not have the records yet."""
    # Who goes because it is told to, or has just come back from a former life, is not missed for long.
    leaving = {broker.id for broker in before.brokers.values() if broker.in_controlled_shutdown}
    leaving |= {
        each.broker_id
        for each in records
        if isinstance(each, RegisterBrokerRecord | UnregisterBrokerRecord)
        or (isinstance(each, BrokerRegistrationChangeRecord) and each.in_controlled_shutdown)
    }
    lost: list[str] = []
    found: dict[int, list[str]] = {}
    stopped: list[str] = []
    for each in records:
        if isinstance(each, PartitionChangeRecord) and each.leader != NO_LEADER_CHANGE:
            topic = before.topic_by_id(each.topic_id)
            held: Partition | None = None if topic is None else topic.partitions.get(each.partition_id)
            if topic is None or held is None:
                continue
            name = f"{topic.name}-{each.partition_id}"
            if each.leader != NO_LEADER and each.leader_recovery_state == RECOVERING:
                _warn(name, each.leader)
            elif each.leader != NO_LEADER:
                if held.leader == NO_LEADER:
                    found.setdefault(each.leader, []).append(name)
            elif held.leader in leaving:
                stopped.append(name)
            elif held.leader != NO_LEADER:
                lost.append(name)
    if lost:
        logger.error("%s no leader any more: none of their replicas may lead", _have(lost))
    for leader, names in found.items():
        logger.info("broker %d leads %s, which had no leader", leader, _named(names))
    if stopped:
        logger.info("%s no leader until their last replica is back", _have(stopped))


def _have(names: list[str]) -> str:
    return f"{_named(names)} {'has' if len(names) == 1 else 'have'}"


def _named(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} partitions more" if more > 0 else "")


def _warn(name: str, leader: int) -> None:
    logger.warning(
        "unclean election: broker %d leads %s, and what was acknowledged since it left the ISR may be lost",
        leader,
        name,
    )


def log_expired_sessions(records: Sequence[AnyRecord]) -> None:
    """Say who was fenced because their sessions ended."""
    for each in records:
        if isinstance(each, BrokerRegistrationChangeRecord) and each.fenced == 1:
            logger.warning("broker %d was not heard for its session, and is fenced", each.broker_id)


def count_elections(counted: Elections, records: Sequence[AnyRecord], before: ClusterImage) -> None:
    """`before` does not have the records yet. A leader may be named anew, in another epoch: that is no election."""
    for each in records:
        if not isinstance(each, PartitionChangeRecord) or each.leader < 0:
            continue
        topic = before.topic_by_id(each.topic_id)
        held = None if topic is None else topic.partitions.get(each.partition_id)
        if held is not None and held.leader != each.leader:
            counted.changes += 1
            counted.unclean += each.leader_recovery_state == RECOVERING
