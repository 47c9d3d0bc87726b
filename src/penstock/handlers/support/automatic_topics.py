"""Topics that are created on first use."""

from penstock.base.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from penstock.metadata.configs import BrokerSettings, broker_setting
from penstock.metadata.controller.requests import NewTopic
from penstock.metadata.image import ClusterImage

_PREFIXES = {OFFSETS_TOPIC: "offsets.topic", TRANSACTIONS_TOPIC: "transaction.state.log"}
"""Prefixes of the broker settings for each topic."""


def automatic_topic(name: str, image: ClusterImage, settings: BrokerSettings) -> NewTopic | None:
    """The topic to create when an unknown topic is requested; None for one that is not supported.

    An internal topic has its own number of partitions. Its replication factor is three, or the number of brokers if
    that is smaller, unless it is configured: then creation waits for enough brokers.
    """
    if name == SHARE_STATE_TOPIC:
        return None
    prefix = _PREFIXES.get(name)
    if prefix is None:
        return NewTopic(name)

    def setting(word: str) -> int:
        return int(broker_setting(f"{prefix}.{word}", image, settings) or 1)

    replicas = setting("replication.factor")
    if f"{prefix}.replication.factor" not in (settings.static or {}):
        replicas = min(replicas, max(1, len(image.brokers)))
    configs: dict[str, str | None] = {
        "cleanup.policy": "compact",
        "compression.type": "producer" if name == OFFSETS_TOPIC else "uncompressed",
        "segment.bytes": str(setting("segment.bytes")),
    }
    if name == TRANSACTIONS_TOPIC:
        configs["min.insync.replicas"] = str(min(setting("min.isr"), replicas))
        configs["unclean.leader.election.enable"] = "false"
    return NewTopic(name, setting("num.partitions"), replicas, configs=configs)
