"""What lines say, and what they do not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.line.commands import END, Ack, BadCommand, Command, Produce, Read, SetOffset, parse


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"TOPIC orders customer-7 5", Produce("orders", b"customer-7", 5)),
        (b"TOPIC orders - 0", Produce("orders", None, 0)),
        (b"TOPIC orders %2D 007", Produce("orders", b"-", 7)),
        (b"TOPIC orders  5", Produce("orders", b"", 5)),
        (b"TOPIC orders a%20b%00 5 ", Produce("orders", b"a b\x00", 5)),
        (b"TOPIC orders k\x00\t 5", Produce("orders", b"k\x00\t", 5)),
        (b"ACK", Ack()),
        (b"orders:billing:0", Read("orders", "billing", 0, None)),
        (b"orders:billing:-1", Read("orders", "billing", -1, None)),
        (b"orders:billing:2:41", Read("orders", "billing", 2, 41)),
        (b"orders:a%3Ab%20c:0", Read("orders", "a:b c", 0, None)),
        ("orders:Gr\u00fcn:0".encode(), Read("orders", "Grün", 0, None)),
        (b"ACK:TOPIC:0", Read("ACK", "TOPIC", 0, None)),
        (b"SET_OFFSET:g:0", Read("SET_OFFSET", "g", 0, None)),
        (b"SET_OFFSET orders:billing 7", SetOffset("orders", "billing", 7)),
        (b"SET_OFFSET orders:billing BEGIN", SetOffset("orders", "billing", None)),
        (b"SET_OFFSET orders:billing END", SetOffset("orders", "billing", END)),
        (b"SET_OFFSET orders:a%3Ab 9223372036854775807", SetOffset("orders", "a:b", 2**63 - 1)),
    ],
)
def test_a_line_says_a_command(line: bytes, command: Command) -> None:
    assert parse(line) == command


@pytest.mark.parametrize(
    ("line", "words", "payload_bytes"),
    [
        (b"hello", "is not a command", 0),
        (b"ack", "is not a command", 0),
        (b"ACK 5", "takes no arguments", 0),
        (b"\x00\xff", "is not a command", 0),
        (b"TOPIC", "TOPIC <topic> <key> <length>", None),
        (b"TOPIC orders", "TOPIC <topic> <key> <length>", None),
        (b"TOPIC orders 5", "TOPIC <topic> <key> <length>", None),
        (b"TOPIC orders a key 5", "TOPIC <topic> <key> <length>", None),
        (b"TOPIC orders k five", "the length is ", None),
        (b"TOPIC orders k -5", "the length is ", None),
        (b"TOPIC orders k +5", "the length is ", None),
        (b"TOPIC orders k 5.0", "the length is ", None),
        (b"TOPIC orders k \xd9\xa5", "the length is ", None),
        (b"TOPIC orders k " + b"9" * 5000, "the length is ", None),
        (b"TOPIC orders k 9223372036854775808", "the length is ", None),
        (b"TOPIC orders \xff 5", "%XX", 5),
        (b"TOPIC orders %zz 5", "hexadecimal", 5),
        (b"TOPIC \xff k 5", "is not a topic name", 5),
        ("TOPIC Gr\u00fcn k 5".encode(), "is not a topic name", 5),
        (b"orders:billing", "<topic>:<group>:<partition>", 0),
        (b"orders:a:b:0:1", "<topic>:<group>:<partition>", 0),
        (b"orders:billing:", "the partition is ", 0),
        (b"orders:billing:-2", "the partition is ", 0),
        (b"orders:billing:2147483648", "the partition is ", 0),
        (b"orders:billing:" + b"1" * 5000, "the partition is ", 0),
        (b"orders:billing:0:-1", "the offset is ", 0),
        (b"orders:billing:0:", "the offset is ", 0),
        (b"orders::0", "the group id is empty", 0),
        (b"orders:my group:0", "%20", 0),
        (b"orders:\xff:0", "is not a group id", 0),
        (b"orders:%FF:0", "is not a group id", 0),
        (b"orders:%:0", "is not a group id", 0),
        (b"\xff:g:0", "is not a topic name", 0),
        (b"SET_OFFSET", "SET_OFFSET <topic>:<group>", 0),
        (b"SET_OFFSET orders:billing", "SET_OFFSET <topic>:<group>", 0),
        (b"SET_OFFSET orders 5", "SET_OFFSET <topic>:<group>", 0),
        (b"SET_OFFSET orders:billing:0 5", "SET_OFFSET <topic>:<group>", 0),
        (b"SET_OFFSET orders:billing -1", "the offset is ", 0),
        (b"SET_OFFSET orders:billing MIDDLE", "the offset is ", 0),
        (b"SET_OFFSET orders:billing end", "the offset is ", 0),
        (b"SET_OFFSET orders:billing " + b"0" * 5000, "the offset is ", 0),
    ],
)
def test_what_is_wrong_with_a_line_is_said(line: bytes, words: str, payload_bytes: int | None) -> None:
    with pytest.raises(BadCommand) as refused:
        parse(line)

    assert words in str(refused.value)
    assert refused.value.payload_bytes == payload_bytes
    assert len(str(refused.value)) < 400


@given(
    st.binary(max_size=60)
    | st.builds(
        lambda start, rest: start + rest,
        st.sampled_from([b"TOPIC ", b"SET_OFFSET ", b"ACK", b"orders:g:", b"TOPIC t k "]),
        st.binary(max_size=40),
    )
)
def test_any_line_is_a_command_or_refused(line: bytes) -> None:
    found = parsed(line)

    if isinstance(found, BadCommand):
        assert str(found)
        is_message = line.rstrip(b" ").split(b" ")[0] == b"TOPIC"
        assert is_message or found.payload_bytes == 0, (
            "only after TOPIC there is something that is no command"
        )
    else:
        assert isinstance(found, Produce | Read | SetOffset | Ack)


def parsed(line: bytes) -> Command | BadCommand:
    try:
        return parse(line)
    except BadCommand as bad:
        return bad
