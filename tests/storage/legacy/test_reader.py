"""One partition's files in every state: whole, torn, damaged, out of order."""

import random
from collections.abc import Sequence

import pytest
from tests.storage.legacy.old_files import encode, new_disk, path_in, put, some_records

from penstock.base.ids import TopicPartition
from penstock.records import Record
from penstock.storage.legacy.codec import RECORD_BYTES_MAX
from penstock.storage.legacy.errors import CorruptSource, OffsetsOutOfOrder
from penstock.storage.legacy.layout import FORMATS, find_topics
from penstock.storage.legacy.reader import JUMP_MAX, STEP_BYTES, PartitionReader
from penstock.vfs import File, Vfs

ORDERS = TopicPartition("orders", 1)
NAMES = list(FORMATS)


def encoded(name: str, records: Sequence[Record]) -> list[bytes]:
    return [encode(name, ORDERS, record) for record in records]


def reader_of(name: str, *segments: tuple[int, bytes], skip_corrupt: bool = False) -> PartitionReader:
    disk = new_disk()
    put(disk, {path_in(name, ORDERS, base): data for base, data in segments})
    files = find_topics(disk, "/old", FORMATS[name]).topics["orders"][1]
    return PartitionReader(disk, files, FORMATS[name].codec(ORDERS), skip_corrupt=skip_corrupt)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_read_in_the_order_of_their_base_offsets(name: str) -> None:
    records = some_records(30)
    parts = encoded(name, records)
    reader = reader_of(name, (20, b"".join(parts[20:])), (0, b"".join(parts[:9])), (9, b"".join(parts[9:20])))
    assert list(reader) == records
    assert (reader.start, reader.next_offset, reader.end) == (0, 30, 30)


@pytest.mark.parametrize("name", NAMES)
def test_torn_tail_is_cut_at_every_byte_of_the_last_record(name: str) -> None:
    records = some_records(4)
    *whole, last = encoded(name, records)
    for size in range(len(last)):
        reader = reader_of(name, (0, b"".join(whole) + last[:size]))
        assert list(reader) == records[:-1]
        found = [(cut.path, cut.position, cut.size) for cut in reader.cut]
        assert found == ([(path_in(name, ORDERS), len(b"".join(whole)), size)] if size else [])


@pytest.mark.parametrize("name", NAMES)
def test_a_tail_of_zeros_is_cut(name: str) -> None:
    """What a preallocated file, or a write that never came, leaves."""
    records = some_records(3)
    data = b"".join(encoded(name, records))
    reader = reader_of(name, (0, data + bytes(3 * STEP_BYTES)))
    assert list(reader) == records
    assert [(cut.position, cut.size) for cut in reader.cut] == [(len(data), 3 * STEP_BYTES)]


def test_corrupt_last_record_is_cut_and_its_crc_reported() -> None:
    records = some_records(3)
    parts = encoded("minikafka", records)
    parts[2] = parts[2][:-1] + b"!"
    reader = reader_of("minikafka", (0, b"".join(parts)))
    assert list(reader) == records[:2]
    assert "CRC 0x" in reader.cut[0].problem
    assert "expected 0x" in reader.cut[0].problem


def test_a_torn_minikafka_record_that_holds_records_is_not_looked_into() -> None:
    """Its lengths agree, so it is known for what it is: a payload may well be somebody's log."""
    inner = b"".join(encoded("minikafka", some_records(5, start=10)))
    parts = encoded("minikafka", [*some_records(2), Record(2, 0, b"copy", inner + b"more")])
    reader = reader_of("minikafka", (0, b"".join(parts)[:-2]))
    assert [record.offset for record in reader] == [0, 1]
    assert len(reader.cut) == 1


DAMAGES = {
    "minikafka": [("payload", -1), ("length", 0), ("crc", 4), ("key length", 24)],
    "kafka-jr": [("size", 0), ("topic length", 4), ("topic", 9), ("partition", 17), ("key length", 34)],
}


@pytest.mark.parametrize(("name", "what", "at"), [(n, *each) for n in NAMES for each in DAMAGES[n]])
def test_damage_in_the_middle_stops_before_the_record_and_names_the_place(
    name: str, what: str, at: int
) -> None:
    parts = encoded(name, some_records(9))
    damaged = bytearray(parts[4])
    damaged[at] ^= 0x41
    parts[4] = bytes(damaged)
    reader = reader_of(name, (0, b"".join(parts)))
    records = iter(reader)
    assert [next(records).offset for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(CorruptSource, match="expected") as caught:
        next(records)
    assert (caught.value.path, caught.value.position) == (path_in(name, ORDERS), len(b"".join(parts[:4])))


@pytest.mark.parametrize(("name", "what", "at"), [(n, *each) for n in NAMES for each in DAMAGES[n]])
def test_skipping_goes_on_at_the_next_sound_record(name: str, what: str, at: int) -> None:
    records = some_records(9)
    parts = encoded(name, records)
    damaged = bytearray(parts[4])
    damaged[at] ^= 0x41
    parts[4] = bytes(damaged)
    reader = reader_of(name, (0, b"".join(parts)), skip_corrupt=True)
    assert list(reader) == records[:4] + records[5:]
    assert [(each.position, each.size) for each in reader.skipped] == [
        (len(b"".join(parts[:4])), len(parts[4]))
    ]
    assert reader.cut == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [1, 511, STEP_BYTES - 5, STEP_BYTES, 2 * STEP_BYTES + 17])
def test_skipping_finds_a_record_behind_any_stretch(name: str, size: int) -> None:
    records = some_records(4)
    parts = encoded(name, records)
    junk = random.Random(size).randbytes(size)
    data = b"".join((*parts[:2], junk, *parts[2:]))
    reader = reader_of(name, (0, data), skip_corrupt=True)
    assert list(reader) == records
    assert [each.size for each in reader.skipped] == [size]


@pytest.mark.parametrize("name", NAMES)
def test_a_torn_end_with_a_sound_file_behind_it_is_damage(name: str) -> None:
    records = some_records(6)
    parts = encoded(name, records)
    segments = (0, b"".join(parts[:3])[:-2]), (3, b"".join(parts[3:]))
    with pytest.raises(CorruptSource, match="sound records follow"):
        list(reader_of(name, *segments))
    reader = reader_of(name, *segments, skip_corrupt=True)
    assert list(reader) == records[:2] + records[3:]


@pytest.mark.parametrize("name", NAMES)
def test_files_behind_a_torn_end_that_have_nothing_sound_are_cut_with_it(name: str) -> None:
    parts = encoded(name, some_records(3))
    reader = reader_of(name, (0, b"".join(parts)[:-1]), (3, b"\x01" * 100), (4, b""))
    assert len(list(reader)) == 2
    assert [(cut.path, cut.position) for cut in reader.cut] == [
        (path_in(name, ORDERS, 0), len(parts[0] + parts[1])),
        (path_in(name, ORDERS, 3), 0),
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("offset", [0, 3])
def test_offsets_that_do_not_increase_are_refused_by_both_numbers(name: str, offset: int) -> None:
    records = [*some_records(4), Record(offset, 0, None, b"again")]
    with pytest.raises(OffsetsOutOfOrder, match=f"offset {offset} comes after 3: offsets must increase"):
        list(reader_of(name, (0, b"".join(encoded(name, records)))))


@pytest.mark.parametrize("name", NAMES)
def test_an_offset_that_jumps_too_far_is_refused(name: str) -> None:
    """Even as the last record, which might pass for a torn one: it is sound in itself."""
    records = [*some_records(4), Record(3 + JUMP_MAX + 1, 0, None, b"far")]
    with pytest.raises(OffsetsOutOfOrder, match=f"comes after 3, expected at most {3 + JUMP_MAX}"):
        list(reader_of(name, (0, b"".join(encoded(name, records)))))


@pytest.mark.parametrize("name", NAMES)
def test_skipping_leaves_out_a_record_out_of_order(name: str) -> None:
    records = some_records(6)
    disordered = [*records[:3], records[1], *records[3:]]
    reader = reader_of(name, (0, b"".join(encoded(name, disordered))), skip_corrupt=True)
    assert list(reader) == records
    assert "offset 1 comes after 2" in reader.skipped[0].problem


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_begins_too_far_on_is_refused(name: str) -> None:
    data = encoded(name, some_records(1))[0]
    with pytest.raises(OffsetsOutOfOrder, match="the file begins at offset"):
        list(reader_of(name, (0, data), (JUMP_MAX + 2, b"")))


@pytest.mark.parametrize("name", NAMES)
def test_a_record_below_its_files_base_offset_is_refused(name: str) -> None:
    data = encoded(name, some_records(1, start=4))[0]
    with pytest.raises(OffsetsOutOfOrder, match="offset 4 in a file that begins at 5"):
        list(reader_of(name, (5, data)))


class CountingFile:
    """Notes the largest read."""

    def __init__(self, file: File, disk: "CountingDisk") -> None:
        self._file = file
        self._disk = disk

    def pread(self, length: int, position: int) -> bytes:
        self._disk.largest_read = max(self._disk.largest_read, length)
        return self._file.pread(length, position)

    def close(self) -> None:
        self._file.close()


class CountingDisk:
    def __init__(self, disk: Vfs) -> None:
        self._disk = disk
        self.largest_read = 0

    def open(self, path: str) -> CountingFile:
        return CountingFile(self._disk.open(path), self)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [2**31 - 1, RECORD_BYTES_MAX + 1, RECORD_BYTES_MAX, -1, -(2**31)])
def test_a_length_is_checked_before_memory_is_reserved(name: str, length: int) -> None:
    """Whatever a damaged length says, no read is larger than one step."""
    data = b"".join(encoded(name, some_records(3)))
    disk = new_disk()
    put(disk, {path_in(name, ORDERS): data + length.to_bytes(4, "big", signed=True) + bytes(3 * STEP_BYTES)})
    files = find_topics(disk, "/old", FORMATS[name]).topics["orders"][1]
    counting = CountingDisk(disk)
    reader = PartitionReader(counting, files, FORMATS[name].codec(ORDERS))  # type: ignore[arg-type]
    assert len(list(reader)) == 3
    assert len(reader.cut) == 1
    assert counting.largest_read <= STEP_BYTES + 64


@pytest.mark.parametrize("name", NAMES)
def test_records_larger_than_a_read_and_at_its_borders(name: str) -> None:
    sizes = [10, STEP_BYTES - 200, 150, 3 * STEP_BYTES, 0, STEP_BYTES, 5]
    records = [Record(index, 0, b"k", b"%d" % index * size) for index, size in enumerate(sizes)]
    assert list(reader_of(name, (0, b"".join(encoded(name, records))))) == records
