"""Files for readers: made once, one after the other, and gone when nobody asks for them."""

from types import SimpleNamespace
from typing import Any

import pytest
from tests.worlds import StillWorld

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.steps import RunningSteps
from penstock.gateway.exports import store
from penstock.gateway.exports.job import PARQUET, ExportedFile, ExportRefused, ExportSpec, Span
from penstock.gateway.exports.store import (
    BEGINNING_MS,
    KEPT_MS,
    REMEMBERED_MS,
    WAITING_MAX,
    Export,
    Exports,
    FilePart,
    FileRequest,
)
from penstock.gateway.http.protocol.messages import HttpError
from penstock.vfs import MemoryDisk, read_file

ID = b"topic"


def wanted(number: int) -> ExportSpec:
    return ExportSpec(PARQUET, (Span("t", ID, 0, "/logs/t-0", 0, 0, number),))


class Scene:
    """A store, with a child that writes what it is asked for, or refuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = StillWorld(beside_ms=10)
        self.vfs = MemoryDisk()
        self.made: list[int] = []
        self.refusal: ExportRefused | Exception | None = None
        monkeypatch.setattr(store, "make_file", self.make)
        directory = SimpleNamespace(vfs=self.vfs, layout=SimpleNamespace(meta="/meta"))
        context: Any = SimpleNamespace(world=self.world, replicas=SimpleNamespace(directory=directory))
        self.exports = Exports(context)

    def make(self, vfs: Any, asked: ExportSpec, path: str) -> ExportedFile | ExportRefused:
        self.made.append(asked.spans[0].stop)
        if isinstance(self.refusal, Exception):
            raise self.refusal
        if self.refusal is not None:
            return self.refusal
        file = vfs.open(path, write=True, create=True)
        file.pwrite([b"%d" % asked.spans[0].stop], 0)
        file.close()
        return ExportedFile(asked.spans[0].stop, 1, None)

    def ask(
        self,
        number: int,
        reader: str = "r",
        asked: FileRequest = FileRequest(FilePart.WHOLE),  # noqa: B008
    ) -> tuple[list[Any], RunningSteps[Export]]:
        answers: list[Any] = []
        steps = self.exports.get(reader, wanted(number), asked)
        return answers, RunningSteps(steps, answers.append, answers.append)

    def files(self) -> list[str]:
        return [each.name for each in self.vfs.list_dir("/meta/exports")]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


def test_file_is_made_once_for_all_who_ask(scene: Scene) -> None:
    first, second = scene.ask(5)[0], scene.ask(5, "another")[0]
    scene.world.advance(10)
    [export], [same] = first, second
    assert export == same
    assert scene.made == [5]
    assert read_file(scene.vfs, export.path) == b"5"
    [again] = scene.ask(5)[0]
    assert again == export


def test_files_are_made_one_after_the_other(scene: Scene) -> None:
    answers = [scene.ask(number)[0] for number in (1, 2, 3)]
    scene.world.advance(10)
    assert [len(each) for each in answers] == [1, 0, 0]
    scene.world.advance(20)
    assert [len(each) for each in answers] == [1, 1, 1]


def test_too_many_that_wait_are_told_to_come_again(scene: Scene) -> None:
    for number in range(WAITING_MAX + 1):
        scene.ask(number)
    [refused] = scene.ask(99)[0]
    assert isinstance(refused, HttpError)
    assert refused.status == 503
    scene.world.advance(10 * (WAITING_MAX + 1))
    [served], _ = scene.ask(0)
    assert isinstance(served, Export)


def test_what_nobody_waits_for_any_more_is_not_made(scene: Scene) -> None:
    scene.ask(1)
    scene.ask(2)[1].cancel()
    scene.world.advance(100)
    assert scene.made == [1]


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (ExportRefused(ErrorCode.OFFSET_OUT_OF_RANGE, "gone"), ErrorCode.OFFSET_OUT_OF_RANGE),
        (OSError("the child died"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_refusal_is_reported_and_the_next_may_succeed(
    scene: Scene, refusal: ExportRefused | Exception, code: ErrorCode
) -> None:
    scene.refusal = refusal
    answers = scene.ask(1)[0]
    scene.world.advance(10)
    [error] = answers
    assert isinstance(error, KafkaError)
    assert error.code is code
    assert scene.files() == []
    scene.refusal = None
    answers = scene.ask(1)[0]
    scene.world.advance(10)
    assert isinstance(answers[0], Export)


def test_file_goes_when_nobody_asked_for_it_lately_and_stays_while_somebody_does(scene: Scene) -> None:
    for number in (1, 2):
        scene.ask(number)
    scene.world.advance(20)
    scene.world.advance(KEPT_MS - 100)
    scene.ask(2)
    scene.world.advance(KEPT_MS / 2)
    assert scene.files() == ["2.parquet"]
    scene.world.advance(2 * KEPT_MS)
    assert scene.files() == []
    assert scene.world.is_idle


def test_oldest_files_go_where_there_is_too_much(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_BYTES_MAX", 2)
    for number in (1, 2, 3):
        scene.ask(number)
        scene.world.advance(10)
    assert scene.files() == ["2.parquet", "3.parquet"]


MIDDLE = FileRequest(FilePart.MIDDLE)


def test_reader_is_given_the_file_that_it_had(scene: Scene) -> None:
    assert scene.exports.continued("r", MIDDLE, ID) is None
    scene.ask(1)
    scene.world.advance(10)
    scene.ask(2, "another")
    scene.world.advance(10)
    assert scene.exports.continued("r", MIDDLE, ID) == wanted(1)
    assert scene.exports.continued("another", MIDDLE, ID) == wanted(2)
    assert scene.exports.continued("r", MIDDLE, b"another topic of that name") is None
    scene.world.advance(3 * KEPT_MS)
    assert scene.exports.continued("r", MIDDLE, ID) is None


def test_part_of_a_file_that_is_gone_is_not_made_from_another(scene: Scene) -> None:
    scene.ask(1)
    scene.world.advance(3 * KEPT_MS)
    [refused] = scene.ask(2, asked=MIDDLE)[0]
    assert isinstance(refused, HttpError)
    assert (refused.status, refused.code) == (410, "file_gone")
    assert scene.made == [1]
    # It has been told: what it asks for now is another file.
    again = scene.ask(2, asked=MIDDLE)[0]
    scene.world.advance(10)
    assert isinstance(again[0], Export)


def test_part_of_a_file_that_is_gone_is_made_again_if_nothing_has_changed(scene: Scene) -> None:
    scene.ask(1)
    scene.world.advance(3 * KEPT_MS)
    again = scene.ask(1, asked=MIDDLE)[0]
    scene.world.advance(10)
    assert isinstance(again[0], Export)
    assert scene.made == [1, 1]


def test_read_is_forgotten_after_long_silence(scene: Scene) -> None:
    scene.ask(1)
    scene.world.advance(REMEMBERED_MS + 10)
    later = scene.ask(2, asked=MIDDLE)[0]
    scene.world.advance(10)
    assert isinstance(later[0], Export)


@pytest.mark.parametrize("asked", [FileRequest(FilePart.SIZE), FileRequest(FilePart.END, 100)])
def test_size_and_more_of_the_end_belong_to_a_read_that_has_just_begun(
    scene: Scene, asked: FileRequest
) -> None:
    scene.ask(1, asked=FileRequest(FilePart.END, 8))
    scene.world.advance(10)
    assert scene.exports.continued("r", asked, ID) == wanted(1)
    scene.world.advance(BEGINNING_MS)
    assert scene.exports.continued("r", asked, ID) is None
    assert scene.exports.continued("r", FileRequest(FilePart.START), ID) == wanted(1)


def test_reads_that_are_remembered_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "READS_MAX", 2)
    for reader in ("a", "b", "c"):
        scene.ask(1, reader)
        scene.world.advance(10)
    assert [scene.exports.continued(each, MIDDLE, ID) is None for each in "abc"] == [True, False, False]


def test_nothing_is_left_behind_by_this_life_or_by_the_last(scene: Scene) -> None:
    scene.vfs.make_dirs("/meta/exports")
    scene.vfs.open("/meta/exports/9.parquet", write=True, create=True).close()
    scene.ask(1)
    scene.world.advance(10)
    assert scene.files() == ["1.parquet"]
    scene.exports.stop()
    assert scene.files() == []
    assert scene.world.is_idle
