"""The `SchemaCheck` of a topic with `schema.validation`: which ids are valid, by this node's view of the registry.

For the fast path a set of the five bytes with which valid values begin is enough. When an id is not in it, the
registry is asked for what is new (`refreshed`). A schema that was deleted stays valid here until then.
"""

from collections.abc import Callable
from typing import Final

from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.base.settings import LogSettings
from penstock.base.steps import RunningSteps, Steps, next_tick
from penstock.gateway.schemas.schema_registry import SchemaRegistry
from penstock.records import HEADER_BYTES, RecordBatch
from penstock.records.batch import ATTRIBUTES_AT
from penstock.records.schema_framing import ID_FRAME_BYTES, write_frame
from penstock.records.validate import Faults
from penstock.registry.errors import RegistryError
from penstock.registry.record_checks import PartCheck, RecordCheckNow, part_check
from penstock.registry.schema import ResolvedSchema
from penstock.registry.view import RegistryView
from penstock.storage.schema_check import RecordCheck

_ATTRIBUTES_LOW_AT: Final = ATTRIBUTES_AT + 1
_NULL: Final = 1
"""The length of a null key or value, -1, as a zigzag varint."""


class TopicSchemaCheck:
    """Used by all partitions of a topic on this node."""

    def __init__(self, registry: Callable[[], SchemaRegistry], topic: str, settings: LogSettings) -> None:
        """`registry` is called when it is first needed: it is not there before the node serves clients."""
        self._registry = registry
        self._topic = topic
        self._checks_key = settings.schema_validation in ("key", "both")
        self._checks_value = settings.schema_validation in ("value", "both")
        self.is_full = settings.schema_validation_mode == "full"
        self._now: RecordCheckNow | None = None
        """None before the registry was asked."""
        self._keys: frozenset[bytes] = frozenset()
        self._values: frozenset[bytes] = frozenset()
        """With what valid ones begin."""

    # -- on the event loop -----------------------------------------------------------------------------

    def passes(self, batch: memoryview, last_offset_delta: int) -> bool:  # noqa: PLR0911  # read in one go
        """One record, uncompressed, whose timestamp and offset are those of the batch: as one-record producers send
        it. Anything else is for the normal path."""
        if last_offset_delta or batch[_ATTRIBUTES_LOW_AT] or self.is_full:
            return False
        try:
            at = HEADER_BYTES + 1
            while batch[at - 1] > 127:
                at += 1
            if batch[at] or batch[at + 1] or batch[at + 2]:
                return False
            at += 3
            size = batch[at]
            at += 1
            if size > 127:
                more = batch[at]
                if more > 127:
                    return False
                size = size & 127 | more << 7
                at += 1
            if size != _NULL:
                if self._checks_key and batch[at : at + ID_FRAME_BYTES].tobytes() not in self._keys:
                    return False
                at += size >> 1
            if not self._checks_value or batch[at] == _NULL:
                return True
            at += 1
            while batch[at - 1] > 127:
                at += 1
            return batch[at : at + ID_FRAME_BYTES].tobytes() in self._values
        except IndexError:
            return False

    def faults(self, batch: RecordBatch, unpacked_max: int) -> Faults:
        return (
            [(0, "the registry was not asked yet")]
            if self._now is None
            else self._now.faults(batch, unpacked_max)
        )

    # -- what is registered ----------------------------------------------------------------------------

    def refreshed(self) -> Promise[RecordCheck]:
        promise: Promise[RecordCheck] = Promise()

        def refresh() -> Steps[RecordCheck]:
            view = yield from self._registry().latest()
            return (yield from self._know(view))

        def failed(error: Exception) -> None:
            if not isinstance(error, KafkaError):
                error = KafkaError(f"the schema registry failed: {error}")
            promise.fail(error)

        RunningSteps(refresh(), promise.resolve, failed)
        return promise

    def _know(self, view: RegistryView) -> Steps[RecordCheckNow]:
        key = (yield from self._part(view, "key")) if self._checks_key else None
        value = (yield from self._part(view, "value")) if self._checks_value else None
        self._now = RecordCheckNow(key, value)
        self._keys = frozenset() if key is None else frozenset(map(write_frame, key.ids))
        self._values = frozenset() if value is None else frozenset(map(write_frame, value.ids))
        return self._now

    def _part(self, view: RegistryView, what: str) -> Steps[PartCheck]:
        registry, subject = self._registry(), f"{self._topic}-{what}"
        versions = view.versions(subject)
        schemas: dict[int, ResolvedSchema] | None = {} if self.is_full else None
        known = []
        for each in versions:
            if schemas is not None:
                try:
                    schemas[each.id] = registry.resolve(view, subject, each.schema)
                except RegistryError:
                    continue  # its references are gone: nothing decodes by it
                if each.schema.references:
                    yield next_tick(registry.world)
            known.append((each.id, each.schema.guid))
        return part_check(what, self._topic, known, schemas)
