"""Enforces quotas of users and client ids at this broker (KIP-13, KIP-124, KIP-219, KIP-599).

    ClientQuotas            the node's: quotas in force, and a `Bucket` for each group of clients that shares one
      ClientShare           a connection's: the quotas that apply to its principal and client id

A client that exceeds a quota is answered at once, with the time for which its connection is muted. Nothing is refused,
except changes of topics by clients that know THROTTLING_QUOTA_EXCEEDED.

To keep quotas cheap, a connection is given some of what is left of its quotas, its credit. While it has credit, for
`CREDIT_NS` at most, its requests are counted on the connection alone. All credits together are less than what is left;
a connection without credit asks for each request, and is then held to its quota exactly.

The loop's time is measured for each request that is not taken by Produce's fast path. What remains of the ticks (fast
paths, writes to logs and sockets) is divided among all requests alike.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from penstock.base.metrics import Metrics, Throttled
from penstock.metadata.quotas import (
    CLIENT_KEYS,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    AppliedQuota,
    QuotaEntity,
    Share,
    applying_quota,
)

from .rates import SampledRate, TokenBucket, Windows

CREDIT_NS: Final = 250_000_000
"""A connection asks again after this time, also if it has credit left. It is a quarter of a sample, and long enough
for connections with few requests a second to have most of them by credit."""

MEASURED_NS_MAX: Final = 5_000_000
"""It also asks after this much of the loop's time."""

UNLIMITED: Final = 1 << 62

LIMIT_MAX: Final = 2.0**63
"""A larger limit counts as this one. So does one that is no number, which Kafka's metadata may have."""

BUCKETS_MAX: Final = 20_000
"""Client ids are a client's choice, and a quota of a default gives each its own bucket. With more of them in use than
this, new ones share a bucket."""

WORK_NS_MIN: Final = 1_000
WORK_NS_MAX: Final = 1_000_000
WORK_NS_FIRST: Final = 20_000
"""Bounds of the estimate of a request's part in the work of ticks, and its first value."""

ESTIMATE_NS: Final = 1_000_000_000
"""How often it is estimated."""

FETCH_SECONDS_MIN: Final = 0.1
"""A fetch may return as much as the quota allows in this time, even if less is left: it is throttled afterwards. This
saves clients that are always at their limit from many small fetches."""

_CROWD: Final = Share("", "")
_PERCENT_NS: Final = 10_000_000
"""A hundredth of a second."""


class Muted(Protocol):
    """A client's connection, as its quotas see it (`handlers.support.context.Session`)."""

    @property
    def principal(self) -> str: ...

    def mute(self, delay_ms: int) -> None:
        """Handle no request for this time; 0 ends it."""


class Bucket:
    """What the clients that share a quota have used of it."""

    __slots__ = (
        "_given",
        "_given_before",
        "_period",
        "connections",
        "key",
        "limit",
        "quota",
        "rate",
        "tokens",
    )

    def __init__(self, key: str, windows: Windows, quota: AppliedQuota) -> None:
        self.key = key
        self.follow(quota)
        self.connections = 0
        self.rate = SampledRate(windows)
        self.tokens = TokenBucket(windows)
        """For the rate of changes of topics, which has no `rate`."""
        self._period = 0
        self._given = self._given_before = 0
        """Credits of the last two periods of `CREDIT_NS`: older ones are over."""

    def follow(self, quota: AppliedQuota) -> None:
        """The quota, as it is now."""
        self.quota = quota
        self.limit = min(LIMIT_MAX, quota.limit)

    def credit(self, now_ns: int) -> int:
        """What one of the connections may use before it asks again: a part of what is left and not given to others."""
        period = now_ns // CREDIT_NS
        if period != self._period:
            self._given_before = self._given if period == self._period + 1 else 0
            self._period, self._given = period, 0
        room = int(self.rate.room(self.limit, now_ns)) - self._given - self._given_before
        if room <= 0:
            return 0
        credit = room // (2 * self.connections or 1)
        self._given += credit
        return credit

    def is_idle(self, now_ns: int) -> bool:
        if self.connections:
            return False
        if self.key == CONTROLLER_MUTATION_RATE:
            return self.tokens.is_idle(self.limit, now_ns)
        return self.rate.is_idle(now_ns)


class ClientShare:
    """The quotas that apply to one connection with one client id."""

    __slots__ = (
        "_fetch_granted",
        "_granted",
        "_quotas",
        "client_id",
        "client_id_at",
        "client_id_bytes",
        "credit",
        "fetch",
        "fetch_credit",
        "measured_ns",
        "mutation",
        "muted_until_ns",
        "principal",
        "produce",
        "request",
        "requests",
        "session",
        "throttled_by",
        "until_ns",
        "version",
        "work_delay_ms",
    )

    def __init__(self, quotas: "ClientQuotas", session: Muted, client_id: str) -> None:
        self._quotas = quotas
        self.session = session
        self.principal = session.principal
        self.client_id = client_id
        self.client_id_bytes, self.client_id_at = b"", slice(0, 0)
        """The client id in the header of the connection's requests, and where it is: set by who reads those."""
        self.version = quotas.version
        self.produce = self._bucket(PRODUCER_BYTE_RATE)
        self.fetch = self._bucket(CONSUMER_BYTE_RATE)
        self.request = self._bucket(REQUEST_PERCENTAGE)
        self.mutation = self._bucket(CONTROLLER_MUTATION_RATE)
        self.credit = self._granted = self.fetch_credit = self._fetch_granted = 0
        """Bytes that the connection may still produce and fetch without asking, and those it was given. Handlers take
        from them; `fetch_credit` may become negative."""
        self.until_ns = 0
        """When it asks at the latest."""
        self.requests = self.measured_ns = 0
        """Requests since it last asked, and what was measured of their time."""
        self.work_delay_ms = 0
        """For how long to mute the connection because of the loop's time, as of when it last asked."""
        self.throttled_by: Bucket | None = None
        """Why the connection was muted last."""
        self.muted_until_ns = 0

    def _bucket(self, key: str) -> Bucket | None:
        bucket = self._quotas.bucket(key, self.principal, self.client_id)
        if bucket is not None:
            bucket.connections += 1
        return bucket

    def leave(self) -> None:
        """The connection is closed, or has other quotas now."""
        self._settle(self._quotas.now_ns())
        for bucket in (self.produce, self.fetch, self.request, self.mutation):
            if bucket is not None:
                bucket.connections -= 1
        self._quotas.muted.pop(self, None)

    # -- credit ----------------------------------------------------------------------------------------

    def _settle(self, now_ns: int) -> None:
        """Record what was used by credit, and end the credit."""
        at_ns = min(now_ns, self.until_ns) or now_ns
        produce, fetch = self.produce, self.fetch
        if produce is not None and self._granted != self.credit:
            produce.rate.record(self._granted - self.credit, at_ns)
        if fetch is not None and self._fetch_granted != self.fetch_credit:
            fetch.rate.record(self._fetch_granted - self.fetch_credit, at_ns)
        requests = self.requests
        if requests:
            quotas, measured_ns = self._quotas, self.measured_ns
            quotas.handled(requests, measured_ns, now_ns)
            if self.request is not None:
                self.request.rate.record(requests * quotas.work_ns + measured_ns, at_ns)
            self.requests = self.measured_ns = 0
        self.credit = self._granted = self.fetch_credit = self._fetch_granted = 0

    def ask(self, now_ns: int, produced: int = 0) -> None:
        """Record what was used, with a Produce request that there was no credit for, and get new credit."""
        self._settle(now_ns)
        produce, fetch, request = self.produce, self.fetch, self.request
        credit = fetch_credit = UNLIMITED
        if produce is not None:
            if produced:
                produce.rate.record(produced, now_ns)
            credit = produce.credit(now_ns)
        if fetch is not None:
            fetch_credit = fetch.credit(now_ns)
        self.credit = self._granted = credit
        self.fetch_credit = self._fetch_granted = fetch_credit
        if request is not None:
            # The limit is a percentage: 100 is all of the loop's time.
            self.work_delay_ms = request.rate.delay_ms(request.limit * _PERCENT_NS, now_ns)
        self.until_ns = now_ns + CREDIT_NS

    # -- Produce, Fetch, and the loop's time ---------------------------------------------------------------

    def produced(self, size: int, now_ns: int) -> int:
        """A Produce request of this size has arrived. Returns for how long to mute its connection, in ms."""
        if size < self.credit and now_ns < self.until_ns:
            self.credit -= size
            return 0
        self.ask(now_ns, size)
        bucket = self.produce
        return 0 if bucket is None else self._delay_ms(bucket, now_ns)

    def fetch_delay_ms(self, now_ns: int) -> int:
        """For how long a fetch has to wait: it is answered without records, and its connection is muted."""
        if self.fetch_credit > 0 and now_ns < self.until_ns:
            return 0
        self.ask(now_ns)
        bucket = self.fetch
        return 0 if bucket is None else self._delay_ms(bucket, now_ns)

    def fetch_bytes_max(self, now_ns: int) -> int:
        """How much a fetch may return."""
        bucket = self.fetch
        if bucket is None:
            return UNLIMITED
        if self.fetch_credit <= 0 or now_ns >= self.until_ns:
            self.ask(now_ns)
        return max(self.fetch_credit, int(bucket.limit * FETCH_SECONDS_MIN))

    def worked(self, took_ns: int, now_ns: int) -> int:
        """A request took this time of the loop. Returns for how long to mute its connection, in ms."""
        self.requests += 1
        self.measured_ns += took_ns
        if self.measured_ns >= MEASURED_NS_MAX or now_ns >= self.until_ns:
            self.ask(now_ns)
        delay_ms, self.work_delay_ms = self.work_delay_ms, 0
        return self._work_throttled(delay_ms, now_ns)

    def work_wait_ms(self, now_ns: int) -> int:
        """For how long clients that share the quota of the loop's time are above it: for clients that connect anew for
        each request, which cannot be muted."""
        bucket = self.request
        delay_ms = 0 if bucket is None else bucket.rate.delay_ms(bucket.limit * _PERCENT_NS, now_ns)
        return self._work_throttled(delay_ms, now_ns)

    def _work_throttled(self, delay_ms: int, now_ns: int) -> int:
        if not delay_ms or self.request is None:
            return 0
        # As in Kafka a sample at most.
        delay_ms = min(delay_ms, self._quotas.windows.sample_ns // 1_000_000)
        self._throttled(self.request, delay_ms, now_ns)
        return delay_ms

    def _delay_ms(self, bucket: Bucket, now_ns: int) -> int:
        delay_ms = bucket.rate.delay_ms(bucket.limit, now_ns)
        if delay_ms:
            self._throttled(bucket, delay_ms, now_ns)
        return delay_ms

    # -- changes of topics -----------------------------------------------------------------------------

    def may_change(self, partitions: int, now_ns: int, *, strict: bool) -> bool:
        """Charge a change of topics. A strict client is refused if the tokens are used up; any other is only muted."""
        bucket = self.mutation
        if bucket is None:
            return True
        if strict and bucket.tokens.delay_ms(bucket.limit, now_ns):
            return False
        bucket.tokens.take(partitions, bucket.limit, now_ns)
        return True

    def give_back(self, partitions: int, now_ns: int) -> None:
        """A change that was charged was not made."""
        if self.mutation is not None:
            self.mutation.tokens.take(-partitions, self.mutation.limit, now_ns)

    def change_delay_ms(self, now_ns: int) -> int:
        """For how long the tokens for changes are used up."""
        bucket = self.mutation
        if bucket is None:
            return 0
        delay_ms = bucket.tokens.delay_ms(bucket.limit, now_ns)
        if delay_ms:
            self._throttled(bucket, delay_ms, now_ns)
        return delay_ms

    def _throttled(self, bucket: Bucket, delay_ms: int, now_ns: int) -> None:
        until_ns = now_ns + delay_ms * 1_000_000
        if until_ns > self.muted_until_ns:
            self.muted_until_ns = until_ns
            self.throttled_by = bucket
            self._quotas.muted[self] = None
        self._quotas.metrics.throttled(Throttled(bucket.key, *bucket.quota.share), delay_ms)


class ClientQuotas:
    def __init__(
        self, metrics: Metrics, windows: Windows, controller_windows: Windows, now_ns: Callable[[], int]
    ) -> None:
        """`now_ns` is the clock of ticks."""
        self.metrics = metrics
        self.windows = windows
        self.controller_windows = controller_windows
        self.now_ns = now_ns
        self.version = 0
        """Changes with the quotas: a share of another version is looked up again."""
        self.in_force: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._keys: frozenset[str] = frozenset()
        """Keys that any entity has."""
        self.measures_time = False
        """Whether one of them is for the loop's time."""
        self.measured_ns_max = MEASURED_NS_MAX
        self._buckets: dict[tuple[str, Share], Bucket] = {}
        self._purged_ns = 0
        self.muted: dict[ClientShare, None] = {}
        self.work_ns = WORK_NS_FIRST
        """The estimated part of a request in work that is not measured."""
        self._requests = self._measured_ns = 0
        """Since the last estimate."""
        self._estimated_at_ns = 0
        self._ticks_ns = 0

    @property
    def is_needed(self) -> bool:
        return bool(self._keys)

    def follow(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """The quotas of a new image. Clients that a changed quota has muted continue."""
        if quotas is self.in_force:
            return
        self.in_force = quotas
        self.version += 1
        self._keys = frozenset(key for limits in quotas.values() for key in limits) & frozenset(CLIENT_KEYS)
        self.measures_time = REQUEST_PERCENTAGE in self._keys
        for share in list(self.muted):
            bucket = share.throttled_by
            if bucket is None or self._applied(bucket.key, share.principal, share.client_id) != bucket.quota:
                del self.muted[share]
                share.muted_until_ns = 0
                share.session.mute(0)

    # -- shares and buckets ----------------------------------------------------------------------------

    def share_of(self, held: ClientShare | None, session: Muted, client_id: str | None) -> ClientShare:
        """The share of a connection, of which `held` is the last one."""
        client_id = client_id or ""
        if held is not None:
            if (
                held.version == self.version
                and held.principal == session.principal
                and held.client_id == client_id
            ):
                return held
            held.leave()
        share = ClientShare(self, session, client_id)
        if held is not None and (held.principal, held.client_id) == (share.principal, client_id):
            # Quotas of others have changed: `follow` ends it otherwise.
            share.muted_until_ns, share.throttled_by = held.muted_until_ns, held.throttled_by
            if share.muted_until_ns > self.now_ns():
                self.muted[share] = None
        return share

    def _applied(self, key: str, principal: str, client_id: str) -> AppliedQuota | None:
        return applying_quota(self.in_force, key, principal.partition(":")[2], client_id)

    def bucket(self, key: str, principal: str, client_id: str) -> Bucket | None:
        if key not in self._keys:
            return None
        applied = self._applied(key, principal, client_id)
        if applied is None:
            return None
        bucket = self._buckets.get((key, applied.share))
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._purge()
            if len(self._buckets) >= BUCKETS_MAX:
                applied = applied._replace(share=_CROWD)
            windows = self.controller_windows if key == CONTROLLER_MUTATION_RATE else self.windows
            bucket = self._buckets.setdefault((key, applied.share), Bucket(key, windows, applied))
        bucket.follow(applied)
        return bucket

    def _purge(self) -> None:
        """Forget buckets that are as good as new, once in a sample."""
        now_ns = self.now_ns()
        if now_ns - self._purged_ns < self.windows.sample_ns:
            return
        self._purged_ns = now_ns
        for where in [where for where, bucket in self._buckets.items() if bucket.is_idle(now_ns)]:
            del self._buckets[where]

    # -- the loop's time -------------------------------------------------------------------------------

    def handled(self, requests: int, measured_ns: int, now_ns: int) -> None:
        """Count requests, and what was measured of their time. Estimates their part in the rest again each second."""
        self._requests += requests
        self._measured_ns += measured_ns
        if now_ns - self._estimated_at_ns < ESTIMATE_NS:
            return
        ticks_ns = self.metrics.ticks.sum_ns
        if self._estimated_at_ns:
            rest_ns = ticks_ns - self._ticks_ns - self._measured_ns
            self.work_ns = min(max(rest_ns // self._requests, WORK_NS_MIN), WORK_NS_MAX)
        self._estimated_at_ns, self._ticks_ns = now_ns, ticks_ns
        self._requests = self._measured_ns = 0
