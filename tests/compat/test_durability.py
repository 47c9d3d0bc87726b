"""kill -9 and restarts under a real client: what was acknowledged is there, once, and in order.

An idempotent confluent-kafka producer with acks=all goes on sending, over as many lives as the broker has. It
retries what was not acknowledged, so in the end every record must be there exactly once: one that was written before
the kill and sent again after it is recognised by the producer's sequence, which the broker must have kept.
"""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tests.compat.clients.confluent import ConfluentDriver
from tests.compat.clients.driver import SECONDS_MAX, Record, Sending, read
from tests.processes import Process

TOPIC, PARTITIONS = "load", 3
ACKS_A_LIFE = 1500
"""Acknowledgements that are waited for before the broker is ended: it is in the middle of the load."""


class Load:
    """A producer on a thread of its own, that sends numbers until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """By partition and offset."""
        self.sent = 0
        self.failures: list[str] = []
        self._enough = threading.Condition()
        self._is_over = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 50,
                "queue.buffering.max.messages": 5000,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "log_level": 0,  # it would tell of every connection that breaks
                "error_cb": self._complain,
            }
        )
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _complain(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(error.str())
            with self._enough:
                self._is_over = True
                self._enough.notify_all()

    def _send(self) -> None:
        while not self._is_over:
            try:
                partition = self.sent % PARTITIONS
                self._producer.produce(
                    TOPIC, b"%d" % self.sent, partition=partition, on_delivery=self._delivered
                )
                self.sent += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.05)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error.str())
            return
        place = (message.partition(), message.offset())
        value = message.value()
        assert value is not None
        if self.acknowledged.setdefault(place, value) != value:
            self.failures.append(f"{place} was acknowledged for {self.acknowledged[place]!r} and {value!r}")
        with self._enough:
            self._enough.notify_all()

    def wait_for_more(self, count: int) -> None:
        wanted = len(self.acknowledged) + count
        with self._enough:
            assert self._enough.wait_for(
                lambda: len(self.acknowledged) >= wanted or bool(self.failures), SECONDS_MAX * 2
            ), f"only {len(self.acknowledged)} of {wanted} acknowledgements came"
        assert not self.failures, self.failures[:3]

    def stop(self) -> None:
        """Send nothing new."""
        self._is_over = True
        self._thread.join()

    def finish(self) -> None:
        """Wait until all that was sent is acknowledged."""
        left = self._producer.flush(SECONDS_MAX * 2)
        assert not self.failures, self.failures[:3]
        assert left == 0, f"{left} records were never acknowledged"


def check(driver: ConfluentDriver, load: Load) -> None:
    """Everything that was sent is there once and in order, at the offsets that were acknowledged."""
    got = read(driver, TOPIC, load.sent, dict.fromkeys(range(PARTITIONS), 0))
    for partition in range(PARTITIONS):
        mine = [record for record in got if record.partition == partition]
        assert [record.value for record in mine] == [
            b"%d" % number for number in range(partition, load.sent, PARTITIONS)
        ]
        assert driver.watermarks(TOPIC, partition) == (0, len(mine))
    there = {(record.partition, record.offset): record.value for record in got}
    assert load.acknowledged == there


def run_under_load(data: Path, rounds: int, end: Callable[[Process], object]) -> None:
    with Process(data=data) as process:
        driver = ConfluentDriver(process.bootstrap)
        driver.create_topic(TOPIC, PARTITIONS)
        load = Load(process.bootstrap)
        try:
            for _ in range(rounds):
                load.wait_for_more(ACKS_A_LIFE)
                end(process)
                process.start()
            load.wait_for_more(ACKS_A_LIFE)
        finally:
            load.stop()
        load.finish()
        check(driver, load)


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.long)])
def test_nothing_acknowledged_is_lost_doubled_or_moved_by_kill_9(tmp_path: Path, rounds: int) -> None:
    run_under_load(tmp_path / "data", rounds, Process.kill)


@pytest.mark.long
def test_an_idempotent_producer_goes_on_over_clean_restarts(tmp_path: Path) -> None:
    def stop(process: Process) -> None:
        assert process.stop() == 0

    run_under_load(tmp_path / "data", 2, stop)


@pytest.mark.parametrize("acks", [1, -1])
def test_what_was_acknowledged_is_there_after_kill_9(tmp_path: Path, acks: int) -> None:
    """Killing the process loses nothing that the system was given, whatever was synced."""
    with Process(data=tmp_path / "data") as process:
        driver = ConfluentDriver(process.bootstrap)
        driver.create_topic("kept")
        values = [b"%d" % number for number in range(500)]
        driver.produce("kept", [Record(value) for value in values], Sending("lz4", acks))
        process.kill()
        process.start()
        assert [record.value for record in read(driver, "kept", 500)] == values


def test_topics_settings_and_deletions_are_there_after_kill_9(tmp_path: Path) -> None:
    with Process(data=tmp_path / "data") as process:
        driver = ConfluentDriver(process.bootstrap)
        driver.create_topic("stays", 4, {"retention.ms": "12345678"})
        driver.create_topic("goes")
        driver.produce("goes", [Record(b"old")] * 10)
        driver.produce("stays", [Record(b"%d" % number) for number in range(10)])
        assert driver.delete_records("stays", 0, 7) == 7
        driver.delete_topic("goes")
        process.kill()
        process.start()
        assert "goes" not in driver.topics()
        assert driver.partition_count("stays") == 4
        assert driver.describe_configs("stays")["retention.ms"] == "12345678"
        assert driver.watermarks("stays", 0) == (7, 10)
        driver.create_topic("goes")
        assert driver.watermarks("goes", 0) == (0, 0)
