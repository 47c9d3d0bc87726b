"""Many clients of many groups, reconnects, resets and crashes, against a model that knows what each is to be told."""

import re
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.gateway.line.conversing import StillLine
from tests.nodes import StillNode

PARTITIONS = 2
GROUPS = ["billing", "a b:c"]
WORDS = {"billing": b"billing", "a b:c": b"a%20b%3Ac"}
CLIENTS = range(2)


class Reader:
    """A client, and what the model knows of it."""

    def __init__(self, node: StillNode) -> None:
        self.line = StillLine(node)
        self.group: str | None = None
        """Whose messages it reads; None for none."""
        self.positions: dict[int, int] = {}
        self.waits: tuple[int, int] | None = None
        """Partition and offset of the message that it has not acknowledged."""


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = StillNode()
        self.node.create_topic("orders", PARTITIONS)
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.committed: dict[str, dict[int, int]] = {group: {} for group in GROUPS}
        self.readers = [Reader(self.node) for _ in CLIENTS]
        self.count = 0

    # -- what is said ------------------------------------------------------------------------------------

    def hear(self, reader: Reader, ms: float = 200) -> list[bytes]:
        """What a client was told, without its messages, which are compared with the model. A stream says what there
        is at once, or when its second is over."""
        said = reader.line.heard(ms)
        words: list[bytes] = []
        while said:
            line, said = re.match(rb"([^\n]*)\n(.*)", said, re.DOTALL).groups()  # type: ignore[union-attr]
            word, *rest = line.split(b" ")
            if word == b"+MSG":
                offset, length, partition = map(int, rest[:3])
                value, said = said[:length], said[length:]
                assert reader.waits is None, "one message at a time"
                assert offset == reader.positions[partition], "in order, and none left out"
                assert value == self.written[partition][offset]
                reader.waits = (partition, offset)
            elif word == b"+EMPTY":
                assert reader.waits is None
            else:
                words.append(word)
        return words

    # -- what happens ------------------------------------------------------------------------------------

    @rule(
        client=st.sampled_from(CLIENTS),
        keys=st.lists(st.sampled_from([b"a", b"b", b"-"]), min_size=1, max_size=5),
    )
    def produce(self, client: int, keys: list[bytes]) -> None:
        reader = self.readers[client]
        replicas = self.node.node.context.replicas
        for key in keys:
            ends = [replicas.find("orders", number).log.log_end for number in range(PARTITIONS)]
            value = b"%d" % self.count
            self.count += 1
            reader.line.say(b"TOPIC orders %b %d\n%b" % (key, len(value), value))
            self.node.world.advance(0)
            [grown] = [
                number
                for number in range(PARTITIONS)
                if replicas.find("orders", number).log.log_end > ends[number]
            ]
            self.written[grown].append(value)
        assert self.hear(reader) == [b"+OFFSET"] * len(keys)

    @rule(client=st.sampled_from(CLIENTS), group=st.sampled_from(GROUPS), acks=st.integers(0, 4))
    def read(self, client: int, group: str, acks: int) -> None:
        reader = self.readers[client]
        self.hear(reader)
        reader.group, reader.waits = group, None
        reader.positions = {number: self.committed[group].get(number, 0) for number in range(PARTITIONS)}
        reader.line.say(b"orders:%b:-1\n" % WORDS[group])
        assert self.hear(reader, 1100) == []
        for _ in range(acks):
            self.acknowledge(client)

    def acknowledge(self, client: int) -> None:
        reader = self.readers[client]
        self.hear(reader)
        waits, group = reader.waits, reader.group
        if waits is None or group is None:
            assert reader.line.ask(b"ACK\n", ms=0.5) == b"-ERR there is no message to acknowledge\n"
            return
        partition, offset = waits
        reader.waits = None
        reader.positions[partition] = offset + 1
        self.committed[group][partition] = offset + 1
        reader.line.say(b"ACK\n")
        assert self.hear(reader, 1100) == [b"+OK"]

    @rule(
        client=st.sampled_from(CLIENTS), group=st.sampled_from(GROUPS), offset=st.none() | st.integers(0, 6)
    )
    def set_offset(self, client: int, group: str, offset: int | None) -> None:
        reader = self.readers[client]
        self.hear(reader)
        to = b"BEGIN" if offset is None else b"%d" % offset
        self.committed[group] = dict.fromkeys(range(PARTITIONS), offset or 0)
        if reader.group == group:
            reader.waits = None
            reader.positions = dict(self.committed[group])
        reader.line.say(b"SET_OFFSET orders:%b %b\n" % (WORDS[group], to))
        assert self.hear(reader, 1100) == [b"+OK"]

    @rule(client=st.sampled_from(CLIENTS))
    def reconnect(self, client: int) -> None:
        self.readers[client].line.conversation.ended()
        self.readers[client] = Reader(self.node)

    @precondition(lambda self: self.count)
    @rule(seed=st.none() | st.integers(0, 99))
    def crash(self, seed: int | None) -> None:
        """Everything that was answered is there: a kill, or a power cut."""
        self.node.crash(None if seed is None else Random(seed))
        self.readers = [Reader(self.node) for _ in CLIENTS]

    @invariant()
    def a_stream_with_nothing_to_acknowledge_is_at_the_end(self) -> None:
        for reader in self.readers:
            if reader.group is not None:
                self.hear(reader)
                if reader.waits is None:
                    for number, written in enumerate(self.written):
                        assert reader.positions[number] >= len(written)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=settings.default.max_examples // 5)
