"""Scanning the directory of an Apache Kafka that is at work on it, and of one that was killed."""

from pathlib import Path

import pytest
from tests.compat.kafka.everything import SMALL_INDEXES, parse_expected, run_phase
from tests.compat.kafka.peer import KafkaPeer
from tests.spark.reading.test_scan import expected_rows, of_users, scan, seen_rows

pytestmark = pytest.mark.kafka


@pytest.mark.long
def test_a_scan_of_a_kafka_at_work_has_what_its_consumers_read(kafka: KafkaPeer, tmp_path: Path) -> None:
    log_dir = tmp_path / "kafka-logs"
    kafka.format_storage(log_dir)
    with kafka.running_kafka(log_dir, SMALL_INDEXES) as broker:
        run_phase(kafka, "crash", broker)
        expected = parse_expected(run_phase(kafka, "read", broker).splitlines())
        for state in ("at work", "killed"):
            for level in ("read_uncommitted", "read_committed"):
                rows = scan(log_dir, isolation_level=level)
                wanted = expected_rows(of_users(expected, committed=level == "read_committed"))
                assert rows, state
                assert seen_rows(rows) == wanted, (state, level)
            if state == "at work":
                broker.kill()
