"""Throttles replication while partitions move, with Kafka's settings.

Brokers have a rate in bytes per second (`leader.replication.throttled.rate`, `follower.replication.throttled.rate`).
Topics list the throttled replicas: on the leader's side the original replicas, on the follower's side those being
added. So replicas that were in sync before are not throttled. The settings stay until the moves are done and
`clear_throttles` removes them.
"""

from collections.abc import Iterable, Mapping

from penstock.base.ids import TopicPartition
from penstock.client.admin import (
    ConfigChange,
    ConfigSource,
    Resource,
    ResourceType,
    alter_configs,
    describe_configs,
)
from penstock.client.cluster import Cluster
from penstock.client.reassignments import Moving

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


def set_throttles(cluster: Cluster, moving: Mapping[TopicPartition, Moving], bytes_per_s: int) -> None:
    """Set the throttle before partitions move; `moving` is the planned state."""
    for topic in sorted({each.topic for each in moving}):
        mine = sorted((number, each) for (name, number), each in moving.items() if name == topic)
        leaders = [f"{number}:{broker}" for number, each in mine for broker in each.original]
        followers = [f"{number}:{broker}" for number, each in mine for broker in each.adding]
        changes = [ConfigChange(LEADERS, ",".join(leaders)), ConfigChange(FOLLOWERS, ",".join(followers))]
        alter_configs(cluster, Resource(ResourceType.TOPIC, topic), changes)
    for broker in sorted({each for partition in moving.values() for each in partition.replicas}):
        if broker in cluster.info.brokers:
            changes = [ConfigChange(name, str(bytes_per_s)) for name in RATES]
            alter_configs(cluster, Resource(ResourceType.BROKER, str(broker)), changes)


def clear_throttles(cluster: Cluster, topics: Iterable[str]) -> list[str]:
    """Remove the throttles of these topics and the rates of all brokers. Return the resources that had one."""
    resources = [Resource(ResourceType.TOPIC, topic) for topic in sorted(set(topics))]
    resources += [Resource(ResourceType.BROKER, str(broker)) for broker in sorted(cluster.info.brokers)]
    cleared = []
    for resource in resources:
        is_topic = resource.type is ResourceType.TOPIC
        names = (LEADERS, FOLLOWERS) if is_topic else RATES
        own = ConfigSource.TOPIC if is_topic else ConfigSource.BROKER
        held = [each.name for each in describe_configs(cluster, resource, names) if each.source is own]
        if held:
            alter_configs(cluster, resource, [ConfigChange(name, None) for name in held])
            cleared.append(str(resource))
    return cleared
