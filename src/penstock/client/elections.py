"""Elections of preferred leaders, over the wire: the first replica in the list leads again (KIP-460)."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.wire import Api
from penstock.wire.request import through_kio

from .cluster import Cluster
from .errors import refused

_PREFERRED: Final = 0


def elect_preferred(cluster: Cluster, partitions: Sequence[TopicPartition]) -> None:
    """Have the preferred replica of each partition lead it; one that leads already is no error."""

    def build(make: Any) -> Any:
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)
        return make.ElectLeadersRequest(
            election_type=_PREFERRED,
            topic_partitions=tuple(
                make.TopicPartitions(topic=topic, partitions=tuple(numbers))
                for topic, numbers in by_topic.items()
            ),
            timeout=timedelta(milliseconds=cluster.settings.request_timeout_ms),
        )

    reply = cluster.ask_controller(
        through_kio(Api.ELECT_LEADERS, build), lambda reply: int(getattr(reply, "error_code", 0))
    )
    for topic in reply.replica_election_results:
        for each in topic.partition_result:
            code = int(each.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                partition = TopicPartition(topic.topic, each.partition_id)
                raise refused(f"the election of {partition}'s leader", code, each.error_message)
