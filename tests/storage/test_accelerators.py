"""The `.log` is the truth: everything beside it may be lost or spoilt, and the log reads the same.

Out of reach without a scan, and not asked for here: a `.txnindex` that was cut between two entries, where
`checkpoint.json` is lost as well (each entry stands alone, and nothing else counts aborts), a `.snapshot`
without its `.sequences` (that is what Kafka leaves: the last batch of each producer is known, not the four
before), and a log start whose file is lost (records hidden by DeleteRecords are seen again).
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.world import (
    NOW_MS,
    SMALL,
    P,
    append,
    check_log,
    files_of,
    make_batch,
    open_small,
    put,
)

from penstock.records import end_txn_marker
from penstock.storage import names
from penstock.storage.log import Log
from penstock.vfs import MemoryDisk

TXN_ENTRY_BYTES = 34


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def fill(log: Log, rng: Random, sequences: dict[int, int]) -> list[bytes]:
    """Batches of all kinds, with timestamps out of order, over several segments."""
    whole = []
    for step in range(14):
        timestamp = NOW_MS + rng.randint(-500, 500) + step * 20
        kind = rng.choice(("plain", "plain", "idempotent", "transaction", "transaction"))
        if kind == "plain":
            whole.append(append(log, make_batch(rng.randint(1, 4), size=120, timestamp=timestamp)))
            continue
        producer_id = rng.randint(1, 3) if kind == "idempotent" else rng.randint(10, 12)
        sequence = sequences.get(producer_id, 0)
        data = make_batch(
            2,
            timestamp=timestamp,
            producer=(producer_id, 0, sequence),
            transactional=kind == "transaction",
        )
        whole.append(append(log, data, leader_epoch=step // 5))
        sequences[producer_id] = sequence + 2
        if kind == "transaction" and rng.random() < 0.7:
            marker = bytearray(end_txn_marker(producer_id, 0, rng.random() < 0.4, 0, timestamp))
            whole.append(append(log, marker, leader_epoch=step // 5, marker=True))
    return whole


def build(seed: int, *, clean: bool) -> tuple[MemoryDisk, list[bytes], list[dict[str, bytes]]]:
    """A directory that was stopped; all its batches; and its files at some earlier times."""
    disk, rng, sequences = MemoryDisk(), Random(seed), {}
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS, topic_id=bytes(16))
    whole, earlier = [], []
    for _ in range(3):
        whole += fill(log, rng, sequences)
        directory.checkpoint()
        earlier.append(files_of(disk))
    whole += fill(log, rng, sequences)
    log.flush()
    if clean:
        directory.close()
    return disk.kill_clone(), whole, earlier


def accelerators(files: dict[str, bytes]) -> list[str]:
    kept = (
        names.LOG,
        "meta.properties",
        "broker.id",
        "lock",
        ".kafka_cleanshutdown",
        "log-start-offset-checkpoint",
    )
    return sorted(path for path in files if not path.endswith(kept))


def flip(data: bytes, rng: Random) -> bytes:
    if not data:
        return b"\x01"
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


SPOILT = {
    "random bytes": lambda data, rng: rng.randbytes(rng.choice((1, len(data), len(data) + 7, 200))),
    "zeros": lambda data, _: bytes(len(data)),
    "more zeros": lambda data, _: data + bytes(40),
    "a prefix": lambda data, rng: data[: rng.randrange(len(data))] if data else b"x",
    "bits flipped": flip,
    "nothing in it": lambda _data, _rng: b"",
    "removed": lambda _data, _rng: None,
}


def is_out_of_reach(path: str, data: bytes, spoilt: bytes | None, *, is_alone: bool = True) -> bool:
    """See the top: what nothing but a scan could notice. `is_alone`: all other files are as they were."""
    if path.endswith(names.SEQUENCES):
        return spoilt is None
    if path.endswith(names.TXN_INDEX) and not is_alone:
        whole_entries = spoilt is not None and len(spoilt) % TXN_ENTRY_BYTES == 0
        return whole_entries and (len(spoilt) < len(data) or spoilt[: len(data)] != data)
    # A digit for a digit: still a checkpoint, of something else.
    is_flipped = spoilt is not None and len(spoilt) == len(data) and data != bytes(len(data))
    return is_flipped and path.endswith(("checkpoint", ".json", "partition.metadata"))


def spoil(disk: MemoryDisk, path: str, data: bytes | None) -> None:
    if data is None:
        disk.remove(path)
    else:
        put(disk, path, data)


@pytest.mark.parametrize(
    "clean", [pytest.param(True, id="clean stop", marks=pytest.mark.long), pytest.param(False, id="kill -9")]
)
@pytest.mark.parametrize("how", SPOILT)
def test_any_one_file_may_be_spoilt(how: str, clean: bool) -> None:
    built, whole, _ = build(5, clean=clean)
    files, rng = files_of(built), Random(9)
    tried = 0
    for path in accelerators(files):
        spoilt = SPOILT[how](files[path], rng)
        if is_out_of_reach(path, files[path], spoilt):
            continue
        disk = built.kill_clone()
        spoil(disk, path, spoilt)
        directory = open_small(disk)
        check_log(directory.logs[P], whole)
        tried += 1
        if tried % 4 == 0:  # what was rebuilt is saved, and holds
            directory.close()
            check_log(open_small(disk).logs[P], whole)
    assert tried > 5


@pytest.mark.parametrize(
    "clean", [pytest.param(True, id="clean stop", marks=pytest.mark.long), pytest.param(False, id="kill -9")]
)
def test_any_one_file_may_be_an_older_version_of_itself(clean: bool) -> None:
    built, whole, earlier = build(6, clean=clean)
    files = files_of(built)
    for path in accelerators(files):
        for before in earlier:
            if path not in before or is_out_of_reach(path, files[path], before[path]):
                continue
            disk = built.kill_clone()
            put(disk, path, before[path])
            check_log(open_small(disk).logs[P], whole)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "kill -9"])
def test_all_of_them_may_be_gone(clean: bool) -> None:
    disk, whole, _ = build(7, clean=clean)
    for path in accelerators(files_of(disk)):
        disk.remove(path)
    check_log(open_small(disk).logs[P], whole)


@pytest.mark.long
@given(seed=st.integers(0, 40), clean=st.booleans(), chance=st.randoms(use_true_random=False))
def test_any_number_of_files_may_be_spoilt_at_once(seed: int, clean: bool, chance: Random) -> None:
    disk, whole, earlier = build(seed, clean=clean)
    files = files_of(disk)
    for path in accelerators(files):
        if chance.random() < 0.5:
            continue
        spoilt = SPOILT[chance.choice([*SPOILT])](files[path], chance)
        older = [before[path] for before in earlier if path in before]
        if older and chance.random() < 0.2:
            spoilt = chance.choice(older)
        if not is_out_of_reach(path, files[path], spoilt, is_alone=False):
            spoil(disk, path, spoilt)
    directory = open_small(disk)
    check_log(directory.logs[P], whole)
    directory.close()
    check_log(open_small(disk).logs[P], whole)


def test_a_time_index_that_lost_its_last_entries_is_noticed() -> None:
    """Nothing behind the batch of the last entry may be younger: a look at headers, mostly the last few."""
    disk, whole, _ = build(8, clean=True)
    for path, data in files_of(disk).items():
        if path.endswith(names.TIME_INDEX):
            for cut in range(0, len(data), 12):
                clone = disk.kill_clone()
                put(clone, path, data[:cut])
                check_log(open_small(clone).logs[P], whole)


def test_a_lost_transaction_index_of_the_active_segment_is_found_again_while_it_grows() -> None:
    disk = MemoryDisk()
    directory = open_small(disk, replace(SMALL, segment_bytes=100_000))
    log = directory.create(P, now_ms=NOW_MS)

    def abort(sequence: int) -> None:
        append(log, make_batch(1, producer=(10, 0, sequence), transactional=True))
        append(log, bytearray(end_txn_marker(10, 0, False, 0, NOW_MS)), marker=True)

    abort(0)
    path = log.segments.active.txn_index.ref.path
    directory.close()
    disk.remove(path)
    directory = open_small(disk, replace(SMALL, segment_bytes=100_000))
    log = directory.logs[P]
    abort(1)
    directory.checkpoint()
    abort(2)
    log.roll(NOW_MS)
    assert [each.first_offset for each in log.aborted(0, log.log_end)] == [0, 2, 4]
    directory.close()
    log = open_small(disk).logs[P]
    assert [each.first_offset for each in log.aborted(0, log.log_end)] == [0, 2, 4]


@pytest.mark.parametrize(
    "clean", [pytest.param(True, id="clean stop", marks=pytest.mark.long), pytest.param(False, id="kill -9")]
)
def test_a_bit_of_a_transaction_index_that_flips_shows_nobody_what_was_aborted(clean: bool) -> None:
    """Its format has no checksum: each field of each entry is a bit that says something else."""
    built, whole, _ = build(5, clean=clean)
    tried = 0
    for path, data in files_of(built).items():
        for at in range(7, len(data) if path.endswith(names.TXN_INDEX) else 0, 5):
            disk = built.kill_clone()
            put(disk, path, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            check_log(open_small(disk).logs[P], whole)
            tried += 1
    assert tried > 20


def test_a_transaction_index_that_kafka_wrote_is_known_from_its_first_reading_on() -> None:
    disk = MemoryDisk()
    directory = open_small(disk)
    log = directory.create(P, now_ms=NOW_MS)
    for sequence in range(2):
        append(log, make_batch(1, producer=(10, 0, sequence), transactional=True))
        append(log, bytearray(end_txn_marker(10, 0, False, 0, NOW_MS)), marker=True)
    log.roll(NOW_MS)
    path = log.segments[0].txn_index.ref.path
    directory.close()
    disk.remove("/data/meta/checkpoint.json")
    directory = open_small(disk)
    assert directory.logs[P].segments.txn_sums == {}
    expected = directory.logs[P].aborted(0, 4)
    directory.close()
    put(disk, path, expected[0].encode())
    assert open_small(disk).logs[P].aborted(0, 4) == expected
