"""The sink's options, read and checked before a row is written.

Names are those of Spark's Kafka sink, whatever their case. `kafka.*` are settings of Kafka's producer: those that
mean something to this one are taken, those that cannot matter are accepted, those that would break what the sink
promises are refused, and so is what nobody knows: a mistyped option must not silently do nothing.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from penstock.client.settings import Address, ClientSettings, parse_servers
from penstock.records import Codec
from penstock.spark.errors import BadOption

INT32_MAX: Final = 2**31 - 1

TRANSACTION_TIMEOUT_MS: Final = 15 * 60_000
"""As long as a broker allows by default (transaction.max.timeout.ms): a transaction waits for the slowest task of its
batch, and for a driver that has to start again."""

LEDGER_TOPIC: Final = "penstock-spark-ledger"


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


_OWN = ("topic", "includeHeaders", "transactional", "failOnDataLoss", "ledgerTopic")
_SPARKS = ("checkpointLocation", "queryName")
"""Spark hands over what it was told for itself."""
NAMES: Final = {name.lower(): name for name in (*_OWN, *_SPARKS)}

_TAKEN = frozenset(
    {
        *("bootstrap.servers", "client.id", "compression.type", "acks", "enable.idempotence"),
        *("request.timeout.ms", "max.block.ms", "socket.connection.setup.timeout.ms", "delivery.timeout.ms"),
        *("retry.backoff.ms", "retry.backoff.max.ms", "metadata.max.age.ms"),
        *("batch.size", "max.request.size", "buffer.memory", "transaction.timeout.ms"),
    }
)
_IDLE = frozenset(
    {
        *("auto.include.jmx.reporter", "client.dns.lookup", "connections.max.idle.ms", "enable.metrics.push"),
        *("linger.ms", "max.in.flight.requests.per.connection", "metadata.max.idle.ms", "metric.reporters"),
        *("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms", "metrics.num.samples"),
        *("metrics.recording.level", "metrics.sample.window.ms", "partitioner.adaptive.partitioning.enable"),
        *("partitioner.availability.timeout.ms", "receive.buffer.bytes", "reconnect.backoff.max.ms"),
        *("reconnect.backoff.ms", "retries", "send.buffer.bytes", "socket.connection.setup.timeout.max.ms"),
    }
)
_REFUSED = {
    "key.serializer": "keys go as they are, convert them with DataFrame operations",
    "value.serializer": "values go as they are, convert them with DataFrame operations",
    "interceptor.classes": "records are written without interceptors",
    "partitioner.class": "say the partition in a column of that name",
    "partitioner.ignore.keys": "say the partition in a column of that name",
    "transactional.id": "the sink makes its own ids from the query's",
}
_SECURITY = ("security.", "sasl.", "ssl.")
_KAFKA = "kafka."


def read_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """What a writer was told; BadOption where it makes no sense."""
    told = _Told(options)
    check_sink_names(options)
    servers = told.text("kafka.bootstrap.servers")
    if servers is None:
        raise BadOption("option kafka.bootstrap.servers is missing, expected HOST:PORT[,HOST:PORT]")
    try:
        addresses = tuple(parse_servers(servers))
    except ValueError as error:
        raise BadOption(f"option kafka.bootstrap.servers: {error}") from None
    topic = told.text("topic")
    if topic is not None and not topic.strip():
        raise BadOption("option topic is empty, expected the name of a topic")
    ledger_topic = told.text("ledgerTopic") or LEDGER_TOPIC
    told.choice("kafka.acks", ["all", "-1"])
    told.choice("kafka.enable.idempotence", ["true"])
    client = ClientSettings()
    timeout = "kafka.transaction.timeout.ms"
    return SinkOptions(
        servers=addresses,
        topic=topic,
        is_transactional=told.flag("transactional", True),
        transaction_timeout_ms=None if told.text(timeout) is None else told.number(timeout, 0),
        fails_on_data_loss=told.flag("failOnDataLoss", True),
        ledger_topic=ledger_topic,
        codec=_codec(told),
        batch_bytes_max=told.number("kafka.batch.size", SinkOptions.batch_bytes_max),
        request_bytes_max=told.number("kafka.max.request.size", SinkOptions.request_bytes_max),
        buffer_bytes_max=told.number("kafka.buffer.memory", SinkOptions.buffer_bytes_max),
        delivery_timeout_ms=told.number("kafka.delivery.timeout.ms", SinkOptions.delivery_timeout_ms),
        client=ClientSettings(
            client_id=told.text("kafka.client.id") or "penstock-spark",
            connect_timeout_ms=told.number(
                "kafka.socket.connection.setup.timeout.ms", client.connect_timeout_ms
            ),
            request_timeout_ms=told.number("kafka.request.timeout.ms", client.request_timeout_ms),
            api_timeout_ms=told.number("kafka.max.block.ms", client.api_timeout_ms),
            # Short: a coordinator says "not yet" for a few milliseconds after most transactions.
            retry_backoff_ms=told.number("kafka.retry.backoff.ms", 10),
            retry_backoff_ms_max=told.number("kafka.retry.backoff.max.ms", client.retry_backoff_ms_max),
            metadata_age_ms_max=told.number("kafka.metadata.max.age.ms", client.metadata_age_ms_max),
        ),
    )


def _codec(told: "_Told") -> Codec:
    names = [each.name.lower() for each in Codec]
    return Codec[(told.choice("kafka.compression.type", names) or "none").upper()]


def check_sink_names(options: Mapping[str, str]) -> None:
    """Every option is one that the sink knows."""
    for name in options:
        key = name.lower()
        if key in NAMES:
            continue
        setting = key.removeprefix(_KAFKA)
        if key.startswith(_KAFKA):
            if setting in _TAKEN or setting in _IDLE:
                continue
            if setting in _REFUSED:
                raise BadOption(f"option {key} is not supported: {_REFUSED[setting]}")
            if setting.startswith(_SECURITY):
                raise BadOption(f"option {key} is not supported yet: connections are plain, without security")
        known = [*NAMES, *(_KAFKA + each for each in sorted(_TAKEN))]
        near = difflib.get_close_matches(key, known, n=1)
        hint = f", did you mean {NAMES.get(near[0], near[0])}" if near else ""
        raise BadOption(f"the sink has no option {name}{hint}")


class _Told:
    """Options by their names in lower case, read as what they are to be."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        digits = text.strip()
        if not re.fullmatch(r"[0-9]{1,10}", digits) or not 1 <= int(digits) <= INT32_MAX:
            raise BadOption(f"option {name} is {text!r}, expected a whole number from 1 to {INT32_MAX}")
        return int(digits)

    def flag(self, name: str, default: bool) -> bool:
        word = self.choice(name, ["true", "false"])
        return default if word is None else word == "true"

    def choice(self, name: str, words: Sequence[str]) -> str | None:
        text = self.text(name)
        if text is None:
            return None
        word = text.strip().lower()
        if word not in words:
            raise BadOption(f"option {name} is {text!r}, expected {' or '.join(words)}")
        return word
