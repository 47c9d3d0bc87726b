"""Penstock inside a test: a broker in the test's own process, on a free port, gone afterwards.

    from penstock.testing import Broker

    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

`Broker(http=True, line=True)` serves JSON over HTTP (`broker.http_url`) and the line protocol (`broker.line_port`)
as well.

`Cluster(brokers=3)` is several of them, each in its thread, that replicate each other's partitions; any of
them can be stopped or killed and started again.

All of them can be made to fail on purpose, and their clock be moved; docs/testing.md shows how.

With pytest installed, the fixtures `penstock_broker` (one for each test) and `penstock_session_broker` (one for the
run) are there without an import; a fixture `penstock_settings` of your own, of session scope, sets their settings.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.testing.broker import Broker, BrokerFailed
    from penstock.testing.cluster import Cluster

__all__ = ["Broker", "BrokerFailed", "Cluster"]


def __getattr__(name: str) -> Any:
    """Import the broker on first use: every pytest run loads the plugin, few need the broker."""
    if name in __all__:
        from penstock.testing import broker, cluster  # noqa: PLC0415

        return getattr(cluster if name == "Cluster" else broker, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
