"""Network namespaces, one for each node, joined by a bridge, so that links can be cut for real.

    node 1 --cable--+
    node 2 --cable--+-- bridge, and clients beside it
    node 3 --cable--+

A cut link drops packets silently: connections stay open on both sides without replies. One direction between two nodes
is blocked by a blackhole route at the sender. This needs root and `ip`; `Network.refusal` returns what is missing.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

BRIDGE = "bridge"
CLIENTS = 100
"""Number of the clients' namespace; a node's namespace has its node id."""
CLONE_NEWNET = 0x40000000


class Network:
    def __init__(self, count: int) -> None:
        self._name = f"penstock-{os.getpid()}"
        self._numbers = range(1, count + 1)
        self._made: list[str] = []

    @staticmethod
    def refusal() -> str | None:
        """Return why namespaces are not available; None if they are."""
        if shutil.which("ip") is None:
            return "the command ip was not found"
        name = f"penstock-try-{os.getpid()}"
        tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
        if tried.returncode:
            return f"network namespaces are not allowed: {tried.stderr.strip()}"
        inside = ["ip", "-n", name, "link", "add", "name", "try", "type", "bridge"]
        tried = subprocess.run(inside, capture_output=True, text=True, check=False)
        subprocess.run(["ip", "netns", "del", name], check=True)
        return f"bridges are not allowed: {tried.stderr.strip()}" if tried.returncode else None

    def __enter__(self) -> "Network":
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self) -> None:
        self._add(self.hub)
        self._ip(f"link add name {BRIDGE} type bridge", at=self.hub)
        self._ip(f"address add {self.address(CLIENTS)}/24 dev {BRIDGE}", at=self.hub)
        self._ip(f"link set {BRIDGE} up", at=self.hub)
        for number in self._numbers:
            node = self.namespace(number)
            self._add(node)
            self._ip(f"link add name to-{number} type veth peer cable netns {node}", at=self.hub)
            self._ip(f"address add {self.address(number)}/24 dev cable", at=node)
            self._ip("link set cable up", at=node)
            self._ip(f"link set to-{number} up", at=self.hub)
            self.heal(number)

    def _add(self, namespace: str) -> None:
        self._ip(f"netns add {namespace}")
        self._made.append(namespace)
        self._ip("link set lo up", at=namespace)

    def _ip(self, command: str, at: str | None = None) -> None:
        where = () if at is None else ("-n", at)
        subprocess.run(["ip", *where, *command.split()], check=True, capture_output=True, text=True)

    def close(self) -> None:
        for each in reversed(self._made):
            with suppress(subprocess.CalledProcessError):
                self._ip(f"netns del {each}")
        self._made.clear()

    @property
    def hub(self) -> str:
        """Namespace of the bridge and the clients."""
        return f"{self._name}-hub"

    def namespace(self, number: int) -> str:
        return f"{self._name}-{number}"

    @staticmethod
    def address(number: int) -> str:
        return f"10.99.0.{number}"

    def cut(self, number: int) -> None:
        self._ip(f"link set to-{number} nomaster", at=self.hub)

    def heal(self, number: int) -> None:
        self._ip(f"link set to-{number} master {BRIDGE}", at=self.hub)

    def block(self, source: int, target: int) -> None:
        """Drop packets from source to target, either of which may be `CLIENTS`. The other direction stays open."""
        self._ip(f"route replace blackhole {self.address(target)}/32", at=self._at(source))

    def unblock(self, source: int, target: int) -> None:
        self._ip(f"route del blackhole {self.address(target)}/32", at=self._at(source))

    def _at(self, number: int) -> str:
        return self.hub if number == CLIENTS else self.namespace(number)

    @contextmanager
    def inside(self, namespace: str) -> Iterator[None]:
        """Open sockets of this thread, and of threads that it starts meanwhile, in that namespace."""
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{namespace}") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
