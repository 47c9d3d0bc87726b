import subprocess
import sys
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ErrorCode
from penstock.records import Codec, CorruptBatch, DecompressedTooLarge, compress
from penstock.records.compression import XERIAL_BLOCK_BYTES, XERIAL_HEADER, decompress

LIMIT = 1 << 20
PACKED = [codec for codec in Codec if codec]
TEXT = b"a line of text, number %d\n" * 8000


@given(st.sampled_from(Codec), st.binary(max_size=300), st.integers(1, 500))
def test_data_comes_back(codec: Codec, data: bytes, times: int) -> None:
    assert decompress(codec, compress(codec, data * times), LIMIT) == data * times


@pytest.mark.parametrize("codec", Codec)
def test_nothing_comes_back_as_nothing(codec: Codec) -> None:
    assert len(decompress(codec, compress(codec, b""), 0)) == 0


@pytest.mark.parametrize("codec", Codec)
def test_a_limit_of_exactly_the_size_is_enough_and_one_byte_less_is_not(codec: Codec) -> None:
    packed = memoryview(compress(codec, TEXT))
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLarge, match=f"more than the {len(TEXT) - 1} bytes") as caught:
        decompress(codec, packed, len(TEXT) - 1)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, [-1, 0, 1, 6, 9]),
        (Codec.LZ4, [1, 3, 9, 12, 17]),
        (Codec.ZSTD, [-131072, -5, 0, 1, 3, 19, 22]),
    ],
)
def test_levels_are_those_kafka_offers(codec: Codec, levels: list[int]) -> None:
    """KIP-390: compression.gzip.level, compression.lz4.level, compression.zstd.level."""
    for level in levels:
        assert decompress(codec, compress(codec, TEXT, level), LIMIT) == TEXT
    for level in (levels[0] - 1, levels[-1] + 1):
        with pytest.raises(ValueError, match="has levels"):
            compress(codec, TEXT, level)


def test_lz4_level_nine_is_the_fast_one_as_in_kafka() -> None:
    """Lz4BlockOutputStream takes the fast compressor when the level is the default, 9."""
    assert compress(Codec.LZ4, TEXT, 9) == compress(Codec.LZ4, TEXT)


def test_lz4_frames_have_independent_blocks_of_64_kb() -> None:
    """Lz4BlockInputStream, FLG.validate: version 1, and linked blocks are refused."""
    frame = compress(Codec.LZ4, TEXT)
    assert frame[:4] == bytes.fromhex("04224d18")
    flags, block = frame[4], frame[5]
    assert flags >> 6 == 1
    assert flags & 0x20
    assert not flags & 0x08  # no content size
    assert block == 0x40


def test_lz4_frames_with_linked_blocks_and_a_checksum_are_read() -> None:
    frame = bytes(cramjam.lz4.compress(TEXT))
    assert not frame[4] & 0x20
    assert decompress(Codec.LZ4, frame, LIMIT) == TEXT


def test_snappy_is_framed_as_xerial_frames_it() -> None:
    """SnappyOutputStream of snappy-java: a header of 16 bytes, blocks of 32 KB each behind its length."""
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16].hex() == "82534e41505059000000000100000001"
    position, unpacked = 16, []
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        unpacked.append(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert b"".join(unpacked) == TEXT
    assert {len(block) for block in unpacked[:-1]} == {XERIAL_BLOCK_BYTES}


def test_snappy_without_framing_is_read_as_librdkafka_writes_it() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)), LIMIT) == TEXT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_streams_that_follow_one_another_are_read_as_one(codec: Codec) -> None:
    packed = compress(codec, TEXT) + compress(codec, b"and more")
    assert decompress(codec, packed, LIMIT) == TEXT + b"and more"


def test_zstd_is_read_with_and_without_a_content_size() -> None:
    stream = cramjam.zstd.Compressor()
    stream.compress(TEXT)
    without = bytes(stream.finish())
    assert without[4] >> 5 == 0
    assert decompress(Codec.ZSTD, without, LIMIT) == TEXT
    sized = compress(Codec.ZSTD, TEXT)
    assert sized[4] >> 5 != 0
    assert decompress(Codec.ZSTD, sized, LIMIT) == TEXT


@pytest.mark.parametrize("codec", PACKED)
def test_garbage_is_corrupt(codec: Codec) -> None:
    for garbage in (b"", b"not compressed at all, and long enough", b"\xff" * 50):
        with pytest.raises(CorruptBatch, match=f"not {codec.name.lower()} data"):
            decompress(codec, garbage, LIMIT)


def test_a_snappy_block_that_claims_more_than_it_can_hold_is_rejected() -> None:
    claim = b"\xff\xff\xff\x7f" + b"\x00a"  # 256 MB in six bytes
    with pytest.raises(CorruptBatch, match="beyond what they can hold"):
        decompress(Codec.SNAPPY, claim, 1 << 30)


def test_a_snappy_stream_cut_inside_its_framing_is_corrupt() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    for end in (9, 15, 17, 19, 25, len(packed) - 1):
        with pytest.raises(CorruptBatch):
            decompress(Codec.SNAPPY, packed[:end], LIMIT)
    assert len(decompress(Codec.SNAPPY, XERIAL_HEADER, LIMIT)) == 0


# Bombs: small data that unpacks to a gigabyte. Each runs in a process of its own, whose peak
# resident memory tells what was really held. (VmHWM, because ru_maxrss starts from the parent's peak.)

BOMB = """
import sys
from pathlib import Path
from penstock.records import Codec, DecompressedTooLarge
from penstock.records.compression import decompress

def peak_kb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))

codec, limit = Codec[sys.argv[1]], int(sys.argv[2])
bomb = sys.stdin.buffer.read()
before = peak_kb()
try:
    decompress(codec, bomb, limit)
except DecompressedTooLarge:
    print(peak_kb() - before)
"""


def grown_kb(codec: Codec, bomb: bytes, limit: int) -> int:
    command = [sys.executable, "-c", BOMB, codec.name, str(limit)]
    return int(subprocess.run(command, input=bomb, capture_output=True, check=True).stdout)


def zstd_bomb() -> bytes:
    """RFC 8878 by hand: a frame with a window of 128 MB, and 8192 RLE blocks of 128 KB."""
    block = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (128 * 1024 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\x00"
    return bytes.fromhex("28b52ffd00") + bytes([(27 - 10) << 3]) + block * 8191 + last


def zstd_bomb_that_lies() -> bytes:
    """The same, declaring a content of 3 bytes less than 2^62."""
    bomb = zstd_bomb()
    return bomb[:4] + b"\xc0" + bomb[5:6] + ((1 << 62) - 3).to_bytes(8, "little") + bomb[6:]


def gzip_bomb() -> bytes:
    return bytes(cramjam.gzip.compress(bytes(1 << 20), 9)) * 1024


def lz4_bomb() -> bytes:
    frame = compress(Codec.LZ4, bytes(1 << 20))
    return frame[:7] + frame[7:-4] * 1024 + frame[-4:]


def snappy_bomb() -> bytes:
    return XERIAL_HEADER + compress(Codec.SNAPPY, bytes(1 << 20))[16:] * 1024


def snappy_raw_bomb() -> bytes:
    """A gigabyte declared, and 64 bytes of zeros copied over and over."""
    return b"\x80\x80\x80\x80\x04" + b"\xfc" + bytes(64) + b"\xfe\x40\x00" * ((1 << 24) - 1)


BOMBS: list[tuple[Codec, Callable[[], bytes]]] = [
    (Codec.GZIP, gzip_bomb),
    (Codec.SNAPPY, snappy_bomb),
    (Codec.SNAPPY, snappy_raw_bomb),
    (Codec.LZ4, lz4_bomb),
    (Codec.ZSTD, zstd_bomb),
    (Codec.ZSTD, zstd_bomb_that_lies),
]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("codec", "make"), BOMBS, ids=[make.__name__ for _, make in BOMBS])
def test_a_gigabyte_in_a_small_batch_costs_no_more_than_the_limit(
    codec: Codec, make: Callable[[], bytes]
) -> None:
    bomb = make()
    copy_kb = len(bomb) // 1024 if codec is Codec.LZ4 else 0  # which cramjam makes of its input
    assert grown_kb(codec, bomb, 1 << 20) < 4 * 1024 + copy_kb


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_measure_of_memory_sees_what_is_held() -> None:
    assert 64 * 1024 < grown_kb(Codec.GZIP, gzip_bomb(), 64 << 20) < 90 * 1024
