"""Fixtures for tests beside a real Apache Kafka. Mark such tests with `@pytest.mark.kafka`."""

import shutil
from pathlib import Path

import pytest
from tests.compat.kafka.everything import Expected, load_expected, write_everything
from tests.compat.kafka.peer import KafkaPeer, KafkaUnavailable, locked


@pytest.hookimpl(tryfirst=True)  # before groups are looked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker makes the directory that many tests share, and no other worker waits for it.

    That takes a minute, so these tests are long; `make test` reads the files of Kafka's in tests/golden.
    """
    for item in items:
        if "kafka_written_directory" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.xdist_group("kafka-written"))


@pytest.fixture(scope="session")
def kafka() -> KafkaPeer:
    """Kafka's broker and tools; skips the test where they cannot be had."""
    try:
        return KafkaPeer.find()
    except KafkaUnavailable as missing:
        pytest.skip(f"Apache Kafka is not available: {missing}")


@pytest.fixture(scope="session")
def kafka_written_directory(
    kafka: KafkaPeer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Path, Expected]:
    """A log directory that Kafka wrote and closed cleanly, and the records that it read back.

    Shared by all tests, and by all workers of a run: only read it. `kafka_directory_copy` gives
    a test its own.
    """
    shared = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        shared = shared.parent  # a worker of pytest-xdist has its own directory below the run's
    log_dir = shared / "kafka-written"
    expected = shared / "kafka-written.jsonl"
    with locked(shared / "kafka-written.lock"):
        if not expected.exists():
            shutil.rmtree(log_dir, ignore_errors=True)
            expected.write_text(write_everything(kafka, log_dir))
    return log_dir, load_expected(expected)


@pytest.fixture
def kafka_directory_copy(
    kafka_written_directory: tuple[Path, Expected], tmp_path: Path
) -> tuple[Path, Expected]:
    """The same, for a test that changes the directory."""
    log_dir, expected = kafka_written_directory
    return Path(shutil.copytree(log_dir, tmp_path / "kafka-logs")), expected
