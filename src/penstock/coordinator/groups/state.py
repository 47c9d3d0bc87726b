"""The state of one group coordinator, shared by its parts: groups, offsets, timers, settings and topics."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.base.outcome import Outcome

from .classic.group import ClassicGroup
from .offset_store import OffsetStore
from .settings import GroupSettings, Topics
from .timers import GroupTimers

if TYPE_CHECKING:
    from random import Random

    from .consumer.group import ConsumerGroup


@dataclass(slots=True)
class CoordinatorState:
    settings: GroupSettings
    topics: Topics
    rng: "Random"
    groups: "dict[str, ClassicGroup | ConsumerGroup]" = field(default_factory=dict)
    offsets: OffsetStore = field(default_factory=OffsetStore)
    timers: GroupTimers[Outcome[None]] = field(default_factory=GroupTimers)
    now_ms: int = 0
    """The time of the current request or timer."""

    def after_ms(self, delay_ms: int) -> int:
        return self.now_ms + delay_ms

    def new_id(self) -> str:
        """A random UUID as text: the suffix of the ids of classic members."""
        digits = f"{self.rng.getrandbits(128):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
