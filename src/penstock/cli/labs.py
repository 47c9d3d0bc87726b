"""What the labs share: a real node that is written to, a place for its files, and claims that are held against them.

A lab starts `penstock up` as a child process on a free port, writes to it as any Kafka client does, and stops it
cleanly. Everything it shows afterwards is read from the files that the node has left. What it says about them is a
`Claim`: if one does not hold, the lab fails.
"""

import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from penstock.base.errors import KafkaError
from penstock.cli.child import child_of
from penstock.cli.main import EXIT_WRONG
from penstock.cli.output import Refused, complain, printable
from penstock.client.admin import NewTopic, Resource, ResourceType, create_topics, describe_configs
from penstock.client.cluster import Cluster
from penstock.client.producer import Producer
from penstock.client.settings import parse_address


class LabRecord(NamedTuple):
    key: bytes
    value: bytes


class LabTopic(NamedTuple):
    """A topic of one partition, and what is written to it."""

    name: str
    settings: Mapping[str, str]
    batches: Iterable[list[LabRecord]]
    """Each is sent as one batch, and acknowledged before the next."""


class Claim(NamedTuple):
    """A sentence about what the files have shown, and whether it is true of them."""

    claim: str
    holds: bool


@contextmanager
def workplace(keep: Path | None) -> Iterator[str]:
    """A data directory for one run: temporary, or one that stays."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="penstock-lab-") as temporary:
            yield temporary
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise Refused(f"{keep} has something in it; the lab wants a new or an empty directory")
    yield str(keep)


def write(data: str, topics: list[LabTopic], read_setting: str) -> dict[str, str]:
    """Have a node write topics into a directory, and stop; returns what a setting is for each of them."""
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
    """How the lab's node is started."""
    return ["up", "--data", data, "--kafka", "127.0.0.1:0", "--http", "off", "--line", "off"]


@contextmanager
def _node(data: str) -> Iterator[str]:
    """A node as a child process; where its clients connect."""
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


# -- telling ----------------------------------------------------------------------------------------------


def tell(*lines: str) -> None:
    for line in lines:
        print(printable(line) if line else "")


def verdict(claims: list[Claim], complaint: str = "the files do not bear this out") -> int:
    """The exit code, and a complaint for each claim that does not hold."""
    failed = [each for each in claims if not each.holds]
    for each in failed:
        complain(f"{complaint}: {each.claim}")
    return EXIT_WRONG if failed else 0


def camel(value: Any) -> Any:
    """Named tuples as JSON objects, with names as JSON writes them."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {_camel(name): camel(each) for name, each in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [camel(each) for each in value]
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
