"""Decides again about requests that take long, when ACLs, users or delegation tokens change.

A tail may run for days. It ends within a moment after its client's ACL or user was taken away.
"""

from collections.abc import Callable
from typing import Any, Final

from penstock.handlers.support.context import Context

CHECKS_A_TICK: Final = 500


class Rechecks:
    """Of one door."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._checks: dict[Callable[[], None], None] = {}
        self._seen: tuple[Any, ...] = ()

    def add(self, check: Callable[[], None]) -> None:
        """Call this after each change, until `remove`."""
        if not self._checks:
            self._seen = self._deciding()
            self._context.image_watchers[self._image_changed] = None
        self._checks[check] = None

    def remove(self, check: Callable[[], None]) -> None:
        self._checks.pop(check, None)
        if not self._checks:
            self._context.image_watchers.pop(self._image_changed, None)

    def check_all(self) -> None:
        """Something else has changed that decides."""
        self._run(list(self._checks))

    def _deciding(self) -> tuple[Any, ...]:
        image = self._context.image
        return image.acls, image.scram_users, image.tokens

    def _image_changed(self) -> None:
        now = self._deciding()
        if any(one is not other for one, other in zip(now, self._seen, strict=True)):
            self._seen = now
            self._run(list(self._checks))

    def _run(self, checks: list[Callable[[], None]]) -> None:
        for check in checks[:CHECKS_A_TICK]:
            if check in self._checks:
                check()
        rest = checks[CHECKS_A_TICK:]
        if rest:
            self._context.world.call_soon(lambda: self._run(rest))
