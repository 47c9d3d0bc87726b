"""The interface between a connection and the protocol on it."""

from typing import Protocol


class Wire(Protocol):
    """A client's connection, as a conversation sees it."""

    peer: str
    """The client's address, for log lines."""

    is_local: bool
    """The client dialled an address that means this machine to itself, such as 127.0.0.1."""

    @property
    def is_full(self) -> bool:
        """The client does not read what it was sent: send no more than must be, until `Conversation.drained`."""

    def send(self, data: bytes) -> None:
        """Have bytes sent, after this turn's writes, together with all else that the turn sends here."""

    def close(self) -> None:
        """Close it once everything is sent; nothing more is received."""

    def stop_reading(self) -> None:
        """Receive nothing more for now."""

    def go_on_reading(self) -> None: ...


class Conversation(Protocol):
    """One client's, from its first byte to its last. It never raises: what is wrong is said to the client."""

    def received(self, data: memoryview) -> None:
        """These bytes came; they are good until this returns."""

    def drained(self) -> None:
        """The wire is no longer full."""

    def finished(self) -> None:
        """The client sends nothing more, and may be gone. What it asked for may still be sent; the wire closes once
        the conversation is idle."""

    def ended(self) -> None:
        """The client is gone, or the node stops: nothing more is sent."""

    @property
    def is_idle(self) -> bool:
        """Nothing of the client's is being worked on: it may be closed when it says nothing for long."""

    @property
    def unfinished(self) -> int | None:
        """The number of what has begun to arrive and whose rest is waited for; None where nothing is. Each request,
        line or message has its own."""

    def give_up_waiting(self) -> None:
        """Its rest takes too long: say so, and close."""


class ProtocolServer(Protocol):
    """The protocol of one port."""

    def converse(self, wire: Wire) -> Conversation:
        """Start the conversation of a new connection."""
