"""The names of the source's options.

Unknown options are errors, so that a typo is not silently ignored. `kafka.*` are settings of Kafka's consumer. Those
of security are read by `spark/options.py`; the others are of three kinds:

    taken      used by this client: servers, timeouts, sizes, isolation, the group
    idle       without a meaning here, such as heartbeats of group members: accepted and ignored
    refused    errors in Spark's source too, because the query decides: auto.offset.reset, ...
"""

from collections.abc import Mapping
from typing import Final

from penstock.spark.options import KnownOptions
from penstock.spark.registry_options import REGISTRY_NAMES

LIMITS: Final = """
startingOffsets startingOffsetsByTimestamp startingTimestamp startingOffsetsByTimestampStrategy
endingOffsets endingOffsetsByTimestamp endingTimestamp
"""
"""Options for the start and the end of a range."""

TYPED_NAMES: Final = (
    *(
        f"{side}.{name}"
        for side in ("key", "value")
        for name in ("format", "schema", "subject", "schema.version", "message")
    ),
    "on.corrupt",
    *REGISTRY_NAMES,
)
"""Options of typed columns."""

_NAMES = f"""
subscribe subscribePattern assign {LIMITS}
maxOffsetsPerTrigger minOffsetsPerTrigger maxTriggerDelay minPartitions maxRecordsPerPartition
failOnDataLoss includeHeaders isolation.level group groupIdPrefix
kafkaConsumer.pollTimeoutMs fetchOffset.numRetries fetchOffset.retryIntervalMs
"""
NAMES: Final = {name.lower(): name for name in (*_NAMES.split(), *TYPED_NAMES)}
"""Names as documented, by lower-case name."""

_TAKEN = """
bootstrap.servers client.id isolation.level group.id
request.timeout.ms default.api.timeout.ms socket.connection.setup.timeout.ms
retry.backoff.ms retry.backoff.max.ms metadata.max.age.ms
fetch.max.bytes max.partition.fetch.bytes fetch.max.wait.ms
"""
_IDLE = """
allow.auto.create.topics auto.commit.interval.ms check.crcs client.dns.lookup client.rack
auto.include.jmx.reporter connections.max.idle.ms enable.metrics.push exclude.internal.topics
fetch.min.bytes group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms
max.poll.interval.ms max.poll.records metadata.recovery.strategy metric.reporters
metadata.recovery.rebootstrap.trigger.ms metrics.num.samples metrics.recording.level
metrics.sample.window.ms partition.assignment.strategy receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms send.buffer.bytes session.timeout.ms
socket.connection.setup.timeout.max.ms
"""
_REFUSED = {
    "auto.offset.reset": "use startingOffsets instead",
    "key.deserializer": "keys are bytes; use key.format, or convert them with DataFrame operations",
    "value.deserializer": "values are bytes; use value.format, or convert them with DataFrame operations",
    "enable.auto.commit": "the query commits its position itself",
    "interceptor.classes": "records are read without interceptors",
}


def has_formats(options: Mapping[str, str]) -> bool:
    """Whether an option of typed columns is given."""
    return any(name.lower() in TYPED_NAMES for name in options)


SOURCE: Final = KnownOptions(NAMES, _TAKEN.split(), _IDLE.split(), _REFUSED, "there is no option")
