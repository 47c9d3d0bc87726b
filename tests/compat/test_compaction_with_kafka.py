"""What Penstock's cleaner leaves behind, in Kafka's eyes."""

from pathlib import Path

import pytest
from tests.compat.kafka.everything import RETENTION_NEVER, Expected
from tests.compat.kafka.peer import KafkaPeer
from tests.compat.test_storage_with_kafka import errors_in, read_by_kafka, trouble
from tests.storage.housekeeping import compact
from tests.storage.test_golden import opened, time_of

from penstock.storage import names

pytestmark = pytest.mark.kafka


def table(expected: Expected, topic: str, partition: int) -> dict[bytes | None, bytes | None]:
    """The latest value of each key, as a consumer of committed records would have it; deleted keys left out."""
    latest = {record.key: record.value for record in expected.of(topic, partition, committed=True)}
    return {key: value for key, value in latest.items() if key is not None and value is not None}


@pytest.mark.long
def test_kafka_reads_the_same_tables_after_penstock_compacted_its_logs(
    kafka: KafkaPeer, kafka_directory_copy: tuple[Path, Expected]
) -> None:
    log_dir, before = kafka_directory_copy
    now_ms = time_of(before)
    compacted = []
    with opened(log_dir, now_ms) as directory:
        for partition, log in directory.logs.items():
            if partition.topic.startswith("__"):
                continue
            log.roll(now_ms)
            done = compact(log, now_ms, log.log_end)
            if done is None:
                continue
            cleaned, removal = done
            removal.run()
            directory.checkpoints.save_clean_to(log)
            compacted.append((partition, cleaned))
        directory.close()
    assert sum(cleaned.records_read - cleaned.records_kept for _, cleaned in compacted) > 100
    assert errors_in(log_dir) == []

    files = [
        path
        for partition, _ in compacted
        for path in (log_dir / str(partition)).iterdir()
        if path.suffix in (names.LOG, names.INDEX, names.TIME_INDEX)
    ]
    assert kafka.dump_log(files, "--deep-iteration").problems(gaps=True) == []
    indexes = [path for path in files if path.suffix != names.LOG]
    assert kafka.dump_log(indexes, "--index-sanity-check").problems(gaps=True) == []

    with kafka.running_kafka(log_dir, RETENTION_NEVER) as broker:
        assert trouble(broker) == []
        after = read_by_kafka(kafka, broker)
    for partition, _ in compacted:
        assert table(after, *partition) == table(before, *partition), partition
        assert after.partition(*partition).log_end == before.partition(*partition).log_end
