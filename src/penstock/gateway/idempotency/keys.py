"""The idempotency keys of all topics on a node.

    meta/idempotency/<topic id>/keys.json          the manifest: the valid files, and the offsets that they cover
                                0000000007.keys    keys that are no longer in memory

A topic has a directory from its first key on. The directory is named by the topic id, so that a topic that is deleted
and created again has no keys.
"""

import logging
from functools import partial

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, Uuid, uuid_from_text, uuid_text
from penstock.base.promise import Promise
from penstock.base.world import Timer
from penstock.gateway.idempotency.keyfile import Filters
from penstock.gateway.idempotency.log_reading import still_loading
from penstock.gateway.idempotency.topic_files import (
    MANIFEST,
    BadManifest,
    FileNote,
    Manifest,
    salvage_manifest,
)
from penstock.gateway.idempotency.topic_keys import FAILURES_MAX, TopicKeys
from penstock.gateway.peer_rpc.retry import is_alone
from penstock.handlers.support.context import Context
from penstock.metadata.configs import broker_setting
from penstock.metadata.controller.requests import ConfigChange, ConfigOp, IncrementalAlterConfigs, Result
from penstock.metadata.image import Resource, ResourceType, Topic
from penstock.storage import Log
from penstock.vfs import read_file, remove_tree, replace_file

logger = logging.getLogger(__name__)

SAVE_INTERVAL_MS = 60_000
"""The interval of log checkpoints: a start reads the records of one minute."""

RECENT_TOTAL_MAX = 1 << 16
"""Keys of all topics in memory: about 12 MB. Beyond this, the topic with the most keys saves its keys."""

MARK = "idempotency.keys"
"""The topic setting that marks a topic with idempotency keys, for all brokers."""

TOTAL_CHECK = 1024
"""New keys between two checks of `RECENT_TOTAL_MAX`."""


class IdempotencyKeys:
    def __init__(self, context: Context) -> None:
        """Created before the first append to a log: only then can records that a log lost since the last save be
        detected."""
        directory = context.replicas.directory
        self.world = context.world
        self.vfs = directory.vfs
        self.replicas = context.replicas
        self.filters = Filters(directory.files)
        self.is_stopped = False
        self._context = context
        self._path = directory.layout.idempotency
        self._recent_total = 0
        self._checked_at = 0
        self._timer: Timer | None = None
        self._retention: tuple[object, int] = (None, 0)
        """The image, and the value of `idempotency.retention.ms` in it."""
        self._topics: dict[Uuid, TopicKeys] = self._load()
        directory.removable = self.removable

    # -- lookup ----------------------------------------------------------------------------------------

    def of(self, topic: Topic) -> TopicKeys | None:
        """The topic's keys, if all of them are loaded."""
        keys = self._topics.get(topic.id)
        return keys if keys is not None and keys.logs.is_ready(topic) else None

    def ready(self, topic: Topic) -> TopicKeys:
        keys = self.of(topic)
        if keys is None:
            raise still_loading(topic.name)
        return keys

    def is_open(self, topic: Topic) -> bool:
        """Whether all keys are loaded, and the topic is marked."""
        return (is_alone(self._context) or self._is_marked(topic)) and self.of(topic) is not None

    def begin(self, topic: Topic) -> None:
        """Start to read the topic's keys, unless they are being read."""
        keys = self._topics.get(topic.id)
        if keys is None or not keys.logs.is_opening:
            self.open(topic)

    def may_have(self, topic: Topic) -> bool:
        """Whether the topic has keys, on this broker or another."""
        return topic.id in self._topics or self._is_marked(topic)

    def _is_marked(self, topic: Topic) -> bool:
        return self._context.image.config(Resource(ResourceType.TOPIC, topic.name)).get(MARK) == "true"

    def open(self, topic: Topic) -> Promise[None]:
        """Read the topic's keys. The topic is first marked as one that has keys, so that every broker knows it."""
        keys = self._topics.get(topic.id)
        if keys is None:
            keys = self._topics[topic.id] = self._new(topic)
        if self._is_marked(topic) or is_alone(self._context):
            return keys.logs.open(topic)
        opened: Promise[None] = Promise()

        def marked(results: dict[Resource, Result]) -> None:
            [result] = results.values()
            if result.code is ErrorCode.NONE:
                keys.logs.open(topic).then(opened.resolve, opened.fail)
            else:
                not_marked(KafkaError(result.message or result.code.name, result.code))

        def not_marked(error: KafkaError) -> None:
            opened.fail(KafkaError(f"{topic.name} cannot store idempotency keys: {error}", error.code))

        self._mark(topic).then(marked, not_marked)
        return opened

    def _mark(self, topic: Topic) -> Promise[dict[Resource, Result]]:
        mark = {Resource(ResourceType.TOPIC, topic.name): (ConfigChange(MARK, ConfigOp.SET, "true"),)}
        return self._context.controller.submit(IncrementalAlterConfigs(mark))

    def _new(self, topic: Topic) -> TopicKeys:
        """The keys of a topic without a manifest on this broker. If the topic is not marked, the logs that this broker
        leads have no keys: a previous leader marks the topic before it writes the first key."""
        path = f"{self._path}/{uuid_text(topic.id)}"
        keys = TopicKeys(self, topic.id, path, Manifest(topic.name), is_new=True)
        if not self._is_marked(topic):
            for number, placed in topic.partitions.items():
                led = self.replicas.led(topic.id, number)
                if led is not None and led.leader_epoch == placed.leader_epoch:
                    keys.logs.without[number] = led.leader_epoch, led.log.flushed
        return keys

    def retention_ms(self) -> int:
        image = self._context.image
        if self._retention[0] is not image:
            text = broker_setting("idempotency.retention.ms", image, self._context.settings)
            self._retention = image, int(text or 0)
        return self._retention[1]

    def noted(self, count: int) -> None:
        """The number of recent keys has changed by `count`."""
        self._recent_total += count
        if self._recent_total > RECENT_TOTAL_MAX and self._recent_total >= self._checked_at + TOTAL_CHECK:
            self._checked_at = self._recent_total
            max(self._topics.values(), key=lambda each: len(each.recent)).save()
        elif count < 0:
            self._checked_at = min(self._checked_at, self._recent_total)

    # -- deletion of records ---------------------------------------------------------------------------

    def removable(self, log: Log, end: Offset) -> Offset:
        """The offset up to which records may be deleted from a log; see `LogDirectory.removable`. Saves keys that are
        not saved yet."""
        topic = None if log.topic_id is None else self._context.image.topic_by_id(log.topic_id)
        if topic is None or not self.may_have(topic):
            return end
        keys = self._topics.get(topic.id)
        if keys is None:
            keys = self._topics[topic.id] = self._new(topic)
        number = log.partition.partition
        covered = keys.files.covered(number)
        if covered >= end:
            return end
        if self.is_stopped:
            return covered
        if keys.failures >= FAILURES_MAX:
            logger.error(
                "%s deletes records below %d whose idempotency keys could not be saved",
                log.partition,
                end,
            )
            return end
        if self.replicas.led(topic.id, number) is None:
            keys.logs.read_follower(topic, number)
        elif keys.logs.is_ready(topic):
            keys.save()
        elif not keys.logs.is_opening:
            keys.logs.open(topic).then(lambda _: keys.save(), lambda _: keys.failed())
        return covered

    # -- periodic saving -------------------------------------------------------------------------------

    def start(self) -> None:
        self._schedule_save()

    def stop(self) -> None:
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule_save(self) -> None:
        self._timer = self.world.call_later(SAVE_INTERVAL_MS, self._save_all)

    def _save_all(self) -> None:
        """Remove the keys of deleted topics, and save the new keys of the others, one topic after the other."""
        for topic_id in [each for each in self._topics if self._context.image.topic_by_id(each) is None]:
            keys = self._topics.pop(topic_id)
            self.world.beside(
                partial(remove_tree, self.vfs, keys.files.directory), partial(self._removed, keys)
            )
        if not is_alone(self._context):
            for topic in map(self._context.image.topic_by_id, self._topics):
                if topic is not None and not self._is_marked(topic):
                    self._mark(topic)  # its keys were written while this was the only broker
        self._save_next(list(self._topics.values()))

    def _removed(self, keys: TopicKeys, _: None, error: Exception | None) -> None:
        if error is not None:
            logger.error("cannot remove %s: %s", keys.files.directory, error)

    def _save_next(self, topics: list[TopicKeys]) -> None:
        if self.is_stopped:
            return
        if topics:
            topics.pop().save(lambda: self._save_next(topics))
        else:
            self._schedule_save()

    # -- start -----------------------------------------------------------------------------------------

    def _load(self) -> dict[Uuid, TopicKeys]:
        """Read the manifests only: a topic's keys are read when they are first needed."""
        if self.vfs.stat(self._path) is None:
            return {}
        topics = {}
        for entry in self.vfs.list_dir(self._path):
            try:
                topic_id = uuid_from_text(entry.name)
            except ValueError:
                continue
            path = f"{self._path}/{entry.name}"
            manifest = self._without_lost_records(topic_id, path, self._read_manifest(topic_id, path))
            topics[topic_id] = TopicKeys(self, topic_id, path, manifest)
        return topics

    def _read_manifest(self, topic_id: Uuid, path: str) -> Manifest:
        try:
            return Manifest.decode(read_file(self.vfs, f"{path}/{MANIFEST}"), f"{path}/{MANIFEST}")
        except (BadManifest, FileNotFoundError) as error:
            logger.warning("%s; reading the whole log for idempotency keys", error)
        names = [log.partition.topic for log in self._logs() if log.topic_id == topic_id]
        return salvage_manifest(self.vfs, path, names[0] if names else "")

    def _logs(self) -> list[Log]:
        return list(self.replicas.directory.logs.values())

    def _without_lost_records(self, topic_id: Uuid, path: str, manifest: Manifest) -> Manifest:
        """Void the keys of offsets past the end of a log: the log has lost these records, with a disk or by hand."""
        ends = {
            str(log.partition.partition): log.log_end
            for log in self._logs()
            if log.partition.topic == manifest.topic and log.topic_id in (None, topic_id)
        }
        covered, cuts = dict(manifest.covered), {}
        for number, offset in manifest.covered.items():
            if offset > ends.get(number, 0):
                covered[number] = cuts[number] = ends.get(number, 0)
        if not ends or not cuts:
            return manifest  # nothing is lost, or the topic is deleted
        logger.warning(
            "%s lost records that had idempotency keys: keys from offset %s on are dropped",
            manifest.topic,
            ", ".join(f"partition {number}, offset {end}" for number, end in cuts.items()),
        )
        files = tuple(_cut(note, cuts) for note in manifest.files)
        changed = msgspec.structs.replace(manifest, covered=covered, files=files)
        replace_file(self.vfs, f"{path}/{MANIFEST}", changed.encode())
        return changed


def _cut(note: FileNote, cuts: dict[str, Offset]) -> FileNote:
    lower = {number: min(end, note.cuts.get(number, end)) for number, end in cuts.items()}
    return FileNote(note.name, note.entries, note.oldest_ms, note.newest_ms, {**note.cuts, **lower})
