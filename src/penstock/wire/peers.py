"""Asking other nodes: what is above the wire says whom and what, and gets an answer, or learns that none will come.

The server has the connections. Requests of one `purpose` to one address share a connection, and answers come in the
order of the requests: a fetch that waits for records holds up nobody who asks for another purpose.
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
    """No answer will come; the peer may have heard the question all the same."""

    code = ErrorCode.NETWORK_EXCEPTION

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        """Nobody listens there: the process is gone, not just slow."""


class Peers(Protocol):
    def ask(
        self, to: Address, request: Request[T], *, timeout_ms: float, purpose: str = ""
    ) -> Promise[T | PeerFailed]:
        """Answered with what the request's own reader makes of the response, or with a `PeerFailed`."""
