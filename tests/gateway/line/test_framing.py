"""Lines and payloads are the same, however the bytes arrive."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.line.framing import LINE_BYTES_MAX, Framer, LineTooLong


class Reader:
    """Reads `<count>` lines as payloads, `s<count>` lines as payloads to skip, and others as they are."""

    def __init__(self) -> None:
        self.framer = Framer()
        self.found: list[tuple[str, bytes]] = []
        self.wanted: int | None = None

    def feed(self, data: bytes) -> None:
        buffer = bytearray(data)
        with memoryview(buffer) as view:
            self.framer.feed(view)
        buffer[:] = b"\xee" * len(buffer)
        while True:
            if self.wanted is not None:
                taken = self.framer.take(self.wanted)
                if taken is None:
                    return
                self.found.append(("payload", taken))
                self.wanted = None
                continue
            line = self.framer.line()
            if line is None:
                return
            if line[:1] == b"s" and line[1:].isdigit():
                self.framer.skip(int(line[1:]))
            elif line.isdigit():
                self.wanted = int(line)
            else:
                self.found.append(("line", line))


def fed(portions: Iterable[bytes]) -> list[tuple[str, bytes]]:
    reader = Reader()
    for each in portions:
        reader.feed(each)
    return reader.found


words = st.binary(max_size=12).filter(lambda each: not set(each) & set(b"\r\n") and not each[-1:].isdigit())
pieces = st.lists(
    st.tuples(st.just("line"), words, st.sampled_from([b"\n", b"\r\n"]))
    | st.tuples(st.just("payload"), st.binary(max_size=30), st.just(b"\n"))
    | st.tuples(st.just("skipped"), st.binary(max_size=30), st.just(b"\r\n")),
    max_size=8,
)


def written(each: tuple[str, bytes, bytes]) -> bytes:
    kind, data, end = each
    if kind == "line":
        return data + end
    return (b"s" if kind == "skipped" else b"") + b"%d" % len(data) + end + data


@given(pieces, st.binary(max_size=20), st.data())
def test_pieces_are_cut_the_same_whole_byte_by_byte_and_with_a_tail(
    pieces: list[tuple[str, bytes, bytes]], tail: bytes, data: st.DataObject
) -> None:
    text = b"".join(map(written, pieces))
    expected = [(kind, each) for kind, each, _ in pieces if kind != "skipped"]
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
    portions = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    assert fed([text]) == expected
    assert fed(text[at : at + 1] for at in range(len(text))) == expected
    assert fed(portions) == expected
    assert fed([text + tail])[: len(expected)] == expected


def test_a_line_may_be_as_long_as_the_bound_and_not_longer() -> None:
    longest = b"x" * (LINE_BYTES_MAX - 1)

    assert fed([longest, b"\n"]) == [("line", longest)]
    with pytest.raises(LineTooLong):
        fed([longest + b"x", b"\n"])


def test_a_line_without_end_is_refused_before_it_is_kept() -> None:
    reader = Reader()

    reader.feed(b"x" * (LINE_BYTES_MAX // 2))

    with pytest.raises(LineTooLong):
        reader.feed(b"x" * (LINE_BYTES_MAX // 2))


def test_a_long_line_behind_a_short_one_has_the_same_bound() -> None:
    with pytest.raises(LineTooLong):
        fed([b"short\n" + b"x" * LINE_BYTES_MAX + b"\n"])


def test_a_length_alone_buys_no_memory() -> None:
    reader = Reader()

    reader.feed(b"1000000000\nfirst bytes")

    gathered = reader.framer._gathered
    assert gathered is not None
    assert len(gathered) == len(b"first bytes")


def test_nothing_is_kept_of_what_was_read() -> None:
    reader = Reader()

    reader.feed(b"line\n" * 10_000 + b"tail")

    assert reader.framer._data == b"tail"


def test_skipped_bytes_are_not_kept() -> None:
    reader = Reader()

    reader.feed(b"s100000000\n")
    for _ in range(100):
        reader.feed(b"\n" * 1_000_000)
    reader.feed(b"next\n")

    assert reader.found == [("line", b"next")]
