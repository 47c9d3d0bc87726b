"""`compression.type`: what a log makes of batches that come in another codec than the topic's."""

from dataclasses import replace

import pytest
from tests.storage.world import NOW_MS, P, batches_of, make_batch, open_small

from penstock.base.errors import ErrorCode
from penstock.base.settings import LogSettings
from penstock.records import Codec, InvalidBatch, RecordBatch, build_batch, end_txn_marker
from penstock.records.batch import ATTRIBUTES_AT, seal
from penstock.storage.log import Log
from penstock.storage.rules import Origin
from penstock.vfs import MemoryDisk

NAMES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
PLAIN = LogSettings(max_message_bytes=100_000)


def log_with(**settings: object) -> Log:
    directory = open_small(MemoryDisk(), replace(PLAIN, **settings))  # type: ignore[arg-type]
    return directory.create(P, now_ms=NOW_MS)


def append(log: Log, data: bytes | bytearray, *, epoch: int = 4) -> RecordBatch:
    """Append, and return the batch as it lies in the log."""
    appended = log.append(data, leader_epoch=epoch, now_ms=NOW_MS)
    return RecordBatch.parse(log.read(appended.base_offset, 1))


def text(codec: Codec, count: int = 30, **options: object) -> bytes:
    return build_batch(
        [(b"%d" % i, b"the same text again" * 9, NOW_MS + i, [("h", b"x")]) for i in range(count)],
        codec=codec,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("codec", Codec)
def test_batches_are_stored_in_the_topics_codec(name: str, codec: Codec) -> None:
    log = log_with(compression_type=name)
    append(log, make_batch(3))
    sent = text(codec, producer_id=5, producer_epoch=1, base_sequence=0)
    found = append(log, sent)
    found.check_crc()
    assert found.codec is NAMES[name]
    assert (found.base_offset, found.last_offset, found.leader_epoch, found.count) == (3, 32, 4, 30)
    assert (found.producer_id, found.producer_epoch, found.base_sequence) == (5, 1, 0)
    assert [each._replace(offset=0) for each in found.records()] == [
        each._replace(offset=0) for each in RecordBatch.parse(sent).records()
    ]
    assert [each.offset for each in found.records()] == list(range(3, 33))


@pytest.mark.parametrize("codec", Codec)
def test_a_topic_that_names_no_codec_keeps_the_bytes_that_came(codec: Codec) -> None:
    sent = text(codec)
    assert append(log_with(), sent).payload == RecordBatch.parse(sent).payload


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_that_has_the_codec_already_is_not_touched(name: str) -> None:
    sent = build_batch([(b"k", b"v" * 999, NOW_MS)], codec=NAMES[name], level=None)
    log = log_with(compression_type=name, compression_gzip_level=1, compression_zstd_level=19)
    assert append(log, sent).payload == RecordBatch.parse(sent).payload


def test_levels_are_obeyed() -> None:
    sent = build_batch([(b"%d" % i, b"%d" % (i * i), NOW_MS) for i in range(3000)])
    for name, low, high in (("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -50, 19)):
        sizes = [
            append(log_with(compression_type=name, **{f"compression_{name}_level": level}), sent).size
            for level in (low, high)
        ]
        assert sizes[0] > sizes[1], name


def test_a_change_holds_from_the_next_batch_on() -> None:
    log = log_with()
    assert append(log, text(Codec.NONE)).codec is Codec.NONE
    log.configure(replace(PLAIN, compression_type="lz4"))
    assert append(log, text(Codec.NONE)).codec is Codec.LZ4
    log.configure(PLAIN)
    assert append(log, text(Codec.GZIP)).codec is Codec.GZIP


def test_a_retry_is_known_by_what_the_producer_sent() -> None:
    log = log_with(compression_type="zstd")
    sent = text(Codec.GZIP, producer_id=5, producer_epoch=0, base_sequence=0)
    first = log.append(sent, leader_epoch=0, now_ms=NOW_MS)
    again = log.append(sent, leader_epoch=0, now_ms=NOW_MS)
    assert again.is_duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset) == (0, 29)
    assert log.log_end == 30


def test_the_time_of_the_append_is_stamped_on_the_new_batch() -> None:
    log = log_with(compression_type="gzip", message_timestamp_type="LogAppendTime")
    found = append(log, text(Codec.NONE))
    found.check_crc()
    assert found.codec is Codec.GZIP
    assert {record.timestamp for record in found.records()} == {NOW_MS}


def test_a_batch_that_fits_when_it_comes_must_fit_as_it_is_stored() -> None:
    """UnifiedLog.append checks sizes before, and once more if recompression may have changed them."""
    log = log_with(compression_type="uncompressed", max_message_bytes=2000)
    small = text(Codec.GZIP)
    assert len(small) < 2000
    with pytest.raises(InvalidBatch) as caught:
        append(log, small)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    # Unpacked it would fit, header and all but for a few bytes.
    nearly = build_batch([(None, bytes(1950), NOW_MS)], codec=Codec.GZIP)
    with pytest.raises(InvalidBatch, match="in uncompressed, at most 2000") as caught:
        append(log, nearly)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert append(log, build_batch([(None, bytes(1900), NOW_MS)], codec=Codec.GZIP)).size < 2000


def test_a_batch_that_would_fit_compressed_is_refused_as_it_comes() -> None:
    log = log_with(compression_type="gzip", max_message_bytes=2000)
    with pytest.raises(InvalidBatch) as caught:
        append(log, text(Codec.NONE))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_garbage_is_refused_and_leaves_no_trace() -> None:
    log = log_with(compression_type="lz4")
    data = bytearray(make_batch(2, producer=(5, 0, 0)))
    data[ATTRIBUTES_AT + 1] |= Codec.ZSTD
    seal(data)
    with pytest.raises(InvalidBatch) as caught:
        append(log, data)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert log.log_end == 0
    assert log.producers.by_id == {}
    assert append(log, make_batch(2, producer=(5, 0, 0))).codec is Codec.LZ4


def test_what_brokers_write_stays_as_it_is() -> None:
    log = log_with(compression_type="zstd")
    append(log, make_batch(1, producer=(5, 0, 0), transactional=True))
    marker = bytearray(end_txn_marker(5, 0, True, 1, NOW_MS))
    for data in (marker, make_batch(2)):
        log.append(data, leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    assert [RecordBatch.parse(each).codec for each in batches_of(log)] == [Codec.ZSTD, Codec.NONE, Codec.NONE]
    follower = log_with(compression_type="zstd")
    follower.append_replicated(bytearray(text(Codec.GZIP)), now_ms=NOW_MS)
    assert RecordBatch.parse(follower.read(0, 1)).codec is Codec.GZIP
