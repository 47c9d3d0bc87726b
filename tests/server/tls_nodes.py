"""Certificates, and a broker whose Kafka port has TLS."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trustme
from tests.server.raw import RawClient

from penstock.testing import Broker

HOST_NAMES = ("localhost", "127.0.0.1")


def issue(ca: trustme.CA, **more: Any) -> trustme.LeafCert:
    return ca.issue_cert(*HOST_NAMES, **more)


def pem_of(cert: trustme.LeafCert) -> bytes:
    """The private key and the certificate chain."""
    return b"".join([cert.private_key_pem.bytes(), *(each.bytes() for each in cert.cert_chain_pems)])


def write_store(path: Path, cert: trustme.LeafCert) -> Path:
    """Replace the file at once, as tools for certificates do."""
    new = path.with_suffix(".new")
    new.write_bytes(pem_of(cert))
    new.replace(path)
    return path


def write_ca(path: Path, ca: trustme.CA) -> str:
    path.write_bytes(ca.cert_pem.bytes())
    return str(path)


def tls_settings(store: Path | str, **more: str) -> dict[str, str]:
    """Settings of a listener with TLS and a PEM key store; in `more` _ stands for a dot."""
    return {
        "listener.security.protocol.map": "PLAINTEXT:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def tls_broker(store: Path | str, settings: Mapping[str, str] | None = None, **more: Any) -> Broker:
    return Broker(settings={**tls_settings(store), **(settings or {})}, **more)


def client_context(ca: trustme.CA, cert: trustme.LeafCert | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    if cert is not None:
        cert.configure_cert(context)
    return context


class TlsRawClient(RawClient):
    def __init__(self, port: int, context: ssl.SSLContext, receive_bytes: int | None = None) -> None:
        super().__init__(port, receive_bytes)
        try:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        except BaseException:
            self.socket.close()
            raise
