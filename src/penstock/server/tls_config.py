"""The TLS settings of one listener, checked as far as that is possible without reading files.

Names and meanings are Kafka's; `client/tls_settings.py` has those that clients have too.
"""

from dataclasses import dataclass

from penstock.base.settings import BadSetting
from penstock.client.tls_settings import StoreConfig, key_store, trust_store, versions_and_suites
from penstock.server.listener_config import ListenerSettings

NO_CLIENT_AUTH, REQUESTED, REQUIRED = "none", "requested", "required"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    listener: str
    key_store: StoreConfig
    trust_store: StoreConfig | None
    client_auth: str
    versions: frozenset[str]
    """TLSv1.2, TLSv1.3 or both."""
    suites: tuple[str, ...]
    """Suites of TLS 1.2 by the names in the settings; empty for OpenSSL's own."""
    suites_setting: str
    mapping_rules: str
    mapping_setting: str
    is_principal_by_log_in: bool = False
    """Clients log in: their certificate is checked, but does not name them."""

    @property
    def files(self) -> tuple[str, ...]:
        stores = (self.key_store, self.trust_store)
        return tuple(each.location for each in stores if each is not None and each.location is not None)


def parse_tls(settings: ListenerSettings, *, is_sasl: bool = False) -> TlsConfig:
    """The TLS settings of a listener. As in Kafka, a listener whose clients log in (SASL_SSL) wants certificates of
    them only if `ssl.client.auth` is set for this listener."""
    client_auth = (settings.text("ssl.client.auth") or "").lower()
    if is_sasl and not settings.is_own("ssl.client.auth"):
        client_auth = NO_CLIENT_AUTH
    if client_auth not in (NO_CLIENT_AUTH, REQUESTED, REQUIRED):
        raise BadSetting(
            f"{settings.shown('ssl.client.auth')} is {settings.text('ssl.client.auth')!r}, expected none, requested "
            "or required"
        )
    authorities = trust_store(settings)
    if client_auth != NO_CLIENT_AUTH and authorities is None:
        raise BadSetting(
            f"{settings.shown('ssl.client.auth')} is {client_auth} for the listener {settings.listener}, expected "
            "ssl.truststore.location or ssl.truststore.certificates with it: the authorities that sign clients' "
            "certificates"
        )
    own = key_store(settings)
    if own is None:
        raise BadSetting(
            f"the listener {settings.listener} has no certificate, expected ssl.keystore.location, or "
            "ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    versions, suites = versions_and_suites(settings)
    return TlsConfig(
        listener=settings.listener,
        key_store=own,
        trust_store=authorities,
        client_auth=client_auth,
        versions=versions,
        suites=suites,
        suites_setting=settings.shown("ssl.cipher.suites"),
        mapping_rules=settings.text("ssl.principal.mapping.rules") or "",
        mapping_setting=settings.shown("ssl.principal.mapping.rules"),
        is_principal_by_log_in=is_sasl,
    )
