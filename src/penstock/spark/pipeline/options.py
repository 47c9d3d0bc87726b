"""Options of the Spark source and sink for a pipeline's topics, and their validation.

The same options are passed to Spark when a flow is built and to the checks of `penstock.spark.reading` and `.writing`
when the file is read: so a mistyped option is reported with its line, before Spark starts.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from penstock.spark.errors import BadOption
from penstock.spark.options import KnownOptions
from penstock.spark.reading.option_names import SOURCE
from penstock.spark.reading.options import for_batch, for_stream, read_options
from penstock.spark.writing.sink_options import SINK, read_sink_options

from .spec import TopicSink, TopicSource

SERVERS_DEFAULT: Final = "127.0.0.1:9092"

_STARTS = ("startingoffsets", "startingoffsetsbytimestamp", "startingtimestamp")


def source_options(reads: TopicSource, servers: str, group: str | None) -> dict[str, str]:
    """Options of a topic source; `group` is None for a static source, which has no position."""
    given = {name.lower() for name in reads.options}
    options = {"kafka.bootstrap.servers": reads.bootstrap or servers}
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


def sink_options(sink: TopicSink, servers: str) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": sink.bootstrap or servers, **sink.options}
    if sink.topic is not None:
        options["topic"] = sink.topic
    return options


def wrong_in_source(reads: TopicSource, *, is_static: bool) -> Iterator[tuple[str | None, str]]:
    """Options that the source rejects: the name, if known, and the reason."""
    names = list(_wrong_names(reads.options, SOURCE))
    yield from names
    if not names and (reads.topics or reads.pattern):
        try:
            found = read_options(source_options(reads, SERVERS_DEFAULT, None if is_static else "g"))
            (for_batch if is_static else for_stream)(found)
        except BadOption as bad:
            yield _named(reads.options, bad)


def wrong_in_sink(sink: TopicSink) -> Iterator[tuple[str | None, str]]:
    names = list(_wrong_names(sink.options, SINK))
    yield from names
    if not names:
        try:
            read_sink_options(sink_options(sink, SERVERS_DEFAULT))
        except BadOption as bad:
            yield _named(sink.options, bad)


def _wrong_names(options: Mapping[str, str], known: KnownOptions) -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        try:
            known.check({name: value})
        except BadOption as bad:
            yield name, str(bad)


def _named(options: Mapping[str, str], bad: BadOption) -> tuple[str | None, str]:
    """The option that a sentence is about: the longest name in it, because one name may start with another."""
    said = str(bad)
    found = [name for name in options if name.lower() in said.lower()]
    return max(found, key=len, default=None), said
