"""A program that reads, processes and writes, as a process of its own: records from one topic to another, each once.

confluent     one producer a worker; the group's generation fences the offsets of one that is out (KIP-447)
aiokafka      one producer a partition, with the partition in its transactional id: who takes the partition over
              fences who had it. That is how it was done before KIP-447, which aiokafka does not speak
plain         confluent-kafka without transactions: written first, committed afterwards

Whatever goes wrong ends the program: the test starts it again, and the first thing that the next one does is to
abort what the last one left open. One transaction in ten is aborted on purpose, and done again. A line of JSON is said
about each step; `hold` on standard input makes it wait for `go` inside of a revocation.
"""

import asyncio
import json
import os
import random
import sys
import threading
from typing import Any, TypedDict

POLL_MS = 50
BATCH = 10
STUCK_S = 3.0
"""A transaction that takes so long has gone wrong."""


class Wish(TypedDict):
    kind: str
    name: str
    """The client's, and the transactional id's."""
    bootstrap: str
    group: str
    source: str
    target: str
    session_ms: int
    heartbeat_ms: int
    assignor: str
    """Or `consumer`: the protocol in which the broker assigns."""
    seed: int


def say(event: str, **more: Any) -> None:
    os.write(1, json.dumps({"event": event, **more}).encode() + b"\n")


class Orders:
    def __init__(self) -> None:
        self.is_over = False
        self.may_let_go = threading.Event()
        self.may_let_go.set()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for word in sys.stdin:
            match word.strip():
                case "hold":
                    self.may_let_go.clear()
                case "go":
                    self.may_let_go.set()
                case "end":
                    break
        self.is_over = True
        self.may_let_go.set()

    def let_go(self, partitions: list[int]) -> None:
        say("revoking", partitions=partitions)
        self.may_let_go.wait()


# -- confluent-kafka -------------------------------------------------------------------------------------


class Confluent:
    def __init__(self, wish: Wish, orders: Orders) -> None:
        from confluent_kafka import Consumer, Producer  # noqa: PLC0415 - one library a process

        self.wish, self.orders = wish, orders
        self.rng = random.Random(wish["seed"])
        self.is_transactional = wish["kind"] == "confluent"
        self.batch: list[Any] = []
        common = {
            "bootstrap.servers": wish["bootstrap"],
            "client.id": wish["name"],
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
        groups: dict[str, Any] = {"group.protocol": "consumer"}
        if wish["assignor"] != "consumer":
            groups = {
                "partition.assignment.strategy": wish["assignor"],
                "session.timeout.ms": wish["session_ms"],
                "heartbeat.interval.ms": wish["heartbeat_ms"],
            }
        self.consumer = Consumer(
            {
                **common,
                **groups,
                "group.id": wish["group"],
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                # The group begins with offsets. To begin anywhere else is a fault: librdkafka would do so when it has
                # been told three times that an offset is not stable yet.
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": POLL_MS,
            }
        )
        own = {"transactional.id": wish["name"]} if self.is_transactional else {"enable.idempotence": True}
        self.producer = Producer({**common, **own, "linger.ms": 0, "retry.backoff.ms": 20})

    def run(self) -> None:
        if self.is_transactional:
            self.producer.init_transactions(30)
        self.consumer.subscribe(
            [self.wish["source"]], on_assign=self._take, on_revoke=self._let_go, on_lost=self._let_go
        )
        while not self.orders.is_over:
            self._read()
            if not self.batch:
                continue
            if not self.is_transactional:
                self._write_plainly()
            elif self.rng.random() < 0.1:
                self._change_ones_mind()
            else:
                self._write()
            self.batch.clear()
        self.consumer.close()

    def _take(self, _: Any, partitions: list[Any]) -> None:
        say("assigned", partitions=sorted(each.partition for each in partitions))

    def _let_go(self, _: Any, partitions: list[Any]) -> None:
        gone = {each.partition for each in partitions}
        self.orders.let_go(sorted(gone))
        self.batch[:] = [each for each in self.batch if each.partition() not in gone]

    def _read(self) -> None:
        """Fill the batch with what is there. Partitions may go while we do, and their records with them."""
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - one library a process

        while len(self.batch) < BATCH:
            message = self.consumer.poll(0 if self.batch else POLL_MS / 1000)
            if message is None:
                return
            if message.error() is None:
                self.batch.append(message)
            elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(message.error())

    def _send(self) -> None:
        for each in self.batch:
            self.producer.produce(self.wish["target"], each.value(), partition=each.partition())

    def _offsets(self, *, first: bool = False) -> list[Any]:
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - one library a process

        ordered = reversed(self.batch) if first else self.batch
        places = {each.partition(): each.offset() + (not first) for each in ordered}
        return [TopicPartition(self.wish["source"], *each) for each in places.items()]

    def _write(self) -> None:
        # librdkafka's issues 5456 and 5511: it may wait for a broker that is back for ever, and past its own timeout.
        watch = threading.Timer(STUCK_S, os._exit, [3])
        watch.start()
        self.producer.begin_transaction()
        self._send()
        self.producer.send_offsets_to_transaction(
            self._offsets(), self.consumer.consumer_group_metadata(), 30
        )
        self.producer.commit_transaction(30)
        watch.cancel()
        say("committed", count=len(self.batch))

    def _change_ones_mind(self) -> None:
        self.producer.begin_transaction()
        self._send()
        self.producer.flush(30)
        self.producer.abort_transaction(30)
        for place in self._offsets(first=True):
            self.consumer.seek(place)
        say("aborted", count=len(self.batch))

    def _write_plainly(self) -> None:
        self._send()
        if self.producer.flush(30):
            raise TimeoutError("not everything was written")
        self.consumer.commit(offsets=self._offsets(), asynchronous=False)
        say("committed", count=len(self.batch))


# -- aiokafka --------------------------------------------------------------------------------------------


async def run_aiokafka(wish: Wish, orders: Orders) -> None:
    from aiokafka import (  # noqa: PLC0415 - one library a process
        AIOKafkaConsumer,
        AIOKafkaProducer,
        ConsumerRebalanceListener,
        TopicPartition,
    )
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor  # noqa: PLC0415

    rng = random.Random(wish["seed"])
    producers: dict[int, AIOKafkaProducer] = {}
    working = asyncio.Lock()
    """Held over a transaction: partitions are let go, and taken, between."""
    loop = asyncio.get_running_loop()
    changes = 0
    """How often partitions have come or gone, with all that goes with it."""

    class Taking(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            nonlocal changes
            async with working:
                gone = sorted(each.partition for each in revoked)
                await loop.run_in_executor(None, orders.let_go, gone)
                for partition in gone:
                    if partition in producers:
                        await producers.pop(partition).stop()
                changes += 1

        async def on_partitions_assigned(self, assigned: Any) -> None:
            nonlocal changes
            async with working:
                for place in assigned:
                    producer = AIOKafkaProducer(
                        bootstrap_servers=wish["bootstrap"],
                        client_id=wish["name"],
                        transactional_id=f"{wish['group']}-{place.partition}",
                    )
                    await producer.start()
                    # Only now is it certain where the last owner came to.
                    consumer.seek(place, await consumer.committed(place))
                    producers[place.partition] = producer
                changes += 1
                say("assigned", partitions=sorted(producers))

    async def write(partition: int, records: list[Any]) -> None:
        producer = producers[partition]
        await producer.begin_transaction()
        sent = [await producer.send(wish["target"], each.value, partition=each.partition) for each in records]
        await asyncio.gather(*sent)
        place = TopicPartition(wish["source"], partition)
        if rng.random() < 0.1:
            await producer.abort_transaction()
            consumer.seek(place, records[0].offset)
            say("aborted", count=len(records))
            return
        await producer.send_offsets_to_transaction({place: records[-1].offset + 1}, wish["group"])
        await producer.commit_transaction()
        say("committed", count=len(records))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=wish["bootstrap"],
        client_id=wish["name"],
        group_id=wish["group"],
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="none",
        session_timeout_ms=wish["session_ms"],
        heartbeat_interval_ms=wish["heartbeat_ms"],
        fetch_max_wait_ms=POLL_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
    )
    consumer.subscribe([wish["source"]], listener=Taking())
    await consumer.start()
    while not orders.is_over:
        before = changes
        found = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH)
        async with working:
            if changes != before:
                # What was read may be from before the change, or from after it: read again what is ours now.
                for partition in producers:
                    place = TopicPartition(wish["source"], partition)
                    consumer.seek(place, await consumer.committed(place))
                continue
            for place, records in found.items():
                await write(place.partition, records)
    await consumer.stop()
    for producer in producers.values():
        await producer.stop()


def main() -> None:
    wish: Wish = json.loads(sys.argv[1])
    orders = Orders()
    try:
        if wish["kind"] == "aiokafka":
            asyncio.run(run_aiokafka(wish, orders))
        else:
            Confluent(wish, orders).run()
    except Exception as error:
        say("failed", reason=f"{type(error).__name__}: {error}")
        os._exit(3)  # as it stands: nothing is told to anybody
    say("ended")


if __name__ == "__main__":
    main()
