"""Options of the Spark source and sink for a pipeline's topics, and their validation.

The same options are passed to Spark when a flow is built and to the checks of `penstock.spark.reading` and `.writing`
when the file is read: so a mistyped option is reported with its line, before Spark starts.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from penstock.client.cluster import Cluster
from penstock.client.settings import ClientSettings
from penstock.spark.errors import BadOption
from penstock.spark.options import CLIENT_CONFIG, KnownOptions, OptionValues, connect, is_security
from penstock.spark.reading.option_names import SOURCE, TYPED_NAMES
from penstock.spark.reading.options import for_batch, for_stream, read_options
from penstock.spark.writing.sink_options import SINK, read_sink_options

from .spec import PipelineSpec, TopicSink, TopicSource

SERVERS_DEFAULT: Final = "127.0.0.1:9092"


class Brokers(NamedTuple):
    """Where a source or sink connects to, and how it logs in."""

    servers: str = SERVERS_DEFAULT
    client: Mapping[str, str] = {}
    """Options about the security of connections; secrets are references."""

    @classmethod
    def of(cls, spec: PipelineSpec, server: str | None, client: Mapping[str, str]) -> "Brokers":
        """Those of a pipeline. What a command says counts before what the file says. Raises BadOption."""
        if not client and spec.client_config is not None:
            client = {CLIENT_CONFIG: spec.client_config}
        return cls(server or spec.bootstrap or OptionValues(client).bootstrap or SERVERS_DEFAULT, client)

    def of_part(self, part: TopicSource | TopicSink) -> "Brokers":
        """Those of a source or sink. Brokers of its own do not get the credentials for the pipeline's."""
        own = {name: value for name, value in part.options.items() if is_security(name)}
        return (
            Brokers(part.bootstrap, own) if part.bootstrap else Brokers(self.servers, {**self.client, **own})
        )

    def connect(self, settings: ClientSettings) -> Cluster:
        return connect(self.servers, self.client, settings)

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, **self.client}


_STARTS = ("startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp")


def source_options(reads: TopicSource, brokers: Brokers, group: str | None) -> dict[str, str]:
    """Options of a topic source; `group` is None for a static source, which has no position."""
    given = {name.lower() for name in reads.options}
    options = brokers.of_part(reads).options
    if reads.pattern is not None:
        options["subscribePattern"] = reads.pattern
    else:
        options["subscribe"] = ",".join(reads.topics)
    if "headers" in reads.metadata and "includeheaders" not in given:
        options["includeHeaders"] = "true"
    if not given & {"isolation.level", "kafka.isolation.level"}:
        options["isolation.level"] = "read_committed"
    if group is not None:
        if not given & set(_STARTS):
            options["startingOffsets"] = "earliest"
        if not given & {"group", "kafka.group.id"}:
            options["group"] = group
    return {**options, **reads.options}


def sink_options(sink: TopicSink, brokers: Brokers) -> dict[str, str]:
    options = {**brokers.of_part(sink).options, **sink.options}
    if sink.topic is not None:
        options["topic"] = sink.topic
    return options


def wrong_in_source(reads: TopicSource, *, is_static: bool) -> Iterator[tuple[str | None, str]]:
    """Options that the source rejects: the name, if known, and the reason."""
    names = list(_wrong_names(reads.options, SOURCE))
    yield from names
    if not names and (reads.topics or reads.pattern):
        try:
            found = read_options(source_options(reads, Brokers(), None if is_static else "g"))
            (for_batch if is_static else for_stream)(found)
        except BadOption as bad:
            yield _named(reads.options, bad)


def wrong_in_sink(sink: TopicSink) -> Iterator[tuple[str | None, str]]:
    names = list(_wrong_names(sink.options, SINK))
    yield from names
    if not names:
        try:
            read_sink_options(sink_options(sink, Brokers()))
        except BadOption as bad:
            yield _named(sink.options, bad)


def _wrong_names(options: Mapping[str, str], known: KnownOptions) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        if name.lower() in TYPED_NAMES:
            yield (
                name,
                f"option {name} is not for pipeline files, whose sources and sinks have their own formats",
            )
            continue
        try:
            known.check({name: value})
        except BadOption as bad:
            yield name, str(bad)


def _named(options: Mapping[str, str], bad: BadOption) -> tuple[str | None, str]:
    """The option that a sentence is about: the longest name in it, because one name may start with another."""
    said = str(bad)
    found = [name for name in options if name.lower() in said.lower()]
    return max(found, key=len, default=None), said
