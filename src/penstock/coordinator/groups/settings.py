"""Settings of a group coordinator, after Kafka's names, and its view of topics."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Kafka's settings of groups and offsets, with Kafka's defaults."""

    session_timeout_ms_min: int = 6_000
    """`group.min.session.timeout.ms`; this one and the next are for classic members."""
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    """How long the first member of a group waits for others; each member that joins meanwhile extends it once."""
    size_max: int = 2**31 - 1
    """`group.max.size`."""
    new_member_join_timeout_ms: int = 300_000
    """How long a join without a member id may wait: its client cannot send heartbeats yet. Fixed in Kafka too."""
    offset_metadata_bytes_max: int = 4_096
    """`offset.metadata.max.bytes`; counted in characters, as in Kafka."""
    offsets_retention_ms: int = 10_080 * MINUTE_MS
    """`offsets.retention.minutes`."""
    offsets_check_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`."""
    consumer_session_timeout_ms: int = 45_000
    """`group.consumer.session.timeout.ms`; this one and the rest are for the consumer protocol (KIP-848)."""
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_size_max: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The first is the default."""
    upgrades: bool = True
    """`group.consumer.migration.policy`: whether a live classic group may become a consumer group."""
    downgrades: bool = True
    regex_refresh_interval_ms: int = 600_000
    """`group.consumer.regex.refresh.interval.ms`: after how long subscribed regular expressions are matched again."""


class Topic(Protocol):
    """A topic as a coordinator sees it."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> int: ...
    def racks(self, partition: int) -> frozenset[str]:
        """Racks of the partition's replicas; empty if unknown."""
        ...


class Topics(Protocol):
    """The cluster's topics at one metadata version."""

    @property
    def version(self) -> int:
        """Version of the metadata."""
        ...

    @property
    def by_name(self) -> Mapping[str, Topic]: ...
    def by_id(self, topic_id: bytes) -> Topic | None: ...
