"""One Spark session for every test that needs Spark, and one broker that they share.

A session takes seconds to start, so there is one, in one test process; it starts with the first test that asks for it.
Tests keep apart by the names of their topics.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from penstock.spark.session import QUICK_START, light_session
from penstock.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.spark.topics import Topics

CHECKPOINTS = {
    # Half of a small batch's time goes into checkpoints; this writes the same files with fewer steps.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


@pytest.hookimpl(tryfirst=True)  # before groups are looked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share the session run in one process, also where others are spread: with --dist loadgroup."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator["SparkSession"]:
    if getattr(request.config.option, "loadgroup", False):
        # The directory above is that of the run. A second session is dear, and nothing else would tell of it.
        (tmp_path_factory.getbasetemp().parent / "the-only-spark-session").touch(exist_ok=False)
    session = light_session(
        "penstock-tests",
        "local[2]",
        QUICK_START | CHECKPOINTS | {"spark.sql.session.timeZone": "UTC"},
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_broker() -> Iterator[Broker]:
    """For tests that do not stop it."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]


@pytest.fixture
def topics(spark_broker: Broker) -> Iterator["Topics"]:
    """Topics of the shared broker."""
    from tests.spark.topics import Topics  # noqa: PLC0415  # tests without topics do without its imports

    with Topics(spark_broker) as opened:
        yield opened
