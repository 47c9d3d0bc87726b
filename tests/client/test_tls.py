"""TLS of the client, against real listeners: who is trusted, and what the error says where nobody is."""

import datetime
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.client.test_network import METADATA, dial, listening
from tests.server.tls_nodes import issue, pem_of, tls_broker, write_ca, write_store

from penstock.base.ids import TopicPartition
from penstock.base.settings import BadSetting
from penstock.client.cluster import Cluster
from penstock.client.consumer import Consumer
from penstock.client.errors import AuthenticationFailed, ClientError
from penstock.client.producer import Producer
from penstock.client.security_settings import parse_security
from penstock.client.settings import Address, ClientSettings
from penstock.testing import Broker


class Authority:
    """A certificate authority, and the broker that it certifies."""

    def __init__(self, directory: Path) -> None:
        self.ca = trustme.CA()
        self.directory = directory
        self.ca_file = write_ca(directory / "ca.pem", self.ca)
        self.store = write_store(directory / "node.pem", issue(self.ca))

    def settings(self, **more: str) -> ClientSettings:
        """Of a client that trusts the authority; in `more` _ stands for a dot."""
        own = {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca_file,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        return ClientSettings(security=parse_security(own), connect_timeout_ms=20_000)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[Broker]:
    with tls_broker(authority.store, {"num.partitions": "1"}) as made:
        yield made


def at(broker: Broker, host: str = "127.0.0.1") -> Address:
    return Address(host, broker.port)


def failure(address: Address, settings: ClientSettings) -> str:
    with pytest.raises(AuthenticationFailed) as failed:
        dial(address, settings)
    return str(failed.value)


def test_a_client_that_trusts_the_authority_produces_and_consumes(
    authority: Authority, broker: Broker
) -> None:
    """With records that take many TLS records, some of which are decrypted before they are asked for."""
    orders = TopicPartition("orders", 0)
    values = [bytes([number]) * 50_000 for number in range(40)]
    with Cluster([at(broker, "localhost")], authority.settings()) as cluster:
        producer = Producer(cluster)
        cluster.topic("orders", create=True, wait_ms=20_000)
        for value in values:
            producer.send("orders", None, value)
        producer.flush()
        consumer, found = Consumer(cluster, {orders: 0}), []
        while len(found) < len(values):
            found += [record.value for each in consumer.poll(60_000) for record in each.records]
    assert found == values


def test_an_unknown_authority_is_not_trusted(tmp_path: Path, broker: Broker) -> None:
    stranger = Authority(tmp_path)
    assert failure(at(broker), stranger.settings()) == (
        f"the certificate of {at(broker)} is signed by none of the authorities that the trust store has (unable to "
        "get local issuer certificate); set ssl.truststore.location to the certificate of its authority"
    )
    system = ClientSettings(security=parse_security({"security.protocol": "SSL"}))
    assert "none of the authorities that the system trusts" in failure(at(broker), system)


def test_a_certificate_of_another_host_is_not_trusted_unless_hosts_are_not_checked(
    authority: Authority, tmp_path: Path
) -> None:
    other = authority.ca.issue_cert("elsewhere.example.org")
    with tls_broker(write_store(tmp_path / "other.pem", other)) as broker:
        for host in ("127.0.0.1", "localhost"):
            assert f"the certificate of {at(broker, host)} is of another host" in failure(
                at(broker, host), authority.settings()
            )
        link = dial(at(broker), authority.settings(ssl_endpoint_identification_algorithm=""))
        assert link.ask(METADATA).brokers
        link.close()


def test_an_expired_certificate_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    future = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)
    expired = issue(authority.ca, not_before=past, not_after=past + datetime.timedelta(days=1))
    early = issue(authority.ca, not_before=future, not_after=future + datetime.timedelta(days=1))
    for cert, why in ((expired, "has expired"), (early, "is not valid yet; look at the clocks")):
        with tls_broker(write_store(tmp_path / "node.pem", cert)) as broker:
            assert f"the certificate of {at(broker)} {why}" in failure(at(broker), authority.settings())


def test_a_client_without_tls_gets_an_error_from_a_listener_with(broker: Broker) -> None:
    assert failure(at(broker), ClientSettings()) == (
        f"{at(broker)} asks for TLS, and this client does not use it; set security.protocol to SSL or SASL_SSL"
    )


def test_a_client_with_tls_gets_an_error_from_a_listener_without(
    authority: Authority, penstock_broker: Broker
) -> None:
    assert failure(at(penstock_broker), authority.settings()) == (
        f"{at(penstock_broker)} does not use TLS, and this client does; set security.protocol to PLAINTEXT or "
        "SASL_PLAINTEXT, or use a listener with TLS"
    )


def test_a_port_without_tls_that_is_no_broker_is_reported(authority: Authority) -> None:
    def http(connection: socket.socket) -> None:
        connection.recv(10_000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with listening(http) as address, pytest.raises(ClientError, match=r"the TLS handshake with .* failed"):
        dial(address, replace(authority.settings(), connect_timeout_ms=500))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_listener_that_asks_for_certificates_gets_the_client_s(authority: Authority, version: str) -> None:
    alice = authority.ca.issue_cert("alice@example.org", common_name="alice")
    stranger = trustme.CA().issue_cert("alice@example.org", common_name="alice")
    stores = {
        name: str(write_store(authority.directory / f"{name}.pem", cert))
        for name, cert in (("alice", alice), ("stranger", stranger))
    }
    auth = {
        "ssl.client.auth": "required",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.ca_file,
        "ssl.enabled.protocols": version,
    }
    with tls_broker(authority.store, auth) as broker:
        link = dial(
            at(broker), authority.settings(ssl_keystore_type="PEM", ssl_keystore_location=stores["alice"])
        )
        assert link.ask(METADATA).brokers
        link.close()
        assert "asks for a certificate" in failure(at(broker), authority.settings())
        wrong = authority.settings(ssl_keystore_type="PEM", ssl_keystore_location=stores["stranger"])
        assert "refuses this client's certificate: unknown ca" in failure(at(broker), wrong)


def test_versions_that_they_do_not_share_are_reported(authority: Authority) -> None:
    with tls_broker(authority.store, {"ssl.enabled.protocols": "TLSv1.3"}) as broker:
        older = authority.settings(ssl_enabled_protocols="TLSv1.2")
        assert "has no version of TLS in common with this client, which has TLSv1.2" in failure(
            at(broker), older
        )


def test_stores_may_be_text_or_pkcs12(authority: Authority, broker: Broker, tmp_path: Path) -> None:
    inline = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.ca.cert_pem.bytes().decode(),
    }
    key = pem_of(issue(authority.ca)).decode()
    with_key = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": key,
    }
    for settings in (inline, inline | with_key, _pkcs12(authority, tmp_path)):
        link = dial(at(broker), ClientSettings(security=parse_security(settings)))
        assert link.ask(METADATA).brokers
        link.close()


def _pkcs12(authority: Authority, directory: Path) -> dict[str, str]:
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12  # noqa: PLC0415

    ca = x509.load_pem_x509_certificate(authority.ca.cert_pem.bytes())
    store = directory / "trust.p12"
    store.write_bytes(
        pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(ca, b"ca")], BestAvailableEncryption(b"planted-password")
        )
    )
    return {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(store),
        "ssl.truststore.password": "planted-password",
    }


def test_a_store_that_cannot_be_used_is_reported_without_its_password(
    authority: Authority, tmp_path: Path
) -> None:
    missing = authority.settings(ssl_truststore_location=str(tmp_path / "none.pem"))
    with pytest.raises(BadSetting, match=r"cannot read .*none\.pem, ssl\.truststore\.location"):
        dial(Address("127.0.0.1", 1), missing)
    wrong = _pkcs12(authority, tmp_path) | {"ssl.truststore.password": "planted-wrong"}
    security = parse_security(wrong)
    with pytest.raises(BadSetting, match=r"ssl\.truststore\.password is not its password") as refused:
        dial(Address("127.0.0.1", 1), ClientSettings(security=security))
    assert "planted" not in f"{refused.value}{security!r}"


def test_a_client_without_tls_loads_nothing_for_it(penstock_broker: Broker) -> None:
    """`ssl` itself is loaded by asyncio, which kio imports."""
    modules = ("penstock.client.tls", "penstock.client.key_stores", "hashlib", "cryptography", "http.client")
    script = (
        "import sys\n"
        "from penstock.client.cluster import Cluster\n"
        "from penstock.client.settings import parse_servers\n"
        "with Cluster(parse_servers(sys.argv[1])) as cluster: cluster.refresh(None)\n"
        f"print([each for each in {modules} if each in sys.modules])\n"
    )
    done: Any = subprocess.run(
        [sys.executable, "-c", script, penstock_broker.bootstrap], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
