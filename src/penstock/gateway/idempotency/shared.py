"""What all topics' keys have in common."""

from typing import Protocol

from penstock.base.world import World
from penstock.gateway.idempotency.keyfile import Filters
from penstock.replica import Replicas
from penstock.vfs import Vfs


class Shared(Protocol):
    world: World
    vfs: Vfs
    replicas: Replicas
    filters: Filters
    is_stopped: bool

    def retention_ms(self) -> int: ...

    def noted(self, count: int) -> None:
        """There are so many more recent keys, or fewer."""
