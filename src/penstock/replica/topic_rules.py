"""The settings of topics in one image, as the partitions of a broker need them."""

from typing import Final

from penstock.base.ids import TopicPartition
from penstock.base.settings import LogSettings
from penstock.metadata.configs import (
    BrokerSettings,
    log_defaults,
    log_settings,
    min_insync_replicas,
    topic_setting,
)
from penstock.metadata.image import ClusterImage
from penstock.replica.throttle import is_throttled

LEADERS_THROTTLED: Final = "leader.replication.throttled.replicas"
FOLLOWERS_THROTTLED: Final = "follower.replication.throttled.replicas"


class TopicRules:
    """Settings in one image, computed once for all partitions of a topic."""

    def __init__(self, image: ClusterImage, broker: BrokerSettings) -> None:
        self._image = image
        self._broker = broker
        self._defaults: LogSettings | None = None
        self._settings: dict[str, LogSettings] = {}
        self._min_in_sync: dict[str, int] = {}
        self._listed: dict[tuple[str, str], str] = {}
        """Lists of throttled replicas, by topic and setting."""

    def settings(self, topic: str) -> LogSettings:
        found = self._settings.get(topic)
        if found is None:
            if self._defaults is None:
                self._defaults = log_defaults(self._image, self._broker)
            found = log_settings(topic, self._image, self._broker, self._defaults)
            self._settings[topic] = found
        return found

    def min_isr(self, topic: str) -> int:
        found = self._min_in_sync.get(topic)
        if found is None:
            found = self._min_in_sync[topic] = min_insync_replicas(topic, self._image, self._broker)
        return found

    def following_is_throttled(self, name: TopicPartition, node_id: int) -> bool:
        return self._is_listed(FOLLOWERS_THROTTLED, name, node_id)

    def leading_is_throttled(self, name: TopicPartition, node_id: int) -> bool:
        return self._is_listed(LEADERS_THROTTLED, name, node_id)

    def _is_listed(self, setting: str, name: TopicPartition, node_id: int) -> bool:
        listed = self._listed.get((name.topic, setting))
        if listed is None:
            listed = topic_setting(name.topic, setting, self._image, self._broker) or ""
            self._listed[name.topic, setting] = listed
        return bool(listed) and is_throttled(listed, name.partition, node_id)
