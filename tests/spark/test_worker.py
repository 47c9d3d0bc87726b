"""What a worker pays once, and what it is spared after each task."""

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from penstock.spark.worker import settle

READS = """
import sys
from penstock.records import Codec, build_batch
from penstock.arrow.decode import Decoder
from penstock.spark.reading import batch, scan
from penstock.arrow.schema import COLUMNS
decoder = Decoder("orders", 0, COLUMNS, start=0, stop=9)
rows = [(b"k", b"v", 5, [("name", b"x")]), (None, None, 6)]
data = build_batch(rows) + build_batch(rows, base_offset=2, codec=Codec.ZSTD)
print(sum(len(each) for each in [*decoder.feed(data), *decoder.finish()]), "pandas" in sys.modules)
"""


@pytest.fixture
def thawed() -> Iterator[None]:
    settle.cache_clear()
    yield
    gc.unfreeze()
    settle.cache_clear()


@pytest.mark.usefixtures("thawed")
def test_a_worker_that_goes_on_to_other_tasks_has_its_modules_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark's daemon collects after each task."""
    before = gc.get_freeze_count()
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    settle()
    assert gc.get_freeze_count() > before + 10_000


@pytest.mark.usefixtures("thawed")
def test_other_processes_are_none_of_its_business(monkeypatch: pytest.MonkeyPatch) -> None:
    before = gc.get_freeze_count()
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    settle()
    assert gc.get_freeze_count() == before


def test_reading_does_not_import_pandas() -> None:
    """It would take half a second of each worker's first task."""
    done = subprocess.run([sys.executable, "-c", READS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["4", "False"]
