"""How a client secures its connections: who it is, and whom it trusts."""

from dataclasses import dataclass

from penstock.security.sasl.client import ClientLogin


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    login: ClientLogin | None = None
    """None for listeners without SASL."""


PLAINTEXT = ClientSecurity()
