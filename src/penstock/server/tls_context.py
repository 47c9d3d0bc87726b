"""Loads keys and certificates, and makes the `ssl.SSLContext` of a listener from them.

    settings or file --> PEM blocks --> SSLContext
      PKCS#12 file --------^ cryptography (the extra `tls`)

A file is read once, so that the certificate that is checked is the one that is used. Python's `ssl` takes a key only
from a file: it gets one in memory (`memfd_create`), or where the system has none a temporary file that is deleted at
once. Everything wrong raises `BadSetting` with a sentence that has no password in it.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, NamedTuple

from penstock.base.settings import BadSetting
from penstock.security.x509 import BadCertificate, not_after, subject
from penstock.server.tls_config import (
    JKS,
    NO_CLIENT_AUTH,
    PEM,
    PKCS12,
    REQUIRED,
    StoreConfig,
    TlsConfig,
)

FILE_BYTES_MAX: Final = 16 << 20
"""Bundles of all public authorities have some hundred kilobytes."""

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = b"\x30"

_BLOCK = re.compile(r"-+BEGIN ([A-Z0-9 ]+?)-+\s(.*?)-+END \1-+", re.DOTALL)
_LINE = 64


class Loaded(NamedTuple):
    """What a listener uses for new connections."""

    context: ssl.SSLContext
    not_after: datetime
    """When the certificate expires."""
    subject: str


class _Material(NamedTuple):
    key: str
    """In PEM, maybe encrypted."""
    certificates: list[str]
    """In PEM; the node's own first."""
    password: str


def load(config: TlsConfig) -> Loaded:
    """Read keys and certificates, and make a context."""
    material = _key_material(config.key_store)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = (
        ssl.TLSVersion.TLSv1_2 if "TLSv1.2" in config.versions else ssl.TLSVersion.TLSv1_3
    )
    context.maximum_version = (
        ssl.TLSVersion.TLSv1_3 if "TLSv1.3" in config.versions else ssl.TLSVersion.TLSv1_2
    )
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0  # TLS 1.3: a resumed session would skip the check of the client's certificate
    if config.suites:
        _set_suites(context, config)
    _load_key(context, material, config.key_store)
    if config.client_auth != NO_CLIENT_AUTH and config.trust_store is not None:
        _load_authorities(context, config.trust_store)
        context.verify_mode = ssl.CERT_REQUIRED if config.client_auth == REQUIRED else ssl.CERT_OPTIONAL
    try:
        own = ssl.PEM_cert_to_DER_cert(material.certificates[0])
        return Loaded(context, not_after(own), subject(own))
    except BadCertificate as error:
        raise BadSetting(f"{config.key_store.setting}: {error}") from error


# -- PEM -----------------------------------------------------------------------------------------------


def _pem_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kinds and the blocks of PEM text. In a properties file a block may be one line, with spaces for line
    breaks."""
    for found in _BLOCK.finditer(text):
        kind, body = found[1], found[2]
        if ":" in body:  # the header lines of a key in OpenSSL's older format
            yield kind, f"-----BEGIN {kind}-----\n{body}-----END {kind}-----\n"
            continue
        data = "".join(body.split())
        lines = "\n".join(data[at : at + _LINE] for at in range(0, len(data), _LINE))
        yield kind, f"-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\n"


def _pem_certificates(text: str, store: StoreConfig) -> list[str]:
    found = [block for kind, block in _pem_blocks(text) if kind in ("CERTIFICATE", "TRUSTED CERTIFICATE")]
    if not found:
        raise BadSetting(f"{_place(store)} has no certificate, expected PEM with BEGIN CERTIFICATE")
    return found


def _place(store: StoreConfig) -> str:
    return store.setting if store.location is None else f"{store.location}, {store.setting},"


def _read(store: StoreConfig) -> bytes:
    assert store.location is not None
    try:
        with open(store.location, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"cannot read {store.location}, {store.setting}: {why}") from error
    if len(data) > FILE_BYTES_MAX:
        raise BadSetting(
            f"{_place(store)} is larger than {FILE_BYTES_MAX} bytes, expected keys and certificates"
        )
    return data


def _content(store: StoreConfig) -> tuple[str, bytes]:
    """The type of a store by its content, and the content. Raises for JKS, and for another type than configured."""
    data = _read(store)
    is_pem = b"-----BEGIN " in data
    if data[:4] in _JKS_MAGIC:
        target = f"{(store.location or '').removesuffix('.jks')}.p12"
        raise BadSetting(
            f"{_place(store)} is a Java key store (JKS), which is not supported; convert it with keytool "
            f"-importkeystore -srckeystore {store.location} -destkeystore {target} -deststoretype PKCS12, and set the "
            "location and the type PKCS12"
        )
    if store.type == PEM or (store.type == JKS and is_pem):
        if not is_pem:
            raise BadSetting(f"{_place(store)} has no BEGIN line, expected PEM")
        if store.type == JKS:
            raise BadSetting(f"{_place(store)} is PEM, but its type is JKS, expected the type PEM")
        return PEM, data
    if not data.startswith(_DER_SEQUENCE):
        raise BadSetting(f"{_place(store)} is not PKCS#12, expected a file of the type {store.type}")
    return PKCS12, data


# -- keys ----------------------------------------------------------------------------------------------


def _key_material(store: StoreConfig) -> _Material:
    if store.location is None:
        return _pem_material(store.key or "", store.certificates or "", store)
    kind, data = _content(store)
    if kind == PKCS12:
        return _pkcs12_material(data, store)
    text = data.decode("utf-8", "replace")
    return _pem_material(text, text, store)


def _pem_material(key: str, certificates: str, store: StoreConfig) -> _Material:
    keys = [block for kind, block in _pem_blocks(key) if kind.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise BadSetting(
            f"{_place(store)} has {len(keys)} private keys, expected one, as PEM with BEGIN PRIVATE KEY"
        )
    return _Material(keys[0], _pem_certificates(certificates, store), store.key_password or "")


def _load_key(context: ssl.SSLContext, material: _Material, store: StoreConfig) -> None:
    def password() -> str:
        if not material.password:
            raise BadSetting(
                f"{_place(store)} has an encrypted private key, expected ssl.key.password with it"
            )
        return material.password

    try:
        with _as_file("".join([*material.certificates, material.key])) as path:
            context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        raise BadSetting(f"{_place(store)} {_why(error, has_password=bool(material.password))}") from None


def _why(error: ssl.SSLError, *, has_password: bool) -> str:
    reason = error.reason or ""
    if reason == "KEY_VALUES_MISMATCH":
        return (
            "has a private key that does not fit its first certificate, expected the key of this certificate"
        )
    if has_password and reason in ("BAD_DECRYPT", "PKCS12_CIPHERFINAL_ERROR", "BAD_PASSWORD_READ", ""):
        return "has a private key that ssl.key.password does not open"
    known = reason.replace("_", " ").lower() or "not valid"
    return f"is refused by OpenSSL: {known}; expected a private key and its certificate chain"


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A file that no other user can read, for as long as it takes to load it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("penstock-tls", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile("w", prefix="penstock-tls-") as file:  # readable by this user alone
        file.write(text)
        file.flush()
        yield file.name


def _load_authorities(context: ssl.SSLContext, store: StoreConfig) -> None:
    if store.location is None:
        certificates = _pem_certificates(store.certificates or "", store)
    else:
        kind, data = _content(store)
        if kind == PKCS12:
            certificates = _pkcs12_certificates(data, store)
        else:
            certificates = _pem_certificates(data.decode("utf-8", "replace"), store)
    try:
        context.load_verify_locations(cadata="".join(certificates))
    except (ssl.SSLError, ValueError, TypeError) as error:  # the latter two for characters beyond ASCII
        reason = getattr(error, "reason", None) or "not valid"
        raise BadSetting(
            f"{_place(store)} is refused by OpenSSL: {reason.replace('_', ' ').lower()}; expected certificates"
        ) from None
    # As in Java, a certificate in the trust store is trusted whether or not it is a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


# -- PKCS#12 -------------------------------------------------------------------------------------------


def _pkcs12_material(data: bytes, store: StoreConfig) -> _Material:
    if store.key_password not in (None, "", store.password):
        raise BadSetting(
            f"ssl.key.password differs from ssl.keystore.password, but {_place(store)} is PKCS#12, which has one "
            "password; expected equal values"
        )
    key, own, others = _open_pkcs12(data, store)
    if key is None or own is None:
        raise BadSetting(f"{_place(store)} has no private key with a certificate, expected one")

    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415  # only for PKCS#12
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return _Material(pem, [each.public_bytes(Encoding.PEM).decode() for each in (own, *others)], "")


def _pkcs12_certificates(data: bytes, store: StoreConfig) -> list[str]:
    _, own, others = _open_pkcs12(data, store)

    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415  # only for PKCS#12

    found = [each.public_bytes(Encoding.PEM).decode() for each in (own, *others) if each is not None]
    if not found:
        raise BadSetting(f"{_place(store)} has no certificate, expected those of the authorities of clients")
    return found


def _open_pkcs12(data: bytes, store: StoreConfig):  # type: ignore[no-untyped-def]  # types of an optional package
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415
    except ImportError as error:
        raise BadSetting(
            f"{_place(store)} is PKCS#12, for which the package cryptography is missing: install penstock[tls], or "
            "use PEM"
        ) from error
    try:
        return pkcs12.load_key_and_certificates(data, (store.password or "").encode())
    except Exception:  # ValueError, TypeError and UnsupportedAlgorithm; the text may not be shown
        setting = "ssl.truststore.password" if "truststore" in store.setting else "ssl.keystore.password"
        raise BadSetting(
            f"{_place(store)} cannot be opened: it is damaged, has an unknown encryption, or {setting} is not its "
            "password"
        ) from None


# -- cipher suites -------------------------------------------------------------------------------------


def _set_suites(context: ssl.SSLContext, config: TlsConfig) -> None:
    names = [_openssl_name(each) for each in config.suites]
    for told, name in zip(config.suites, names, strict=True):
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise BadSetting(
                f"{config.suites_setting} has {told!r}, expected a suite of TLS 1.2 that OpenSSL has, such as "
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
            ) from None
    context.set_ciphers(":".join(names))


def _openssl_name(suite: str) -> str:
    """Translate Java's name: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_")
    name = re.sub(r"AES_(\d+)", r"AES\1", name).replace("_CBC", "")
    return name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_", "-")
