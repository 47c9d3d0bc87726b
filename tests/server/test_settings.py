"""Every setting that is acted on has a test in which it changes what happens.

Settings of topics are a table: what is done and seen, what is seen with the defaults, and what with the setting. Each
row is tried in every way in which it can be set: when the topic is created, later, for all brokers at run time, and
in the node's own settings under each of its names. Settings of the brokers follow in `test_broker_settings`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from crc32c import crc32c
from tests.nodes import StillNode
from tests.placing import placed
from tests.server.settings_scenes import TOPIC, Scene, fill_with_one_key
from tests.server.test_broker_settings import ELSEWHERE as ELSEWHERE_BROKERS
from tests.server.test_broker_settings import SHOWN

from penstock.metadata.config_table import BROKER_SETTINGS, TOPIC_SETTINGS, Mode, unit_ms
from penstock.records import HEADER_BYTES, Codec, build_batch

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
ROOT = Path(__file__).parent.parent.parent

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "1000"}
TEXT = b" ".join(b"%d" % Random(number).randrange(300) for number in range(6000))
"""Something that each level of compression makes a little smaller than the one before."""

ELSEWHERE = {
    "follower.replication.throttled.replicas": "tests/replica/test_replicas.py::"
    "test_a_topics_list_says_which_of_its_followers_are_throttled",
    "idempotency.keys": "tests/gateway/peer_rpc/test_leaders_move.py::"
    "test_a_key_is_known_to_the_next_leader_when_its_record_is_deleted",
    "leader.replication.throttled.replicas": "tests/handlers/support/test_follower_fetch.py::"
    "test_a_list_without_this_leader_holds_nothing_back",
    "schema.validation": "tests/gateway/schemas/test_validation.py::"
    "test_values_must_have_an_id_of_the_subject",
    "schema.validation.mode": "tests/gateway/schemas/test_validation.py::test_full_validation_decodes",
    "search.index": "tests/gateway/test_search_indexing.py::"
    "test_sealed_segments_of_a_topic_with_the_setting_are_indexed",
    "unclean.leader.election.enable": "tests/metadata/test_controller.py::"
    "test_any_replica_leads_only_where_unclean_elections_are_allowed",
}
"""What takes several brokers to be seen."""


@dataclass(frozen=True)
class Case:
    setting: str
    value: str
    see: Callable[[Scene], Any]
    plain: Any
    """What is seen where nobody sets it."""
    changed: Any
    topic: dict[str, str] = field(default_factory=dict)
    """Other settings of the topic."""
    node: dict[str, str] = field(default_factory=dict)
    partitions: int = 1

    def scene(self, topic: dict[str, str] | None = None, node: dict[str, str] | None = None) -> Scene:
        made = StillNode(settings={**self.node, **(node or {})})
        made.create_topic(TOPIC, self.partitions, **self.topic, **(topic or {}))
        return Scene(made)


# -- what is seen --------------------------------------------------------------------------------------


def segments(scene: Scene) -> int:
    scene.produce(count=6)
    return len(scene.log.segments)


def segments_by_time(scene: Scene) -> int:
    scene.produce(timestamp=scene.now_ms - 2 * HOUR_MS)
    scene.produce()
    return len(scene.log.segments)


def rolls_early_somewhere(scene: Scene) -> bool:
    """Partitions get an hour's worth of records, which is just what a segment may hold."""
    for number in range(8):
        scene.produce(timestamp=scene.now_ms - HOUR_MS + 60_000, partition=number)
        scene.produce(partition=number)
    return any(len(scene.partition(number).log.segments) > 1 for number in range(8))


def log_start_after_two_hours(scene: Scene) -> int:
    scene.produce(count=6)
    scene.advance(2 * HOUR_MS)
    return scene.log.log_start


def has_tombstone(scene: Scene) -> bool:
    scene.produce(b"gone")
    scene.produce(b"gone", None)
    scene.produce(count=4)
    for _ in range(3):
        scene.advance(20_000)
    return any(record.value is None for record in scene.records())


def dirty_records_left(scene: Scene, wait_ms: int) -> int:
    """A log with much that is clean and little that is not."""
    for number in range(20):
        scene.produce(b"%d" % number)
    scene.advance(20_000)
    scene.produce(b"0", count=4)
    scene.advance(wait_ms)
    return sum(record.key == b"0" for record in scene.records())


def files_of_a_deleted_topic(scene: Scene) -> bool:
    scene.produce()
    scene.delete_topic()
    scene.advance(2000)
    listed = scene.node.disk.list_dir(scene.node.node.directory.layout.logs)
    return any(entry.name.endswith("-delete") for entry in listed)


def synced_to(scene: Scene, wait_ms: int = 0) -> int:
    scene.produce(acks=1)
    scene.advance(wait_ms)
    return scene.log.flushed


def index_entries(scene: Scene) -> int:
    """On disk, where they are once the node has stopped."""
    directory = scene.log.directory
    scene.produce(count=4)
    scene.node.stop()
    found = scene.node.disk.stat(f"{directory}/{0:020d}.index")
    assert found is not None
    return found.size // 8


def error_for_age(scene: Scene, age_ms: int) -> int:
    return scene.error_of(build_batch([(None, b"v", scene.now_ms - age_ms)]))


def keeps_its_time(scene: Scene) -> bool:
    created_ms = scene.now_ms - 5000
    scene.produce(timestamp=created_ms)
    [record] = scene.records()
    return bool(record.timestamp == created_ms)


def codec(scene: Scene) -> Codec:
    scene.produce()
    [batch] = scene.batches()
    return batch.codec


def level(codec: Codec, levels: tuple[int, ...]) -> Callable[[Scene], int]:
    """Which of two levels a text was stored with."""

    def see(scene: Scene) -> int:
        now_ms = scene.now_ms
        sizes = {len(build_batch([(b"k", TEXT, now_ms)], codec=codec, level=each)): each for each in levels}
        assert len(sizes) == len(levels)
        scene.produce(b"k", TEXT)
        [batch] = scene.batches()
        return sizes[batch.size]

    return see


def error_of_a_lie(scene: Scene) -> int:
    """A batch with a sound checksum, whose first record is longer than all of them."""
    lying = bytearray(build_batch([(b"k", b"v", scene.now_ms)]))
    lying[HEADER_BYTES] = 0x7E
    lying[17:21] = crc32c(lying[21:]).to_bytes(4, "big")
    return scene.error_of(bytes(lying))


def error_while_another_is_out_of_sync(scene: Scene) -> int:
    partition = scene.partition()
    partition.lead(placed(5, replicas=(1, 2), isr=(1,), partition_epoch=9), partition.min_isr)
    return scene.error_of(build_batch([(b"k", b"v", 0)]))


# -- the table -----------------------------------------------------------------------------------------

CASES = [
    Case("cleanup.policy", "compact", fill_with_one_key, 8, 3, {"segment.bytes": "1000"}),
    Case("compression.type", "gzip", codec, Codec.NONE, Codec.GZIP),
    Case("compression.gzip.level", "1", level(Codec.GZIP, (-1, 1)), -1, 1, {"compression.type": "gzip"}),
    Case("compression.lz4.level", "12", level(Codec.LZ4, (9, 12)), 9, 12, {"compression.type": "lz4"}),
    Case("compression.zstd.level", "19", level(Codec.ZSTD, (3, 19)), 3, 19, {"compression.type": "zstd"}),
    Case(
        "delete.retention.ms",
        "1000",
        has_tombstone,
        True,
        False,
        {**COMPACTED, "min.cleanable.dirty.ratio": "0"},
    ),
    Case("file.delete.delay.ms", "1000", files_of_a_deleted_topic, True, False),
    Case("flush.messages", "1", synced_to, 0, 1),
    Case("flush.ms", "1000", lambda scene: synced_to(scene, 2000), 0, 1),
    Case("index.interval.bytes", "0", index_entries, 0, 3),
    Case("internal.segment.bytes", "500", segments, 1, 6),
    Case(
        "max.compaction.lag.ms",
        str(HOUR_MS),
        lambda scene: dirty_records_left(scene, 2 * HOUR_MS),
        5,
        3,
        {**COMPACTED, "min.cleanable.dirty.ratio": "1"},
    ),
    Case(
        "max.message.bytes", "100", lambda scene: scene.error_of(build_batch([(b"k", b"x" * 200, 0)])), 0, 10
    ),
    Case("message.timestamp.after.max.ms", "1000", lambda scene: error_for_age(scene, -10_000), 0, 32),
    Case("message.timestamp.before.max.ms", "1000", lambda scene: error_for_age(scene, 10_000), 0, 32),
    Case("message.timestamp.type", "LogAppendTime", keeps_its_time, True, False),
    Case(
        "min.cleanable.dirty.ratio", "0.01", lambda scene: dirty_records_left(scene, 20_000), 5, 3, COMPACTED
    ),
    Case("min.compaction.lag.ms", str(HOUR_MS), fill_with_one_key, 3, 8, COMPACTED),
    Case("min.insync.replicas", "2", error_while_another_is_out_of_sync, 0, 19),
    Case("record.validation", "full", error_of_a_lie, 0, 87),
    Case("retention.bytes", "1000", log_start_after_two_hours, 0, 2, {"segment.bytes": "1000"}),
    Case("retention.ms", str(HOUR_MS), log_start_after_two_hours, 0, 6),
    Case("segment.bytes", "1000", segments, 1, 3),
    Case("segment.index.bytes", "24", segments, 1, 2, {"index.interval.bytes": "0"}),
    Case(
        "segment.jitter.ms",
        str(HOUR_MS),
        rolls_early_somewhere,
        False,
        True,
        {"segment.ms": str(HOUR_MS)},
        partitions=8,
    ),
    Case("segment.ms", str(HOUR_MS), segments_by_time, 1, 2),
]


def broker_value(case: Case, name: str) -> str:
    """The value under a broker's name, which may count in hours."""
    names = TOPIC_SETTINGS[case.setting].brokers
    return str(int(case.value) // unit_ms(name)) if len(names) > 1 else case.value


def in_the_file() -> Iterator[Any]:
    for case in CASES:
        for name in TOPIC_SETTINGS[case.setting].brokers:
            yield pytest.param(case, name, id=name)


def at_run_time() -> Iterator[Any]:
    for case, name in (each.values for each in in_the_file()):
        if BROKER_SETTINGS[name].mode is Mode.CLUSTER_WIDE:
            yield pytest.param(case, name, id=name)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.setting)
def test_a_topics_setting_changes_what_happens(case: Case) -> None:
    assert case.see(case.scene()) == case.plain
    assert case.see(case.scene({case.setting: case.value})) == case.changed


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.setting)
def test_a_topics_setting_changes_what_happens_from_the_moment_it_is_set(case: Case) -> None:
    scene = case.scene()
    assert scene.alter(2, TOPIC, case.setting, case.value) == 0
    assert case.see(scene) == case.changed


@pytest.mark.parametrize(("case", "name"), list(in_the_file()))
def test_a_brokers_setting_stands_in_for_a_topics(case: Case, name: str) -> None:
    assert case.see(case.scene(node={name: broker_value(case, name)})) == case.changed


@pytest.mark.parametrize(("case", "name"), list(at_run_time()))
def test_a_brokers_setting_that_is_set_at_run_time_holds_for_topics_there_are(case: Case, name: str) -> None:
    scene = case.scene()
    assert scene.alter(4, "", name, broker_value(case, name)) == 0
    assert case.see(scene) == case.changed


def test_one_brokers_word_goes_before_that_of_all_and_a_topics_before_both() -> None:
    scene = Scene(StillNode())
    scene.node.create_topic(TOPIC)
    data = build_batch([(b"k", b"x" * 200, 0)])
    for kind, resource, name, value, code in (
        (4, "", "message.max.bytes", "100", 10),
        (4, "1", "message.max.bytes", "1000", 0),
        (2, TOPIC, "max.message.bytes", "100", 10),
    ):
        assert scene.alter(kind, resource, name, value) == 0
        assert scene.error_of(data) == code, (resource, name)


# -- none is left out ----------------------------------------------------------------------------------


def test_every_setting_that_is_acted_on_is_seen_to_be() -> None:
    """And what is said to be acted on nowhere has no test that sees it."""
    topics = {case.setting for case in CASES} | ELSEWHERE.keys()
    assert topics == {each.name for each in TOPIC_SETTINGS.values() if each.acted}
    behind = {name for each in topics for name in TOPIC_SETTINGS[each].brokers}
    brokers = behind | SHOWN | ELSEWHERE_BROKERS.keys()
    assert brokers == {each.name for each in BROKER_SETTINGS.values() if each.acted}


@pytest.mark.parametrize("test", sorted({*ELSEWHERE.values(), *ELSEWHERE_BROKERS.values()}))
def test_what_is_seen_elsewhere_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"\ndef {name}(" in (ROOT / path).read_text()
