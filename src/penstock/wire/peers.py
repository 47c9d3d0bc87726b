"""The interface for requests to other nodes, which the server implements.

Requests of one `purpose` to one address share a connection, on which responses come in order. A fetch that waits for
records delays only requests of its own purpose.
"""

from typing import NamedTuple, Protocol, TypeVar

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise

from .request import Request

T = TypeVar("T")


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class PeerFailed(KafkaError):
    """The request failed. The peer may have received it, unless `refused`."""

    code = ErrorCode.NETWORK_EXCEPTION

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """Whether the connection was refused: the process does not run."""


class Peers(Protocol):
    def ask(self, to: Address, request: Request[T], *, timeout_ms: float, purpose: str = "") -> Promise[T]:
        """Resolved with what `request.read` returns. Fails with `RequestRejected` if the response rejects the request,
        and with `PeerFailed` if there is no valid response within the timeout."""
