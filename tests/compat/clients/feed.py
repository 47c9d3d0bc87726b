"""A producer that goes on, steadily, while a test does something else, over as many lives as the broker has."""

import threading
from types import TracebackType

from confluent_kafka import KafkaError, Message, Producer

PAUSE_S = 0.01
"""Between records: a stream that leaves the processor to those who are tested."""

WAIT_S_MAX = 60.0


class Feed:
    """Sends numbers to the partitions in turn, from 0 on, until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic, self.partitions = topic, partitions
        self.acknowledged: dict[tuple[int, int], int] = {}
        """By partition and offset: the number there."""
        self.sent = 0
        self.failures: list[str] = []
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,  # it would tell of every connection that breaks
            }
        )
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        if error is not None:
            self._producer.purge()
            self._producer.flush(1.0)

    def _send(self) -> None:
        while not self._is_over.wait(PAUSE_S):
            self._producer.produce(
                self.topic,
                b"%d" % self.sent,
                partition=self.sent % self.partitions,
                on_delivery=self._delivered,
            )
            self.sent += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error.str())
        else:
            self.acknowledged[message.partition(), message.offset()] = int(message.value())

    def finish(self) -> set[tuple[int, int]]:
        """Send no more, and return where all that was sent is."""
        self._is_over.set()
        self._thread.join()
        left = self._producer.flush(WAIT_S_MAX)
        assert not self.failures, self.failures[:3]
        assert left == 0, f"{left} records were never acknowledged"
        assert sorted(self.acknowledged.values()) == list(range(self.sent))
        return set(self.acknowledged)
