"""Checks that a pipeline's brokers answer, before Spark starts, which takes seconds."""

from collections.abc import Iterator
from typing import Final

from penstock.client.cluster import Cluster
from penstock.client.errors import NETWORK_ERRORS
from penstock.client.settings import ClientSettings, parse_servers

from .errors import CannotRun
from .graph import needed
from .spec import PipelineSpec, Source, TopicSink, TopicSource

ANSWER_MS_MAX: Final = 2_000
PATIENCE: Final = ClientSettings(
    connect_timeout_ms=ANSWER_MS_MAX, request_timeout_ms=ANSWER_MS_MAX, api_timeout_ms=ANSWER_MS_MAX
)


def check_brokers(spec: PipelineSpec, servers: str) -> None:
    """Raise CannotRun if the brokers of a source or sink do not answer."""
    places: dict[str, tuple[str, ...]] = {}
    for at, path in _used(spec, servers):
        places.setdefault(at, path)
    for at, path in places.items():
        try:
            with Cluster(parse_servers(at), PATIENCE) as cluster:
                cluster.refresh([])
        except NETWORK_ERRORS as error:
            raise CannotRun(
                f"{spec.where(*path)}: no broker answers at {at} ({error}): start one with `penstock up`, or set "
                "its address with `bootstrap` in the file or with --server"
            ) from error


def _used(spec: PipelineSpec, servers: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Brokers with the keys of the file that use them."""
    for flow in spec.flows:
        for thing in needed(spec, flow.query):
            if isinstance(thing, Source) and isinstance(thing.reads, TopicSource):
                yield thing.reads.bootstrap or servers, ("sources", thing.name)
        if isinstance(flow.sink, TopicSink):
            yield flow.sink.bootstrap or servers, ("flows", flow.name, "to")
