"""The interface between a connection and the protocol on it."""

from typing import Protocol

from penstock.handlers.support.context import Session


class Wire(Protocol):
    """A client's connection, as a conversation sees it."""

    peer: str
    """The client's address, for log lines."""

    is_local: bool
    """Whether the client has connected to a loopback address, such as 127.0.0.1."""

    session: Session
    """The client as it connected: its address, and the principal of its certificate if it has one."""

    @property
    def is_full(self) -> bool:
        """Whether the client reads too slowly: send only what is necessary until `Conversation.drained`."""

    def send(self, data: bytes) -> None:
        """Send bytes at the end of this tick, after its log writes, with all other bytes of the tick."""

    def close(self) -> None:
        """Close the connection once everything is sent. Nothing more is received."""

    def stop_reading(self) -> None:
        """Stop reading from the socket, until `go_on_reading`."""

    def go_on_reading(self) -> None: ...

    def holds_before_login(self, count: int) -> None:
        """So many bytes are kept of a client that has to log in; closes the connection if there is no room."""


class Conversation(Protocol):
    """The protocol state of one connection. Its methods never raise: errors are sent to the client."""

    def received(self, data: memoryview) -> None:
        """Handle received bytes. The buffer is valid until this returns."""

    def drained(self) -> None:
        """The wire is no longer full."""

    def finished(self) -> None:
        """The client has closed its side. Responses may still be sent; the wire closes when the conversation is
        idle."""

    def ended(self) -> None:
        """The connection is closed, or the node stops: nothing more is sent."""

    @property
    def is_guest(self) -> bool:
        """Whether the client has to log in, and has not."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress, so that the connection may be closed as idle."""

    @property
    def unfinished(self) -> int | None:
        """The number of the request, line or message whose rest is missing; None if there is none."""

    def give_up_waiting(self) -> None:
        """The rest takes too long: send an error, and close."""


class ProtocolServer(Protocol):
    """The protocol of one port."""

    def converse(self, wire: Wire) -> Conversation:
        """Start the conversation of a new connection."""
