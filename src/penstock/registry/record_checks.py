"""Whether records have a schema of the topic's subjects, and decode by it: `schema.validation`.

The subject of a topic's values is `<topic>-value`, that of its keys `<topic>-key`, in the default context, as the
default strategy of serializers names them. A key or value begins with the schema's id or guid, or a header has it
(`records.schema_framing`). A record without a key or a value has no schema there and passes.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.records import CorruptBatch, DecompressedTooLarge, Record, RecordBatch
from penstock.records.schema_framing import KEY_HEADER, VALUE_HEADER, Frame, NotFramed, parse_frame
from penstock.records.validate import RECORD_ERRORS_MAX, Faults
from penstock.registry.errors import RegistryError
from penstock.registry.schema import ResolvedSchema


class PartCheck(NamedTuple):
    """The check of keys or of values."""

    what: str
    """`key` or `value`."""
    header: str
    subject: str
    ids: frozenset[int]
    guids: Mapping[str, int]
    """Ids by guid."""
    schemas: Mapping[int, ResolvedSchema] | None = None
    """By id, if records must decode."""

    def fault(self, data: bytes | None, record: Record) -> str | None:
        if data is None:
            return None
        payload = data
        try:
            frame = self._in_header(record)
            if frame is None:
                frame = parse_frame(data)
                payload = data[frame.payload_at :]
        except NotFramed as error:
            return f"its {self.what} has no schema id: {error}"
        schema_id = frame.schema_id if frame.guid is None else self.guids.get(frame.guid)
        if schema_id is None or schema_id not in self.ids:
            which = f"id {frame.schema_id}" if frame.guid is None else f"guid {frame.guid}"
            return f"its {self.what} has schema {which}, which is no schema of subject {self.subject}"
        if self.schemas is None:
            return None
        return self._undecodable(schema_id, payload)

    def _in_header(self, record: Record) -> Frame | None:
        for name, content in record.headers:
            if name == self.header and content is not None:
                return parse_frame(content)
        return None

    def _undecodable(self, schema_id: int, payload: bytes) -> str | None:
        from penstock.registry.formats.decoding import decode  # noqa: PLC0415  # in a helper process

        assert self.schemas is not None
        try:
            decode(self.schemas[schema_id], payload)
        except (ValueError, RegistryError) as error:
            return f"its {self.what} does not decode by schema {schema_id} of subject {self.subject}: {error}"
        return None


class RecordCheckNow(NamedTuple):
    """A `RecordCheck`."""

    key: PartCheck | None
    value: PartCheck | None

    def faults(self, batch: RecordBatch, unpacked_max: int) -> Faults:
        found: Faults = []
        try:
            for index, record in enumerate(batch.records(unpacked_max)):
                why = self._fault(record)
                if why is not None:
                    found.append((index, why))
                    if len(found) == RECORD_ERRORS_MAX:
                        break
        except DecompressedTooLarge:
            raise
        except CorruptBatch as error:
            found.append((len(found), f"it cannot be read: {error}"))
        return found

    def _fault(self, record: Record) -> str | None:
        why = None if self.key is None else self.key.fault(record.key, record)
        if why is None and self.value is not None:
            why = self.value.fault(record.value, record)
        return why


def part_check(
    what: str,
    topic: str,
    versions: Iterable[tuple[int, str]],
    schemas: Mapping[int, ResolvedSchema] | None = None,
) -> PartCheck:
    """The check of a topic's keys or values, by the ids and guids of its subject's versions."""
    known = list(versions)
    return PartCheck(
        what,
        KEY_HEADER if what == "key" else VALUE_HEADER,
        f"{topic}-{what}",
        frozenset(schema_id for schema_id, _ in known),
        {guid: schema_id for schema_id, guid in known},
        schemas,
    )
