"""A cluster whose nodes are in network namespaces of their own (`penstock.chaos.namespaces`)."""

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.processes import NodeProcesses
from tests.processes import Process

from penstock.chaos.namespaces import Network

KAFKA_PORT, CONTROLLER_PORT = 9092, 9093


class WalledNode(Process):
    """A node in its namespace, brokers and controllers both."""

    def __init__(self, network: Network, number: int, data: Path, flags: tuple[str, ...]) -> None:
        address = network.address(number)
        super().__init__(
            *flags,
            "--kafka",
            f"{address}:{KAFKA_PORT}",
            "--controller",
            f"{address}:{CONTROLLER_PORT}",
            data=data,
            port=KAFKA_PORT,
            command=(
                "ip",
                "netns",
                "exec",
                network.namespace(number),
                sys.executable,
                "-m",
                "penstock",
                "up",
            ),
        )
        self._address = address

    @property
    def bootstrap(self) -> str:
        return f"{self._address}:{KAFKA_PORT}"

    def start(self) -> "WalledNode":
        self.launch()
        line = self.read_line()
        assert line.startswith("penstock ready"), self.stderr
        return self


class WalledCluster(NodeProcesses):
    def __init__(self, network: Network, data: Path, settings: Mapping[str, str]) -> None:
        numbers = (1, 2, 3)
        voters = ",".join(f"{each}@{network.address(each)}:{CONTROLLER_PORT}" for each in numbers)
        self.nodes: dict[int, WalledNode] = {}
        for number in numbers:
            own = {"node.id": str(number), "controller.quorum.voters": voters, **settings}
            flags = tuple(flag for name, value in own.items() for flag in ("--set", f"{name}={value}"))
            self.nodes[number] = WalledNode(network, number, data / f"node-{number}", flags)

    def stop(self) -> None:
        for node in self.nodes.values():
            node.send(signal.SIGTERM)
        assert [node.wait() for node in self.nodes.values()] == [0] * len(self.nodes)
