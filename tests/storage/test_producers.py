"""Idempotent and transactional producers: duplicates, gaps, epochs, transactions, and taking it all back."""

import pytest
from tests.storage.world import NOW_MS, files_of, make_batch, put

from penstock.base.errors import ErrorCode, KafkaError
from penstock.records import RecordBatch, end_txn_marker
from penstock.records.batch import patch
from penstock.storage.errors import BadCheckpoint
from penstock.storage.producers import (
    BATCHES_KEPT,
    IN_FLIGHT_MAX,
    SEQUENCE_MAX,
    OutOfOrderSequence,
    Producers,
    StaleProducerEpoch,
)
from penstock.storage.snapshots import (
    decode_snapshot,
    encode_snapshot,
    load_snapshot,
    remove_snapshots,
    remove_snapshots_above,
    write_snapshot,
)
from penstock.vfs import MemoryDisk

ID = 7


def batch(
    sequence: int, *, offset: int = 0, count: int = 1, epoch: int = 0, txn: bool = False
) -> RecordBatch:
    data = make_batch(count, producer=(ID, epoch, sequence), transactional=txn)
    patch(data, offset, 0)
    return RecordBatch.parse(data)


def marker(offset: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> RecordBatch:
    return RecordBatch.parse(end_txn_marker(ID, epoch, commit, coordinator_epoch, NOW_MS, offset))


def after(*batches: RecordBatch) -> Producers:
    producers = Producers()
    for each in batches:
        producers.apply(each)
    return producers


def test_the_next_sequence_is_accepted_and_a_gap_is_not() -> None:
    producers = after(batch(0, count=3))
    assert producers.check(batch(3)) is None
    for sequence in (4, 1, 2):
        with pytest.raises(OutOfOrderSequence, match="expected 3") as caught:
            producers.check(batch(sequence))
        assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere() -> None:
    """Its records may all be gone by retention."""
    assert Producers().check(batch(500)) is None


def test_a_retry_of_any_of_the_batches_that_are_kept_is_recognised() -> None:
    count = BATCHES_KEPT + 2
    producers = after(*(batch(n, offset=10 * n) for n in range(count)))
    for n in range(2, count):
        kept = producers.check(batch(n))
        assert kept is not None
        assert (kept.first_offset, kept.last_offset) == (10 * n, 10 * n)
    with pytest.raises(OutOfOrderSequence):
        producers.check(batch(1))


def test_the_oldest_batch_without_an_answer_is_recognised_whatever_was_in_flight_behind_it() -> None:
    """It times out, and the four behind it do not; it is sent again with four new ones, and the connection breaks."""
    producers = after(*(batch(n, offset=n) for n in range(IN_FLIGHT_MAX)))
    assert producers.check(batch(0)) is not None
    for n in range(IN_FLIGHT_MAX, 2 * IN_FLIGHT_MAX - 1):
        assert producers.check(batch(n)) is None
        producers.apply(batch(n, offset=n))
    for n in (0, *range(IN_FLIGHT_MAX, 2 * IN_FLIGHT_MAX - 1)):
        kept = producers.check(batch(n))
        assert kept is not None
        assert kept.first_offset == n


def test_a_batch_that_only_overlaps_is_no_retry() -> None:
    with pytest.raises(OutOfOrderSequence):
        after(batch(0, count=3)).check(batch(0, count=2))


def test_a_new_epoch_begins_with_sequence_0_and_fences_the_old_one() -> None:
    producers = after(batch(0), batch(1, offset=1))
    with pytest.raises(OutOfOrderSequence, match="begins epoch 1"):
        producers.check(batch(2, epoch=1))
    assert producers.check(batch(0, epoch=1)) is None
    producers.apply(batch(0, offset=2, epoch=1))
    with pytest.raises(StaleProducerEpoch) as caught:
        producers.check(batch(2, epoch=0))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert len(producers.by_id[ID].batches) == 1, "the old epoch's batches are no longer retried"


def test_sequences_wrap_at_the_largest_int32() -> None:
    producers = after(batch(SEQUENCE_MAX))
    assert producers.check(batch(0)) is None
    producers = after(batch(SEQUENCE_MAX - 1, count=4))
    assert producers.by_id[ID].last_sequence == 1
    assert producers.check(batch(2)) is None
    assert producers.check(batch(SEQUENCE_MAX - 1, count=4)) is not None


def test_an_open_transaction_holds_back_readers_until_its_marker() -> None:
    producers = after(batch(0, offset=5, txn=True), batch(1, offset=6, txn=True))
    assert producers.first_undecided == 5
    assert producers.apply(marker(7, commit=True)) is None
    assert producers.first_undecided is None


def test_an_abort_names_the_transaction_and_what_was_stable_then() -> None:
    producers = after(batch(0, offset=5, txn=True))
    other = make_batch(1, producer=(8, 0, 0), transactional=True)
    patch(other, 6, 0)
    producers.apply(RecordBatch.parse(other))
    aborted = producers.apply(marker(7, commit=False))
    assert aborted == (ID, 5, 7, 6)
    assert producers.first_undecided == 6


def test_a_marker_without_a_transaction_leaves_nothing_to_skip() -> None:
    assert Producers().apply(marker(3, commit=False)) is None


def test_a_marker_of_a_new_epoch_lets_the_producer_begin_at_0() -> None:
    producers = after(batch(0, txn=True), marker(1, commit=False, epoch=1))
    assert producers.check(batch(0, epoch=1)) is None
    with pytest.raises(StaleProducerEpoch):
        producers.check_marker(marker(2, commit=True, epoch=0))


def test_a_deposed_coordinator_is_fenced() -> None:
    producers = after(batch(0, txn=True), marker(1, commit=True, coordinator_epoch=4))
    with pytest.raises(KafkaError) as caught:
        producers.check_marker(marker(2, commit=True, coordinator_epoch=3))
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_plain_batch_inside_an_open_transaction_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        after(batch(0, txn=True)).check(batch(1))
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    "batches",
    [
        [batch(0, txn=True)],
        [batch(0), batch(1, offset=1, txn=True)],
        [batch(0, txn=True), marker(1, commit=False)],
        [batch(0, txn=True), marker(1, commit=True, epoch=1), batch(0, offset=2, epoch=1, txn=True)],
    ],
    ids=["first", "transaction", "marker", "new epoch"],
)
def test_what_is_undone_was_never_there(batches: list[RecordBatch]) -> None:
    for applied in range(len(batches) + 1):
        producers = after(*batches[:applied])
        undo = []
        for each in batches[applied:]:
            undo.append((ID, producers.by_id.get(ID)))
            producers.apply(each)
        for each in reversed(undo):
            producers.undo(*each)
        expected = after(*batches[:applied])
        assert producers.by_id == expected.by_id
        assert producers.ongoing == expected.ongoing


def test_idle_producers_are_forgotten_unless_their_transaction_is_open() -> None:
    producers = after(batch(0))
    producers.expire(NOW_MS + 999, 1000)
    assert ID in producers.by_id
    producers.expire(NOW_MS + 1000, 1000)
    assert ID not in producers.by_id
    producers = after(batch(0, txn=True))
    producers.expire(NOW_MS + 10**9, 1000)
    assert ID in producers.by_id


# -- snapshots ----------------------------------------------------------------------------------------


def many() -> Producers:
    producers = after(*(batch(n, offset=n) for n in range(8)), batch(8, offset=8, txn=True))
    producers.apply(RecordBatch.parse(end_txn_marker(9, 3, True, 2, NOW_MS, 9)))
    return producers


def test_a_snapshot_brings_everything_back_the_kept_batches_included() -> None:
    disk, producers = MemoryDisk(), many()
    write_snapshot(disk, "/", producers)
    loaded = Producers()
    assert load_snapshot(disk, "/", producers.end_offset, loaded)
    assert loaded == producers
    assert loaded.ongoing == producers.ongoing


def test_a_snapshot_in_which_kafkas_format_holds_the_whole_state_has_no_companion() -> None:
    disk = MemoryDisk()
    producers = many()
    producers.end_offset = 1
    write_snapshot(disk, "/", producers)
    assert sorted(files_of(disk, "")) == [f"/{1:020d}.sequences", f"/{1:020d}.snapshot"]
    producers = after(batch(0))
    producers.end_offset = 1
    write_snapshot(disk, "/", producers)
    assert sorted(files_of(disk, "")) == [f"/{1:020d}.snapshot"], "that of other records is gone"
    loaded = Producers()
    assert load_snapshot(disk, "/", 1, loaded)
    assert loaded == producers


def test_kafkas_own_snapshot_has_the_last_batch_of_each_producer() -> None:
    producers = many()
    decoded = decode_snapshot(encode_snapshot(producers.by_id), "x")
    for producer_id, expected in producers.by_id.items():
        found = decoded[producer_id]
        assert found.batches[-1:] == expected.batches[-1:]
        assert found._replace(batches=()) == expected._replace(batches=())


@pytest.mark.parametrize("kind", [".snapshot", ".sequences"])
def test_a_damaged_file_is_as_good_as_none(kind: str) -> None:
    disk, producers = MemoryDisk(), many()
    write_snapshot(disk, "/", producers)
    (path,) = (each for each in files_of(disk, "") if each.endswith(kind))
    data = files_of(disk, "")[path]
    for spoilt in (b"", data[:-1], bytes([data[0] ^ 1]) + data[1:], data[:-3] + b"xyz", data + b"x"):
        put(disk, path, spoilt)
        assert not load_snapshot(disk, "/", producers.end_offset, Producers())


def test_a_snapshot_says_what_is_wrong_with_it() -> None:
    with pytest.raises(BadCheckpoint, match="file-path: 3 bytes"):
        decode_snapshot(b"abc", "file-path")


def test_snapshots_are_listed_and_removed_by_offset() -> None:
    disk, producers = MemoryDisk(), many()
    for offset in (5, 10, 20):
        producers.end_offset = offset
        write_snapshot(disk, "/", producers)
    assert snapshot_offsets(disk) == [5, 10, 20]
    remove_snapshots(disk, "/", [5, 7])
    assert snapshot_offsets(disk) == [10, 20]
    remove_snapshots_above(disk, "/", 10)
    assert snapshot_offsets(disk) == [10]
    assert len(files_of(disk, "")) == 2


def snapshot_offsets(disk: MemoryDisk) -> list[int]:
    return [int(entry.name[:20]) for entry in disk.list_dir("/") if entry.name.endswith(".snapshot")]
