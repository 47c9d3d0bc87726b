"""A producer that writes at a steady pace with acks=all, and how long it had to wait at most."""

import time
from threading import Event, Thread

from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from tests.cluster.views import Seen
from tests.compat.clients.driver import SECONDS_MAX

PACE_S = 0.01


class Steady:
    """Writes numbered records to all partitions of a topic in turn, idempotently, until it is told to finish."""

    def __init__(self, producer: Producer, topic: str, partitions: int, value_bytes: int = 1000) -> None:
        self.topic = topic
        self.partitions = partitions
        self.sent = 0
        self.failures: list[str] = []
        self._padding = b"." * value_bytes
        self._producer = producer
        self._acked_s = [0.0] * partitions
        """By partition, when the last record was acknowledged."""
        self._pauses_s = [0.0] * partitions
        self._is_over = Event()
        self._thread = Thread(target=self._run)

    def start(self) -> "Steady":
        self._thread.start()
        return self

    @property
    def pause_s(self) -> float:
        """The longest time for which a partition acknowledged nothing, since `forget`."""
        return max(self._pauses_s)

    @property
    def acked(self) -> bool:
        """Whether every partition has acknowledged something."""
        return all(self._acked_s)

    def forget(self) -> None:
        """Measure from now on."""
        now = time.monotonic()
        self._acked_s = [now] * self.partitions
        self._pauses_s = [0.0] * self.partitions

    def _run(self) -> None:
        while not self._is_over.is_set():
            for partition in range(self.partitions):
                value = b"%d %d " % (partition, self.sent) + self._padding
                while True:
                    try:
                        self._producer.produce(self.topic, value, partition=partition, on_delivery=self._told)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
            self.sent += 1
            self._producer.poll(PACE_S)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error.name())
            return
        number = message.partition() or 0
        now = time.monotonic()
        before, self._acked_s[number] = self._acked_s[number], now
        if before:
            self._pauses_s[number] = max(self._pauses_s[number], now - before)

    def finish(self) -> None:
        """Stop writing, and wait for what is on its way."""
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(SECONDS_MAX) == 0

    def assert_exactly_once(self, seen: Seen) -> None:
        """All that was sent is there, in order, and nothing twice."""
        assert self.failures == []
        consumer = seen.driver.consumer(enable_partition_eof=True, auto_offset_reset="earliest")
        found: dict[int, list[int]] = {number: [] for number in range(self.partitions)}
        ended: set[int] = set()
        deadline = time.monotonic() + SECONDS_MAX
        try:
            consumer.assign([TopicPartition(self.topic, number, 0) for number in found])
            while len(ended) < self.partitions:
                assert time.monotonic() < deadline, f"only {sorted(ended)} could be read to their ends"
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error, value = message.error(), message.value()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
                    continue
                found[message.partition()].append(int(value.split()[1]))
        finally:
            consumer.close()
        for number, numbers in found.items():
            assert numbers == list(range(self.sent)), f"partition {number}"
