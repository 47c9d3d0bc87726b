"""The settings of TLS that listeners and clients share, checked as far as that is possible without reading files.

Names and meanings are Kafka's. Keys and certificates are in a file (PEM or PKCS#12), or PEM text in the settings:

    ssl.keystore.location                                   ssl.truststore.location
    ssl.keystore.key, ssl.keystore.certificate.chain        ssl.truststore.certificates

A store of the type JKS, which is the default, may hold PKCS#12: Java reads both under this name.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

from penstock.base.settings import BadSetting

PEM, PKCS12, JKS = "PEM", "PKCS12", "JKS"
_TYPES = (PEM, PKCS12, JKS)

SUITES_1_3: Final = frozenset(
    {"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"}
)
"""The suites of TLS 1.3 in OpenSSL. Python cannot choose among them."""


class TlsSettings(Protocol):
    """Settings, each with its name and source for errors."""

    def text(self, name: str) -> str | None:
        """The value, or its default."""

    def is_set(self, name: str) -> bool: ...

    def shown(self, name: str) -> str:
        """The setting's name and source."""


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


def _type(settings: TlsSettings, name: str) -> str:
    text = (settings.text(name) or "").upper()
    if text not in _TYPES:
        raise BadSetting(f"{settings.shown(name)} is {settings.text(name)!r}, expected PEM or PKCS12")
    return text


def key_store(settings: TlsSettings) -> StoreConfig | None:
    kind = _type(settings, "ssl.keystore.type")
    in_file = settings.is_set("ssl.keystore.location")
    is_inline = settings.is_set("ssl.keystore.key") or settings.is_set("ssl.keystore.certificate.chain")
    if not in_file and not is_inline:
        return None
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


def trust_store(settings: TlsSettings) -> StoreConfig | None:
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


def _expect_pem(settings: TlsSettings, name: str, kind: str, inline: str) -> None:
    if kind != PEM:
        raise BadSetting(f"{settings.shown(name)} is {kind}, expected PEM with {inline}")


def _expect_no_password(settings: TlsSettings, name: str, kind: str, more: str) -> None:
    if kind == PEM and settings.is_set(name):
        raise BadSetting(
            f"{settings.shown(name)} is set, expected none with PEM, which has no password{more}"
        )


def versions_and_suites(settings: TlsSettings) -> tuple[frozenset[str], tuple[str, ...]]:
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
