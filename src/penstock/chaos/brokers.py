"""Starts and stops the broker processes of a campaign.

Every broker is a controller too. A process is started from the main thread, in its own session, so that Ctrl-C at the
terminal reaches only the campaign; it ends with the campaign (`lifeline`).

    DIR/node-1/            data
    DIR/node-1.log         log output of all its processes
    DIR/node-1.out         its ready line
    DIR/node-1.switches    faults of its disk and clock
"""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random

from penstock.base.ids import uuid_text
from penstock.chaos.namespaces import Network
from penstock.chaos.switches import Switches
from penstock.server.ports import free_ports
from penstock.sim.clients.ports import Scheduler
from penstock.wire.peers import Address

HOST = "127.0.0.1"
"""Below the ephemeral range: no other process gets one while its broker is down."""

DOORS = ("kafka", "controller", "http", "line")
LOOK_EVERY_S = 0.05
READY_S_MAX = 120.0
STOP_S_MAX = 90.0
GIVING_UP_US_MAX = 30_000_000
"""How long a broker with a failed disk may take to exit."""


class BrokerFailed(Exception):
    """A broker exited, did not start or did not stop, and no fault explains it."""


class Broker:
    """One node. Between `begin_fault` and `end_fault` it need not answer."""

    def __init__(self, node_id: int, directory: Path, ports: Mapping[str, Address], clock: Scheduler) -> None:
        self.id = node_id
        self.directory = directory
        self.ports = ports
        self.clock = clock
        self.switches: Switches | None = None
        """None for a broker whose disk has no switches."""
        self.incarnation = 0
        self.starts = 0
        self.gave_up = 0
        """How often it exited while its disk failed."""
        self.is_down = True
        """Whether the campaign has stopped it."""
        self.is_disk_failing = False
        """Whether its disk fails now, so that it may exit."""
        self._excused_until_us = 0
        """Until then it may still exit because of a disk that works again: the exit takes time."""
        self._faults = 0
        self._last_fault_us = -1
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def data(self) -> Path:
        return self.directory / f"node-{self.id}"

    @property
    def log(self) -> Path:
        return self.directory / f"node-{self.id}.log"

    @property
    def pid(self) -> int:
        assert self._child is not None
        return self._child.pid

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def exit_code(self) -> int | None:
        return None if self._child is None else self._child.poll()

    @property
    def disturbed_us(self) -> int:
        """Time of its last fault, now if one lasts; -1 for never."""
        return self.clock.now_us if self._faults else self._last_fault_us

    def begin_fault(self) -> None:
        self._faults += 1

    def end_fault(self) -> None:
        self._faults -= 1
        self._last_fault_us = self.clock.now_us

    @property
    def is_excused(self) -> bool:
        return self.is_disk_failing or self.clock.now_us < self._excused_until_us

    def disk_is_well(self) -> None:
        self.is_disk_failing = False
        self._excused_until_us = self.clock.now_us + GIVING_UP_US_MAX

    # -- life ------------------------------------------------------------------------------------------

    def spawn(self, command: list[str], incarnation: int) -> None:
        """Start the process without waiting for it."""
        assert not self.is_running
        self.incarnation = incarnation
        self.starts += 1
        self.is_down = False
        out = self.directory / f"node-{self.id}.out"
        with out.open("wb") as stdout, self.log.open("ab") as stderr:
            self._child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
            )

    @property
    def is_ready(self) -> bool:
        out = self.directory / f"node-{self.id}.out"
        return self.is_running and out.read_bytes().startswith(b"penstock ready")

    def signal(self, number: signal.Signals) -> None:
        if self.is_running:
            os.kill(self.pid, number)

    async def stop(self) -> None:
        """Stop the process cleanly, if it runs."""
        self.is_down = True
        if not self.is_running:
            return
        self.signal(signal.SIGTERM)
        code = await self.wait(STOP_S_MAX)
        if code is None:
            self.signal(signal.SIGKILL)
            await self.wait(STOP_S_MAX)
            raise BrokerFailed(
                f"node {self.id} did not stop within {STOP_S_MAX:.0f} s of SIGTERM; see {self.log}"
            )
        if code and not self.is_excused:
            raise BrokerFailed(f"node {self.id} exited with code {code} after SIGTERM; see {self.log}")

    async def kill(self) -> None:
        self.is_down = True
        self.signal(signal.SIGKILL)
        await self.wait(STOP_S_MAX)

    async def wait(self, timeout_s: float) -> int | None:
        """Return its exit code; None if it still runs."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self.exit_code is None and loop.time() < deadline:
            await asyncio.sleep(LOOK_EVERY_S)
        return self.exit_code

    def last_log_line(self) -> str:
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"


class Brokers:
    """All brokers of a campaign."""

    def __init__(
        self,
        directory: Path,
        count: int,
        settings: Mapping[str, str],
        clock: Scheduler,
        network: Network | None,
        rng: Random,
    ) -> None:
        self.settings = settings
        self._network = network
        self._clock = clock
        self._incarnations = 0
        numbers = range(1, count + 1)
        ports = {each: _ports(each, network, rng) for each in numbers}
        self.all = [Broker(each, directory, ports[each], clock) for each in numbers]
        voters = ",".join(f"{each}@{ports[each]['controller']}" for each in numbers)
        self._common = {
            **settings,
            "process.roles": "broker,controller",
            "controller.quorum.voters": voters,
            "cluster.id": uuid_text(secrets.token_bytes(16)),
        }

    def __getitem__(self, node_id: int) -> Broker:
        return self.all[node_id - 1]

    def addresses(self, door: str = "kafka") -> tuple[Address, ...]:
        return tuple(each.ports[door] for each in self.all)

    @property
    def bootstrap(self) -> str:
        return ",".join(str(each) for each in self.addresses())

    def at(self, address: Address) -> Broker:
        """Return the broker that listens on an address."""
        return next(each for each in self.all if address in each.ports.values())

    def spawn(self, broker: Broker) -> None:
        self._incarnations += 1
        command = [sys.executable, "-m", "penstock.chaos.node", "--parent", str(os.getpid())]
        command += ["--data", str(broker.data)]
        if broker.switches is not None:
            command += ["--switches", str(broker.switches.path)]
        for door in DOORS:
            command += [f"--{door}", str(broker.ports[door])]
        for name, value in {**self._common, "node.id": str(broker.id)}.items():
            command += ["--set", f"{name}={value}"]
        if self._network is not None:
            command = ["ip", "netns", "exec", self._network.namespace(broker.id), *command]
        broker.spawn(command, self._incarnations)

    async def start(self, *brokers: Broker) -> None:
        """Start brokers together, and return when they are ready."""
        for each in brokers:
            self.spawn(each)
        await self.await_ready(*brokers)

    async def await_ready(self, *brokers: Broker) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_S_MAX
        while waiting := [each for each in brokers if not each.is_ready]:
            for each in waiting:
                if not each.is_running:
                    raise BrokerFailed(
                        f"node {each.id} exited with code {each.exit_code} at start: {each.last_log_line()}"
                    )
            if loop.time() > deadline:
                raise BrokerFailed(
                    f"node {waiting[0].id} was not ready {READY_S_MAX:.0f} s after its start; see {waiting[0].log}"
                )
            await asyncio.sleep(LOOK_EVERY_S)

    def look(self) -> None:
        """Raise if a broker has exited. One whose disk fails may exit, and is started again later."""
        for each in self.all:
            if not each.is_down and not each.is_running:
                if not each.is_excused:
                    each.is_down = True
                    raise BrokerFailed(
                        f"node {each.id} exited unexpectedly with code {each.exit_code}: {each.last_log_line()}"
                    )
                each.gave_up += 1
                each.is_down = True
                if not each.is_disk_failing:
                    self.spawn(each)

    def end(self) -> None:
        """Kill all processes."""
        for each in self.all:
            if each.is_running:
                each.is_down = True
                each.signal(signal.SIGKILL)
        for each in self.all:
            if each._child is not None:
                each._child.wait()
            if each.switches is not None:
                each.switches.close()


def _ports(number: int, network: Network | None, rng: Random) -> dict[str, Address]:
    if network is not None:
        host = network.address(number)
        return {door: Address(host, 9092 + place) for place, door in enumerate(DOORS)}
    ports = free_ports(len(DOORS), HOST, rng)
    return {door: Address(HOST, port) for door, port in zip(DOORS, ports, strict=True)}
