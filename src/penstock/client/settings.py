"""A client's limits and timeouts, addresses, and the clock it goes by.

Defaults are those of Kafka's clients, if they have the setting.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

from .security import PLAINTEXT, ClientSecurity

PORT_DEFAULT = 9092


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_servers(text: str) -> list[Address]:
    """`host:port,host:port`; an IPv6 address stands in brackets, and without a port it is 9092."""
    addresses = [parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ValueError("a list of servers is empty, expected HOST:PORT[,HOST:PORT]")
    return addresses


def parse_address(text: str) -> Address:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        has_port, port_text = rest.startswith(":"), rest[1:]
        is_sound = bool(bracket) and (has_port or not rest)
    else:
        host, colon, port_text = text.partition(":")
        has_port, is_sound = bool(colon), ":" not in port_text
    port = int(port_text) if port_text.isascii() and port_text.isdigit() else 0
    if not has_port:
        port = PORT_DEFAULT
    if not is_sound or not host or not 1 <= port <= 65535:
        raise ValueError(f"{text!r} is no server, expected HOST:PORT")
    return Address(host, port)


@dataclass(frozen=True)
class ClientSettings:
    client_id: str = "penstock"
    connect_timeout_ms: int = 10_000
    request_timeout_ms: int = 30_000
    """How long one broker may take to answer one request."""
    api_timeout_ms: int = 60_000
    """How long one call may take in all, its retries included."""
    retry_backoff_ms: int = 100
    retry_backoff_ms_max: int = 1_000
    metadata_age_ms_max: int = 300_000
    response_bytes_max: int = 256 * 2**20
    """Limit of a response. Fetch returns at least one batch, whatever its size, but Kafka's batches are far
    smaller."""
    security: ClientSecurity = PLAINTEXT


class Closing:
    """Base of what a `with` statement closes at its end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class Clock(Protocol):
    """The clock of a client; tests have another."""

    def now_ms(self) -> float:
        """For measuring: never goes back."""
        ...

    def wall_ms(self) -> int:
        """Since 1970, for records."""
        ...

    def sleep_ms(self, duration_ms: float) -> None: ...


class SystemClock:
    def now_ms(self) -> float:
        return time.monotonic() * 1000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def sleep_ms(self, duration_ms: float) -> None:
        time.sleep(max(0.0, duration_ms) / 1000)


def listing(addresses: Sequence[Address]) -> str:
    return ", ".join(str(each) for each in addresses)
