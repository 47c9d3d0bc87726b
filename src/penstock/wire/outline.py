"""Walks over a message and checks its lengths before kio reads it.

kio's native reader allocates an array of the length that the message states, before it reads the first item: a length
of 2^31 - 1 in a frame of fifty bytes requests 16 GB, and if the system refuses, the process is aborted. kio also
rejects unknown tagged fields, which KIP-482 wants skipped, and reads null for arrays that cannot be null. So this
module checks every length against the remaining bytes, limits the number of items (two bytes on the wire may be an
object of a hundred in memory), and marks unknown tagged fields, which are then cut out.

The walk follows kio's classes, which have each field's type, tag and whether it may be null. It takes a fraction of a
microsecond for a field. Produce and Fetch have their own parsers and do not need it.
"""

from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, Union, get_args, get_origin

from .errors import MalformedRequest
from .primitives import INT16, INT32, read_tag_count, read_uvarint, too_long, uvarint

_FIXED_BYTES: Final = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}


class Survey:
    """The state of a walk."""

    __slots__ = ("cuts", "items_left")

    items_left: int
    """Items that the message's arrays, and tagged fields that its structures may still have."""
    cuts: list[tuple[int, int, bytes]]
    """Replacements, as bytes for a range from start to stop, that remove unknown tagged fields."""

    def __init__(self, items_max: int) -> None:
        self.items_left = items_max
        self.cuts = []

    def cut(self, frame: memoryview) -> Any:
        """The frame without unknown tagged fields, read-only, as kio expects it."""
        if not self.cuts:
            return frame.toreadonly()
        pieces: list[bytes | memoryview] = []
        at = 0
        for start, stop, instead in sorted(self.cuts):
            pieces += (frame[at:start], instead)
            at = stop
        pieces.append(frame[at:])
        return b"".join(pieces)


Walk: TypeAlias = Callable[[memoryview, int, Survey], int]
"""Takes a frame and a position; returns the position after what it walked over."""


@cache
def outline(entity_type: type[Any]) -> Walk:
    """The walk over an entity class of kio."""
    flexible: bool = entity_type.__flexible__
    steps: list[Walk] = []
    tagged: dict[int, Walk] = {}
    run = 0
    for field in fields(entity_type):
        fixed, walk = _field(field, flexible)
        if "tag" in field.metadata:
            tagged[field.metadata["tag"]] = walk
        elif fixed:
            run += fixed
        else:
            if run:
                steps.append(_fixed(run))
            run = 0
            steps.append(walk)
    if run:
        steps.append(_fixed(run))
    if flexible:
        steps.append(_tags(tagged))

    def walk_entity(frame: memoryview, at: int, survey: Survey) -> int:
        for step in steps:
            at = step(frame, at, survey)
        return at

    return walk_entity


@cache
def bytes_min(entity_type: type[Any]) -> int:
    """The minimum size of an entity of this type."""
    flexible: bool = entity_type.__flexible__
    least = 1 if flexible else 0
    for field in fields(entity_type):
        if "tag" in field.metadata:
            continue
        is_array, is_nullable, item = _kind(field)
        kafka_type = field.metadata.get("kafka_type")
        if is_array:
            least += 1 if flexible else 4
        elif kafka_type is None:
            least += 1 if is_nullable else bytes_min(item)
        elif kafka_type in _FIXED_BYTES:
            least += _FIXED_BYTES[kafka_type]
        elif flexible:
            least += 1
        else:
            least += 2 if kafka_type == "string" else 4
    return least


def _kind(field: Field[Any]) -> tuple[bool, bool, Any]:
    """Whether it is an array, whether it may be null, and the type of it or of its items."""
    is_nullable, inner = _without_none(field.type)
    if get_origin(inner) is tuple:
        return True, is_nullable, _without_none(get_args(inner)[0])[1]
    return False, is_nullable, inner


def _without_none(annotation: Any) -> tuple[bool, Any]:
    if get_origin(annotation) not in {UnionType, Union}:
        return False, annotation
    kept = [each for each in get_args(annotation) if each is not NoneType]
    return len(kept) < len(get_args(annotation)), kept[0]


def _field(field: Field[Any], flexible: bool) -> tuple[int, Walk]:
    """The bytes of a field of fixed size, or 0, and how to walk over it."""
    is_array, is_nullable, item = _kind(field)
    kafka_type = field.metadata.get("kafka_type")
    if kafka_type is None:
        if is_array:
            return 0, _array(outline(item), bytes_min(item), flexible, is_nullable)
        return 0, _nullable(outline(item)) if is_nullable else outline(item)
    if kafka_type in _FIXED_BYTES:
        size = _FIXED_BYTES[kafka_type]
        return (0, _array(None, size, flexible, is_nullable)) if is_array else (size, _fixed(size))
    sized = _sized(flexible, is_nullable and not is_array, kafka_type == "string")
    least = 1 if flexible else 2 if kafka_type == "string" else 4
    return 0, _array(sized, least, flexible, is_nullable) if is_array else sized


def _fixed(size: int) -> Walk:
    def walk_fixed(frame: memoryview, at: int, survey: Survey) -> int:  # noqa: ARG001 (a Walk)
        at += size
        if at > len(frame):
            raise MalformedRequest(f"the message has {len(frame)} bytes, at least {at} were expected")
        return at

    return walk_fixed


def _sized(flexible: bool, is_nullable: bool, is_string: bool) -> Walk:
    length = INT16 if is_string else INT32

    def walk_sized(frame: memoryview, at: int, survey: Survey) -> int:  # noqa: ARG001 (a Walk)
        if flexible:
            size, at = read_uvarint(frame, at)
            size -= 1
        else:
            (size,) = length.unpack_from(frame, at)
            at += length.size
        if size < 0:
            if size == -1 and is_nullable:
                return at
            raise MalformedRequest(f"a field before byte {at} has length {size}")
        if size > len(frame) - at:
            raise too_long("a field", size, frame, at)
        return at + size

    return walk_sized


def _array(walk: Walk | None, item_bytes_min: int, flexible: bool, is_nullable: bool) -> Walk:
    """Without a walk its items are of fixed size, and are walked over at once."""

    def walk_array(frame: memoryview, at: int, survey: Survey) -> int:
        if flexible:
            items, at = read_uvarint(frame, at)
            items -= 1
        else:
            (items,) = INT32.unpack_from(frame, at)
            at += 4
        if items < 0:
            if items == -1 and is_nullable:
                return at
            raise MalformedRequest(f"an array before byte {at} has length {items}")
        if items * item_bytes_min > len(frame) - at:
            raise too_long(f"an array of {items} items", items * item_bytes_min, frame, at)
        survey.items_left -= items
        if survey.items_left < 0:
            raise MalformedRequest(
                f"an array at byte {at} with {items} items takes the message past its limit"
            )
        if walk is None:
            return at + items * item_bytes_min
        for _ in range(items):
            at = walk(frame, at, survey)
        return at

    return walk_array


def _nullable(walk: Walk) -> Walk:
    """A structure that may be null says so in a byte before it (KIP-893)."""

    def walk_nullable(frame: memoryview, at: int, survey: Survey) -> int:
        return at + 1 if frame[at] >= 0x80 else walk(frame, at + 1, survey)

    return walk_nullable


def _tags(known: dict[int, Walk]) -> Walk:
    def walk_tags(frame: memoryview, at: int, survey: Survey) -> int:
        if frame[at] == 0:
            return at + 1
        count_at = at
        count, at = read_tag_count(frame, at)
        survey.items_left -= count
        if survey.items_left < 0:
            raise MalformedRequest(f"{count} tagged fields at byte {at} take the message past its limit")
        first_at = at
        unknown = []
        for _ in range(count):
            tag_at = at
            tag, at = read_uvarint(frame, at)
            size, at = read_uvarint(frame, at)
            if size > len(frame) - at:
                raise too_long("a tagged field", size, frame, at)
            stop = at + size
            walk = known.get(tag)
            if walk is None:
                unknown.append((tag_at, stop, b""))
            elif walk(frame[:stop], at, survey) != stop:
                raise MalformedRequest(f"tagged field {tag} at byte {at} does not end at {stop}, as it says")
            at = stop
        if unknown:
            survey.cuts += [(count_at, first_at, uvarint(count - len(unknown))), *unknown]
        return at

    return walk_tags
