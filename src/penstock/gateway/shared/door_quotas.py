"""Quotas of users and client ids at the doors: the same as on the Kafka port, and counted together with it.

    HTTP    a client above a quota gets 429 with `Retry-After`; a stream is slowed down
    line    the connection is muted, and a stream slowed down

Bytes of what is written and read count, the time that the loop takes, and changes of topics. As on the Kafka port, the
request that exceeds a quota is still handled, except changes of topics.
"""

from typing import TYPE_CHECKING, Final

from penstock.base.errors import ErrorCode
from penstock.gateway.shared.login import Throttled
from penstock.handlers.support.context import Context, Session

if TYPE_CHECKING:
    from penstock.security.client_quotas import ClientQuotas, ClientShare

SLEEP_MS_MAX: Final = 1000
"""A stream that waits looks again after this time: the quota may have changed."""

_MS: Final = 1_000_000


class QuotaExceeded(Throttled):
    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED

    def __init__(self, what: str, delay_ms: int) -> None:
        super().__init__(f"the quota of {what} is exceeded", max(-(-delay_ms // 1000), 1))


class DoorQuota:
    """The quotas of one connection, whose requests may be those of different users."""

    __slots__ = ("_context", "_share")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._share: ClientShare | None = None

    def of(self, session: Session, client_id: str | None) -> "ClientShare | None":
        """What applies to a request of this session; None if the cluster has no quotas."""
        quotas = self._context.quotas
        if quotas is None:
            self.leave()
        else:
            self._share = session.state.share = quotas.share_of(self._share, session, client_id)
        return self._share

    def leave(self) -> None:
        """The connection is closed."""
        share, self._share = self._share, None
        if share is not None:
            share.leave()

    # -- of the request in progress ----------------------------------------------------------------------

    def check(self, *, reads: bool, writes: bool) -> None:
        """Raise if the client has to wait: because of an earlier request on this connection, or of others that share
        its quota. Many HTTP clients have a new connection for each request."""
        share, quotas = self._share, self._context.quotas
        if share is None or quotas is None:
            return
        now_ns = quotas.now_ns()
        delay_ms = max((share.muted_until_ns - now_ns) // _MS, share.work_wait_ms(now_ns))
        if reads:
            delay_ms = max(delay_ms, share.fetch_delay_ms(now_ns))
        if writes:
            delay_ms = max(delay_ms, share.produced(0, now_ns))
        if delay_ms > 0:
            raise QuotaExceeded("this client", delay_ms)

    def wrote(self, size: int) -> int:
        """Bytes of records were received. Returns for how long the client has to wait, in ms."""
        share, quotas = self._share, self._context.quotas
        return 0 if share is None or quotas is None else share.produced(size, quotas.now_ns())

    def read(self, size: int) -> None:
        """Bytes of records are sent."""
        if self._share is not None:
            self._share.fetch_credit -= size

    def worked(self, began_ns: int) -> int:
        """The loop has worked since then. Returns for how long the client has to wait, in ms."""
        share, quotas = self._share, self._context.quotas
        if share is None or quotas is None or not quotas.measures_time:
            return 0
        now_ns = quotas.now_ns()
        return share.worked(max(now_ns - began_ns, 0), now_ns)

    def read_delay_ms(self) -> int:
        """For how long a stream has to wait."""
        share, quotas = self._share, self._context.quotas
        if share is None or quotas is None:
            return 0
        return min(share.fetch_delay_ms(quotas.now_ns()), SLEEP_MS_MAX)

    def now_ns(self) -> int:
        quotas: ClientQuotas | None = self._context.quotas
        return 0 if quotas is None else quotas.now_ns()


def charge_change(context: Context, session: Session, partitions: int) -> None:
    """Charge a change of topics; raise if the quota is used up."""
    share, quotas = session.state.share, context.quotas
    if share is None or quotas is None:
        return
    now_ns = quotas.now_ns()
    if not share.may_change(partitions, now_ns, strict=True):
        raise QuotaExceeded("changes of topics", share.change_delay_ms(now_ns))


def give_back_change(context: Context, session: Session, partitions: int) -> None:
    """The change was not made."""
    share, quotas = session.state.share, context.quotas
    if share is not None and quotas is not None:
        share.give_back(partitions, quotas.now_ns())
