"""Key files: what was written is found, nothing else is, and damage is noticed."""

from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.idempotency import keyfile
from penstock.gateway.idempotency.keyfile import (
    ENTRIES_A_PAGE,
    ENTRY_BYTES,
    PAGE_BYTES,
    PLACE,
    CorruptKeyFile,
    Filters,
    KeyFile,
    KeyPlace,
    Source,
    digest_of,
    merge_key_files,
    read_entries,
    read_written,
    write_key_file,
)
from penstock.gateway.idempotency.topic_files import (
    FileNote,
    Manifest,
    MergePlan,
    create_manifest,
    merge_files,
    plan_merge,
    save_key_file,
)
from penstock.server.child import Child
from penstock.storage.open_files import OpenFiles
from penstock.vfs import MemoryDisk, RealDisk, Vfs

PATH = "/1.keys"

Keys = dict[bytes, KeyPlace]


def some_keys(count: int, seed: int = 0) -> Keys:
    rng = Random(seed)
    return {
        digest_of(b"%d-%d" % (seed, n)): KeyPlace(rng.randrange(5), rng.randrange(1 << 40), n)
        for n in range(count)
    }


def written(keys: Keys, disk: Vfs | None = None, path: str = PATH) -> tuple[Vfs, KeyFile]:
    disk = disk or MemoryDisk()
    entries = sorted(digest + PLACE.pack(*place) for digest, place in keys.items())
    write_key_file(disk, path, entries, len(entries))
    return disk, KeyFile(path, Filters(OpenFiles(disk)))


@pytest.mark.parametrize("count", [0, 1, ENTRIES_A_PAGE - 1, ENTRIES_A_PAGE, ENTRIES_A_PAGE + 1, 3000])
def test_every_key_is_found_and_no_other(count: int) -> None:
    keys = some_keys(count)
    disk, file = written(keys)
    assert {digest: file.find(digest) for digest in keys} == keys
    assert not any(file.find(digest) for digest in some_keys(500, seed=1))
    times = (0, count - 1) if count else (2**63 - 1, -1)
    assert read_written(disk, PATH) == (count, *times)


def test_keys_that_begin_alike_are_distinguished() -> None:
    """The fences have eight bytes of a digest: neighbours that share them may lie on both sides of one."""
    keys = {
        b"\x7f" * 8 + number.to_bytes(8, "big"): KeyPlace(0, number, 0)
        for number in range(5 * ENTRIES_A_PAGE)
    }
    _, file = written(keys)
    assert {digest: file.find(digest) for digest in keys} == keys
    assert file.find(b"\x7f" * 8 + b"\xff" * 8) is None
    assert file.find(b"\0" * 16) is None


def test_fences_stay_few_in_a_large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyfile, "FENCES_MAX", 3)
    keys = some_keys(20 * ENTRIES_A_PAGE)
    _, file = written(keys)
    assert {digest: file.find(digest) for digest in keys} == keys
    assert not any(file.find(digest) for digest in some_keys(500, seed=1))


def test_filters_stay_within_their_bounds() -> None:
    disk = MemoryDisk()
    filters = Filters(OpenFiles(disk), bytes_max=4000)
    every: list[tuple[KeyFile, Keys]] = []
    for number in range(5):
        keys = some_keys(1000, seed=number)
        written(keys, disk, f"/{number}.keys")
        every.append((KeyFile(f"/{number}.keys", filters), keys))
    for _ in range(2):
        for file, keys in every:
            assert all(file.find(digest) for digest in list(keys)[:10])
    assert filters._bytes <= 4000


def test_a_key_that_is_not_there_costs_no_read() -> None:
    disk, file = written(some_keys(2000))
    file.find(next(iter(some_keys(1))))  # which has the filter read
    reads = 0

    class Counting(OpenFiles):
        def open(self, *args, **more):  # type: ignore[no-untyped-def]
            nonlocal reads
            reads += 1
            return super().open(*args, **more)

    file._filters.files = Counting(disk)
    for digest in some_keys(1000, seed=9):
        file.find(digest)
    assert reads < 40, "one in a hundred is let through"


@given(at=st.integers(0, 5 * PAGE_BYTES), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed_or_does_not_matter(at: int, bit: int) -> None:
    keys = some_keys(3 * ENTRIES_A_PAGE)
    disk, file = written(keys)
    raw = disk.open(PATH, write=True)
    at %= raw.size()
    raw.pwrite([bytes([raw.pread(1, at)[0] ^ 1 << bit])], at)
    for digest, place in keys.items():
        with suppress(CorruptKeyFile):
            assert file.find(digest) == place


@pytest.mark.parametrize("size", [0, 1, PAGE_BYTES - 1, PAGE_BYTES, 2 * PAGE_BYTES, 4 * PAGE_BYTES - 1])
def test_a_file_that_is_cut_short_is_noticed(size: int) -> None:
    keys = some_keys(3 * ENTRIES_A_PAGE)
    disk, file = written(keys)
    disk.open(PATH, write=True).truncate(size)
    with pytest.raises(CorruptKeyFile, match=PATH):
        any(file.find(digest) is None for digest in keys)


# -- merging -------------------------------------------------------------------------------------------


def entry(key: int, offset: int, timestamp: int, partition: int = 0) -> bytes:
    return digest_of(b"%d" % key) + PLACE.pack(partition, offset, timestamp)


@given(
    files=st.lists(
        st.dictionaries(st.integers(0, 30), st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=20),
        min_size=1,
        max_size=4,
    ),
    expired_ms=st.integers(0, 20),
    cut=st.integers(0, 60),
)
def test_a_merged_file_has_the_latest_of_what_still_counts(
    files: list[dict[int, tuple[int, int]]], expired_ms: int, cut: int
) -> None:
    disk = MemoryDisk()
    model: dict[int, tuple[int, int]] = {}
    sources = []
    for number, keys in enumerate(files):
        path = f"/{number}.keys"
        write_key_file(disk, path, sorted(entry(key, *place) for key, place in keys.items()), len(keys))
        sources.append(Source(path, {"0": cut}))
        model |= {
            key: (offset, at) for key, (offset, at) in keys.items() if at >= expired_ms and offset < cut
        }
    merge_key_files(disk, sources, "/merged.keys", sum(map(len, files)), expired_ms)
    found = list(read_entries(disk.open("/merged.keys")))
    assert found == sorted(entry(key, *place) for key, place in model.items())
    assert all(len(each) == ENTRY_BYTES for each in found)


@pytest.mark.long
def test_files_are_merged_in_a_process_of_their_own(tmp_path: Path) -> None:
    disk, directory = RealDisk(), str(tmp_path / "keys")
    manifest = create_manifest(disk, directory, Manifest("orders"))
    model: Keys = {}
    for seed in range(3):
        keys = some_keys(400, seed)
        model |= keys
        packed = {digest: PLACE.pack(*place) for digest, place in keys.items()}
        manifest = save_key_file(disk, directory, manifest, packed, {"0": seed})
    plan = MergePlan(0, 3, 10, 1200)
    merged: Manifest = Child(partial(merge_files, disk, directory, manifest, plan)).run()
    [one] = merged.files
    assert merged.covered == {"0": 2}
    assert (one.entries, one.oldest_ms) == (1170, 10)
    file = KeyFile(f"{directory}/{one.name}", Filters(OpenFiles(disk)))
    for digest, place in model.items():
        assert file.find(digest) == (place if place.timestamp >= 10 else None)

    raw = disk.open(f"{directory}/{one.name}", write=True)
    raw.pwrite([b"\xff"], PAGE_BYTES + 100)
    plan = MergePlan(0, 1, 10, 1200)
    with pytest.raises(CorruptKeyFile, match=one.name) as caught:
        Child(partial(merge_files, disk, directory, merged, plan)).run()
    assert caught.value.path == f"{directory}/{one.name}"


def note(entries: int, oldest_ms: int = 100, newest_ms: int = 100) -> FileNote:
    return FileNote("x", entries, oldest_ms, newest_ms)


def test_files_of_like_size_are_merged_and_large_ones_left_alone() -> None:
    def plan(*entries: int) -> tuple[int, int] | None:
        found = plan_merge([note(each) for each in entries], expired_ms=0)
        return None if found is None else (found.first, found.last)

    assert plan() is None
    assert plan(10, 10, 10) is None
    assert plan(10, 10, 10, 10) == (0, 4)
    assert plan(1000, 10, 10, 10, 10) == (1, 5)
    assert plan(70, 10, 10, 10, 10) == (0, 5), "which is no more than twice what is written anyhow"


def test_the_number_of_files_stays_small_and_no_key_is_written_often() -> None:
    files: list[int] = []
    rewritten = 0
    for _ in range(2000):
        files.append(10)
        found = plan_merge([note(each) for each in files], expired_ms=0)
        if found is not None:
            files[found.first : found.last] = [found.entries]
            rewritten += found.entries
    assert len(files) <= 12
    assert rewritten <= 2000 * 10 * 8


def test_what_is_past_its_time_goes() -> None:
    plan = plan_merge([note(5, 1, 40), note(5, 60, 100)], expired_ms=50)
    assert plan is not None
    assert plan.first == plan.last, "a whole file needs no writing"
    plan = plan_merge([note(5, 1, 60), note(5, 60, 100)], expired_ms=50)
    assert plan is not None
    assert (plan.first, plan.last) == (0, 1), "most of it is"
    assert plan_merge([note(5, 40, 90), note(5, 60, 100)], expired_ms=50) is None
