"""Checks that a pipeline's brokers answer, before Spark starts, which takes seconds."""

from collections.abc import Iterator
from typing import Final

from penstock.base.settings import BadSetting
from penstock.client.errors import NETWORK_ERRORS, AuthenticationFailed
from penstock.client.settings import ClientSettings
from penstock.spark.errors import BadOption

from .errors import CannotRun
from .graph import needed
from .options import Brokers
from .spec import PipelineSpec, Source, TopicSink, TopicSource

ANSWER_MS_MAX: Final = 2_000
PATIENCE: Final = ClientSettings(
    connect_timeout_ms=ANSWER_MS_MAX, request_timeout_ms=ANSWER_MS_MAX, api_timeout_ms=ANSWER_MS_MAX
)


def check_brokers(spec: PipelineSpec, brokers: Brokers) -> None:
    """Raise CannotRun if the brokers of a source or sink do not answer, or refuse to serve this client."""
    places: list[tuple[Brokers, tuple[str, ...]]] = []
    for at, path in _used(spec, brokers):
        if all(at != other for other, _ in places):
            places.append((at, path))
    for at, path in places:
        try:
            with at.connect(PATIENCE) as cluster:
                cluster.refresh([])
        except NETWORK_ERRORS as error:
            raise CannotRun(
                f"{spec.where(*path)}: no broker answers at {at.servers} ({error}): start one with `penstock up`, or "
                "set its address with `bootstrap` in the file or with --server"
            ) from error
        except (AuthenticationFailed, BadSetting, BadOption) as error:
            raise CannotRun(f"{spec.where(*path)}: {error}") from error


def _used(spec: PipelineSpec, brokers: Brokers) -> Iterator[tuple[Brokers, tuple[str, ...]]]:
    """Brokers with the keys of the file that use them."""
    for flow in spec.flows:
        for thing in needed(spec, flow.query):
            if isinstance(thing, Source) and isinstance(thing.reads, TopicSource):
                yield brokers.of_part(thing.reads), ("sources", thing.name)
        if isinstance(flow.sink, TopicSink):
            yield brokers.of_part(flow.sink), ("flows", flow.name, "to")
