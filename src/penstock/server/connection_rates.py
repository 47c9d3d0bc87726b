"""Rates of new connections (KIP-612).

- `max.connection.creation.rate`, of the broker and, with `listener.name.NAME.`, of one listener: connections above it
  are accepted, and their first bytes are read when it is their turn. The broker's rate does not hold up the listener
  between brokers, if that is not the only one, nor controllers' listeners.
- `connection_creation_rate`, a quota of an address, or of each address without its own: connections above it are
  closed after a delay.

Rates are averages over `quota.window.num` samples, so that as many connections may come at once.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.base.metrics import Metrics, Throttled
from penstock.metadata.quotas import (
    CONNECTION_CREATION_RATE,
    IP,
    AppliedQuota,
    QuotaEntity,
    applying_ip_quota,
    entity_of,
)
from penstock.security.rates import SampledRate, Windows
from penstock.server.addresses import canonical_address

ADDRESSES_MAX: Final = 20_000
"""Addresses whose rates are kept. More of them at once share one rate."""

UNLIMITED: Final = 2**31 - 1


class Delay(NamedTuple):
    ms: int
    closes: bool = False
    """Whether the connection is closed afterwards; else it is served."""


NO_DELAY: Final = Delay(0)


class _Pace:
    """One after the other, once the rate is reached."""

    def __init__(self, windows: Windows) -> None:
        self._sample_ms = windows.sample_ns // 1_000_000
        self._rate = SampledRate(windows)
        self._turn_ns = 0
        """When the last connection had its turn."""

    def delay_ms(self, limit: int, now_ns: int) -> int:
        """Count a connection; return how long it waits for its turn."""
        has_room = self._rate.room(limit, now_ns) >= 1
        self._rate.record(1, now_ns)
        if limit <= 0:
            return self._sample_ms
        if has_room and self._turn_ns <= now_ns:
            return 0
        self._turn_ns = max(self._turn_ns, now_ns) + 1_000_000_000 // limit
        return (self._turn_ns - now_ns) // 1_000_000


class ConnectionRates:
    def __init__(
        self, windows: Windows, metrics: Metrics, of_listeners: Mapping[str, int], unpaced: frozenset[str]
    ) -> None:
        """`of_listeners` has the rates of single listeners; the broker's rate does not apply to those in `unpaced`."""
        self._windows = windows
        self._metrics = metrics
        self._of_listeners = of_listeners
        self._unpaced = unpaced
        self._listeners = {name: _Pace(windows) for name in of_listeners}
        self._broker = _Pace(windows)
        self._followed: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._quotas: dict[QuotaEntity, Mapping[str, float]] = {}
        """Of addresses, in their canonical form."""
        self._addresses: dict[str, SampledRate] = {}

    def follow(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        if quotas is self._followed:
            return
        self._followed = quotas
        self._quotas = {
            entity_of({IP: None if entity[0][1] is None else canonical_address(entity[0][1])}): limits
            for entity, limits in quotas.items()
            if entity and entity[0][0] == IP
        }

    def admit(self, listener: str, address: str, broker_limit: int, now_ns: int) -> Delay:
        """Count a new connection. `broker_limit` is `max.connection.creation.rate`."""
        if self._quotas:
            delay_ms = self._address_delay_ms(canonical_address(address), now_ns)
            if delay_ms:
                return Delay(delay_ms, closes=True)
        delay_ms = 0
        if broker_limit < UNLIMITED and listener not in self._unpaced:
            delay_ms = self._broker.delay_ms(broker_limit, now_ns)
        own = self._of_listeners.get(listener)
        if own is not None:
            delay_ms = max(delay_ms, self._listeners[listener].delay_ms(own, now_ns))
        if not delay_ms:
            return NO_DELAY
        self._metrics.throttled(Throttled("max.connection.creation.rate", address=listener), delay_ms)
        return Delay(delay_ms)

    def _address_delay_ms(self, address: str, now_ns: int) -> int:
        quota = applying_ip_quota(self._quotas, address)
        if quota is None:
            return 0
        rate = self._rate_of(quota, now_ns)
        if rate.room(quota.limit, now_ns) >= 1:
            rate.record(1, now_ns)
            return 0
        # As in Kafka a sample at most: connections that only wait to be closed are few.
        delay_ms = min(max(rate.delay_ms(quota.limit, now_ns), 1), self._windows.sample_ns // 1_000_000)
        who = Throttled(CONNECTION_CREATION_RATE, address=quota.share.user)
        self._metrics.throttled(who, delay_ms)
        return delay_ms

    def _rate_of(self, quota: AppliedQuota, now_ns: int) -> SampledRate:
        address = quota.share.user
        rate = self._addresses.get(address)
        if rate is None:
            if len(self._addresses) >= ADDRESSES_MAX:
                for idle in [each for each, rate in self._addresses.items() if rate.is_idle(now_ns)]:
                    del self._addresses[idle]
            if len(self._addresses) >= ADDRESSES_MAX:
                address = ""
            rate = self._addresses.setdefault(address, SampledRate(self._windows))
        return rate
