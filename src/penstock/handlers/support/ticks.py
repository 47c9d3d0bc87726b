"""Work on long lists of what the cluster has, a portion in each tick of the event loop.

Few items are handled at once. With more, clients are served in between.
"""

from collections.abc import Callable, Iterable
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeVar

from penstock.base.steps import Steps, next_tick
from penstock.base.world import World

T = TypeVar("T")
R = TypeVar("R")

ITEMS_A_TICK: Final = 1000


def in_ticks(
    world: World, items: Iterable[T], do: Callable[[list[T]], None], items_a_tick: int = ITEMS_A_TICK
) -> Steps[None]:
    """Pass the items on, in portions."""
    rest = iter(items)
    some = list(islice(rest, items_a_tick))
    while some:
        do(some)
        some = list(islice(rest, items_a_tick)) if len(some) == items_a_tick else []
        if some:
            yield next_tick(world)


def chosen_in_ticks(world: World, items: Iterable[T], is_wanted: Callable[[T], bool]) -> Steps[list[T]]:
    found: list[T] = []
    yield from in_ticks(world, items, lambda some: found.extend(filter(is_wanted, some)))
    return found


def mapped_in_ticks(
    world: World, items: Iterable[T], make: Callable[[T], R], items_a_tick: int = ITEMS_A_TICK
) -> Steps[list[R]]:
    found: list[R] = []
    yield from in_ticks(world, items, lambda some: found.extend(map(make, some)), items_a_tick)
    return found


def sorted_in_ticks(
    world: World, items: Iterable[Any], key: Callable[[Any], Any] | None = None
) -> Steps[list[Any]]:
    portions: list[list[Any]] = []
    yield from in_ticks(world, items, lambda some: portions.append(sorted(some, key=key)))
    if len(portions) <= 1:
        return portions[0] if portions else []
    found: list[Any] = []
    yield from in_ticks(world, merge(*portions, key=key), found.extend)
    return found
