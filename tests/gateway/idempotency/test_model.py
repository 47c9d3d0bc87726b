"""Any order of writing, saving, deleting, killing and power cuts, against a dictionary of what was acknowledged."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.producing_world import TOPIC, Desk

from penstock.gateway.idempotency import topic_keys
from penstock.gateway.shared.producer import NewRecord, RecordPosition

KEYS = 12

SETTINGS = {
    "log_retention_check_interval_ms": "7000",
    "log_cleaner_backoff_ms": "5000",
    "log_flush_offset_checkpoint_interval_ms": "11000",
}
TOPICS = {
    "deleted": {"retention_ms": "20000", "segment_bytes": "1000", "file_delete_delay_ms": "0"},
    "compacted": {"cleanup_policy": "compact", "segment_bytes": "1000", "min_cleanable_dirty_ratio": "0"},
    "kept": {"segment_bytes": "1000"},
}


class Step(NamedTuple):
    what: str
    keys: tuple[int, ...] = ()
    number: int = 0


keys_of = st.integers(0, KEYS - 1)
steps = st.lists(
    st.one_of(
        st.builds(Step, st.just("produce"), st.tuples(keys_of), st.integers(0, 2)),
        st.builds(Step, st.just("produce"), st.tuples(keys_of), st.integers(0, 2)),
        st.builds(Step, st.just("produce all"), st.lists(keys_of, min_size=1, max_size=6).map(tuple)),
        st.builds(Step, st.just("begin"), st.tuples(keys_of), st.integers(0, 3)),
        st.builds(Step, st.just("plain")),
        st.builds(Step, st.just("wait"), st.just(()), st.sampled_from([1, 3_000, 30_000])),
        st.just(Step("save")),
        st.just(Step("kill")),
        st.just(Step("restart")),
        st.builds(Step, st.just("cut power"), st.just(()), st.integers(0, 1000)),
    ),
    max_size=25,
)


class Run:
    def __init__(self, topic: str) -> None:
        self.desk = Desk(**SETTINGS)
        self.desk.node.create_topic(TOPIC, 2, **TOPICS[topic])
        self.known: dict[int, RecordPosition] = {}
        """What was acknowledged."""
        self.written = 0

    def record(self, key: int, partition: int | None = None) -> NewRecord:
        """Each has a key of its own, as a compacted topic wants; some come again under it."""
        self.written += 1
        value = b"%d" % self.written + b"x" * 200
        return NewRecord(TOPIC, b"k%d" % (key % 5), value, (), partition, f"i{key}")

    def take(self, key: int, position: RecordPosition) -> None:
        assert self.known.setdefault(key, position) == position, f"key {key} was {self.known[key]}"

    def run(self, step: Step) -> None:
        desk = self.desk
        act: dict[str, Callable[[], object]] = {
            "wait": lambda: desk.world.advance(step.number),
            "save": lambda: desk.world.advance(61_000),
            "kill": desk.kill,
            "restart": desk.restart,
            "cut power": lambda: desk.cut_power(step.number),
            "plain": lambda: desk.produce(b"y" * 300, b"plain"),
        }
        if step.what in ("produce", "produce all"):
            records = [self.record(key, step.number % 2 if step.number else None) for key in step.keys]
            for key, result in zip(step.keys, desk.produce_all(*records), strict=True):
                assert result.error is None
                self.take(key, RecordPosition(result.partition, result.offset))
        elif step.what == "begin":
            # Its answer may come, or the node may end first; and then it may have been written or not.
            [key] = step.keys
            later = desk.producing.produce_all(desk.session, [self.record(key)])
            desk.world.advance(step.number)
            if later.is_settled:
                [result] = later.value
                self.take(key, RecordPosition(result.partition, result.offset))
        else:
            act[step.what]()
        self.check()

    def check(self) -> None:
        """No key has two records, and one that was acknowledged has none elsewhere."""
        for key in range(KEYS):
            found = self.desk.records_with(f"i{key}")
            assert len(found) <= 1, f"key {key} is at {found}"
            if key in self.known:
                assert found in ([], [self.known[key]])


@pytest.mark.parametrize("topic", sorted(TOPICS))
def test_a_key_has_one_place_whatever_happens(topic: str) -> None:
    @settings(max_examples=settings().max_examples // 3)
    @given(steps)
    def holds(played: list[Step]) -> None:
        run = Run(topic)
        for step in played:
            run.run(step)
        run.run(Step("kill"))
        for key, place in run.known.items():
            [result] = run.desk.produce_all(run.record(key))
            assert result == (*place, None, False)

    recent_max, topic_keys.RECENT_MAX = topic_keys.RECENT_MAX, 4
    try:
        holds()
    finally:
        topic_keys.RECENT_MAX = recent_max
