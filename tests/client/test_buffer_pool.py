"""Buffers that are received into again, and only when nobody looks at them any more."""

from penstock.client.buffer_pool import COUNT_MAX, SPARE_BYTES_MAX, SPARE_BYTES_MIN, STEP_BYTES, BufferPool

SIZE = SPARE_BYTES_MIN


def test_a_buffer_is_reused_once_no_view_of_it_exists() -> None:
    spares = BufferPool()
    buffer = bytearray(b"x" * SIZE)
    seen = memoryview(buffer)[2:4]
    spares.keep(buffer)
    assert spares.take_or_make(1) is not buffer
    seen.release()
    assert spares.take_or_make(1) is buffer
    assert buffer == b"x" * SIZE
    assert spares.take_or_make(1) is not buffer, "it is not there twice"


def test_one_that_is_too_small_stays() -> None:
    spares = BufferPool()
    small, large = bytearray(SIZE), bytearray(2 * SIZE)
    spares.keep(small)
    spares.keep(large)
    assert spares.take_or_make(SIZE + 1) is large
    assert len(spares.take_or_make(SIZE + 1)) == SIZE + 1
    assert spares.take_or_make(SIZE) is small


def test_few_are_kept_and_none_that_is_very_small_or_very_large() -> None:
    spares = BufferPool()
    buffers = [bytearray(SIZE) for _ in range(COUNT_MAX + 3)]
    for each in buffers:
        spares.keep(each)
    spares.keep(bytearray(SPARE_BYTES_MAX + 1))
    spares.keep(bytearray(SPARE_BYTES_MIN - 1))
    taken = [spares.take_or_make(1) for _ in range(COUNT_MAX)]
    assert [id(each) for each in taken] == [id(each) for each in buffers[-COUNT_MAX:]]
    assert len(spares.take_or_make(1)) == 1


def test_a_large_one_has_some_more_room_than_it_must() -> None:
    assert len(BufferPool().take_or_make(3 * STEP_BYTES + 1)) == 4 * STEP_BYTES
    assert len(BufferPool().take_or_make(3 * STEP_BYTES)) == 3 * STEP_BYTES
