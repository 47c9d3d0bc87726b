"""The TLS settings of one listener, checked as far as that is possible without reading files.

Names and meanings are Kafka's. Keys and certificates are in a file (PEM or PKCS#12), or PEM text in the settings:

    ssl.keystore.location                                   ssl.truststore.location
    ssl.keystore.key, ssl.keystore.certificate.chain        ssl.truststore.certificates

A store of the type JKS, which is the default, may hold PKCS#12: Java reads both under this name.
"""

from dataclasses import dataclass, field
from typing import Final

from penstock.base.settings import BadSetting
from penstock.server.listener_config import ListenerSettings

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
_TYPES = (PEM, PKCS12, JKS)

NO_CLIENT_AUTH, REQUESTED, REQUIRED = "none", "requested", "required"

SUITES_1_3: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)
"""The suites of TLS 1.3 in OpenSSL. Python cannot choose among them."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """A key store or a trust store."""

    setting: str
    """The setting of its file or of its certificates, with its source, for errors."""
    type: str
    location: str | None = None
    key: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)


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
    trust_store = _trust_store(settings)
    if client_auth != NO_CLIENT_AUTH and trust_store is None:
        raise BadSetting(
            f"{settings.shown('ssl.client.auth')} is {client_auth} for the listener {settings.listener}, expected "
            "ssl.truststore.location or ssl.truststore.certificates with it: the authorities that sign clients' "
            "certificates"
        )
    versions, suites = _versions_and_suites(settings)
    return TlsConfig(
        listener=settings.listener,
        key_store=_key_store(settings),
        trust_store=trust_store,
        client_auth=client_auth,
        versions=versions,
        suites=suites,
        suites_setting=settings.shown("ssl.cipher.suites"),
        mapping_rules=settings.text("ssl.principal.mapping.rules") or "",
        mapping_setting=settings.shown("ssl.principal.mapping.rules"),
        is_principal_by_log_in=is_sasl,
    )


def _type(settings: ListenerSettings, name: str) -> str:
    text = (settings.text(name) or "").upper()
    if text not in _TYPES:
        raise BadSetting(f"{settings.shown(name)} is {settings.text(name)!r}, expected PEM or PKCS12")
    return text


def _key_store(settings: ListenerSettings) -> StoreConfig:
    kind = _type(settings, "ssl.keystore.type")
    in_file = settings.is_set("ssl.keystore.location")
    is_inline = settings.is_set("ssl.keystore.key") or settings.is_set("ssl.keystore.certificate.chain")
    if not in_file and not is_inline:
        raise BadSetting(
            f"the listener {settings.listener} has no certificate, expected ssl.keystore.location, or "
            "ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    if in_file and is_inline:
        raise BadSetting(
            f"{settings.shown('ssl.keystore.location')} is set together with ssl.keystore.key or "
            "ssl.keystore.certificate.chain, expected a file, or a key and certificates in the settings"
        )
    if is_inline:
        for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain"):
            if not settings.is_set(name):
                raise BadSetting(
                    f"{name} is not set, expected ssl.keystore.key and ssl.keystore.certificate.chain"
                )
        _expect_pem(settings, "ssl.keystore.type", kind, "ssl.keystore.key")
    _expect_no_password(settings, "ssl.keystore.password", kind, " (ssl.key.password is the one of the key)")
    return StoreConfig(
        setting=settings.shown("ssl.keystore.location" if in_file else "ssl.keystore.key"),
        type=kind,
        location=settings.text("ssl.keystore.location") if in_file else None,
        key=settings.text("ssl.keystore.key"),
        certificates=settings.text("ssl.keystore.certificate.chain"),
        password=settings.text("ssl.keystore.password"),
        key_password=settings.text("ssl.key.password"),
    )


def _trust_store(settings: ListenerSettings) -> StoreConfig | None:
    kind = _type(settings, "ssl.truststore.type")
    in_file = settings.is_set("ssl.truststore.location")
    is_inline = settings.is_set("ssl.truststore.certificates")
    if not in_file and not is_inline:
        return None
    if in_file and is_inline:
        raise BadSetting(
            f"{settings.shown('ssl.truststore.location')} and ssl.truststore.certificates are both set, expected one "
            "of them"
        )
    if is_inline:
        _expect_pem(settings, "ssl.truststore.type", kind, "ssl.truststore.certificates")
    _expect_no_password(settings, "ssl.truststore.password", kind, "")
    return StoreConfig(
        setting=settings.shown("ssl.truststore.location" if in_file else "ssl.truststore.certificates"),
        type=kind,
        location=settings.text("ssl.truststore.location") if in_file else None,
        certificates=settings.text("ssl.truststore.certificates"),
        password=settings.text("ssl.truststore.password"),
    )


def _expect_pem(settings: ListenerSettings, name: str, kind: str, inline: str) -> None:
    if kind != PEM:
        raise BadSetting(f"{settings.shown(name)} is {kind}, expected PEM with {inline}")


def _expect_no_password(settings: ListenerSettings, name: str, kind: str, more: str) -> None:
    if kind == PEM and settings.is_set(name):
        raise BadSetting(
            f"{settings.shown(name)} is set, expected none with PEM, which has no password{more}"
        )


def _versions_and_suites(settings: ListenerSettings) -> tuple[frozenset[str], tuple[str, ...]]:
    """The versions, and the suites of TLS 1.2. A list of suites without those of a version disables that version."""
    versions = {each.strip() for each in (settings.text("ssl.enabled.protocols") or "").split(",")} - {""}
    suites = [each.strip() for each in (settings.text("ssl.cipher.suites") or "").split(",") if each.strip()]
    if not suites:
        return frozenset(versions), ()
    newer = SUITES_1_3 & set(suites)
    older = tuple(each for each in suites if each not in SUITES_1_3)
    if not newer:
        versions.discard("TLSv1.3")
    if not older:
        versions.discard("TLSv1.2")
    if "TLSv1.3" in versions and newer != SUITES_1_3:
        raise BadSetting(
            f"{settings.shown('ssl.cipher.suites')} lacks {', '.join(sorted(SUITES_1_3 - newer))}, expected all "
            "suites of TLS 1.3 or none: Python cannot choose among them"
        )
    if not versions:
        raise BadSetting(
            f"{settings.shown('ssl.cipher.suites')} has no suite of {settings.text('ssl.enabled.protocols')}, the "
            "value of ssl.enabled.protocols"
        )
    return frozenset(versions), older if "TLSv1.2" in versions else ()
