"""The state of the registry: what the records of `_schemas` up to an offset make.

The view changes only by `replay`, in the order of the records, so all nodes have the same one at the same offset.
`revision` counts the changes that a cache of answers must notice.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

from penstock.base.ids import Offset
from penstock.registry import errors
from penstock.registry.compatibility import BACKWARD, LEVELS
from penstock.registry.names import DEFAULT_CONTEXT, WILDCARD, context_of, parse_subject
from penstock.registry.schema import Schema
from penstock.registry.topic_records import (
    ClearSubjectRecord,
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
    UnreadableRecord,
    parse,
    write_key,
)

logger = logging.getLogger(__name__)

READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, FORWARD = MODES = (
    "READWRITE",
    "READONLY",
    "READONLY_OVERRIDE",
    "IMPORT",
    "FORWARD",
)

LATEST: Final = -1
"""Stands for the last version that is not deleted."""

SubjectVersion = tuple[str, int]


class Version:
    """A version of a subject."""

    __slots__ = ("id", "is_deleted", "key", "schema", "subject", "version")

    def __init__(
        self,
        subject: str,
        version: int,
        schema_id: int,
        schema: Schema,
        *,
        is_deleted: bool,
        key: bytes | None = None,
    ) -> None:
        self.subject = subject
        self.version = version
        self.id = schema_id
        self.schema = schema
        self.is_deleted = is_deleted
        """Soft deleted: it is found by its id, and with `deleted=true`."""
        self.key = key
        """The key of its record; None if it is the one that `write_key` makes."""

    def __repr__(self) -> str:
        return f"<Version {self.subject} {self.version} id={self.id}>"

    @property
    def record_key(self) -> bytes:
        return self.key or write_key(SchemaRecord(self.subject, self.version))


class Context:
    """The schemas of a context, by id."""

    def __init__(self) -> None:
        self.schemas: dict[int, Schema] = {}
        self.ids: dict[Schema, int] = {}
        """The id of each schema: the first, if records of another registry gave it several."""
        self.versions: dict[int, list[SubjectVersion]] = {}
        """Where each id is used, soft deletions included."""
        self.next_id = 1
        """Above all ids that were ever given, also those of schemas that are gone."""


class RegistryView:
    def __init__(self) -> None:
        self.position: Offset = 0
        """The offset after the last record."""
        self.revision = 0
        self.unreadable = 0
        """Records that were skipped."""
        self.subjects: dict[str, dict[int, Version]] = {}
        """By qualified name: versions by number, in ascending order."""
        self.contexts: dict[str, Context] = {DEFAULT_CONTEXT: Context()}
        self._ids_by_guid: dict[str, list[tuple[str, int]]] = {}
        """Contexts and ids."""
        self._referring: dict[SubjectVersion, set[SubjectVersion]] = {}
        """Versions that refer to a version."""
        self._configs: dict[str | None, dict[str, Any]] = {}
        self._modes: dict[str | None, str] = {}

    # -- replay ----------------------------------------------------------------------------------------

    def replay(self, key: bytes | None, value: bytes | None, offset: Offset) -> None:
        self.position = offset + 1
        try:
            record = parse(key, value)
        except UnreadableRecord as error:
            self.unreadable += 1
            logger.warning("the record at offset %d of _schemas is skipped: %s", offset, error)
            return
        self.revision += 1
        match record:
            case SchemaRecord():
                self._replay_schema(record, key)
            case DeleteSubjectRecord(subject, last):
                for version in self.subjects.get(subject, {}).values():
                    if last is not None and version.version <= last:
                        version.is_deleted = True
            case ClearSubjectRecord(subject):
                for number in list(self.subjects.get(subject, ())):
                    self._remove(subject, number)
            case ConfigRecord(subject, config):
                _set(self._configs, _scope(subject), config)
            case ModeRecord(subject, mode):
                _set(self._modes, _scope(subject), mode)
            case ContextRecord(context):
                self._context(context)
            case NoopRecord(next_ids):
                for context, next_id in (next_ids or {}).items():
                    found = self._context(context)
                    found.next_id = max(found.next_id, next_id)

    def _replay_schema(self, record: SchemaRecord, key: bytes | None) -> None:
        subject, number, schema_id, schema, is_deleted = record
        if schema is None:
            self._remove(subject, number)
            return
        context = self._context(context_of(subject))
        known = context.schemas.get(schema_id)
        if known is not None and known != schema:
            replaced = self.subjects.get(subject, {}).get(number)
            if replaced is None or replaced.id != schema_id or len(context.versions[schema_id]) > 1:
                logger.warning(
                    "version %d of subject %s is skipped: its id %d is that of another schema",
                    number,
                    subject,
                    schema_id,
                )
                return
        self._remove(subject, number)
        schema = context.schemas.setdefault(schema_id, schema)
        context.ids.setdefault(schema, schema_id)
        context.next_id = max(context.next_id, schema_id + 1)
        context.versions.setdefault(schema_id, []).append((subject, number))
        place = (context_of(subject), schema_id)
        places = self._ids_by_guid.setdefault(schema.guid, [])
        if place not in places:
            places.append(place)
        for each in schema.references:
            self._referring.setdefault((self._referred(subject, each.subject), each.version), set()).add(
                (subject, number)
            )
        own_key = None if key == write_key(record) else key
        version = Version(subject, number, schema_id, schema, is_deleted=is_deleted, key=own_key)
        versions = self.subjects.setdefault(subject, {})
        is_last = not versions or number > next(reversed(versions))
        versions[number] = version
        if not is_last:
            self.subjects[subject] = dict(sorted(versions.items()))

    def _remove(self, subject: str, number: int) -> None:
        versions = self.subjects.get(subject, {})
        version = versions.pop(number, None)
        if version is None:
            return
        if not versions:
            del self.subjects[subject]
        name = context_of(subject)
        context = self._context(name)
        for each in version.schema.references:
            target = (self._referred(subject, each.subject), each.version)
            referring = self._referring.get(target, set())
            referring.discard((subject, number))
            if not referring:
                self._referring.pop(target, None)
        used = context.versions[version.id]
        used.remove((subject, number))
        if not used:
            del context.versions[version.id]
            schema = context.schemas.pop(version.id)
            if context.ids.get(schema) == version.id:
                del context.ids[schema]
            places = self._ids_by_guid[schema.guid]
            places.remove((name, version.id))
            if not places:
                del self._ids_by_guid[schema.guid]

    def _context(self, name: str) -> Context:
        context = self.contexts.get(name)
        if context is None:
            context = self.contexts[name] = Context()
        return context

    # -- subjects and versions -------------------------------------------------------------------------

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """The versions of a subject, oldest first, with soft deletions if wanted."""
        return [each for each in self.subjects.get(subject, {}).values() if deleted or not each.is_deleted]

    def has_subject(self, subject: str, *, deleted: bool = False) -> bool:
        return any(deleted or not each.is_deleted for each in self.subjects.get(subject, {}).values())

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """A version by its number, or the latest. Raises if the subject or the version is not found."""
        if number == LATEST:
            found = next(
                (each for each in reversed(self.subjects.get(subject, {}).values()) if not each.is_deleted),
                None,
            )
            if found is None and deleted:
                found = next(reversed(self.subjects.get(subject, {}).values()), None)
        else:
            found = self.subjects.get(subject, {}).get(number)
            if found is not None and found.is_deleted and not deleted:
                found = None
        if found is None:
            if number == LATEST or not self.has_subject(subject, deleted=deleted):
                raise errors.subject_not_found(subject)
            raise errors.version_not_found(number)
        return found

    def list_subjects(
        self, prefix: str = WILDCARD, *, deleted: bool = False, deleted_only: bool = False
    ) -> Iterator[str]:
        """Qualified names that begin with a prefix, in order. `:*:` and a prefix finds it in all contexts."""
        anywhere = prefix.startswith(WILDCARD)
        wanted = prefix.removeprefix(WILDCARD)
        for subject in sorted(self.subjects):
            name = parse_subject(subject).name if anywhere else subject
            if not name.startswith(wanted):
                continue
            if deleted_only:
                if not self.has_subject(subject):
                    yield subject
            elif self.has_subject(subject, deleted=deleted):
                yield subject

    def referring(self, subject: str, number: int, *, deleted: bool = True) -> list[Version]:
        """The versions that refer to this one."""
        found = (self.subjects[name][number] for name, number in self._referring.get((subject, number), ()))
        return sorted(
            (each for each in found if deleted or not each.is_deleted),
            key=lambda each: (each.id, each.subject, each.version),
        )

    def _referred(self, subject: str, reference: str) -> str:
        """The qualified name of a subject in a reference of this subject: without a context, it is in the same."""
        return qualify_reference(subject, reference)

    # -- ids -------------------------------------------------------------------------------------------

    def by_id(self, schema_id: int, subject: str | None = None) -> tuple[str, Schema]:
        """The context and the schema with an id: of the subject's context; without it there, of another in which the
        subject has it. Without a subject, of the default context, or of the only one that has the id."""
        context = DEFAULT_CONTEXT if subject is None else context_of(subject)
        schema = self.contexts[context].schemas.get(schema_id) if context in self.contexts else None
        if schema is None and context == DEFAULT_CONTEXT:
            for name, other in self.contexts.items():
                used = other.versions.get(schema_id, ())
                if used and (not subject or any(parse_subject(each).name == subject for each, _ in used)):
                    context, schema = name, other.schemas[schema_id]
                    break
        if schema is None:
            raise errors.schema_not_found(schema_id)
        return context, schema

    def by_guid(self, guid: str) -> tuple[str, int, Schema]:
        places = self._ids_by_guid.get(guid.lower())
        if not places:
            raise errors.schema_not_found(guid)
        context, schema_id = min(places, key=lambda each: (each[0] != DEFAULT_CONTEXT, each))
        return context, schema_id, self.contexts[context].schemas[schema_id]

    def ids_of_guid(self, guid: str) -> list[tuple[str, int]]:
        return sorted(self._ids_by_guid.get(guid.lower(), ()))

    def used_by(self, context: str, schema_id: int, *, deleted: bool = False) -> list[Version]:
        """The versions with an id."""
        used = self.contexts[context].versions.get(schema_id, ())
        found = (self.subjects[subject][number] for subject, number in used)
        return sorted(
            (each for each in found if deleted or not each.is_deleted),
            key=lambda each: (each.subject, each.version),
        )

    def max_id(self, context: str) -> int:
        return self.contexts[context].next_id - 1

    # -- settings --------------------------------------------------------------------------------------

    def config(self, subject: str | None) -> dict[str, Any] | None:
        """What is set for a subject, a context or (None) all; None if nothing is."""
        return self._configs.get(_scope(subject))

    def config_in_scope(self, subject: str | None) -> dict[str, Any]:
        """The setting that counts for a subject: its own, its context's, the global one, or the default."""
        merged: dict[str, Any] = {"compatibilityLevel": BACKWARD}
        for scope in reversed(list(_scopes(subject))):
            merged |= {
                name: value for name, value in self._configs.get(scope, {}).items() if value is not None
            }
        merged.pop("subject", None)
        if merged["compatibilityLevel"] not in LEVELS:
            merged["compatibilityLevel"] = BACKWARD
        return merged

    def mode(self, subject: str | None) -> str | None:
        return self._modes.get(_scope(subject))

    def mode_in_scope(self, subject: str | None) -> str:
        """READONLY_OVERRIDE of all counts before any other."""
        if self._modes.get(None) == READONLY_OVERRIDE:
            return READONLY_OVERRIDE
        return next((self._modes[each] for each in _scopes(subject) if each in self._modes), READWRITE)


def qualify_reference(subject: str, reference: str) -> str:
    """A reference without a context is to a subject of the same context as the schema that has it."""
    context = context_of(subject)
    if reference.startswith(":.") or context == DEFAULT_CONTEXT:
        return parse_subject(reference).qualified if reference.startswith(":.:") else reference
    return f":{context}:{reference}"


def _scope(subject: str | None) -> str | None:
    """`:.:` is the default context as a whole, which is what settings without a subject are for."""
    return None if subject in (None, "", ":.:") else subject


def _scopes(subject: str | None) -> Iterable[str | None]:
    """Where the setting of a subject is looked for, first to last."""
    if subject:
        yield subject
        context = context_of(subject)
        if context != DEFAULT_CONTEXT:
            yield f":{context}:"
    yield None


def _set(values: dict[str | None, Any], name: str | None, value: Any) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
