"""Files that are made, and files that are not: nobody hears of those but who asked."""

import errno
import gc
from pathlib import Path

import pytest
from tests.gateway.http.rest import write

from penstock.base.errors import ErrorCode
from penstock.gateway.exports.files import make
from penstock.gateway.exports.job import (
    ARROW_FILE,
    ARROW_STREAM,
    PARQUET,
    ExportedFile,
    ExportRefused,
    ExportSpec,
    Span,
)
from penstock.testing import Broker
from penstock.vfs import FaultyDisk, RealDisk, Vfs

pytestmark = pytest.mark.xdist_group("exports-files")
"""One log serves them all."""


@pytest.fixture(scope="module")
def span(tmp_path_factory: pytest.TempPathFactory) -> Span:
    """A text, and then bytes that are none."""
    data = tmp_path_factory.mktemp("data")
    with Broker(data=data) as broker:
        broker.create_topic("t")
        write(broker, "t", [b"text", b"\xff" * 1000])
    [directory] = data.rglob("t-0")
    return Span("t", b"", 0, str(directory), 0, 0, 2)


def refused(vfs: Vfs, wanted: ExportSpec, path: Path) -> ExportRefused:
    """What a child says. What Python complains of when objects go would fail the test as well."""
    answer = make(vfs, wanted, str(path / "file"))
    gc.collect()
    assert isinstance(answer, ExportRefused)
    return answer


@pytest.mark.parametrize("form", [PARQUET, ARROW_FILE, ARROW_STREAM])
class TestFile:
    def test_that_can_be_made_is_made(self, span: Span, tmp_path: Path, form: str) -> None:
        made = make(RealDisk(), ExportSpec(form, (span,)), str(tmp_path / "file"))
        assert made == ExportedFile(2, (tmp_path / "file").stat().st_size, None)

    def test_of_values_that_are_not_text_is_refused_without_a_trace(
        self, span: Span, tmp_path: Path, form: str
    ) -> None:
        answer = refused(RealDisk(), ExportSpec(form, (span,), is_text=True), tmp_path)
        assert answer.code is ErrorCode.INVALID_RECORD

    def test_that_is_too_large_is_refused_without_a_trace(
        self, span: Span, tmp_path: Path, form: str
    ) -> None:
        answer = refused(RealDisk(), ExportSpec(form, (span,), rows_max=1, may_be_cut=False), tmp_path)
        assert answer.code is ErrorCode.RECORD_LIST_TOO_LARGE

    def test_that_the_disk_has_no_room_for_is_refused_without_a_trace(
        self, span: Span, tmp_path: Path, form: str
    ) -> None:
        disk = FaultyDisk(RealDisk())
        full = disk.fail("write", path="*/file", error=errno.ENOSPC, after=1)
        answer = refused(disk, ExportSpec(form, (span,)), tmp_path)
        assert full.hits > 0
        assert answer.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert "No space left" in answer.why
