"""The settings of group coordinators, from the broker's and the cluster's configuration."""

from penstock.coordinator.groups.settings import GroupSettings
from penstock.metadata.configs import BrokerSettings, broker_setting
from penstock.metadata.image import ClusterImage


def group_settings(image: ClusterImage, settings: BrokerSettings) -> GroupSettings:
    def number(name: str) -> int:
        return int(broker_setting(name, image, settings) or 0)

    policy = broker_setting("group.consumer.migration.policy", image, settings)
    return GroupSettings(
        session_timeout_ms_min=number("group.min.session.timeout.ms"),
        session_timeout_ms_max=number("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
        size_max=number("group.max.size"),
        offset_metadata_bytes_max=number("offset.metadata.max.bytes"),
        offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
        offsets_check_interval_ms=number("offsets.retention.check.interval.ms"),
        consumer_session_timeout_ms=number("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=number("group.consumer.heartbeat.interval.ms"),
        consumer_size_max=number("group.consumer.max.size"),
        consumer_assignors=tuple(
            each.strip()
            for each in (broker_setting("group.consumer.assignors", image, settings) or "").split(",")
        ),
        upgrades=policy in ("bidirectional", "upgrade"),
        downgrades=policy in ("bidirectional", "downgrade"),
    )
