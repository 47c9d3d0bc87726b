"""The replicas of a topic's partitions: log ends and lags as the leader knows them, sizes as each broker has them.

Every broker with a replica is asked once for the whole topic. Of one that does not answer, nothing is known.
"""

from typing import Final, NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps, in_time
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.held_replicas import held_replicas
from penstock.gateway.peer_rpc.messages import GetReplicas, HeldReplica
from penstock.handlers.support.context import Context
from penstock.metadata.image import Topic

ANSWER_MS_MAX: Final = 3_000


class TopicReplicas(NamedTuple):
    by_broker: dict[int, dict[int, HeldReplica]]
    """By broker and partition."""
    unanswered: list[int]
    """Brokers that did not answer, in order."""

    def leader(self, broker: int, partition: int) -> HeldReplica | None:
        """The leader's replica; None if the leader did not answer, or no longer leads."""
        held = self.by_broker.get(broker, {}).get(partition)
        return held if held is not None and held.bounds is not None else None


def topic_replicas(context: Context, topic: Topic, numbers: list[int]) -> Steps[TopicReplicas]:
    """The replicas of a topic on all brokers."""
    brokers = sorted({broker for number in numbers for broker in topic.partitions[number].replicas})
    asked = {
        broker: in_time(
            context.world,
            peer_rpc_of(context).send(
                broker, GetReplicas(topic.id, tuple(numbers)), timeout_ms=ANSWER_MS_MAX
            ),
            ANSWER_MS_MAX,
            f"broker {broker} did not answer within {ANSWER_MS_MAX} ms",
        )
        for broker in brokers
        if broker != context.node_id and _is_up(context, broker)
    }
    here = yield from held_replicas(context, topic, numbers)
    by_broker = {context.node_id: {each.partition: each for each in here}}
    for broker, answer in asked.items():
        try:
            held: list[HeldReplica] = yield answer
        except KafkaError:
            continue
        by_broker[broker] = {each.partition: each for each in held}
    return TopicReplicas(by_broker, [each for each in brokers if each not in by_broker])


def _is_up(context: Context, broker: int) -> bool:
    known = context.image.brokers.get(broker)
    return known is not None and not known.fenced
