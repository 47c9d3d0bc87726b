"""Loads keys and certificates into an `ssl.SSLContext`, for listeners and for clients.

    settings or file --> PEM blocks --> SSLContext
      PKCS#12 file --------^ cryptography (the extra `tls`)

Python's `ssl` takes a key only from a file: it gets one in memory (`memfd_create`), or where the system has none a
temporary file that is deleted at once. Everything wrong raises `BadSetting` with a sentence that shows no password.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from penstock.base.settings import BadSetting

from .tls_settings import JKS, PEM, PKCS12, StoreConfig

FILE_BYTES_MAX: Final = 16 << 20
"""Bundles of all public authorities have some hundred kilobytes."""

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = b"\x30"

_BLOCK = re.compile(r"-+BEGIN ([A-Z0-9 ]+?)-+\s(.*?)-+END \1-+", re.DOTALL)
_LINE = 64


class Material(NamedTuple):
    key: str
    """In PEM, maybe encrypted."""
    certificates: list[str]
    """In PEM; the own one first."""
    password: str


def new_context(
    protocol: int, versions: Collection[str], suites: Sequence[str], suites_setting: str
) -> ssl.SSLContext:
    """A context with some of TLSv1.2 and TLSv1.3, and with suites of TLS 1.2 or OpenSSL's own."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2 if "TLSv1.2" in versions else ssl.TLSVersion.TLSv1_3
    context.maximum_version = ssl.TLSVersion.TLSv1_3 if "TLSv1.3" in versions else ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    if suites:
        _set_suites(context, suites, suites_setting)
    return context


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


def key_material(store: StoreConfig) -> Material:
    if store.location is None:
        return _pem_material(store.key or "", store.certificates or "", store)
    kind, data = _content(store)
    if kind == PKCS12:
        return _pkcs12_material(data, store)
    text = data.decode("utf-8", "replace")
    return _pem_material(text, text, store)


def _pem_material(key: str, certificates: str, store: StoreConfig) -> Material:
    keys = [block for kind, block in _pem_blocks(key) if kind.endswith("PRIVATE KEY")]
    if len(keys) != 1:
        raise BadSetting(
            f"{_place(store)} has {len(keys)} private keys, expected one, as PEM with BEGIN PRIVATE KEY"
        )
    return Material(keys[0], _pem_certificates(certificates, store), store.key_password or "")


def load_key(context: ssl.SSLContext, material: Material, store: StoreConfig) -> None:
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


def authorities(store: StoreConfig) -> list[str]:
    """The certificates of a trust store, in PEM."""
    if store.location is None:
        return _pem_certificates(store.certificates or "", store)
    kind, data = _content(store)
    if kind == PKCS12:
        return _pkcs12_certificates(data, store)
    return _pem_certificates(data.decode("utf-8", "replace"), store)


def load_authorities(context: ssl.SSLContext, certificates: list[str], store: StoreConfig) -> None:
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


def _pkcs12_material(data: bytes, store: StoreConfig) -> Material:
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
    return Material(pem, [each.public_bytes(Encoding.PEM).decode() for each in (own, *others)], "")


def _pkcs12_certificates(data: bytes, store: StoreConfig) -> list[str]:
    _, own, others = _open_pkcs12(data, store)

    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415  # only for PKCS#12

    found = [each.public_bytes(Encoding.PEM).decode() for each in (own, *others) if each is not None]
    if not found:
        raise BadSetting(f"{_place(store)} has no certificate, expected those of authorities")
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


def _set_suites(context: ssl.SSLContext, suites: Sequence[str], setting: str) -> None:
    names = [_openssl_name(each) for each in suites]
    for suite, name in zip(suites, names, strict=True):
        try:
            context.set_ciphers(name)
        except ssl.SSLError:
            raise BadSetting(
                f"{setting} has {suite!r}, expected a suite of TLS 1.2 that OpenSSL has, such as "
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
            ) from None
    context.set_ciphers(":".join(names))


def _openssl_name(suite: str) -> str:
    """Translate Java's name: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    name = suite.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_")
    name = re.sub(r"AES_(\d+)", r"AES\1", name).replace("_CBC", "")
    return name.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305").replace("_", "-")
