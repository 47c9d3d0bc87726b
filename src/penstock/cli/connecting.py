"""Shared by commands that use a broker: options, a connection, and errors as one sentence."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.base.errors import KafkaError
from penstock.cli.main import EXIT_WRONG
from penstock.cli.output import Refused, complain
from penstock.client.cluster import Cluster
from penstock.client.errors import AuthenticationFailed, Unreachable
from penstock.client.settings import ClientSettings, parse_servers
from penstock.records import Codec
from penstock.records.errors import CorruptBatch

if TYPE_CHECKING:
    from penstock.client.client_config import ClientConfig

RETRY_SILENT_S = 2.0
"""Retries are reported after this time: a leader election takes less."""
RETRY_GAP_S = 10.0
"""Retries further apart than this belong to different problems; a report is repeated no sooner."""

SERVER_DEFAULT = "127.0.0.1:9092"

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        "-s",
        metavar="HOST:PORT[,...]",
        envvar="PENSTOCK_SERVER",
        help=f"Bootstrap servers: one or more brokers of the cluster.  [{SERVER_DEFAULT}]",
    ),
]
ClientConfigFile = Annotated[
    str | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        envvar="PENSTOCK_CLIENT_CONFIG",
        help="A client.properties of Kafka: log-in, TLS and bootstrap.servers.",
    ),
]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


Compression = Annotated[
    str, typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="Compression codec.")
]


def parse_codec(text: str) -> Codec:
    codecs = {each.name.lower(): each for each in Codec}
    if text.lower() not in codecs:
        raise Refused(f"--compression is {text!r}, expected one of {', '.join(codecs)}")
    return codecs[text.lower()]


class Isolation(StrEnum):
    COMMITTED = "committed"
    UNCOMMITTED = "uncommitted"


class Target(NamedTuple):
    """Which cluster a command uses, and with which settings of a client."""

    server: str
    config: "ClientConfig | None"
    """None without any."""
    file: str | None = None
    """The file that the configuration is from, if it is from one."""


def target_of(server: str | None, client_config: str | None) -> Target:
    """The options, else the file's bootstrap.servers, else this machine. Raises Refused."""
    if client_config is None and not any(name.startswith("PENSTOCK_CLIENT_") for name in os.environ):
        return Target(server or SERVER_DEFAULT, None)  # without loading what log-ins need
    from penstock.client.client_config import ClientConfig  # noqa: PLC0415

    try:
        config = ClientConfig.load(client_config, os.environ)
        return Target(server or config.servers or SERVER_DEFAULT, config, client_config)
    except KafkaError as error:
        raise Refused(str(error)) from error


def secured(settings: ClientSettings, config: "ClientConfig | None") -> ClientSettings:
    """Settings with the security and the client id of a file and the environment. Raises BadSetting."""
    if config is None:
        return settings
    return replace(settings, security=config.security(), client_id=config.client_id or settings.client_id)


@contextmanager
def connected(
    server: str | None, client_config: str | None, settings: ClientSettings | None = None
) -> Iterator[Cluster]:
    """Connect to a cluster for one command. Errors are one sentence and exit code 2; damaged records, exit code 1."""
    target = target_of(server, client_config)
    try:
        servers = parse_servers(target.server)
        settings = secured(settings or ClientSettings(), target.config)
    except (ValueError, KafkaError) as error:
        raise Refused(str(error)) from error
    try:
        with Cluster(servers, settings, on_retry=RetryReports()) as cluster:
            yield cluster
    except CorruptBatch as damage:
        complain(str(damage))
        raise typer.Exit(EXIT_WRONG) from damage
    except Unreachable as error:
        raise Refused(f"{error}; start a broker with `penstock up`, or name one with --server") from error
    except AuthenticationFailed as error:
        hint = "" if target.config is not None else ", in a file that --client-config names"
        raise Refused(f"{error}{hint}") from error
    except KafkaError as error:
        raise Refused(str(error)) from error


class RetryReports:
    """Reports on standard error why a command waits, once its retries have gone on for a while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first_s = self._last_s = self._reported_s = float("-inf")

    def __call__(self, error: Exception) -> None:
        now_s = self._clock()
        if now_s - self._last_s > RETRY_GAP_S:
            self._first_s = now_s
        self._last_s = now_s
        if now_s - self._first_s >= RETRY_SILENT_S and now_s - self._reported_s >= RETRY_GAP_S:
            self._reported_s = now_s
            complain(f"{error}; retrying, Ctrl-C stops")


def parse_pairs(texts: list[str], what: str) -> dict[str, str]:
    """Parse `name=value` texts. A value may be empty, and may contain equals signs."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise Refused(f"{text!r} is not a {what}: expected NAME=VALUE")
        pairs[name.strip()] = value
    return pairs


def confirm(question: str, otherwise: str, *, yes: bool) -> None:
    """Ask for confirmation on a terminal, unless `yes`; refuse with `otherwise` if it is not given."""
    if not yes and input_is_terminal() and not typer.confirm(question, err=True):
        raise Refused(otherwise)


def input_is_terminal() -> bool:
    """Whether the user can be asked for confirmation. Standard input may be closed."""
    return sys.stdin is not None and sys.stdin.isatty()
