"""Memory for bodies, of all HTTP clients together.

A body is counted while it comes in and while its request is worked on. Only what was received counts, not what a head
announces: who sends nothing takes nothing from others. Small ones are not counted, so that they are taken at all
times; connections bound how many there are.

Where there is no room, whoever sends is told to come again (503) instead of being made to wait: bodies that wait for
each other's end, each with a part of the room, would wait for ever.

Freed memory stays with the process, in pieces between others. When much of it was used and none is any more, it is
handed back to the system, beside the loop: some 40 ms for all of it, in which the loop may have to wait for an
allocation once.
"""

from collections.abc import Callable

from penstock.base.world import Timer, World

BYTES_MAX = 256 * 2**20
"""All counted bodies together; 16 of the largest at the default settings."""

SMALL_BYTES = 64 * 1024
"""What one may have without being counted."""

GIVE_BACK_BYTES_MIN = 32 * 2**20
"""What must have been in use for it to be worth the while; as much may lie unused anyhow."""

GIVE_BACK_MS = 1000
"""After the last one: those who were refused come again."""


class BodyRoom:
    def __init__(self, world: World, give_back: Callable[[], None] | None = None) -> None:
        """`give_back` hands freed memory to the system; it runs beside the loop."""
        self._world = world
        self._give_back = give_back
        self.used_bytes = 0
        self._most_bytes = 0
        """Since memory was last given back."""
        self._timer: Timer | None = None

    def take(self, count: int) -> bool:
        """Have room for so many bytes more; whether there was."""
        used_bytes = self.used_bytes + count
        if used_bytes > BYTES_MAX:
            return False
        self.used_bytes = used_bytes
        self._most_bytes = max(self._most_bytes, used_bytes)
        return True

    def free(self, count: int) -> None:
        self.used_bytes -= count
        if (
            not self.used_bytes
            and self._most_bytes >= GIVE_BACK_BYTES_MIN
            and self._give_back is not None
            and self._timer is None
        ):
            self._timer = self._world.call_later(GIVE_BACK_MS, self._quiet)

    def _quiet(self) -> None:
        self._timer = None
        give_back = self._give_back
        if not self.used_bytes and give_back is not None:
            self._most_bytes = 0
            self._world.beside(give_back, lambda _, _error: None)
