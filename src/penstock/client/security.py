"""How a client secures its connections: whether it uses TLS, whom it trusts, and who it is.

`security_settings.py` reads it from Kafka's settings. No `repr` shows a secret.
"""

from dataclasses import dataclass

from penstock.security.sasl.client import ClientLogin

from .tls_settings import StoreConfig


@dataclass(frozen=True, slots=True)
class ClientTls:
    trust_store: StoreConfig | None = None
    """Authorities that sign brokers' certificates; None for those that the system trusts."""
    key_store: StoreConfig | None = None
    """The client's own key and certificate; None for a client without one."""
    versions: frozenset[str] = frozenset({"TLSv1.2", "TLSv1.3"})
    suites: tuple[str, ...] = ()
    """Suites of TLS 1.2; empty for OpenSSL's own."""
    suites_setting: str = "ssl.cipher.suites"
    checks_host: bool = True
    """Whether a broker's certificate must be that of the host that the client connects to."""


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    tls: ClientTls | None = None
    """None for listeners without TLS."""
    login: ClientLogin | None = None
    """None for listeners without SASL."""

    @property
    def protocol(self) -> str:
        """By its name in `security.protocol`."""
        encryption = "PLAINTEXT" if self.tls is None else "SSL"
        return encryption if self.login is None else f"SASL_{encryption}"


PLAINTEXT = ClientSecurity()
