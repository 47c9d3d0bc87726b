"""Asking a leader where its log begins and ends: for a follower whose log and the leader's do not meet.

ListOffsets, as a replica: the end is that of the log, not what consumers see.
"""

from datetime import timedelta
from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.replica.broker_client import BrokerClient
from penstock.replica.following import Ends, Following, error_code
from penstock.wire import Api
from penstock.wire.peers import PeerFailed
from penstock.wire.request import Request, through_kio

LATEST: Final = -1
EARLIEST: Final = -2

LEADER_EPOCHS: Final = 4
"""The version from which on a leader refuses who takes it for the leader of another epoch."""

PURPOSE: Final = "replica-ends"
"""Not that of fetches: behind one that waits for records the answer would be long in coming."""


def find_ends(
    broker_client: BrokerClient, leader_id: int, node_id: int, following: Following, timeout_ms: float
) -> Promise[Ends | KafkaError]:
    found: Promise[Ends | KafkaError] = Promise()

    def ask(timestamp: int) -> Promise[Any]:
        request = _request(node_id, following, timestamp, timeout_ms)
        return broker_client.send(leader_id, request, timeout_ms=timeout_ms, purpose=PURPOSE)

    def told_start(answer: Any) -> None:
        start = _offset_in(answer, following)
        if isinstance(start, KafkaError):
            found.resolve(start)
            return
        ask(LATEST).then(lambda answer: told_end(start, answer))

    def told_end(start: int, answer: Any) -> None:
        end = _offset_in(answer, following)
        found.resolve(end if isinstance(end, KafkaError) else Ends(start, end))

    ask(EARLIEST).then(told_start)
    return found


def _request(node_id: int, following: Following, timestamp: int, timeout_ms: float) -> Request[Any]:
    partition = following.partition
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
                            current_leader_epoch=following.leader_epoch,
                            timestamp=timestamp,
                        ),
                    ),
                ),
            ),
            timeout=timedelta(milliseconds=timeout_ms),
        ),
        version_min=LEADER_EPOCHS,
    )


def _offset_in(answer: Any, following: Following) -> int | KafkaError:
    partition = following.partition
    if isinstance(answer, PeerFailed):
        return answer
    for topic in answer.topics:
        for each in topic.partitions:
            if (topic.name, each.partition_index) != (partition.topic, partition.number):
                continue
            if each.error_code:
                code = error_code(int(each.error_code))
                return KafkaError(f"the leader of {partition.name} answers {code.name}", code)
            if each.offset >= 0:
                return int(each.offset)
    return KafkaError(
        f"the leader of {partition.name} does not say where its log is", ErrorCode.UNKNOWN_SERVER_ERROR
    )
