"""How a client secures its connections: TLS, trusted authorities, and credentials.

`security_settings.py` reads it from Kafka's settings. No `repr` shows a secret.
"""

from dataclasses import dataclass

from penstock.base.settings import BadSetting
from penstock.security.sasl.client import ClientLogin

from .tls_settings import StoreConfig, TlsSettings, key_store, trust_store, versions_and_suites


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

    @property
    def files(self) -> tuple[str, ...]:
        stores = (self.key_store, self.trust_store)
        return tuple(each.location for each in stores if each is not None and each.location is not None)


def client_tls(settings: TlsSettings) -> ClientTls:
    """The TLS of a client, or of a node that connects to another. Raises BadSetting."""
    name = "ssl.endpoint.identification.algorithm"
    algorithm = settings.text(name) or ""
    if algorithm.lower() not in ("", "https"):
        raise BadSetting(
            f"{settings.shown(name)} is {algorithm!r}, expected https, or nothing for no check of host names"
        )
    versions, suites = versions_and_suites(settings)
    unknown = versions - {"TLSv1.2", "TLSv1.3"}
    if unknown or not versions:
        shown = settings.shown("ssl.enabled.protocols")
        raise BadSetting(
            f"{shown} is {settings.text('ssl.enabled.protocols')!r}, expected TLSv1.2, TLSv1.3 or both"
        )
    return ClientTls(
        trust_store=trust_store(settings),
        key_store=key_store(settings),
        versions=versions,
        suites=suites,
        suites_setting=settings.shown("ssl.cipher.suites"),
        checks_host=bool(algorithm),
    )


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
