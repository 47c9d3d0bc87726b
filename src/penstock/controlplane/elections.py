"""Logs and counts leader elections, from the records that decide them."""

import logging
from collections.abc import Sequence
from typing import Final

from penstock.base.metrics import Elections
from penstock.metadata.image import ClusterImage, PartitionRegistration
from penstock.metadata.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    RECOVERING,
    AnyRecord,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

logger = logging.getLogger(__name__)


NAMED_MAX: Final = 5
"""Partitions that a log line lists by name."""


def log_leader_changes(records: Sequence[AnyRecord], before: ClusterImage) -> None:
    """Log partitions that lost their leader, got one again, or had an unclean election. `before` is the image without
    the records."""
    # A broker in controlled shutdown, or one that has just restarted, is expected to be absent only for a short time.
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
            held: PartitionRegistration | None = (
                None if topic is None else topic.partitions.get(each.partition_id)
            )
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
        logger.error("%s no leader: no in-sync replica is alive", _have(lost))
    for leader, names in found.items():
        logger.info("broker %d is leader of %s, which had no leader", leader, _named(names))
    if stopped:
        logger.info("%s no leader until the last in-sync replica is back", _have(stopped))


def _have(names: list[str]) -> str:
    return f"{_named(names)} {'has' if len(names) == 1 else 'have'}"


def _named(names: list[str]) -> str:
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} partitions more" if more > 0 else "")


def _warn(name: str, leader: int) -> None:
    logger.warning(
        "unclean election: broker %d is leader of %s; records acknowledged since it left the ISR may be lost",
        leader,
        name,
    )


def log_expired_sessions(records: Sequence[AnyRecord]) -> None:
    """Log brokers that were fenced because their session expired."""
    for each in records:
        if isinstance(each, BrokerRegistrationChangeRecord) and each.fenced == 1:
            logger.warning("fenced broker %d: its session expired without a heartbeat", each.broker_id)


def count_elections(counted: Elections, records: Sequence[AnyRecord], before: ClusterImage) -> None:
    """Count leader changes. `before` is the image without the records. The same leader in a new epoch is no change."""
    for each in records:
        if not isinstance(each, PartitionChangeRecord) or each.leader < 0:
            continue
        topic = before.topic_by_id(each.topic_id)
        held = None if topic is None else topic.partitions.get(each.partition_id)
        if held is not None and held.leader != each.leader:
            counted.changes += 1
            counted.unclean += each.leader_recovery_state == RECOVERING
