"""Fetches log start and log end of a leader, for a follower whose log end is outside that range.

Sends ListOffsets as a replica: it returns the log end, not the high watermark.
"""

from datetime import timedelta
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import Steps
from penstock.replica.broker_client import BrokerClient
from penstock.replica.follower_replica import FollowerReplica, LogRange, error_code
from penstock.wire import Api
from penstock.wire.request import Request, through_kio

LATEST: Final = -1
EARLIEST: Final = -2

LEADER_EPOCHS: Final = 4
"""The first version with the leader epoch: the leader refuses a request for another epoch."""

PURPOSE: Final = "replica-ends"
"""A connection apart from fetches, which may wait for records for long."""


def leader_log_range(
    broker_client: BrokerClient, leader_id: int, node_id: int, replica: FollowerReplica, timeout_ms: float
) -> Steps[LogRange]:
    earliest = _request(node_id, replica, EARLIEST, timeout_ms)
    response = yield broker_client.send(leader_id, earliest, timeout_ms=timeout_ms, purpose=PURPOSE)
    start = _offset_in(response, replica)
    latest = _request(node_id, replica, LATEST, timeout_ms)
    response = yield broker_client.send(leader_id, latest, timeout_ms=timeout_ms, purpose=PURPOSE)
    return LogRange(start, _offset_in(response, replica))


def _request(node_id: int, replica: FollowerReplica, timestamp: int, timeout_ms: float) -> Request[Any]:
    partition = replica.partition
    return through_kio(
        Api.LIST_OFFSETS,
        lambda make: make.ListOffsetsRequest(
            replica_id=node_id,
            isolation_level=0,
            topics=(
                make.ListOffsetsTopic(
                    name=partition.topic,
                    partitions=(
                        make.ListOffsetsPartition(
                            partition_index=partition.number,
                            current_leader_epoch=replica.leader_epoch,
                            timestamp=timestamp,
                        ),
                    ),
                ),
            ),
            timeout=timedelta(milliseconds=timeout_ms),
        ),
        version_min=LEADER_EPOCHS,
    )


def _offset_in(response: Any, replica: FollowerReplica) -> int:
    partition = replica.partition
    for topic in response.topics:
        for each in topic.partitions:
            if (topic.name, each.partition_index) != (partition.topic, partition.number):
                continue
            if each.error_code:
                code = error_code(int(each.error_code))
                raise KafkaError(f"the leader of {partition.name} answers {code.name}", code)
            if each.offset >= 0:
                return int(each.offset)
    raise KafkaError(
        f"the leader of {partition.name} returned no offset for it", ErrorCode.UNKNOWN_SERVER_ERROR
    )
