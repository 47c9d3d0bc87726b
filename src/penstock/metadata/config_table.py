"""The settings of topics and brokers by Kafka's names: types, defaults, allowed values, descriptions.

The default of a topic setting comes from the broker settings named in `brokers`: of `log.retention.ms`,
`log.retention.minutes` and `log.retention.hours` the first that is set counts, and the last has the default. Those
broker settings are derived from the topic settings; the other broker settings follow.

Defaults and bounds are Kafka 4.3's, except for `num.partitions` (3), `segment.bytes` (labs and tests need small
segments), the replication factor of internal topics, which follows the number of brokers, and sockets: buffers have
the system's size, which grows with the connection, and the backlog is longer. Settings without `acted` are accepted,
checked, stored and shown, but have no effect.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum

from penstock.base.ids import INT64_MAX

INT16_MAX = 2**15 - 1
INT32_MAX = 2**31 - 1
_UNIT_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}


class ConfigType(IntEnum):
    """The protocol's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9
    """Never shown."""


class Mode(Enum):
    """When a broker setting may change."""

    READ_ONLY = "read-only"
    """At a restart."""
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    """Dynamically, for all brokers or for one."""


_NUMBER_LIMITS = {
    ConfigType.SHORT: (-INT16_MAX - 1, INT16_MAX),
    ConfigType.INT: (-INT32_MAX - 1, INT32_MAX),
    ConfigType.LONG: (-INT64_MAX - 1, INT64_MAX),
}


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    type: ConfigType
    default: str | None
    """None if the setting has no default."""
    documentation: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    """The allowed values, or the allowed items of a list; empty if every value of the type is allowed."""
    pattern: str | None = None
    acted: bool = True
    mode: Mode = Mode.CLUSTER_WIDE
    brokers: tuple[str, ...] = ()
    """For a topic setting: the broker settings that supply its default, highest precedence first."""
    may_be_empty: bool = False
    """For a list with choices: whether it may be empty."""

    @property
    def is_secret(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        low, high = _NUMBER_LIMITS.get(self.type, (None, None))
        return (low if self.low is None else self.low), (high if self.high is None else self.high)


def unit_ms(name: str) -> int:
    """Unit of a broker setting in milliseconds: 3,600,000 for `log.retention.hours`."""
    return _UNIT_MS.get(name.rpartition(".")[2], 1)


BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST, PASSWORD = ConfigType
_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_THROTTLED = r"\*|none|(\d+:\d+(,\d+:\d+)*)?"
_ADDRESS_LIMITS = r"\s*([0-9A-Fa-f.:%\[\]]+:\d+\s*(,\s*[0-9A-Fa-f.:%\[\]]+:\d+\s*)*)?"
EXPECTED = {
    _THROTTLED: "partition:broker pairs or *",
    _ADDRESS_LIMITS: "addresses with limits, as in 10.0.0.7:200,::1:500 (host names are not looked up)",
}
"""What values that must match a pattern look like."""
_DAY_MS = str(24 * 60 * 60 * 1000)
_WEEK_MS = str(7 * 24 * 60 * 60 * 1000)
_FOREVER = str(INT64_MAX)

TOPIC_SETTINGS: dict[str, Setting] = {
    each.name: each
    for each in (
        Setting("cleanup.policy", LIST, "delete",
                "What happens to old records: whole segments are deleted, or compacted to each key's latest; "
                "empty, nothing.",
                choices=("compact", "delete"), may_be_empty=True, brokers=("log.cleanup.policy",)),
        Setting("compression.gzip.level", INT, "-1", "The effort of gzip, -1 for its own default.",
                low=-1, high=9, brokers=("compression.gzip.level",)),
        Setting("compression.lz4.level", INT, "9", "The effort of lz4.",
                low=1, high=17, brokers=("compression.lz4.level",)),
        Setting("compression.type", STRING, "producer",
                "The codec in which batches are stored; `producer` keeps the producer's. A batch in another codec is "
                "recompressed while other requests wait: some 5 ms for a megabyte, 80 ms with gzip.",
                choices=_COMPRESSIONS, brokers=("compression.type",)),
        Setting("compression.zstd.level", INT, "3", "The effort of zstd.",
                low=-131072, high=22, brokers=("compression.zstd.level",)),
        Setting("delete.retention.ms", LONG, _DAY_MS,
                "How long a tombstone stays in a compacted log, so that readers see the deletion.",
                low=0, brokers=("log.cleaner.delete.retention.ms",)),
        Setting("file.delete.delay.ms", LONG, "60000", "How long a deleted file stays on disk under another name.",
                low=0, brokers=("log.segment.delete.delay.ms",)),
        Setting("flush.messages", LONG, _FOREVER, "After how many records the log is synced to disk.",
                low=1, brokers=("log.flush.interval.messages",)),
        Setting("flush.ms", LONG, _FOREVER, "After how long unsynced records are synced to disk.",
                low=0, brokers=("log.flush.interval.ms", "log.flush.scheduler.interval.ms")),
        Setting("follower.replication.throttled.replicas", LIST, "",
                "Followers whose replication is throttled, as partition:broker pairs, or * for all.",
                pattern=_THROTTLED),
        Setting("idempotency.keys", BOOLEAN, "false",
                "Whether records came with idempotency keys. The gateway sets it with the first: every replica then "
                "saves the keys of records that it deletes, and a new leader reads the others from the log."),
        Setting("index.interval.bytes", INT, "4096", "How many bytes of log lie between two index entries.",
                low=0, brokers=("log.index.interval.bytes",)),
        Setting("leader.replication.throttled.replicas", LIST, "",
                "Leaders whose replication is throttled, as partition:broker pairs, or * for all.",
                pattern=_THROTTLED),
        Setting("local.retention.bytes", LONG, "-2",
                "How much of a tiered log stays on local disk; -2 is retention.bytes.",
                low=-2, acted=False, brokers=("log.local.retention.bytes",)),
        Setting("local.retention.ms", LONG, "-2", "How long a tiered log stays on local disk; -2 is retention.ms.",
                low=-2, acted=False, brokers=("log.local.retention.ms",)),
        Setting("max.compaction.lag.ms", LONG, _FOREVER, "The maximum time that a record stays uncompacted.",
                low=1, brokers=("log.cleaner.max.compaction.lag.ms",)),
        Setting("max.message.bytes", INT, str(2**20 + 12), "The largest batch that is accepted.",
                low=0, brokers=("message.max.bytes",)),
        Setting("message.timestamp.after.max.ms", LONG, "3600000",
                "How far a record's timestamp may lie in the future.",
                low=0, brokers=("log.message.timestamp.after.max.ms",)),
        Setting("message.timestamp.before.max.ms", LONG, _FOREVER,
                "How far a record's timestamp may lie in the past.",
                low=0, brokers=("log.message.timestamp.before.max.ms",)),
        Setting("message.timestamp.type", STRING, "CreateTime",
                "Whether records keep the producer's timestamp or get the time of their append.",
                choices=("CreateTime", "LogAppendTime"), brokers=("log.message.timestamp.type",)),
        Setting("min.cleanable.dirty.ratio", DOUBLE, "0.5",
                "How much of a log must be uncompacted before it is compacted.",
                low=0, high=1, brokers=("log.cleaner.min.cleanable.ratio",)),
        Setting("min.compaction.lag.ms", LONG, "0", "The minimum time that a record stays uncompacted.",
                low=0, brokers=("log.cleaner.min.compaction.lag.ms",)),
        Setting("min.insync.replicas", INT, "1",
                "How many replicas must be in sync to accept a write with acks=all.",
                low=1, brokers=("min.insync.replicas",)),
        Setting("preallocate", BOOLEAN, "false", "Whether a new segment's file is given its full size at once.",
                acted=False, brokers=("log.preallocate",)),
        Setting("remote.log.copy.disable", BOOLEAN, "false",
                "Whether copying to remote storage is stopped.", acted=False),
        Setting("remote.log.delete.on.disable", BOOLEAN, "false",
                "Whether copied segments are deleted when tiering is disabled.", acted=False),
        Setting("remote.storage.enable", BOOLEAN, "false", "Whether the log is tiered.",
                choices=("false",), acted=False),
        Setting("retention.bytes", LONG, "-1",
                "How large a partition may grow before its oldest segments are deleted; -1 is no limit.",
                brokers=("log.retention.bytes",)),
        Setting("retention.ms", LONG, _WEEK_MS, "How long records are kept; -1 is forever.",
                low=-1, brokers=("log.retention.ms", "log.retention.minutes", "log.retention.hours")),
        Setting("search.index", BOOLEAN, "false",
                "Whether sealed segments get an index that lets searches skip what cannot match."),
        Setting("segment.bytes", INT, str(2**30), "The size at which a log rolls a new segment.",
                low=1000, brokers=("log.segment.bytes",)),
        Setting("segment.index.bytes", INT, str(10 * 2**20), "How large a segment's index may grow.",
                low=24, brokers=("log.index.size.max.bytes",)),
        Setting("segment.jitter.ms", LONG, "0", "The largest random time subtracted from segment.ms.",
                low=0, brokers=("log.roll.jitter.ms", "log.roll.jitter.hours")),
        Setting("segment.ms", LONG, _WEEK_MS, "The age at which a log rolls a new segment.",
                low=1, brokers=("log.roll.ms", "log.roll.hours")),
        Setting("unclean.leader.election.enable", BOOLEAN, "false",
                "Whether a replica that may lack records can become leader if no other can.",
                brokers=("unclean.leader.election.enable",)),
        Setting("internal.segment.bytes", INT, None,
                "Overrides segment.bytes; set by Kafka's own tests.", low=0),
        Setting("record.validation", STRING, "header",
                "Whether a produced batch is validated by its header and CRC, or record by record.",
                choices=("header", "full"), brokers=("log.record.validation",)),
        Setting("schema.validation", STRING, "none",
                "Whether keys, values or both must begin with the id of a schema that the registry has for the topic.",
                choices=("none", "value", "key", "both")),
        Setting("schema.validation.mode", STRING, "id",
                "With schema.validation, whether the id is checked, or also that the record decodes by its schema.",
                choices=("id", "full")),
    )
}  # fmt: skip


def _made_from(topic: Setting) -> list[Setting]:
    """Return the broker settings that supply the default of a topic setting."""
    made = []
    for name in topic.brokers:
        unit = unit_ms(name) if len(topic.brokers) > 1 else 1
        last, first = name == topic.brokers[-1], name == topic.brokers[0]
        default = topic.default if unit == 1 or topic.default is None else str(int(topic.default) // unit)
        made.append(
            Setting(
                name,
                topic.type if unit == 1 else INT,
                default if last else None,
                f"For topics that do not set {topic.name}. {topic.documentation}",
                topic.low,
                topic.high,
                topic.choices,
                acted=topic.acted,
                mode=Mode.CLUSTER_WIDE if first else Mode.READ_ONLY,
                may_be_empty=topic.may_be_empty,
            )
        )
    return made


def _fixed(
    name: str,
    kind: ConfigType,
    default: str | None,
    documentation: str,
    low: float | None = None,
    choices: tuple[str, ...] = (),
) -> Setting:
    """Declare a broker setting that needs a restart to change."""
    return Setting(name, kind, default, documentation, low, None, choices, mode=Mode.READ_ONLY)


def _inert(
    name: str, kind: ConfigType, default: str | None, documentation: str, low: float | None = None
) -> Setting:
    """Declare a broker setting without effect: its feature does not exist yet, or is not needed."""
    return Setting(name, kind, default, documentation, low, acted=False, mode=Mode.READ_ONLY)


_ROLES = ("broker", "controller")
_SYNCS = ("alone", "always", "never")
_ASSIGNORS = ("uniform", "range")
_MIGRATIONS = ("bidirectional", "upgrade", "downgrade", "disabled")
_AUDITS = ("off", "denied", "all")
_CONSOLE_MODES = ("off", "read-only", "full")
_TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
_PROTOCOLS = ("classic", "consumer", "share", "streams")

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

_SELECTORS = (RACK_AWARE, "org.apache.kafka.common.replica.LeaderSelector")

_PURGE = "After how many requests completed ones are removed from the purgatory."

BROKER_SETTINGS: dict[str, Setting] = {
    each.name: each
    for each in (
        *(made for topic in TOPIC_SETTINGS.values() for made in _made_from(topic)),
        _inert("add.partitions.to.txn.retry.backoff.max.ms", INT, "100",
               "How long a broker tries to add a partition to a transaction.", 0),
        _inert("add.partitions.to.txn.retry.backoff.ms", INT, "20", "The pause between two of these tries.", 1),
        _fixed("advertised.listeners", LIST, None,
               "The addresses that clients get to connect to; unset, those they already use."),
        _inert("alter.log.dirs.replication.quota.window.num", INT, "11",
               "Over how many samples the speed of moves between directories is measured.", 1),
        _inert("alter.log.dirs.replication.quota.window.size.seconds", INT, "1", "The length of each sample.", 1),
        _fixed("audit.file", STRING, None,
               "The file of the audit; unset, its lines are in the log. Not a setting of Kafka's."),
        _fixed("audit.file.max.bytes", LONG, "104857600",
               "At this size the file of the audit is renamed, and a new one begun. Not a setting of Kafka's.", 65536),
        _fixed("audit.log", STRING, "off",
               "What the audit records: nothing; log-ins, changes and denied operations; or also allowed ones. Not a "
               "setting of Kafka's.", choices=_AUDITS),
        _fixed("audit.topic", STRING, None,
               "A topic that the audit is also written to; created if it is missing. Not a setting of Kafka's."),
        _fixed("auto.create.topics.enable", BOOLEAN, "true", "Whether a request for an unknown topic creates it."),
        _fixed("auto.leader.rebalance.enable", BOOLEAN, "true", "Whether leadership returns to preferred leaders."),
        _fixed("broker.heartbeat.interval.ms", INT, "2000",
               "How often a broker sends a heartbeat to the controller."),
        _fixed("broker.id", INT, "-1", "The older name of node.id."),
        _fixed("broker.rack", STRING, None, "The broker's rack; replicas are spread over racks."),
        _fixed("broker.session.timeout.ms", INT, "9000", "After how long without a heartbeat a broker is fenced."),
        _fixed("client.buffers.max.bytes", LONG, "134217728",
               "Memory for incomplete requests and unread replies of all clients; not a setting of Kafka's.", 1048576),
        _fixed("cluster.id", STRING, None, "The cluster that a new directory belongs to; not a setting of Kafka's."),
        _fixed("connection.failed.authentication.delay.ms", INT, "100",
               "How long a connection that failed to authenticate is kept open.", 0),
        _fixed("connections.max.idle.ms", LONG, "600000", "After how long an idle connection is closed."),
        _fixed("connections.max.reauth.ms", LONG, "0",
               "After how long a client of a SASL listener must authenticate again; 0 for never."),
        _fixed("console.mode", STRING, "full",
               "Whether the console in the browser is served, and whether it may change anything. Not a setting of "
               "Kafka's.", choices=_CONSOLE_MODES),
        _fixed("console.oidc.client.id", STRING, None,
               "The console's name at the identity provider. Not a setting of Kafka's."),
        _fixed("console.oidc.client.secret", PASSWORD, None,
               "The console's secret at the identity provider, if it has one. Not a setting of Kafka's."),
        _fixed("console.oidc.issuer", STRING, None,
               "The identity provider at which users of the console log in (OpenID Connect); unset, they do not. Not "
               "a setting of Kafka's."),
        _fixed("console.oidc.redirect.url", STRING, None,
               "Where the provider sends browsers back to: this port's /session/oidc/callback as browsers reach it. "
               "Not a setting of Kafka's."),
        _fixed("console.oidc.scopes", STRING, "openid",
               "The scopes that the provider is asked for, with spaces between. Not a setting of Kafka's."),
        _fixed("console.session.idle.ms", LONG, "1800000",
               "After how long without a user at it a session of the console ends. Not a setting of Kafka's.", 60_000),
        _fixed("console.session.max.ms", LONG, "43200000",
               "After how long a session of the console ends in any case. Not a setting of Kafka's.", 60_000),
        _fixed("console.session.secret", PASSWORD, None,
               "The secret that signs sessions of the console, the same on all nodes; unset, a session holds at one "
               "node, until it restarts. Not a setting of Kafka's."),
        _inert("controlled.shutdown.enable", BOOLEAN, "true",
               "Whether a stopping broker hands over its partitions first."),
        _fixed("controller.listener.names", LIST, None, "The listeners of the controllers."),
        _inert("controller.performance.always.log.threshold.ms", LONG, "2000",
               "From which duration work of the controller is logged as slow.", 0),
        _inert("controller.performance.sample.period.ms", LONG, "60000",
               "How often the controller's performance is logged.", 100),
        _inert("controller.quorum.append.linger.ms", INT, "25",
               "How long the quorum's leader gathers records before it syncs them.", 0),
        _fixed("controller.quorum.auto.join.enable", BOOLEAN, "false",
               "Whether a controller makes itself a voter."),
        _fixed("controller.quorum.bootstrap.servers", LIST, "",
               "Addresses of controllers, from which the quorum is found."),
        _fixed("controller.quorum.election.backoff.max.ms", INT, "1000",
               "How long the last preferred successor of a resigned leader waits before it starts an election.", 0),
        _fixed("controller.quorum.election.timeout.ms", INT, "1000",
               "How long a voter waits for an election before it starts one.", 0),
        _fixed("controller.quorum.fetch.max.bytes", INT, "1048576",
               "The most of the metadata log that one fetch asks for.", 1),
        _fixed("controller.quorum.fetch.snapshot.max.bytes", INT, "1048576",
               "The most of a snapshot that one fetch asks for.", 1),
        _fixed("controller.quorum.fetch.timeout.ms", INT, "2000",
               "How long a follower waits for a successful fetch before it starts an election.", 0),
        _fixed("controller.quorum.request.timeout.ms", INT, "2000",
               "How long a request between controllers may take.", 0),
        _fixed("controller.quorum.retry.backoff.ms", INT, "20",
               "The pause before a request between controllers is retried.", 0),
        _fixed("controller.quorum.voters", LIST, "", "The voters of a static quorum, as id@host:port."),
        _fixed("controller.quota.window.num", INT, "11",
               "Over how many samples the quota of changes to topics is measured.", 1),
        _fixed("controller.quota.window.size.seconds", INT, "1", "The length of each sample.", 1),
        _inert("controller.socket.timeout.ms", INT, "30000", "How long a connection to the controller may be silent."),
        _fixed("default.replication.factor", INT, "1", "The replication factor of topics created without one.", 1),
        _fixed("delegation.token.expiry.check.interval.ms", LONG, "3600000",
               "How often expired delegation tokens are removed.", 1),
        _fixed("delegation.token.expiry.time.ms", LONG, _DAY_MS, "How long a delegation token is valid.", 1),
        _fixed("delegation.token.master.key", PASSWORD, None, "The older name of delegation.token.secret.key."),
        _fixed("delegation.token.max.lifetime.ms", LONG, _WEEK_MS, "How long a delegation token can be renewed.", 1),
        _fixed("delegation.token.secret.key", PASSWORD, None,
               "The secret that makes the keys of delegation tokens, the same on all nodes; unset, tokens are off."),
        _inert("delete.records.purgatory.purge.interval.requests", INT, "1", _PURGE),
        _fixed("delete.topic.enable", BOOLEAN, "true", "Whether topics may be deleted."),
        _fixed("durability.fsync", STRING, "alone",
               "When acks=all waits for the disk: with a single in-sync replica, always or never.", choices=_SYNCS),
        _inert("early.start.listeners", LIST, None, "Listeners that open before the authorizer is ready."),
        _fixed("fetch.max.bytes", INT, "57671680", "The most bytes that one fetch returns.", 1024),
        _inert("fetch.purgatory.purge.interval.requests", INT, "1000", _PURGE),
        _fixed("group.consumer.assignors", LIST, "uniform,range",
               "The assignors of consumer groups; the first is the default.", choices=_ASSIGNORS),
        _fixed("group.consumer.heartbeat.interval.ms", INT, "5000",
               "The heartbeat interval of members of consumer groups.", 1),
        _inert("group.consumer.max.assignment.interval.ms", INT, "15000", "The largest a group may set.", 0),
        _inert("group.consumer.max.heartbeat.interval.ms", INT, "15000", "The largest a group may set.", 1),
        _inert("group.consumer.max.session.timeout.ms", INT, "60000", "The largest a group may set.", 1),
        _fixed("group.consumer.max.size", INT, str(INT32_MAX), "How many members a consumer group may have.", 1),
        _fixed("group.consumer.migration.policy", STRING, "bidirectional",
               "In which direction a group with members may change its protocol.", choices=_MIGRATIONS),
        _inert("group.consumer.min.assignment.interval.ms", INT, "0", "The smallest a group may set.", 0),
        _inert("group.consumer.min.heartbeat.interval.ms", INT, "5000", "The smallest a group may set.", 1),
        _inert("group.consumer.min.session.timeout.ms", INT, "45000", "The smallest a group may set.", 1),
        _inert("group.consumer.regex.refresh.interval.ms", INT, "600000",
               "After how long subscribed regular expressions are matched again, at the latest.", 10_000),
        _fixed("group.consumer.session.timeout.ms", INT, "45000",
               "After how long without a heartbeat a consumer is removed from its group.", 1),
        _fixed("group.coordinator.append.linger.ms", INT, "5",
               "The minimum time between two writes of a group coordinator, so that one write serves many commits.",
               0),
        _inert("group.coordinator.background.threads", INT, "2",
               "Kafka's background threads of group coordinators.", 1),
        Setting("group.coordinator.rebalance.protocols", LIST, "classic,consumer,streams",
                "The supported group protocols.", choices=_PROTOCOLS, acted=False, mode=Mode.READ_ONLY),
        _inert("group.coordinator.threads", INT, "4", "Kafka's threads for groups.", 1),
        _fixed("group.initial.rebalance.delay.ms", INT, "3000", "How long a new group waits for more members."),
        _fixed("group.max.session.timeout.ms", INT, "1800000", "The largest session timeout of a classic member."),
        _fixed("group.max.size", INT, str(INT32_MAX), "How many members a classic group may have.", 1),
        _fixed("group.min.session.timeout.ms", INT, "6000", "The smallest session timeout of a classic member."),
        _fixed("http.health.without.login", BOOLEAN, "true",
               "Whether the HTTP port answers /health, /health/live and /health/ready without a log-in."),
        _fixed("http.hosts", LIST, "",
               "Host names that browsers may use for the HTTP port, besides those of this machine; * is any."),
        _fixed("http.listener", STRING, "127.0.0.1:8080",
               "The HTTP address, as HOST:PORT; port 0 takes a free port, and off disables HTTP."),
        _fixed("http.metrics.without.login", BOOLEAN, "false",
               "Whether the HTTP port answers /metrics without a log-in and without ACLs."),
        Setting("http.security.protocol", STRING, "PLAINTEXT",
                "The security protocol of the HTTP port: with TLS, with log-ins, with both or neither.",
                choices=_SECURITY_PROTOCOLS, mode=Mode.READ_ONLY),
        _fixed("initial.broker.registration.timeout.ms", INT, "60000",
               "How long a broker tries to register before it gives up."),
        _fixed("inter.broker.listener.name", STRING, None, "The listener for traffic between brokers."),
        _fixed("leader.imbalance.check.interval.seconds", LONG, "300", "How often preferred leaders are restored.", 1),
        _fixed("line.listener", STRING, "127.0.0.1:9090",
               "The address of the line protocol, as HOST:PORT; port 0 takes a free port, and off disables it."),
        Setting("line.security.protocol", STRING, "PLAINTEXT",
                "The security protocol of the line protocol's port: with TLS, with log-ins, with both or neither.",
                choices=_SECURITY_PROTOCOLS, mode=Mode.READ_ONLY),
        _fixed("log.cleaner.enable", BOOLEAN, "true", "Whether compacted logs are cleaned."),
        _fixed("log.dir", LIST, "./penstock-data", "The directory of the logs, if log.dirs is not set."),
        _inert("log.dir.failure.timeout.ms", LONG, "30000",
               "How long a broker tries to report a failed directory to the controller.", 1),
        _fixed("log.dirs", LIST, None, "The directories of the logs."),
        _fixed("log.flush.offset.checkpoint.interval.ms", INT, "60000", "How often recovery points are written.", 0),
        _inert("log.flush.start.offset.checkpoint.interval.ms", INT, "60000",
               "How often log start offsets are written.", 0),
        _inert("log.initial.task.delay.ms", LONG, "30000",
               "How long after the start background work on logs begins.", 0),
        _fixed("log.retention.check.interval.ms", LONG, "300000", "How often segments are checked for deletion.", 1),
        _fixed("max.incremental.fetch.session.cache.slots", INT, "1000", "How many fetch sessions are kept.", 0),
        _fixed("max.request.partition.size.limit", INT, "2000",
               "The most partitions in one DescribeTopicPartitions response.", 1),
        _fixed("metadata.log.dir", STRING, None, "The directory of the metadata log; unset, the first of log.dirs."),
        _fixed("metadata.log.max.record.bytes.between.snapshots", LONG, "20971520",
               "After how many bytes a snapshot is due.", 1),
        _fixed("metadata.log.max.snapshot.interval.ms", LONG, "3600000", "After how long a snapshot is due.", 0),
        _fixed("metadata.log.segment.bytes", INT, str(2**30), "segment.bytes of the metadata log.", 1000),
        _fixed("metadata.log.segment.ms", LONG, _WEEK_MS, "segment.ms of the metadata log.", 1),
        _inert("metadata.max.idle.interval.ms", INT, "500",
               "How often a record is written to an idle metadata log.", 0),
        _fixed("metadata.max.retention.bytes", LONG, "104857600", "How large old metadata may grow."),
        _fixed("metadata.max.retention.ms", LONG, _WEEK_MS, "How long old metadata is kept."),
        _fixed("node.id", INT, None, "The node's number in the cluster.", 0),
        _fixed("num.partitions", INT, "3", "The number of partitions of topics created without one.", 1),
        _inert("num.replica.alter.log.dirs.threads", INT, None, "Threads for moves between directories."),
        _fixed("offset.metadata.max.bytes", INT, "4096", "The largest metadata of a committed offset."),
        _fixed("offsets.commit.timeout.ms", INT, "5000",
               "How long a request waits for a write of the group coordinator before it gets a retriable error.", 1),
        _inert("offsets.load.buffer.size", INT, "5242880", "How much is read at once when groups are loaded.", 1),
        _fixed("offsets.retention.check.interval.ms", LONG, "600000",
               "How often expired offsets are removed.", 1),
        _fixed("offsets.retention.minutes", INT, "10080", "How long the offsets of an empty group are kept.", 1),
        _inert("offsets.topic.compression.codec", INT, "0", "The codec of the topic of committed offsets."),
        _fixed("offsets.topic.num.partitions", INT, "50", "Partitions of the topic of committed offsets.", 1),
        _fixed("offsets.topic.replication.factor", SHORT, "3",
               "Replicas of the topic, at most the number of brokers.", 1),
        _fixed("offsets.topic.segment.bytes", INT, "104857600", "segment.bytes of the topic.", 1),
        _fixed("process.roles", LIST, "broker,controller", "The roles of the node.", choices=_ROLES),
        _inert("producer.id.expiration.check.interval.ms", INT, "600000",
               "How often idle producers are removed.", 1),
        _inert("producer.purgatory.purge.interval.requests", INT, "1000", _PURGE),
        _inert("queued.max.request.bytes", LONG, "-1", "How many bytes of requests may wait; -1 is no limit."),
        _inert("queued.max.requests", INT, "500", "How many requests may wait.", 1),
        _fixed("quota.window.num", INT, "11", "Over how many samples client quotas are measured.", 1),
        _fixed("quota.window.size.seconds", INT, "1", "The length of each sample.", 1),
        _fixed("replica.fetch.backoff.ms", INT, "1000", "How long a follower waits after an error.", 0),
        _fixed("replica.fetch.max.bytes", INT, "1048576", "The most bytes that a follower fetches of a partition.", 0),
        _fixed("replica.fetch.min.bytes", INT, "1", "How many bytes a follower waits for."),
        _fixed("replica.fetch.response.max.bytes", INT, "10485760",
               "The most bytes that a follower fetches in one request.", 0),
        _fixed("replica.fetch.wait.max.ms", INT, "500", "How long a follower waits for that many bytes."),
        _fixed("replica.high.watermark.checkpoint.interval.ms", LONG, "5000",
               "How often high watermarks are written."),
        _fixed("replica.lag.time.max.ms", LONG, "30000",
               "How long a follower may lag behind before it leaves the ISR.", 1),
        _fixed("replica.selector.class", STRING, None,
               "The replica that consumers fetch from: the leader, or one in their rack.",
               choices=_SELECTORS),
        _inert("replica.socket.receive.buffer.bytes", INT, "65536", "The receive buffer of a follower."),
        _fixed("replica.socket.timeout.ms", INT, "30000", "How long a follower waits for a response."),
        _fixed("request.timeout.ms", INT, "30000", "How long a request to another broker may take."),
        _fixed("authorizer.class.name", STRING, "",
               "The class that decides what a client may do, by its ACLs; empty if every client may do everything.",
               choices=("", STANDARD_AUTHORIZER)),
        _fixed("super.users", STRING, "",
               "Principals that may do everything, such as User:alice;User:bob."),
        _fixed("allow.everyone.if.no.acl.found", BOOLEAN, "false",
               "Whether every client may do everything with a resource that has no ACL."),
        _fixed("bootstrap.scram.users", PASSWORD, None,
               "SCRAM users that a new cluster has from its first records on, as --add-scram of kafka-storage has "
               "them. Not a setting of Kafka's."),
        _fixed("sasl.enabled.mechanisms", LIST, "GSSAPI", "The mechanisms of SASL listeners."),
        _fixed("sasl.jaas.config", PASSWORD, None,
               "What this node logs in to other nodes with, for listeners without a sasl.jaas.config of their own."),
        _fixed("sasl.mechanism.controller.protocol", STRING, "GSSAPI",
               "The mechanism of nodes that log in to controllers."),
        _fixed("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI",
               "The mechanism of brokers that log in to each other."),
        _fixed("sasl.oauthbearer.clock.skew.seconds", INT, "30",
               "How far the clock of the issuer of a bearer token may be from this node's.", 0),
        _fixed("sasl.oauthbearer.expected.audience", LIST, None,
               "The audiences that a bearer token may be for; without any, tokens with an audience are refused."),
        _fixed("sasl.oauthbearer.expected.issuer", STRING, None, "The issuer of bearer tokens; unset, any."),
        _fixed("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, "3600000",
               "How often the keys that verify bearer tokens are fetched.", 1),
        _fixed("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, "10000",
               "The longest pause before the keys are fetched again after a failure.", 1),
        _fixed("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, "100",
               "The first pause before the keys are fetched again after a failure; each next one is twice as long.",
               1),
        _fixed("sasl.oauthbearer.jwks.endpoint.url", STRING, None,
               "Where the keys that verify bearer tokens are: the URL of a JWKS, file:, http: or https:."),
        _fixed("sasl.oauthbearer.scope.claim.name", STRING, "scope", "The claim of a bearer token with its scopes."),
        _fixed("sasl.oauthbearer.sub.claim.name", STRING, "sub", "The claim of a bearer token with the user's name."),
        Setting("scram.unknown.users.secret", PASSWORD, None,
                "Decides the salts that are shown for SCRAM users that do not exist; the controller draws it with the "
                "first user. Not a setting of Kafka's."),
        _fixed("sasl.server.max.receive.size", INT, "524288",
               "The largest request of a client that has not logged in."),
        _fixed("schema.registry.listener", STRING, None,
               "The address of the schema registry, as HOST:PORT, or off. It has the security of the HTTP port, which "
               "serves it too, under /schema-registry. Unset, it is port 8081 beside an HTTP port 8080, else off."),
        _fixed("security.inter.broker.protocol", STRING, "PLAINTEXT",
               "The security protocol between brokers; inter.broker.listener.name says the same by a listener.",
               choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        _inert("server.max.startup.time.ms", LONG, _FOREVER, "How long a start may take.", 0),
        _inert("socket.connection.setup.timeout.max.ms", LONG, "30000",
               "How long a broker tries to connect to another, at most."),
        _inert("socket.connection.setup.timeout.ms", LONG, "10000", "How long the first try to connect may take."),
        _fixed("socket.listen.backlog.size", INT, "1024", "How many connections may wait to be accepted.", 1),
        _fixed("socket.receive.buffer.bytes", INT, "-1",
               "The receive buffer of a connection; -1 is the system's."),
        _fixed("socket.request.max.bytes", INT, "104857600", "The largest request that is accepted.", 1),
        _fixed("socket.send.buffer.bytes", INT, "-1", "The send buffer of a connection; -1 is the system's."),
        _fixed("ssl.cipher.suites", LIST, "",
               "The cipher suites of TLS, by Java's names; empty, those that OpenSSL prefers."),
        _fixed("ssl.client.auth", STRING, "none",
               "Whether clients show a certificate: none, requested or required."),
        _fixed("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", "The versions of TLS.", choices=_TLS_VERSIONS),
        _fixed("ssl.endpoint.identification.algorithm", STRING, "https",
               "How a node that connects to another checks that the certificate is that of its host: https, or "
               "nothing for no check."),
        _fixed("ssl.key.password", PASSWORD, None, "The password of the private key in the key store."),
        _fixed("ssl.keystore.certificate.chain", PASSWORD, None, "The certificate and its chain, in PEM."),
        _fixed("ssl.keystore.key", PASSWORD, None, "The private key, in PEM."),
        _fixed("ssl.keystore.location", STRING, None,
               "The file with the private key and the certificate chain; read again when it changes."),
        _fixed("ssl.keystore.password", PASSWORD, None, "The password of the key store."),
        _fixed("ssl.keystore.type", STRING, "JKS", "The format of the key store: PEM or PKCS12."),
        _fixed("ssl.principal.mapping.rules", STRING, "DEFAULT",
               "How the principal of a client is made from the subject of its certificate."),
        _fixed("ssl.protocol", STRING, "TLSv1.3", "The newest version of TLS, by the name of Java's context.",
               choices=("TLS", *_TLS_VERSIONS)),
        _fixed("ssl.truststore.certificates", PASSWORD, None,
               "Certificates of the authorities of clients, in PEM."),
        _fixed("ssl.truststore.location", STRING, None,
               "The file with the certificates of the authorities of clients; read again when it changes."),
        _fixed("ssl.truststore.password", PASSWORD, None, "The password of the trust store."),
        _fixed("ssl.truststore.type", STRING, "JKS", "The format of the trust store: PEM or PKCS12."),
        _inert("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, "10000",
               "How often transactions are checked for their timeout.", 1),
        _fixed("transaction.max.timeout.ms", INT, "900000",
               "The longest transaction timeout that a producer may request.", 1),
        _inert("transaction.remove.expired.transaction.cleanup.interval.ms", INT, "3600000",
               "How often expired transactional ids are removed.", 1),
        _inert("transaction.state.log.load.buffer.size", INT, "5242880",
               "How much is read at once when transactions are loaded.", 1),
        _fixed("transaction.state.log.min.isr", INT, "2",
               "min.insync.replicas of the transaction topic, at most its replicas.", 1),
        _fixed("transaction.state.log.num.partitions", INT, "50", "Partitions of the topic of transactions.", 1),
        _fixed("transaction.state.log.replication.factor", SHORT, "3",
               "Replicas of the topic, at most the number of brokers.", 1),
        _fixed("transaction.state.log.segment.bytes", INT, "104857600", "segment.bytes of the topic.", 1),
        _inert("transaction.two.phase.commit.enable", BOOLEAN, "false",
               "Whether a transaction may be coordinated by an external system (two-phase commit)."),
        _fixed("transactional.id.expiration.ms", INT, _WEEK_MS, "How long an unused transactional id is kept.", 1),
        _inert("unclean.leader.election.interval.ms", LONG, "300000",
               "How often partitions are checked for an unclean leader election.", 1),
        Setting("follower.fetch.last.tiered.offset.enable", BOOLEAN, "false",
                "Whether an empty follower starts after the last tiered offset.", acted=False),
        Setting("follower.replication.throttled.rate", LONG, str(INT64_MAX),
                "Bytes a second for throttled followers.", low=0, mode=Mode.PER_BROKER),
        Setting("leader.replication.throttled.rate", LONG, str(INT64_MAX),
                "Bytes a second for throttled reads from leaders.", low=0, mode=Mode.PER_BROKER),
        Setting("replica.alter.log.dirs.io.max.bytes.per.second", LONG, str(INT64_MAX),
                "Bytes a second for moves between directories.", low=0, acted=False, mode=Mode.PER_BROKER),
        _fixed("listener.security.protocol.map", STRING, "PLAINTEXT:PLAINTEXT",
               "The security protocol of each listener."),
        _fixed("listeners", LIST, "PLAINTEXT://:9092", "The addresses that the broker listens on."),
        Setting("cordoned.log.dirs", LIST, "",
                "Directories that take no new replicas.", mode=Mode.PER_BROKER, acted=False),
        Setting("background.threads", INT, "10", "Kafka's background threads.", low=1, acted=False),
        Setting("group.consumer.assignment.interval.ms", INT, "1000",
                "The minimum time between two assignments of a group.", low=0, acted=False),
        Setting("group.coordinator.cached.buffer.max.bytes", INT, "1048588",
                "How large a buffer Kafka's coordinators keep.", low=524_288, acted=False),
        Setting("idempotency.retention.ms", LONG, _WEEK_MS,
                "How long idempotency keys are kept. A record sent again in this time gets the first reply.", low=1),
        Setting("log.cleaner.backoff.ms", LONG, "15000", "How long an idle cleaner sleeps.", low=0),
        Setting("log.cleaner.dedupe.buffer.size", LONG, "134217728", "The memory of the cleaners for keys."),
        Setting("log.cleaner.io.buffer.load.factor", DOUBLE, "0.9", "How full the memory for keys may become.",
                acted=False),
        Setting("log.cleaner.io.buffer.size", INT, "524288", "The memory of the cleaners for reading and writing.",
                low=0, acted=False),
        Setting("log.cleaner.io.max.bytes.per.second", DOUBLE, "1.7976931348623157E308",
                "How many bytes a second cleaners may read and write.",
                acted=False),
        Setting("log.cleaner.threads", INT, "1", "How many logs are cleaned at once.", low=0),
        Setting("max.connection.creation.rate", INT, str(INT32_MAX), "New connections a second.", low=0),
        Setting("max.connections", INT, str(INT32_MAX), "The maximum number of connections.", low=0),
        Setting("max.connections.per.ip", INT, str(INT32_MAX),
                "The maximum number of connections of one address.", low=0),
        Setting("max.connections.per.ip.overrides", STRING, "",
                "The maximum number of connections of given addresses, as in 10.0.0.7:200,::1:500.",
                pattern=_ADDRESS_LIMITS),
        Setting("num.io.threads", INT, "8", "Kafka's threads for requests.", low=1, acted=False),
        Setting("num.network.threads", INT, "3", "Kafka's threads for sockets.", low=1, acted=False),
        Setting("num.recovery.threads.per.data.dir", INT, "2", "Threads for recovery.", low=1, acted=False),
        Setting("num.replica.fetchers", INT, "1", "Fetchers for each leader that is followed.", low=1, acted=False),
        Setting("producer.id.expiration.ms", INT, _DAY_MS, "How long an idle producer is remembered.", low=1),
        Setting("transaction.partition.verification.enable", BOOLEAN, "true",
                "Whether writes of a transaction are verified with its coordinator."),
    )
}  # fmt: skip
