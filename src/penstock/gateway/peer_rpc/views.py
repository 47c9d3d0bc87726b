"""A topic opened up, each partition by the node that leads it."""

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps
from penstock.gateway.peer_rpc.calls import elsewhere_of
from penstock.gateway.peer_rpc.messages import View
from penstock.gateway.shared.log_inspection import (
    PartitionView,
    TopicView,
    Wanted,
    view_partitions,
    whole_view,
)
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import Context


def view_anywhere(context: Context, name: str, wanted: Wanted) -> Steps[TopicView]:
    """Of a partition whose leader does not answer, what this node has of it."""
    topic = find_topic(context, name)
    numbers = sorted(topic.partitions) if wanted.partition is None else [wanted.partition]
    views = yield from view_partitions(context, topic, wanted, numbers)
    found = {each.partition: each for each in views}
    by_leader: dict[int, list[int]] = {}
    for number in numbers:
        leader = topic.partitions[number].leader
        if leader not in (context.node_id, -1):
            by_leader.setdefault(leader, []).append(number)
    asked = [
        elsewhere_of(context).send(
            leader, View(topic.id, tuple(those), wanted.segments_max, wanted.entries_max)
        )
        for leader, those in by_leader.items()
    ]
    for answer in asked:
        try:
            there: list[PartitionView] = yield answer
        except KafkaError:
            continue
        found |= {each.partition: each for each in there}
    return whole_view(context, topic, [found[number] for number in numbers])
