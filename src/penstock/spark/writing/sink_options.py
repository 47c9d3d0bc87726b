"""The sink's options, read and checked before a row is written.

Names are those of Spark's Kafka sink, whatever their case. `kafka.*` are settings of Kafka's producer: those that
mean something to this one are taken, those that cannot matter are accepted, those that would break what the sink
promises are refused, and so are unknown options: a mistyped option must not silently do nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.client.schema_registry import RegistrySettings
from penstock.client.settings import Address, ClientSettings
from penstock.records import Codec
from penstock.spark.errors import BadOption
from penstock.spark.options import KnownOptions, OptionValues
from penstock.spark.registry_options import REGISTRY_NAMES, URL, read_registry

TRANSACTION_TIMEOUT_MS: Final = 15 * 60_000
"""As long as a broker allows by default (transaction.max.timeout.ms): a transaction waits for the slowest task of its
batch, and for a driver that has to start again."""

LEDGER_TOPIC: Final = "penstock-spark-ledger"


class TypedSide(NamedTuple):
    """A column whose values are encoded with a schema."""

    side: str
    """`key` or `value`."""
    format: str
    schema: str | None
    """None: made of the column's type."""
    subject: str | None
    """None: of the topic."""


@dataclass(frozen=True)
class SinkOptions:
    servers: tuple[Address, ...]
    topic: str | None = None
    """Where every row goes; None: the column `topic` says."""
    is_transactional: bool = True
    transaction_timeout_ms: int | None = None
    """None: TRANSACTION_TIMEOUT_MS, or as much as the broker allows."""
    fails_on_data_loss: bool = True
    ledger_topic: str = LEDGER_TOPIC
    codec: Codec = Codec.NONE
    batch_bytes_max: int = 1_000_000
    """Of a record batch before compression; Kafka's max.message.bytes is a little more by default."""
    request_bytes_max: int = 4 * 2**20
    buffer_bytes_max: int = 32 * 2**20
    delivery_timeout_ms: int = 120_000
    client: ClientSettings = field(default_factory=ClientSettings)
    typed: tuple[TypedSide, ...] = ()
    registry: RegistrySettings | None = None


_OWN = ("topic", "includeHeaders", "transactional", "failOnDataLoss", "ledgerTopic")
_TYPED = ("key.format", "key.schema", "key.subject", "value.format", "value.schema", "value.subject")
_SPARKS = ("checkpointLocation", "queryName")
"""Options for Spark itself, which it passes on."""
NAMES: Final = {name.lower(): name for name in (*_OWN, *_TYPED, *REGISTRY_NAMES, *_SPARKS)}

_TAKEN = """
bootstrap.servers client.id compression.type acks enable.idempotence
request.timeout.ms max.block.ms socket.connection.setup.timeout.ms delivery.timeout.ms
retry.backoff.ms retry.backoff.max.ms metadata.max.age.ms
batch.size max.request.size buffer.memory transaction.timeout.ms
"""
_IDLE = """
auto.include.jmx.reporter client.dns.lookup connections.max.idle.ms enable.metrics.push
linger.ms max.in.flight.requests.per.connection metadata.max.idle.ms metric.reporters
metadata.recovery.strategy metadata.recovery.rebootstrap.trigger.ms metrics.num.samples
metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms receive.buffer.bytes reconnect.backoff.max.ms
reconnect.backoff.ms retries send.buffer.bytes socket.connection.setup.timeout.max.ms
"""
_REFUSED = {
    "key.serializer": "keys go as they are, convert them with DataFrame operations or key.format",
    "value.serializer": "values go as they are, convert them with DataFrame operations or value.format",
    "interceptor.classes": "records are written without interceptors",
    "partitioner.class": "say the partition in a column of that name",
    "partitioner.ignore.keys": "say the partition in a column of that name",
    "transactional.id": "the sink makes its own ids from the query's",
}
SINK: Final = KnownOptions(NAMES, _TAKEN.split(), _IDLE.split(), _REFUSED, "the sink has no option")


def read_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a writer; raise BadOption if one is unknown or invalid."""
    values = OptionValues(options)
    SINK.check(options)
    topic = values.text("topic")
    if topic is not None and not topic.strip():
        raise BadOption("option topic is empty, expected the name of a topic")
    ledger_topic = values.text("ledgerTopic") or LEDGER_TOPIC
    values.choice("kafka.acks", ["all", "-1"])
    values.choice("kafka.enable.idempotence", ["true"])
    timeout = "kafka.transaction.timeout.ms"
    registry = read_registry(values)
    return SinkOptions(
        servers=values.servers(),
        topic=topic,
        is_transactional=values.flag("transactional", True),
        transaction_timeout_ms=None if values.text(timeout) is None else values.size(timeout, 0),
        fails_on_data_loss=values.flag("failOnDataLoss", True),
        ledger_topic=ledger_topic,
        codec=_codec(values),
        batch_bytes_max=values.size("kafka.batch.size", SinkOptions.batch_bytes_max),
        request_bytes_max=values.size("kafka.max.request.size", SinkOptions.request_bytes_max),
        buffer_bytes_max=values.size("kafka.buffer.memory", SinkOptions.buffer_bytes_max),
        delivery_timeout_ms=values.size("kafka.delivery.timeout.ms", SinkOptions.delivery_timeout_ms),
        # A short backoff: a coordinator says "not yet" for a few milliseconds after most transactions.
        client=values.client("kafka.max.block.ms", retry_backoff_ms=10),
        typed=_typed_sides(values, registry),
        registry=registry,
    )


def _typed_sides(values: OptionValues, registry: RegistrySettings | None) -> tuple[TypedSide, ...]:
    found = []
    for side in ("key", "value"):
        form = values.choice(f"{side}.format", ("avro", "json"))
        schema, subject = values.text(f"{side}.schema"), values.text(f"{side}.subject")
        if form is not None:
            found.append(TypedSide(side, form, schema, subject))
        elif schema is not None or subject is not None:
            name = "schema" if schema is not None else "subject"
            raise BadOption(f"option {side}.{name} is given without {side}.format")
    if found and registry is None:
        raise BadOption(
            f"option {found[0].side}.format needs {URL}: records are written with the id of their schema"
        )
    if registry is not None and not found:
        raise BadOption(f"option {URL} is given without key.format or value.format")
    return tuple(found)


def _codec(values: OptionValues) -> Codec:
    names = [each.name.lower() for each in Codec]
    return Codec[(values.choice("kafka.compression.type", names) or "none").upper()]
