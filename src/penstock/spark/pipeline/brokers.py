"""Whether the brokers of a pipeline are there, asked before Spark is started: that takes seconds, this does not."""

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
    """Raises CannotRun where none of the brokers answers from which a flow reads, or to which it writes."""
    places: dict[str, tuple[str, ...]] = {}
    for at, path in _used(spec, servers):
        places.setdefault(at, path)
    for at, path in places.items():
        try:
            with Cluster(parse_servers(at), PATIENCE) as cluster:
                cluster.refresh([])
        except NETWORK_ERRORS as error:
            raise CannotRun(
                f"{spec.where(*path)}: no broker answers at {at} ({error}): start one with `penstock up`, or say "
                "where it is, with `bootstrap` in the file or with --server"
            ) from error


def _used(spec: PipelineSpec, servers: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Brokers, and where the file has something at them."""
    for flow in spec.flows:
        for thing in needed(spec, flow.query):
            if isinstance(thing, Source) and isinstance(thing.reads, TopicSource):
                yield thing.reads.bootstrap or servers, ("sources", thing.name)
        if isinstance(flow.sink, TopicSink):
            yield flow.sink.bootstrap or servers, ("flows", flow.name, "to")
