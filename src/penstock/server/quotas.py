"""The quotas of a node, made when its cluster has some."""

from penstock.base.metrics import Metrics
from penstock.base.world import World
from penstock.security.client_quotas import ClientQuotas
from penstock.security.rates import Windows
from penstock.server.config import NodeConfig
from penstock.server.connection_rates import ConnectionRates


def make_client_quotas(world: World, metrics: Metrics, config: NodeConfig) -> ClientQuotas:
    return ClientQuotas(metrics, windows(config, ""), windows(config, "controller."), world.clock_ns)


def make_connection_rates(metrics: Metrics, config: NodeConfig) -> ConnectionRates:
    unpaced = set(config.cluster.controllers)
    if len(config.listeners) > 1:
        unpaced.add(config.cluster.listener)
    return ConnectionRates(windows(config, ""), metrics, config.connection_rates, frozenset(unpaced))


def windows(config: NodeConfig, of: str) -> Windows:
    """`of` is empty for clients, and `controller.` for changes of topics."""
    return Windows(
        config.number(f"{of}quota.window.num"),
        config.number(f"{of}quota.window.size.seconds") * 1_000_000_000,
    )
