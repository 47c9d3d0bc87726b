"""An immutable map (hash trie). A changed map shares all unchanged parts with the old one.

Entries are in leaves, plain dicts of up to `LEAF_MAX` entries. A larger leaf becomes a branch of `FANOUT` children,
chosen by five bits of the key's hash at a time. So setting one key of 10,000 copies one leaf and the branches above
it, about a hundred pointers. Comparing two maps that share parts is fast, since a shared child is the same object.

    {a b c d ...}  --set e-->  ({a c}, {}, {b}, ... {d e})      the other children are shared

The hash is not Python's, which differs between processes: the same entries have the same layout everywhere.
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, TypeAlias, TypeVar
from zlib import crc32

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")

LEAF_MAX = 64
FANOUT = 32
_BITS = 5
_SLOT_MASK = FANOUT - 1
_DEPTH_MAX = 6
"""Six times five bits of a 32-bit hash; a leaf at the bottom has any number of entries."""

_Node: TypeAlias = "dict[Any, Any] | tuple[Any, ...]"


class _Gone:
    def __repr__(self) -> str:
        return "GONE"


GONE: Any = _Gone()
"""In a set of changes: remove the key."""


def _spread(key: Any) -> int:
    if isinstance(key, int):
        return key
    if isinstance(key, bytes):
        return crc32(key)
    if isinstance(key, str):
        return crc32(key.encode())
    return crc32(repr(key).encode())


def _grouped(entries: dict[Any, Any], depth: int) -> dict[int, dict[Any, Any]]:
    groups: dict[int, dict[Any, Any]] = {}
    shift = depth * _BITS
    for key, value in entries.items():
        slot = _spread(key) >> shift & _SLOT_MASK
        group = groups.get(slot)
        if group is None:
            groups[slot] = {key: value}
        else:
            group[key] = value
    return groups


def _with_changes(node: _Node, changes: dict[Any, Any], depth: int) -> _Node:
    if isinstance(node, tuple):
        children = list(node)
        for slot, group in _grouped(changes, depth).items():
            children[slot] = _with_changes(children[slot], group, depth + 1)
        return tuple(children)
    leaf = node | changes
    if GONE in changes.values():
        leaf = {key: value for key, value in leaf.items() if value is not GONE}
    if len(leaf) <= LEAF_MAX or depth == _DEPTH_MAX:
        return leaf
    empty: dict[Any, Any] = {}
    branch: _Node = (empty,) * FANOUT
    return _with_changes(branch, leaf, depth)


def _entries(node: _Node) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, dict):
        yield from node.items()
    else:
        for child in node:
            if child:
                yield from _entries(child)


def _differing(old: _Node, new: _Node) -> Iterator[Any]:
    if old is new:
        return
    if isinstance(old, tuple) and isinstance(new, tuple):
        for before, after in zip(old, new, strict=True):
            yield from _differing(before, after)
        return
    before, after = dict(_entries(old)), dict(_entries(new))
    for key, value in before.items():
        held = after.get(key, GONE)
        if held is not value and held != value:
            yield key
    yield from (key for key in after if key not in before)


class FrozenMap(Mapping[K, V], Generic[K, V]):
    __slots__ = ("_count", "_root")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._count = len(entries) if entries else 0
        self._root: _Node = _with_changes({}, dict(entries), 0) if entries else {}

    def changed(self, changes: Mapping[K, V]) -> "FrozenMap[K, V]":
        """Return a map with the changes; the value GONE removes a key."""
        if not changes:
            return self
        successor: FrozenMap[K, V] = FrozenMap.__new__(FrozenMap)
        successor._root = _with_changes(self._root, dict(changes), 0)
        successor._count = self._count
        for key, value in changes.items():
            successor._count += (value is not GONE) - (key in self)
        return successor

    def differing(self, other: "FrozenMap[K, V]") -> Iterator[K]:
        """Yield the keys whose values differ; parts that the maps share are skipped."""
        return _differing(self._root, other._root)

    def _leaf(self, key: object) -> dict[Any, Any]:
        node: _Node = self._root
        if isinstance(node, dict):
            return node
        spread = _spread(key)
        while not isinstance(node, dict):
            node = node[spread & _SLOT_MASK]
            spread >>= _BITS
        return node

    def __getitem__(self, key: K) -> V:
        value: V = self._leaf(key)[key]
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        return self._leaf(key).get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._leaf(key)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[K]:
        for key, _ in _entries(self._root):
            yield key

    def entries(self) -> Iterator[tuple[K, V]]:
        """As `items()`, without a lookup for each."""
        return _entries(self._root)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FrozenMap):
            return NotImplemented
        if self._count != other._count:
            return False
        return next(_differing(self._root, other._root), GONE) is GONE

    def __hash__(self) -> int:
        raise TypeError("a FrozenMap has no hash: its values may be unhashable")

    def __repr__(self) -> str:
        return f"FrozenMap({dict(_entries(self._root))!r})"


class Draft(Generic[K, V]):
    """A map with pending changes: reads see them, and `freeze` applies them together."""

    __slots__ = ("_base", "_changes")

    def __init__(self, base: FrozenMap[K, V]) -> None:
        self._base = base
        self._changes: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        value = self._changes.get(key, self)
        if value is self:
            found: V | None = self._base.get(key)
            return found
        return None if value is GONE else value  # type: ignore[return-value]  # self is ruled out above

    def set(self, key: K, value: V) -> None:
        self._changes[key] = value

    def remove(self, key: K) -> None:
        if key in self._base:
            self._changes[key] = GONE
        else:
            self._changes.pop(key, None)

    def keys(self) -> list[K]:
        fresh = [key for key in self._changes if key not in self._base]
        return [key for key in (*self._base, *fresh) if self.get(key) is not None]

    def freeze(self) -> FrozenMap[K, V]:
        return self._base.changed(self._changes)
