"""Something that happened in the cluster, and the kinds of it."""

from enum import StrEnum

import msgspec

from penstock.base.ids import TimestampMs


class Kind(StrEnum):
    NODE_STARTED = "node_started"
    BROKER_REGISTERED = "broker_registered"
    BROKER_UNFENCED = "broker_unfenced"
    BROKER_FENCED = "broker_fenced"
    BROKER_STOPPING = "broker_stopping"
    BROKER_UNREGISTERED = "broker_unregistered"
    CONTROLLER_CHANGED = "controller_changed"
    LEADERS_CHANGED = "leaders_changed"
    UNCLEAN_ELECTION = "unclean_election"
    PARTITIONS_OFFLINE = "partitions_offline"
    PARTITIONS_ONLINE = "partitions_online"
    ISR_SHRUNK = "isr_shrunk"
    ISR_EXPANDED = "isr_expanded"
    TOPIC_CREATED = "topic_created"
    TOPIC_DELETED = "topic_deleted"
    TOPIC_WIDENED = "topic_widened"
    SETTINGS_CHANGED = "settings_changed"
    FEATURE_CHANGED = "feature_changed"
    REASSIGNMENT_BEGUN = "reassignment_begun"
    REASSIGNMENT_ENDED = "reassignment_ended"
    GROUP_REBALANCED = "group_rebalanced"
    GROUP_EMPTIED = "group_emptied"
    GROUP_DELETED = "group_deleted"
    DISK_FAILED = "disk_failed"
    DISK_RECOVERED = "disk_recovered"


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Also sent between brokers: fields are only added at the end, with a default."""

    id: int
    """Rises with each event of a broker, also across restarts."""
    time_ms: TimestampMs
    kind: str
    severity: str
    text: str
    """A sentence. It names topics and groups only if they are in `topic` or `group`."""
    count: int = 1
    """How many partitions, topics or groups it is about."""
    broker: int | None = None
    topic: str | None = None
    group: str | None = None
    topics: tuple[str, ...] = ()
    """If it is about several topics: some of them."""
