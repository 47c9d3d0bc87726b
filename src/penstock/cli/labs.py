"""Shared by the labs: a node to write to, a directory for its files, and claims that are checked against the files.

A lab starts `penstock up` as a child process on a free port, writes to it as a Kafka client, and stops it
cleanly. Everything that it shows afterwards is read from the node's files. Every statement about them is a
`Claim`: if one is false, the lab fails.
"""

import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from penstock.base.errors import KafkaError
from penstock.cli.child import child_of
from penstock.cli.main import EXIT_WRONG
from penstock.cli.output import Refused, camel_case, complain, printable
from penstock.client.admin import NewTopic, Resource, ResourceType, create_topics, describe_configs
from penstock.client.cluster import Cluster
from penstock.client.producer import Producer
from penstock.client.settings import parse_address

Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
Keep = Annotated[
    Path | None,
    typer.Option(
        "--keep", metavar="DIR", help="Leave the data in this directory, which must be new or empty."
    ),
]


class LabRecord(NamedTuple):
    key: bytes
    value: bytes


class LabTopic(NamedTuple):
    """A topic with one partition, and its records."""

    name: str
    settings: Mapping[str, str]
    batches: Iterable[list[LabRecord]]
    """Each is sent as one batch, after the previous one is acknowledged."""


class Claim(NamedTuple):
    """A statement about the files, and whether it is true."""

    claim: str
    holds: bool


@contextmanager
def workplace(keep: Path | None) -> Iterator[str]:
    """A data directory for one run: temporary, or `keep`."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="penstock-lab-") as temporary:
            yield temporary
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise Refused(f"{keep} is not empty; expected a new or empty directory")
    yield str(keep)


def write(data: str, topics: list[LabTopic], read_setting: str) -> dict[str, str]:
    """Write topics with a node, and stop it. Return the value of a setting for each topic."""
    with _node(data) as bootstrap:
        try:
            with Cluster([parse_address(bootstrap)]) as cluster:
                wanted = [NewTopic(each.name, 1, configs=dict(each.settings)) for each in topics]
                for outcome in create_topics(cluster, wanted):
                    if outcome.error is not None:
                        raise outcome.error
                producer = Producer(cluster)
                for topic in topics:
                    for batch in topic.batches:
                        for record in batch:
                            producer.send(topic.name, record.key, record.value)
                        producer.flush()
                return {each.name: _setting(cluster, each.name, read_setting) for each in topics}
        except KafkaError as error:
            raise Refused(str(error)) from error


def _setting(cluster: Cluster, topic: str, name: str) -> str:
    [entry] = describe_configs(cluster, Resource(ResourceType.TOPIC, topic), [name])
    return entry.value or ""


def command(data: str) -> list[str]:
    """Arguments of `penstock` that start the lab's node."""
    return ["up", "--data", data, "--kafka", "127.0.0.1:0", "--http", "off", "--line", "off"]


@contextmanager
def _node(data: str) -> Iterator[str]:
    """Run a node as a child process; yield its Kafka address."""
    with (
        tempfile.TemporaryFile("w+") as complaints,
        child_of(command(data), stdout=subprocess.PIPE, stderr=complaints) as child,
    ):
        assert child.stdout is not None
        ready = child.stdout.readline()
        if not ready:
            complaints.seek(0)
            last = complaints.read().strip().rpartition("\n")[2]
            raise Refused(f"the lab's node did not start: {last or 'it printed nothing'}")
        yield ready.split("kafka=")[1].split()[0]


# -- output -----------------------------------------------------------------------------------------------


def print_lines(*lines: str) -> None:
    for line in lines:
        print(printable(line) if line else "")


def print_claims(title: str, claims: Iterable[Claim]) -> None:
    print_lines("", title, *(f"{number}. {each.claim}" for number, each in enumerate(claims, 1)))


def verdict(claims: list[Claim], complaint: str = "the files contradict this") -> int:
    """Print an error for each false claim; return the exit code."""
    failed = [each for each in claims if not each.holds]
    for each in failed:
        complain(f"{complaint}: {each.claim}")
    return EXIT_WRONG if failed else 0


def camel(value: Any) -> Any:
    """Named tuples as JSON objects, with camelCase names."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {camel_case(name): camel(each) for name, each in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [camel(each) for each in value]
    return value
