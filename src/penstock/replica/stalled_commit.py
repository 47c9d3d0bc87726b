"""Detects that a leader which may have been deposed commits nothing, so that clients need not wait for their timeout.

A leader that is cut off from its peers keeps the batches of acks=all producers until their request timeout (30 s).
The controller elects another leader after `broker.session.timeout.ms` (9 s), but nothing sends the producers there.
So once the lease is over (`controlplane.broker_lifecycle`), the leader watches the high watermark:

    lease over            first check                STALLED_MS_MAX later
    |---------------------|--------------------------|
                          high watermark 40          still 40: NOT_LEADER_OR_FOLLOWER to every client that waits

Clients refresh their metadata, from other brokers too, and retry. A high watermark that moves proves that the ISR
still fetches: without a controller, leaders stay what they were, and clients notice nothing.
"""

from typing import Final

from penstock.base.ids import Offset

STALLED_MS_MAX: Final = 500
"""Followers in sync fetch within milliseconds; a client may refresh its metadata twice a second without harm."""


class StalledCommit:
    """The check of one partition that this broker leads. Times are milliseconds of a monotonic clock."""

    __slots__ = ("_high_watermark", "_since_ms")

    def __init__(self) -> None:
        self._since_ms: int | None = None
        """When the high watermark was first seen where it is; None while the lease holds."""
        self._high_watermark: Offset = 0

    def is_overdue(self, high_watermark: Offset, now_ms: int) -> bool:
        """Whether nothing was committed for `STALLED_MS_MAX`. If so, the measurement starts again."""
        if self._since_ms is None or high_watermark != self._high_watermark:
            self._since_ms, self._high_watermark = now_ms, high_watermark
            return False
        if now_ms - self._since_ms < STALLED_MS_MAX:
            return False
        self._since_ms = now_ms
        return True

    def reset(self) -> None:
        self._since_ms = None
