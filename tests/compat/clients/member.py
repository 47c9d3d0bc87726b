"""One member of a group, as a process of its own: so that it can crash, and stall, as programs do.

It reads what it is assigned, says what it read, and then commits it. What happens to it is said on standard output, a
line of JSON each, with the time at which it began (`since`) and was said (`at`) by the clock that all processes share:

    assigned, revoked, lost   partitions; the first as it begins to own them, the others when it has let go
    read                      [partition, offset] of each record, before they are committed
    committed, refused        the offsets of a commit that was taken, or what the answer was instead
    idle, left                it has stopped polling as it was told; it has left the group

Standard input takes a word a line: `idle` stops polling, `go` goes on, `leave` (or the end of the input, when the
test is gone) leaves the group.
"""

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, TypedDict
from warnings import catch_warnings, simplefilter

POLL_MS = 100
BATCH = 50


class Wish(TypedDict):
    """What a member is started with."""

    library: str
    bootstrap: str
    group: str
    topic: str
    session_ms: int
    heartbeat_ms: int
    poll_ms_max: int
    """A member that has not polled for so long is out."""
    assignor: str
    """Or `consumer`: the protocol in which the broker assigns."""
    instance: str | None


def say(event: str, since: int | None = None, **more: Any) -> None:
    at = time.monotonic_ns()
    line = json.dumps({"event": event, "since": since or at, "at": at, **more})
    os.write(1, line.encode() + b"\n")  # at once and whole: what was said outlives a kill


class Orders:
    """What the test has told us to do, read by a thread so that nothing waits for it."""

    def __init__(self) -> None:
        self.is_leaving = False
        self.may_poll = threading.Event()
        self.may_poll.set()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for word in sys.stdin:
            match word.strip():
                case "idle":
                    self.may_poll.clear()
                case "go":
                    self.may_poll.set()
                case "leave":
                    break
        self.is_leaving = True
        self.may_poll.set()

    def wait(self) -> None:
        """Stay here while we are told to be idle."""
        if not self.may_poll.is_set():
            say("idle")
            self.may_poll.wait()


def numbers(partitions: Iterable[Any]) -> list[int]:
    return sorted(each.partition for each in partitions)


def upto(records: Iterable[tuple[int, int]]) -> dict[int, int]:
    """What is to be committed when these were processed."""
    offsets: dict[int, int] = {}
    for partition, offset in records:
        offsets[partition] = max(offset + 1, offsets.get(partition, 0))
    return offsets


def forget(pending: dict[int, int], partitions: Iterable[int]) -> None:
    """A commit that was refused is tried again, but not for partitions that are another's by then."""
    for partition in partitions:
        pending.pop(partition, None)


# -- confluent-kafka -------------------------------------------------------------------------------------


def run_confluent(wish: Wish, orders: Orders) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition  # noqa: PLC0415 - one library a process

    settings: dict[str, Any] = {
        "bootstrap.servers": wish["bootstrap"],
        "group.id": wish["group"],
        "client.id": "confluent",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "max.poll.interval.ms": wish["poll_ms_max"],
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 500,
        "fetch.wait.max.ms": POLL_MS,
        "log_level": 0,
    }
    if wish["assignor"] == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings["partition.assignment.strategy"] = wish["assignor"]
        settings["session.timeout.ms"] = wish["session_ms"]
        settings["heartbeat.interval.ms"] = wish["heartbeat_ms"]
    if wish["instance"]:
        settings["group.instance.id"] = wish["instance"]
    consumer = Consumer(settings)
    records: list[tuple[int, int]] = []
    pending: dict[int, int] = {}

    def let_go(event: str, partitions: Iterable[Any]) -> None:
        """In the middle of a poll: what was read and not yet said is for the next owner."""
        gone = numbers(partitions)
        records[:] = [each for each in records if each[0] not in gone]
        forget(pending, gone)
        say(event, partitions=gone)

    consumer.subscribe(
        [wish["topic"]],
        on_assign=lambda _, found: say("assigned", partitions=numbers(found)),
        on_revoke=lambda _, found: let_go("revoked", found),
        on_lost=lambda _, found: let_go("lost", found),
    )
    while not orders.is_leaving:
        orders.wait()
        records.clear()
        # Not `consume`: it drops what it has gathered when a rebalance comes between, and goes on behind it.
        while len(records) < BATCH and (found := consumer.poll(0 if records else POLL_MS / 1000)) is not None:
            if found.error() is None:
                records.append((found.partition(), found.offset()))
        if records:
            say("read", records=records)
            pending.update(upto(records))
        if not pending:
            continue
        since = time.monotonic_ns()
        try:
            answers = consumer.commit(
                offsets=[TopicPartition(wish["topic"], *each) for each in pending.items()], asynchronous=False
            )
            errors = [answer.error for answer in answers or () if answer.error is not None]
        except KafkaException as error:
            errors = [error.args[0]]
        if errors:
            say("refused", since, reason=errors[0].name())
        else:
            say("committed", since, offsets=pending)
            pending.clear()
    consumer.close()


# -- kafka-python ----------------------------------------------------------------------------------------


def run_kafka_python(wish: Wish, orders: Orders) -> None:
    with catch_warnings():
        simplefilter("ignore", DeprecationWarning)
        from kafka import (  # noqa: PLC0415 - one library a process
            ConsumerRebalanceListener,
            KafkaConsumer,
            OffsetAndMetadata,
            TopicPartition,
        )
        from kafka.coordinator.assignors.cooperative_sticky import (  # noqa: PLC0415
            CooperativeStickyAssignor,
        )
        from kafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415
        from kafka.errors import KafkaError  # noqa: PLC0415

    pending: dict[int, int] = {}

    class Telling(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Any) -> None:
            say("assigned", partitions=numbers(assigned))

        def on_partitions_revoked(self, revoked: Any) -> None:
            forget(pending, numbers(revoked))
            say("revoked", partitions=numbers(revoked))

        def on_partitions_lost(self, lost: Any) -> None:
            forget(pending, numbers(lost))
            say("lost", partitions=numbers(lost))

    assignors = {
        "range": RangePartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=wish["bootstrap"],
        group_id=wish["group"],
        group_instance_id=wish["instance"],
        client_id="kafka-python",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=wish["session_ms"],
        heartbeat_interval_ms=wish["heartbeat_ms"],
        max_poll_interval_ms=wish["poll_ms_max"],
        fetch_max_wait_ms=POLL_MS,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        partition_assignment_strategy=[assignors[wish["assignor"]]],
    )
    consumer.subscribe([wish["topic"]], listener=Telling())
    # Metadata before the first join: without it kafka-python 3.0.12 may never take what it is assigned, with Kafka
    # 4.3.1 as with us. A leader that assigned before its metadata came joins again when it comes, but only because
    # `need_rejoin` finds its two snapshots to differ; `rejoin_needed` is not set. `_perform_assignment` makes them
    # equal while SyncGroup is still to be answered. A poll that runs out of time before that answer leaves the join
    # to the next one, which then sees no need to join: nobody takes the result, heartbeats stay off, the session ends.
    while not consumer.partitions_for_topic(wish["topic"]):
        time.sleep(POLL_MS / 1000)
    while not orders.is_leaving:
        orders.wait()
        try:
            found = consumer.poll(timeout_ms=POLL_MS, max_records=BATCH)
        except (KafkaError, OSError):
            time.sleep(
                POLL_MS / 1000
            )  # it tells of every connection that is refused while the broker is down
            continue
        records = [(each.partition, each.offset) for some in found.values() for each in some]
        if records:
            say("read", records=records)
            pending.update(upto(records))
        if not pending:
            continue
        since = time.monotonic_ns()
        offsets = dict(pending)
        try:
            consumer.commit(
                {
                    TopicPartition(wish["topic"], number): OffsetAndMetadata(offset, "", -1)
                    for number, offset in offsets.items()
                }
            )
        except (KafkaError, OSError) as error:
            say("refused", since, reason=type(error).__name__)
        else:
            say("committed", since, offsets=offsets)
            pending.clear()
    consumer.close()


# -- aiokafka --------------------------------------------------------------------------------------------


async def run_aiokafka(wish: Wish, orders: Orders) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition  # noqa: PLC0415
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor  # noqa: PLC0415
    from aiokafka.errors import KafkaError  # noqa: PLC0415

    working = asyncio.Lock()
    """Held from a read to its commit: partitions are let go only between."""

    mine: set[int] = set()
    pending: dict[int, int] = {}

    class Telling(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            async with working:
                mine.difference_update(numbers(revoked))
                forget(pending, numbers(revoked))
                say("revoked", partitions=numbers(revoked))

        def on_partitions_assigned(self, assigned: Any) -> None:
            mine.update(numbers(assigned))
            say("assigned", partitions=numbers(assigned))

    assignors = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=wish["bootstrap"],
        group_id=wish["group"],
        group_instance_id=wish["instance"],
        client_id="aiokafka",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=wish["session_ms"],
        heartbeat_interval_ms=wish["heartbeat_ms"],
        max_poll_interval_ms=wish["poll_ms_max"],
        rebalance_timeout_ms=wish["poll_ms_max"],
        fetch_max_wait_ms=POLL_MS,
        metadata_max_age_ms=500,
        partition_assignment_strategy=[assignors[wish["assignor"]]],
    )
    consumer.subscribe([wish["topic"]], listener=Telling())
    await consumer.start()
    while not orders.is_leaving:
        await asyncio.get_running_loop().run_in_executor(None, orders.wait)
        # Not while holding the lock: a read that waits for a new assignment would wait for itself.
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
        async with working:
            # What was let go of meanwhile is for its next owner.
            some = [each for records in found.values() for each in records if each.partition in mine]
            records = [(each.partition, each.offset) for each in some]
            if records:
                say("read", records=records)
                pending.update(upto(records))
            if not pending:
                continue
            since = time.monotonic_ns()
            try:
                await consumer.commit(
                    {TopicPartition(wish["topic"], number): offset for number, offset in pending.items()}
                )
            except KafkaError as error:
                say("refused", since, reason=type(error).__name__)
            else:
                say("committed", since, offsets=pending)
                pending.clear()
    await consumer.stop()


def main() -> None:
    wish: Wish = json.loads(sys.argv[1])
    orders = Orders()
    match wish["library"]:
        case "confluent":
            run_confluent(wish, orders)
        case "kafka-python":
            run_kafka_python(wish, orders)
        case "aiokafka":
            with contextlib.suppress(asyncio.CancelledError):
                asyncio.run(run_aiokafka(wish, orders))
    say("left")


if __name__ == "__main__":
    main()
