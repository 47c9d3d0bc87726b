"""What a change answers, and the records that make it true. Nothing here writes or waits.

A decision is made by the broker that writes `_schemas`, on a view of everything written before. `register` is called
when the schema has been parsed: `Prepared` is what `work.prepare` found.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.registry import errors
from penstock.registry.changes import (
    DeleteConfig,
    DeleteMode,
    DeleteSubject,
    DeleteVersion,
    Register,
    SetConfig,
    SetMode,
)
from penstock.registry.compatibility import LEVELS
from penstock.registry.names import DEFAULT_CONTEXT, context_of, parse_subject
from penstock.registry.schema import Reference, ResolvedSchema, Schema
from penstock.registry.topic_records import (
    ConfigRecord,
    ContextRecord,
    DeleteSubjectRecord,
    ModeRecord,
    NoopRecord,
    SchemaRecord,
    TopicRecord,
    write,
)
from penstock.registry.view import (
    FORWARD,
    IMPORT,
    LATEST,
    MODES,
    READONLY,
    READONLY_OVERRIDE,
    READWRITE,
    RegistryView,
    Version,
    qualify_reference,
)

INT32_MAX: Final = 2**31 - 1

REFERENCED_MAX: Final = 1000
"""Schemas that one may refer to, directly or not."""

REFERENCES_MAX: Final = 5000
"""References that are followed to find them: several schemas may refer to the same one. Takes some 10 ms."""

REFERENCED_CHARACTERS_MAX: Final = 8 * 1024 * 1024
"""Of their texts together."""

KeyValue = tuple[bytes, bytes | None]


class Decision(NamedTuple):
    reply: Any
    """The JSON of the response."""
    records: Sequence[KeyValue] = ()
    """To be written in one batch; none if nothing changes."""


class Registered(NamedTuple):
    """The reply to `register`."""

    id: int
    version: int
    schema: Schema


# -- schemas -------------------------------------------------------------------------------------------


def check_may_register(view: RegistryView, change: Register) -> None:
    """Raise if the mode or the subject's name forbids it."""
    subject = change.subject
    mode, context = view.mode_in_scope(subject), context_of(subject)
    parse_subject(subject)
    if mode in (READONLY, READONLY_OVERRIDE):
        raise errors.not_permitted(
            f"Subject {errors.shown(subject)} in context {context} is in read-only mode"
        )
    if change.id >= 0:
        if mode not in (IMPORT, FORWARD):
            raise errors.not_permitted(
                f"Subject {errors.shown(subject)} in context {context} is not in import mode"
            )
    elif mode != READWRITE:
        raise errors.not_permitted(
            f"Subject {errors.shown(subject)} in context {context} is not in read-write mode"
        )
    if change.id > INT32_MAX or not 0 <= change.version <= INT32_MAX:
        raise errors.invalid_version(str(change.version))


def is_import(change: Register) -> bool:
    """Whether a schema keeps the id of another registry: then it is not compared with other versions."""
    return change.id >= 0


def resolve(view: RegistryView, subject: str, schema: Schema) -> ResolvedSchema:
    """The schema with the texts of what it refers to. Raises if something is missing, or refers to itself."""
    found: dict[str, str] = {}
    size = followed = 0

    def add(owner: str, references: Sequence[Reference], path: tuple[tuple[str, int], ...]) -> None:
        nonlocal size, followed
        followed += len(references)
        if followed > REFERENCES_MAX:
            raise errors.invalid_schema(
                f"Invalid schema: it and the schemas it refers to have more than {REFERENCES_MAX} references"
            )
        for each in references:
            name = qualify_reference(owner, each.subject)
            place = (name, each.version)
            if place in path:
                raise errors.invalid_schema(
                    f"Invalid schema: version {each.version} of subject {errors.shown(name)} refers to itself"
                )
            try:
                version = view.version(name, each.version, deleted=True)
            except errors.RegistryError:
                raise errors.invalid_schema(
                    f'Invalid schema: no schema reference found for subject "{errors.shown(name)}" and version '
                    f"{each.version}"
                ) from None
            if each.name in found:
                continue
            if len(found) + len(path) >= REFERENCED_MAX or len(path) >= REFERENCE_DEPTH_MAX:
                raise errors.invalid_schema(
                    f"Invalid schema: it refers to more than {REFERENCED_MAX} schemas, or through more than "
                    f"{REFERENCE_DEPTH_MAX} others"
                )
            add(name, version.schema.references, (*path, place))
            size += len(version.schema.text)
            if size > REFERENCED_CHARACTERS_MAX:
                raise errors.too_large(
                    f"The schemas that it refers to have more than {REFERENCED_CHARACTERS_MAX} characters"
                )
            found[each.name] = version.schema.text

    add(subject, schema.references, ())
    return ResolvedSchema(schema.type, schema.text, tuple(found.items()))


REFERENCE_DEPTH_MAX: Final = 100


def register(view: RegistryView, change: Register, schema: Schema, equal: Version | None) -> Decision:
    """Decide on a schema that has been parsed, and compared with the versions that it must be compatible with.
    `schema` has the canonical text; `equal` is the version of the subject that is the same schema."""
    subject = change.subject
    if equal is not None and not equal.is_deleted and _is_same_place(change, equal):
        return Decision(Registered(equal.id, equal.version, equal.schema))
    context = view.contexts.get(context_of(subject))
    versions = view.versions(subject, deleted=True)
    schema_id = _id(view, change, schema, equal)
    number = change.version if is_import(change) and change.version else 0
    if not number:
        number = versions[-1].version + 1 if versions else 1
    if number > INT32_MAX or schema_id > INT32_MAX:
        raise errors.not_permitted("no version or id is left")
    records: list[KeyValue] = []
    if context is None:
        records.append(write(ContextRecord(context_of(subject))))
    replaced = next((each for each in versions if each.version == number), None)
    record = SchemaRecord(subject, number, schema_id, schema)
    key, value = write(record)
    records.append((key if replaced is None else replaced.record_key, value))
    # A schema that is registered again can be found by its id: its soft deleted versions are not needed.
    records += [
        (each.record_key, None)
        for each in versions
        if each.is_deleted and each.id == schema_id and each.version != number
    ]
    return Decision(Registered(schema_id, number, schema), records)


def _is_same_place(change: Register, equal: Version) -> bool:
    return not is_import(change) or (equal.id == change.id and change.version in (0, equal.version))


def _id(view: RegistryView, change: Register, schema: Schema, equal: Version | None) -> int:
    context = view.contexts.get(context_of(change.subject))
    if is_import(change):
        known = None if context is None else context.schemas.get(change.id)
        if known is not None and known != schema:
            raise errors.not_permitted(f"Overwrite new schema with id {change.id} is not permitted.")
        return change.id
    if (
        equal is not None
        and equal.schema.metadata == schema.metadata
        and equal.schema.rule_set == schema.rule_set
    ):
        return equal.id
    if context is None:
        return 1
    return context.ids.get(schema, context.next_id)


# -- deletion ------------------------------------------------------------------------------------------


def delete_subject(view: RegistryView, change: DeleteSubject) -> Decision:
    subject = change.subject
    _check_writable(view, subject)
    every = view.versions(subject, deleted=True)
    if not every:
        raise errors.subject_not_found(subject)
    live = [each for each in every if not each.is_deleted]
    if change.is_permanent:
        if live:
            raise errors.subject_not_soft_deleted(subject)
        _check_not_referred(view, every, deleted=True)
        return Decision([each.version for each in every], _removal(view, every))
    if not live:
        raise errors.subject_soft_deleted(subject)
    _check_not_referred(view, live, deleted=False)
    records = [write(DeleteSubjectRecord(subject, live[-1].version)), *_unset(view, subject)]
    return Decision([each.version for each in live], records)


def delete_version(view: RegistryView, change: DeleteVersion) -> Decision:
    subject, number = change.subject, change.version
    _check_writable(view, subject)
    if not view.has_subject(subject, deleted=True):
        raise errors.subject_not_found(subject)
    if number == LATEST:
        last = (view.versions(subject) or view.versions(subject, deleted=True))[-1]
    else:
        last = view.version(subject, number, deleted=True)
    if change.is_permanent:
        if not last.is_deleted:
            raise errors.version_not_soft_deleted(subject, last.version)
        _check_not_referred(view, [last], deleted=True)
        return Decision(last.version, _removal(view, [last]))
    if last.is_deleted:
        raise errors.version_soft_deleted(subject, last.version)
    _check_not_referred(view, [last], deleted=False)
    _, value = write(SchemaRecord(subject, last.version, last.id, last.schema, is_deleted=True))
    records: list[KeyValue] = [(last.record_key, value)]
    if view.versions(subject) == [last]:
        records += _unset(view, subject)
    return Decision(last.version, records)


def _check_writable(view: RegistryView, subject: str) -> None:
    if view.mode_in_scope(subject) in (READONLY, READONLY_OVERRIDE):
        raise errors.not_permitted(
            f"Subject {errors.shown(subject)} in context {context_of(subject)} is in read-only mode"
        )


def _check_not_referred(view: RegistryView, versions: Iterable[Version], *, deleted: bool) -> None:
    versions = list(versions)
    going = {(each.subject, each.version) for each in versions}
    for each in versions:
        for other in view.referring(each.subject, each.version, deleted=deleted):
            if (other.subject, other.version) not in going:
                raise errors.reference_exists(each.subject, each.version)


def _removal(view: RegistryView, versions: Sequence[Version]) -> list[KeyValue]:
    """Tombstones; and the next ids, since compaction will remove the records that show which were given."""
    next_ids = {name: context.next_id for name, context in view.contexts.items()}
    return [*((each.record_key, None) for each in versions), write(NoopRecord(next_ids))]


def _unset(view: RegistryView, subject: str) -> list[KeyValue]:
    """Unset the settings of a subject that is deleted."""
    records: list[TopicRecord] = []
    if view.mode(subject) is not None:
        records.append(ModeRecord(subject, None))
    if view.config(subject) is not None:
        records.append(ConfigRecord(subject, None))
    return [write(each) for each in records]


# -- settings ------------------------------------------------------------------------------------------


def set_config(view: RegistryView, change: SetConfig) -> Decision:
    level = change.fields.get("compatibilityLevel")
    if level is not None and (not isinstance(level, str) or level.upper() not in LEVELS):
        raise errors.invalid_level()
    _check_settings_writable(view, change.subject)
    fields = dict(change.fields)
    if level is not None:
        fields["compatibilityLevel"] = level.upper()
    before = view.config(change.subject) or {}
    config = {name: value for name, value in {**before, **fields}.items() if name != "subject"}
    reply = {
        ("compatibility" if name == "compatibilityLevel" else name): value for name, value in fields.items()
    }
    return Decision(reply, [write(ConfigRecord(_scope(change.subject), config))])


def delete_config(view: RegistryView, change: DeleteConfig) -> Decision:
    _check_settings_writable(view, change.subject)
    before = view.config(change.subject)
    if before is None:
        if change.subject is not None:
            raise errors.subject_not_found(change.subject)
        return Decision(view.config_in_scope(None))
    return Decision(
        {name: value for name, value in before.items() if name != "subject"},
        [write(ConfigRecord(_scope(change.subject), None))],
    )


def _check_settings_writable(view: RegistryView, subject: str | None) -> None:
    if view.mode_in_scope(subject) in (READONLY, READONLY_OVERRIDE):
        where = f"Subject {errors.shown(subject)}" if subject else "The registry"
        raise errors.not_permitted(f"{where} is in read-only mode")


def set_mode(view: RegistryView, change: SetMode) -> Decision:
    mode = change.mode.upper()
    if mode not in MODES:
        raise errors.invalid_mode()
    subject = change.subject
    if mode == IMPORT and view.mode_in_scope(subject) != IMPORT and not change.is_forced:
        if subject is None:
            taken = any(True for _ in view.list_subjects())
        else:
            name = parse_subject(subject, may_be_context=True)
            taken = (
                view.has_subject(subject)
                if name.name
                else any(context_of(each) == name.context for each in view.list_subjects())
            )
        if taken:
            raise errors.not_permitted("Cannot import since found existing subjects")
    return Decision({"mode": mode}, [write(ModeRecord(_scope(subject), mode))])


def delete_mode(view: RegistryView, change: DeleteMode) -> Decision:
    before = view.mode(change.subject)
    if before is None:
        if change.subject is not None:
            raise errors.subject_not_found(change.subject)
        return Decision({"mode": READWRITE})
    return Decision({"mode": before}, [write(ModeRecord(_scope(change.subject), None))])


def _scope(subject: str | None) -> str | None:
    return None if subject == f":{DEFAULT_CONTEXT}:" else subject


DECISIONS: Final[dict[type[msgspec.Struct], Callable[[RegistryView, Any], Decision]]] = {
    DeleteSubject: delete_subject,
    DeleteVersion: delete_version,
    SetConfig: set_config,
    DeleteConfig: delete_config,
    SetMode: set_mode,
    DeleteMode: delete_mode,
}
"""Of the changes that need no parsing."""
