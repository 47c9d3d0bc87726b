"""A real broker whose log is damaged while it is down: nobody reads an aborted record, and an operator can go on.

The transactions are confluent-kafka's. What is damaged is the marker that aborts the first one, or its segment.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.compat.clients.driver import SECONDS_MAX
from tests.processes import Process

from penstock.records import iter_batches

TOPIC = "orders"
PLACE = TopicPartition(TOPIC, 0)


@contextmanager
def transactions(bootstrap: str) -> Iterator[Producer]:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "billing", "log_level": 0})
    producer.init_transactions(SECONDS_MAX)
    yield producer
    producer.flush(SECONDS_MAX)


def transact(producer: Producer, values: list[bytes], *, commit: bool) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    producer.flush(SECONDS_MAX)
    if commit:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)


def last_stable(bootstrap: str) -> int:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_offsets(
        {PLACE: OffsetSpec.latest()},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=SECONDS_MAX,
    )
    return int(asked[PLACE].result(SECONDS_MAX).offset)


def read_committed(bootstrap: str, start: int, end: int) -> list[bytes]:
    """The values between two offsets, as far as a consumer gets before it is told of damage."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, start)])
        while True:
            message = consumer.poll(SECONDS_MAX)
            assert message is not None, f"nothing came after {values}"
            error = message.error()
            if error is not None:
                if error.code() in (KafkaError._PARTITION_EOF, KafkaError.INVALID_MSG, KafkaError._BAD_MSG):
                    return values
                raise KafkaException(error)
            value = message.value()
            assert value is not None
            values.append(value)
            if (message.offset() or 0) >= end - 1:
                return values
    finally:
        consumer.close()


def abort(bootstrap: str, start_offset: int) -> str:
    command = [
        "transactions",
        "abort",
        "--partition",
        f"{TOPIC}:0",
        "--start-offset",
        str(start_offset),
        "--yes",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *command, "--server", bootstrap],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def damage_marker(data: Path) -> None:
    """Flip a bit of the first marker."""
    (path,) = (data / "logs" / f"{TOPIC}-0").glob("*.log")
    content, position = bytearray(path.read_bytes()), 0
    for batch in iter_batches(bytes(content)):
        if batch.is_control:
            content[position + batch.size - 1] ^= 1
            path.write_bytes(content)
            return
        position += batch.size
    raise AssertionError("there is no marker")


def test_a_marker_that_is_damaged_after_a_kill_makes_no_aborted_record_visible(tmp_path: Path) -> None:
    with Process(data=tmp_path / "data") as penstock:
        with transactions(penstock.bootstrap) as producer:
            transact(producer, [b"aborted-0", b"aborted-1"], commit=False)
            transact(producer, [b"committed"], commit=True)
        penstock.kill()
        damage_marker(tmp_path / "data")
        penstock.start()
        assert "was committed, because records are missing at offset 2" in penstock.stderr
        assert last_stable(penstock.bootstrap) == 0
        with transactions(penstock.bootstrap) as producer:
            transact(producer, [b"later"], commit=True)
        assert last_stable(penstock.bootstrap) == 0, (
            "another transaction of the same producer decides nothing"
        )
        penstock.kill()
        penstock.start()
        assert last_stable(penstock.bootstrap) == 0

        assert "aborted the transaction" in abort(penstock.bootstrap, 0)
        end = last_stable(penstock.bootstrap)
        assert end >= 7
        assert read_committed(penstock.bootstrap, 0, end) == []
        assert read_committed(penstock.bootstrap, 3, end) == [b"committed", b"later"]
        penstock.kill()
        penstock.start()
        assert last_stable(penstock.bootstrap) >= end, "the loss stays accepted"


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_segment_that_is_missing_after_a_clean_stop_is_said_and_makes_no_aborted_record_visible(
    tmp_path: Path, is_emptied: bool
) -> None:
    with Process(data=tmp_path / "data") as penstock:
        admin = AdminClient({"bootstrap.servers": penstock.bootstrap})
        created = admin.create_topics([NewTopic(TOPIC, 1, config={"segment.bytes": "1000"})])
        created[TOPIC].result(SECONDS_MAX)
        with transactions(penstock.bootstrap) as producer:
            producer.begin_transaction()
            producer.produce(TOPIC, b"aborted", partition=0)
            producer.flush(SECONDS_MAX)
            plain = Producer({"bootstrap.servers": penstock.bootstrap, "linger.ms": 0})
            for _ in range(3):
                plain.produce(TOPIC, bytes(600), partition=0)
                plain.flush(SECONDS_MAX)
            producer.abort_transaction(SECONDS_MAX)
            for _ in range(2):
                plain.produce(TOPIC, bytes(600), partition=0)
                plain.flush(SECONDS_MAX)
            transact(producer, [b"committed"], commit=True)
        penstock.stop()
        paths = sorted((tmp_path / "data" / "logs" / f"{TOPIC}-0").glob("*.log"))
        path = next(
            each for each in paths[1:] if any(batch.is_control for batch in iter_batches(each.read_bytes()))
        )
        assert path != paths[-1]
        if is_emptied:
            path.write_bytes(b"")
        else:
            path.unlink()
        penstock.start()
        assert "has a hole: offsets" in penstock.stderr
        assert last_stable(penstock.bootstrap) == 0
        abort(penstock.bootstrap, 0)
        end = last_stable(penstock.bootstrap)
        start = int(paths[paths.index(path) + 1].stem)
        assert b"aborted" not in read_committed(penstock.bootstrap, 0, end)
        assert read_committed(penstock.bootstrap, start, end - 1)[-1] == b"committed"
