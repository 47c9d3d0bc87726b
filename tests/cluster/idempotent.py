"""Idempotent producers with much in flight while brokers refuse for passing reasons, and what they left in logs."""

import resource
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import Event, Thread

from tests.cluster.processes import ClusterProcesses
from tests.cluster.views import Seen, log_bytes
from tests.processes import Process

from penstock.records import iter_batches

TOPIC = "orders"
PARTITIONS = 6
BEFORE = b"x" * 90_000
"""Written first, so that the partitions' files are larger than those of the metadata log."""


def value_of(partition: int, number: int) -> bytes:
    return b"%d/%d" % (partition, number)


def prepare(cluster: ClusterProcesses, replicas: int) -> Seen:
    seen = Seen(cluster.bootstrap)
    seen.create_topic(TOPIC, partitions=PARTITIONS, replicas=replicas)
    for number in range(PARTITIONS):
        seen.send(TOPIC, [BEFORE] * 3, partition=number, acks="all", enable_idempotence=False)
    return seen


@contextmanager
def meanwhile(trouble: Callable[[], None]) -> Iterator[Event]:
    """Have trouble again and again in another thread; the event is set when it is over."""
    over = Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            trouble()
        except BaseException as error:  # it is raised where the test is
            failed.append(error)
        finally:
            over.set()

    thread = Thread(target=run)
    thread.start()
    try:
        yield over
    finally:
        thread.join()
    if failed:
        raise failed[0]


def fill_disk(process: Process, data: Path, times: int, seed: int = 0) -> None:
    """Let the partitions' files grow no more, for moments: some fail before others."""
    rng = Random(seed)
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    for _ in range(times):
        sizes = [each.stat().st_size for each in data.glob(f"logs/{TOPIC}-*/*.log")]
        limit = rng.randrange(min(sizes), max(sizes) + 2000)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, before[1]))
        time.sleep(rng.uniform(0.02, 0.3))
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
        time.sleep(rng.uniform(0.05, 0.3))


def assert_once_and_in_order(data: Path, delivered: Iterable[bytes]) -> None:
    """Every value that was reported as delivered is in the log, all are in order and there once, and every producer
    has written in its first epoch alone."""
    left = set(delivered)
    assert left, "nothing was delivered"
    for number in range(PARTITIONS):
        batches = list(iter_batches(log_bytes(data, TOPIC, number)))
        epochs = {(each.producer_id, each.producer_epoch) for each in batches if each.has_producer_id}
        assert {epoch for _, epoch in epochs} <= {0}, f"{TOPIC}-{number} was written by {sorted(epochs)}"
        assert len(epochs) <= 1, f"{TOPIC}-{number} was written by {sorted(epochs)}"
        values = [record.value for each in batches for record in each.records()]
        found = [each for each in values if each is not None and each != BEFORE]
        numbers = [int(each.partition(b"/")[2]) for each in found]
        assert numbers == sorted(set(numbers)), f"{TOPIC}-{number} has {first_wrong(numbers)}"
        left -= set(found)
    assert not left, f"{len(left)} delivered values are not there, {min(left)!r} among them"


def first_wrong(numbers: list[int]) -> str:
    at = next(at for at in range(1, len(numbers)) if numbers[at] <= numbers[at - 1])
    return f"{numbers[at]} behind {numbers[at - 1]}"
