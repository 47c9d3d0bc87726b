"""A cluster of real processes, `penstock up` each, on ports of this machine that stay theirs."""

import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.processes import HOST, Process

from penstock.server.ports import hold_port


class NodeProcesses:
    """Nodes by number, started together and ended together."""

    nodes: Mapping[int, Process]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """All at once: none is ready before a majority is."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(lambda node: node.start(), self.nodes.values()))

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.send(signal.SIGCONT)
            node.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    @property
    def complaints(self) -> str:
        return "\n".join(f"--- node {number}\n{node.stderr[-4000:]}" for number, node in self.nodes.items())


class ClusterProcesses(NodeProcesses):
    """Nodes 1 to n, brokers all of them and controllers too."""

    def __init__(
        self,
        data: Path,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        environments: Mapping[int, Mapping[str, str]] | None = None,
        http: bool = False,
    ) -> None:
        """`environments` are variables of single nodes."""
        self._held = [hold_port() for _ in range(2 * count)]
        ports = [each.getsockname()[1] for each in self._held]
        self.ports = dict(zip(range(1, count + 1), ports[:count], strict=True))
        controllers = dict(zip(range(1, count + 1), ports[count:], strict=True))
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in controllers.items())
        self.nodes: dict[int, Process] = {}
        for number, port in controllers.items():
            own = {"node.id": str(number), "controller.quorum.voters": voters, **(settings or {})}
            flags = [flag for name, value in own.items() for flag in ("--set", f"{name}={value}")]
            self.nodes[number] = Process(
                "--controller",
                f"{HOST}:{port}",
                *flags,
                data=data / f"node-{number}",
                port=self.ports[number],
                http=http,
                environment=(environments or {}).get(number),
            )

    def close(self) -> None:
        super().close()
        for each in self._held:
            each.close()
