"""Kafka's message encoding, for structs inside records, each declared once.

A flexible struct has its plain fields in order, then its tagged fields: a count, and for each its tag, size and bytes,
in the order of tags. A tagged field with its default value is not written. Lengths are unsigned varints of the length
plus one; zero means null. Older versions have no tags, lengths of two bytes for strings and of four for bytes and
lists, and -1 for null. `FLEXIBLE_SINCE` is the first flexible version.

The declaration of a field says which versions have it: `wire(INT32, since=2)`. The fields of each version are computed
once, so that reading a record walks one list. Unknown tags are kept, and written back unchanged.
"""

from collections.abc import Callable, Iterable
from inspect import get_annotations
from operator import itemgetter
from struct import Struct as Packing
from struct import error as StructError  # noqa: N812  (a class that the module spells like a function)
from typing import Any, ClassVar, NamedTuple, TypeAlias, dataclass_transform

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import UUID_BYTES

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]
"""Returns the value at a position, and the position after it."""
Write: TypeAlias = Callable[[bytearray, Any], None]

NO_UUID = bytes(UUID_BYTES)
_UVARINT_BITS_MAX = 35
"""Kafka reads an unsigned varint from at most five bytes of seven bits."""
_NULL = 0xFF
"""-1, the byte that stands for a null struct."""


class CorruptStruct(KafkaError):
    code = ErrorCode.CORRUPT_MESSAGE


class Form(NamedTuple):
    """The encoding of a field in one version."""

    version: int
    flexible: bool
    nullable: bool = False
    tagged: bool = False


class Kind(NamedTuple):
    """A wire type, and the default value of its fields."""

    name: str
    codec: Callable[[Form], tuple[Read, Write]]
    zero: Any


class Wire(NamedTuple):
    """Wire type and versions of a field."""

    kind: Kind
    default: Any
    since: int
    until: int
    tag: int | None
    nullable: bool


def wire(
    kind: Kind,
    default: Any = ...,
    *,
    since: int = 0,
    until: int = 2**15 - 1,
    tag: int | None = None,
    nullable: bool = False,
) -> Any:
    """Declare a field of a struct, in the versions from `since` to `until`."""
    return Wire(kind, kind.zero if default is ... else default, since, until, tag, nullable)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Struct:
    """Base of all structs; behaves like a frozen dataclass.

    A dataclass compiles half a dozen functions per class, which for all of Kafka's records would add a tenth of a
    second to every start. Fields are the annotated names; names in capitals are class attributes.
    """

    FIELDS: ClassVar[dict[str, Wire]] = {}
    FLEXIBLE_SINCE: ClassVar[int] = 0
    """First flexible version. A nested struct is flexible if the outer one is."""
    _DEFAULTS: ClassVar[dict[str, Any]] = {"unknown_tags": ()}
    unknown_tags: tuple[tuple[int, bytes], ...] = ()
    """Tagged fields of a later Kafka, by tag."""

    def __init_subclass__(cls) -> None:
        cls.FIELDS, cls._DEFAULTS = dict(cls.FIELDS), dict(cls._DEFAULTS)
        for name in get_annotations(cls):
            if name.isupper():
                continue
            declared = cls.__dict__[name]
            if isinstance(declared, Wire):
                cls.FIELDS[name] = declared
                declared = declared.default
                setattr(cls, name, declared)
            cls._DEFAULTS[name] = declared

    def __init__(self, **values: Any) -> None:
        held = self.__dict__
        held.update(self._DEFAULTS)
        held.update(values)
        if len(held) != len(self._DEFAULTS):
            unknown = sorted(set(values) - set(self._DEFAULTS))
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        shown = (
            f"{name}={value!r}" for name, value in self.__dict__.items() if name != "unknown_tags" or value
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    value = data[position]
    position += 1
    if value < 0x80:
        return value, position
    value &= 0x7F
    for shift in range(7, _UVARINT_BITS_MAX, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise CorruptStruct(f"a length or tag at byte {position - 5} is longer than five bytes")


def _fixed(name: str, packing: str, zero: Any) -> Kind:
    packed = Packing(packing)
    unpack, pack, size = packed.unpack_from, packed.pack, packed.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return Kind(name, lambda _form: (read, write), zero)


INT8 = _fixed("int8", ">b", 0)
INT16 = _fixed("int16", ">h", 0)
UINT16 = _fixed("uint16", ">H", 0)
INT32 = _fixed("int32", ">i", 0)
INT64 = _fixed("int64", ">q", 0)
FLOAT64 = _fixed("float64", ">d", 0.0)
BOOL = _fixed("bool", ">?", False)
UUID = _fixed("uuid", ">16s", NO_UUID)


def _compact_length(data: bytes, position: int) -> tuple[int, int]:
    length, position = read_uvarint(data, position)
    return length - 1, position


def _put_compact_length(out: bytearray, length: int) -> None:
    write_uvarint(out, length + 1)


class Length(NamedTuple):
    """The encoding of lengths; -1 is null."""

    read: Callable[[bytes, int], tuple[int, int]]
    write: Callable[[bytearray, int], None]


def _plain_length(packing: str) -> Length:
    read, write = _fixed("length", packing, 0).codec(Form(0, False))
    return Length(read, write)


_COMPACT = Length(_compact_length, _put_compact_length)
_SHORT, _LONG = _plain_length(">h"), _plain_length(">i")


def _blob(length: Length, nullable: bool) -> tuple[Read, Write]:
    def read(data: bytes, position: int) -> tuple[bytes | None, int]:
        size, start = length.read(data, position)
        if size < 0:
            if size < -1 or not nullable:
                raise CorruptStruct(f"null at byte {position}, where a value is required")
            return None, start
        end = start + size
        if end > len(data):
            raise CorruptStruct(f"{size} bytes at byte {start} end after the record's {len(data)}")
        return data[start:end], end

    def write(out: bytearray, value: bytes | None) -> None:
        if value is None:
            if not nullable:
                raise ValueError("null, where a value is required")
            length.write(out, -1)
            return
        length.write(out, len(value))
        out += value

    return read, write


def _bytes_codec(form: Form) -> tuple[Read, Write]:
    return _blob(_COMPACT if form.flexible else _LONG, form.nullable)


def _string_codec(form: Form) -> tuple[Read, Write]:
    read_bytes, write_bytes = _blob(_COMPACT if form.flexible else _SHORT, form.nullable)

    def read(data: bytes, position: int) -> tuple[str | None, int]:
        raw, position = read_bytes(data, position)
        return None if raw is None else raw.decode(), position

    def write(out: bytearray, value: str | None) -> None:
        write_bytes(out, None if value is None else value.encode())

    return read, write


BYTES = Kind("bytes", _bytes_codec, b"")
STRING = Kind("string", _string_codec, "")


def array(of: Kind) -> Kind:
    def codec(form: Form) -> tuple[Read, Write]:
        read_one, write_one = of.codec(form._replace(nullable=False, tagged=False))
        length = _COMPACT if form.flexible else _LONG

        def read(data: bytes, position: int) -> tuple[tuple[Any, ...] | None, int]:
            count, start = length.read(data, position)
            if count < 0:
                if count < -1 or not form.nullable:
                    raise CorruptStruct(f"null at byte {position}, where a list is required")
                return None, start
            if count > len(data) - start:  # every element takes a byte at least
                raise CorruptStruct(f"a list at byte {start} claims {count} elements")
            position = start
            values = []
            for _ in range(count):
                value, position = read_one(data, position)
                values.append(value)
            return tuple(values), position

        def write(out: bytearray, values: Iterable[Any] | None) -> None:
            if values is None:
                if not form.nullable:
                    raise ValueError("null, where a list is required")
                length.write(out, -1)
                return
            listed = tuple(values)
            length.write(out, len(listed))
            for value in listed:
                write_one(out, value)

        return read, write

    return Kind(f"[]{of.name}", codec, ())


def struct(of: type[Struct]) -> Kind:
    """A nested struct. A nullable one is preceded by a byte: 1, or for null -1 (0 in a tagged field)."""

    def codec(form: Form) -> tuple[Read, Write]:
        body = body_of(of, form.version, form.flexible)
        null = 0 if form.tagged else _NULL

        def read(data: bytes, position: int) -> tuple[Struct, int]:
            values, position = body.read(data, position)
            return of(**values), position

        def read_nullable(data: bytes, position: int) -> tuple[Struct | None, int]:
            return (None, position + 1) if data[position] == null else read(data, position + 1)

        def write_nullable(out: bytearray, value: Struct | None) -> None:
            if value is None:
                out.append(null)
                return
            out.append(1)
            body.write(out, value)

        return (read_nullable, write_nullable) if form.nullable else (read, body.write)

    return Kind(of.__name__, codec, of())


class Body:
    """The fields of one version of one struct."""

    __slots__ = ("_absent", "_flexible", "_plain", "_tagged")

    def __init__(self, of: type[Struct], version: int, flexible: bool) -> None:
        self._flexible = flexible
        self._plain: list[tuple[str, Read, Write]] = []
        self._tagged: dict[int, tuple[str, Read, Write, Any]] = {}
        self._absent: list[tuple[str, Any]] = []
        for name, how in of.FIELDS.items():
            if not how.since <= version <= how.until:
                self._absent.append((name, how.default))
                continue
            read, write = how.kind.codec(Form(version, flexible, how.nullable, how.tag is not None))
            if how.tag is None:
                self._plain.append((name, read, write))
            else:
                self._tagged[how.tag] = (name, read, write, how.default)

    def read(self, data: bytes, position: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        for name, read, _ in self._plain:
            values[name], position = read(data, position)
        if not self._flexible:
            return values, position
        count, position = read_uvarint(data, position)
        if count:
            unknown = []
            for _ in range(count):
                tag, position = read_uvarint(data, position)
                size, position = read_uvarint(data, position)
                end = position + size
                if end > len(data):
                    raise CorruptStruct(f"tag {tag} at byte {position} ends after the record's {len(data)}")
                known = self._tagged.get(tag)
                if known is None:
                    unknown.append((tag, data[position:end]))
                else:
                    values[known[0]], position = known[1](data, position)
                    if position != end:
                        raise CorruptStruct(f"tag {tag} ends at byte {position}, {end} expected")
                position = end
            if unknown:
                values["unknown_tags"] = tuple(unknown)
        return values, position

    def write(self, out: bytearray, value: Struct) -> None:
        for name, default in self._absent:
            if getattr(value, name) != default:
                raise ValueError(
                    f"{type(value).__name__}.{name} is {getattr(value, name)!r}, "
                    f"but its version has no such field"
                )
        for name, _, write in self._plain:
            write(out, getattr(value, name))
        if not self._flexible:
            return
        tagged = list(value.unknown_tags)
        for tag, (name, _, write, default) in self._tagged.items():
            held = getattr(value, name)
            if held != default:
                inner = bytearray()
                write(inner, held)
                tagged.append((tag, bytes(inner)))
        write_uvarint(out, len(tagged))
        for tag, content in sorted(tagged, key=itemgetter(0)):
            write_uvarint(out, tag)
            write_uvarint(out, len(content))
            out += content


_BODIES: dict[tuple[type[Struct], int, bool], Body] = {}


def body_of(of: type[Struct], version: int, flexible: bool | None = None) -> Body:
    if flexible is None:
        flexible = version >= of.FLEXIBLE_SINCE
    body = _BODIES.get((of, version, flexible))
    if body is None:
        body = _BODIES[of, version, flexible] = Body(of, version, flexible)
    return body


def read_whole(of: type[Struct], version: int, data: bytes, position: int = 0) -> dict[str, Any]:
    """Read a struct from a position to the end of the data; raise if anything is left or missing."""
    try:
        values, end = body_of(of, version).read(data, position)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise CorruptStruct(f"{of.__name__} version {version} cannot be read: {error}") from error
    if end != len(data):
        raise CorruptStruct(
            f"{of.__name__} version {version} ends at byte {end}, but {len(data)} bytes were given"
        )
    return values
