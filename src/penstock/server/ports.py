"""Free ports for processes that get their port before they start.

They lie below the system's ephemeral range: a port from that range may become the local end of any connection between
the moment it is chosen and the moment the process listens.
"""

import socket
from contextlib import suppress
from pathlib import Path
from random import Random

LOWEST = 10_000
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
EPHEMERAL_DEFAULT = 32_768
"""Where the range begins on Linux, unless it is configured."""

_rng = Random()


def free_ports(count: int, host: str = "127.0.0.1", rng: Random | None = None) -> list[int]:
    """Different ports that no socket is bound to."""
    lowest_ephemeral = _lowest_ephemeral()
    candidates = range(LOWEST if lowest_ephemeral > 2 * LOWEST else 1024, lowest_ephemeral)
    ports: list[int] = []
    while len(ports) < count:
        port = (rng or _rng).choice(candidates)
        if port not in ports and _is_free(host, port):
            ports.append(port)
    return ports


def hold_port(port: int = 0, host: str = "127.0.0.1") -> socket.socket:
    """Reserve a port, or any free one for 0, until the socket that is returned is closed.

    It does not listen. On Linux a process that is given the port and sets SO_REUSEADDR can listen there nevertheless.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, port or free_ports(1, host)[0]))
    except OSError:
        held.close()
        raise
    return held


def _lowest_ephemeral() -> int:
    with suppress(OSError, ValueError):
        return int(EPHEMERAL_RANGE.read_text().split()[0])
    return EPHEMERAL_DEFAULT


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried, suppress(OSError):
        tried.bind((host, port))
        return True
    return False
