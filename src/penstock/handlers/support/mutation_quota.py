"""The quota of changes to topics (KIP-599): partitions that a client creates and deletes.

It is counted at the broker that the client asks. From the API version that knows THROTTLING_QUOTA_EXCEEDED on, changes
beyond the quota are refused; clients of older versions are muted only.
"""

from datetime import timedelta
from typing import Final

from penstock.base.errors import ErrorCode
from penstock.metadata.controller.requests import Result

from .context import Call, Context
from .response_fields import NO_THROTTLE

EXCEEDED: Final = Result(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


class MutationQuota:
    """Of one request."""

    def __init__(self, context: Context, call: Call, strict_since: int) -> None:
        self._quotas = context.quotas
        self._session = call.session
        self._share = call.session.state.share if context.quotas is not None else None
        self._strict = call.version >= strict_since

    def admits(self, partitions: int) -> bool:
        """Charge a change of this many partitions; False if it is refused."""
        if self._quotas is None or self._share is None:
            return True
        return self._share.may_change(partitions, self._quotas.now_ns(), strict=self._strict)

    def give_back(self, partitions: int) -> None:
        """The change was not made."""
        if self._quotas is not None and self._share is not None:
            self._share.give_back(partitions, self._quotas.now_ns())

    def throttle_time(self) -> timedelta:
        """Mute the client if the quota is used up. Returns for how long."""
        if self._quotas is None or self._share is None:
            return NO_THROTTLE
        delay_ms = self._share.change_delay_ms(self._quotas.now_ns())
        if not delay_ms:
            return NO_THROTTLE
        self._session.mute(delay_ms)
        return timedelta(milliseconds=delay_ms)
