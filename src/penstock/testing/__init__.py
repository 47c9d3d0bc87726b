"""Penstock inside a test: a broker in the test's process, on a free port, removed afterwards.

    from penstock.testing import Broker

    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

`Broker(http=True, line=True)` serves JSON over HTTP (`broker.http_url`) and the line protocol (`broker.line_port`)
as well.

`Cluster(brokers=3)` runs several brokers, each in a thread, which replicate each other's partitions. Each of them can
be stopped or killed, and started again.

`Broker(security=True)` asks its clients for TLS and a log-in; `broker.client()` has the settings for each library.

Tests can inject faults and move the clock; docs/testing.md shows how.

With pytest installed, the fixtures `penstock_broker` (one per test) and `penstock_session_broker` (one per run) are
available without an import. Define a session-scoped fixture `penstock_settings` to set their settings.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.broker import Broker, BrokerFailed
    from penstock.testing.cluster import Cluster
    from penstock.testing.security import Security

__all__ = ["Broker", "BrokerFailed", "Cluster", "Security"]


def __getattr__(name: str) -> Any:
    """Import the broker on first use: every pytest run loads the plugin, few need the broker."""
    if name in __all__:
        from penstock.testing import broker, cluster, security  # noqa: PLC0415

        return getattr({"Cluster": cluster, "Security": security}.get(name, broker), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
