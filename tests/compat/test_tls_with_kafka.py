"""Kafka's own tools over TLS, with certificates in PEM and in a store of Java's keytool."""

import subprocess
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from tests.compat.kafka.peer import KafkaError, KafkaPeer
from tests.server.tls_nodes import HOST_NAMES, issue, tls_broker, write_ca, write_store

from penstock.testing import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.long]

PASSWORD = "changeit"


def topics(kafka: KafkaPeer, broker: Broker, client: Path, *arguments: str) -> str:
    address = f"localhost:{broker.port}"
    return kafka.java(
        "org.apache.kafka.tools.TopicCommand",
        "--bootstrap-server",
        address,
        "--command-config",
        str(client),
        *arguments,
    )


def pkcs8_store(cert: trustme.LeafCert) -> bytes:
    """The only form of a private key in PEM that Kafka reads."""
    key = load_pem_private_key(cert.private_key_pem.bytes(), None)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return b"".join([pem, *(each.bytes() for each in cert.cert_chain_pems)])


def client_properties(path: Path, authorities: str, own: Path | None = None) -> Path:
    lines = ["security.protocol=SSL", "ssl.truststore.type=PEM", f"ssl.truststore.location={authorities}"]
    if own is not None:
        lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={own}"]
    path.write_text("\n".join([*lines, "default.api.timeout.ms=8000", "request.timeout.ms=4000", ""]))
    return path


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_kafkas_tools_connect_with_a_certificate_and_not_without(
    kafka: KafkaPeer, tmp_path: Path, version: str
) -> None:
    ca = trustme.CA()
    authorities = write_ca(tmp_path / "ca.pem", ca)
    alice = tmp_path / "alice.pem"
    alice.write_bytes(pkcs8_store(ca.issue_cert("alice@example.org", common_name="alice")))
    settings = {
        "ssl.client.auth": "required",
        "ssl.enabled.protocols": version,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authorities,
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+),.*$/$1/",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice",
    }
    with tls_broker(write_store(tmp_path / "node.pem", issue(ca)), settings) as broker:
        known = client_properties(tmp_path / "known.properties", authorities, alice)
        topics(kafka, broker, known, "--create", "--topic", "letters")
        assert "letters" in topics(kafka, broker, known, "--list")
        unknown = client_properties(tmp_path / "unknown.properties", authorities)
        with pytest.raises(
            KafkaError, match=r"SSL handshake failed|SslAuthentication|SSLHandshake|Timed out"
        ):
            topics(kafka, broker, unknown, "--list")


def test_a_store_of_keytool_is_read(kafka: KafkaPeer, tmp_path: Path) -> None:
    """Under the default type, JKS, keytool writes PKCS#12."""
    store, exported = tmp_path / "node.keystore", tmp_path / "node.crt"
    of_store = ["-keystore", str(store), "-storepass", PASSWORD, "-alias", "node"]
    names = ",".join(f"{'ip' if each[0].isdigit() else 'dns'}:{each}" for each in HOST_NAMES)
    keytool("-genkeypair", *of_store, "-keyalg", "RSA", "-dname", "CN=node", "-ext", f"san={names}")
    keytool("-exportcert", *of_store, "-rfc", "-file", str(exported))
    settings = {
        "ssl.keystore.type": "JKS",
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    with tls_broker(store, settings) as broker:
        client = client_properties(tmp_path / "client.properties", str(exported))
        topics(kafka, broker, client, "--create", "--topic", "letters")
        assert "letters" in topics(kafka, broker, client, "--list")


def keytool(*arguments: str) -> None:
    subprocess.run(["keytool", *arguments], check=True, capture_output=True)
