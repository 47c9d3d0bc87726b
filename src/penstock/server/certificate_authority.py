"""A certificate authority for trials and tests: issues certificates to nodes and clients.

Keys are of the curve P-256, private keys are PKCS#8 in PEM, which Python, Java and librdkafka read. Only
`penstock secure init` and `penstock.testing` import this module, which needs the package `cryptography`.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from penstock.base.errors import KafkaError
from penstock.base.extras import install_hint

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as missing:
    raise KafkaError(
        f"making certificates needs the package cryptography, which is not installed: {install_hint('tls')}"
    ) from missing

CLOCKS_DIFFER: Final = timedelta(hours=1)
"""A certificate is valid from so long ago, for machines whose clock is behind."""


class Certified(NamedTuple):
    """A private key with its certificate and that of the authority, as PEM."""

    key: bytes
    chain: bytes

    @property
    def pem(self) -> bytes:
        """The content of a PEM key store."""
        return self.key + self.chain

    def __repr__(self) -> str:
        return "Certified()"


class CertificateAuthority:
    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, name: str, *, days: int) -> "CertificateAuthority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name)
        certificate = (
            _certificate(subject, subject, key, timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(key, certificate)

    @classmethod
    def load(cls, key_pem: bytes, certificate_pem: bytes) -> "CertificateAuthority":
        key = load_pem_private_key(key_pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return cls(key, x509.load_pem_x509_certificate(certificate_pem))

    @property
    def certificate(self) -> bytes:
        """As PEM, for trust stores."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key(self) -> bytes:
        return _key_pem(self._key)

    def issue(self, name: str, hosts: Sequence[str] = (), *, days: int) -> Certified:
        """A certificate with a common name. Nodes have one with their host names or addresses, clients without."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate(_name(name), self._certificate.subject, key, timedelta(days=days))
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(is_authority=False), critical=True)
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            names = x509.SubjectAlternativeName([_host(each) for each in dict.fromkeys(hosts)])
            builder = builder.add_extension(names, critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        signed = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        return Certified(_key_pem(key), signed.public_bytes(Encoding.PEM) + self.certificate)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
