"""The settings of TLS: which are refused with what sentence, and what is loaded of them."""

import ssl
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate
from hypothesis import given
from hypothesis import strategies as st
from tests.server.tls_nodes import issue, pem_of, write_ca, write_store

from penstock.base.settings import BadSetting
from penstock.server.config import NodeConfig, config_from, load
from penstock.server.tls_context import load as load_tls

SECRET = "correct-horse-battery"


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def cert(ca: trustme.CA) -> trustme.LeafCert:
    return issue(ca)


@pytest.fixture
def store(cert: trustme.LeafCert, tmp_path: Path) -> Path:
    return write_store(tmp_path / "node.pem", cert)


def told(**settings: str) -> NodeConfig:
    """In names _ stands for a dot."""
    return config_from(
        "/data",
        {
            "listeners": "SSL://127.0.0.1:9093",
            **{name.replace("_", "."): value for name, value in settings.items()},
        },
    )


def context_of(**settings: str) -> ssl.SSLContext:
    return load_tls(told(**settings).tls["SSL"]).context


PEM_STORE = {"ssl_keystore_type": "PEM", "ssl_keystore_location": "/somewhere.pem"}


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({}, "the listener SSL has no certificate, expected ssl.keystore.location, or ssl.keystore.key and"),
        (
            {**PEM_STORE, "ssl_keystore_type": "BKS"},
            "ssl.keystore.type .settings. is 'BKS', expected PEM or PKCS12",
        ),
        (
            {**PEM_STORE, "ssl_keystore_key": "x"},
            "ssl.keystore.location .* is set together with ssl.keystore.key",
        ),
        ({"ssl_keystore_type": "PEM", "ssl_keystore_key": "x"}, "ssl.keystore.certificate.chain is not set"),
        (
            {**PEM_STORE, "ssl_keystore_password": SECRET},
            "ssl.keystore.password .* is set, expected none with PEM",
        ),
        (
            {**PEM_STORE, "ssl_client_auth": "maybe"},
            "ssl.client.auth .* is 'maybe', expected none, requested or req",
        ),
        (
            {**PEM_STORE, "ssl_client_auth": "required"},
            "expected ssl.truststore.location or ssl.truststore.cert",
        ),
        ({**PEM_STORE, "ssl_enabled_protocols": "TLSv1.2,TLSv1.1"}, "expected a list of TLSv1.2, TLSv1.3"),
        ({**PEM_STORE, "ssl_protocol": "SSLv3"}, "expected one of TLS, TLSv1.2, TLSv1.3"),
        (
            {**PEM_STORE, "ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"},
            "expected all suites of TLS 1.3 or none",
        ),
        (
            {**PEM_STORE, "ssl_cipher_suites": "TLS_AES_128_GCM_SHA256", "ssl_enabled_protocols": "TLSv1.2"},
            "has no suite of TLSv1.2",
        ),
        (
            {**PEM_STORE, "listener_name_other_ssl_client_auth": "none"},
            "is for the listener OTHER, expected one of SSL",
        ),
        ({**PEM_STORE, "listener_name_ssl_log_dirs": "x"}, "others cannot be set for a single listener yet"),
        ({**PEM_STORE, "ssl_unheard": "x"}, "unknown setting ssl.unheard"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(settings: dict[str, str], why: str) -> None:
    with pytest.raises(BadSetting, match=why) as refused:
        told(**settings)
    assert SECRET not in str(refused.value)


LISTENERS = "PLAINTEXT://127.0.0.1:9092,SSL://127.0.0.1:9093,CONTROLLER://127.0.0.1:9094"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"http_listener": "https://127.0.0.1:8080"}, "expected HOST:PORT"),
    ],
)
def test_at_other_doors_there_is_no_tls_yet(settings: dict[str, str], why: str) -> None:
    given = {**PEM_STORE, "controller_listener_names": "CONTROLLER", "listeners": LISTENERS}
    assert told(**given).cluster.listener == "PLAINTEXT"
    with pytest.raises(BadSetting, match=why):
        told(**{**given, **settings})


def test_a_setting_of_one_listener_is_stronger() -> None:
    config = told(
        **PEM_STORE,
        listeners="SSL://127.0.0.1:1,OTHER://127.0.0.1:2",
        listener_security_protocol_map="SSL:SSL,OTHER:SSL",
        listener_name_other_ssl_keystore_location="/other.pem",
        listener_name_other_ssl_enabled_protocols="TLSv1.3",
    )
    assert {name: each.files for name, each in config.tls.items()} == {
        "SSL": ("/somewhere.pem",),
        "OTHER": ("/other.pem",),
    }
    assert config.tls["OTHER"].versions == {"TLSv1.3"}
    assert config.protocols == {"SSL": "SSL", "OTHER": "SSL"}


def test_a_key_store_that_no_listener_uses_is_warned_of() -> None:
    [warning] = told(**PEM_STORE, listeners="PLAINTEXT://127.0.0.1:1").warnings
    assert "ssl.keystore.location (settings) has no effect" in warning


def test_a_server_properties_of_kafka_is_taken(store: Path, ca: trustme.CA, tmp_path: Path) -> None:
    authorities = write_ca(tmp_path / "ca.pem", ca)
    file = tmp_path / "server.properties"
    file.write_text(f"""
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://localhost:9092,EXTERNAL://:9094,CONTROLLER://localhost:9093
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
advertised.listeners=PLAINTEXT://localhost:9092,EXTERNAL://broker.example:9094
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,EXTERNAL:SSL
listener.name.external.ssl.keystore.location={store}
listener.name.external.ssl.keystore.type=PEM
ssl.truststore.type=PEM
ssl.truststore.location={authorities}
ssl.client.auth=REQUIRED
ssl.endpoint.identification.algorithm=
ssl.enabled.protocols=TLSv1.3,TLSv1.2
log.dirs={tmp_path}/data
""")
    config = load(file=str(file), environment={})
    assert config.warnings == ()
    assert load_tls(config.tls["EXTERNAL"]).context.verify_mode is ssl.CERT_REQUIRED


# -- what is loaded ------------------------------------------------------------------------------------


def test_versions_and_suites(store: Path) -> None:
    base = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(store)}
    both = context_of(**base)
    assert (both.minimum_version.name, both.maximum_version.name) == ("TLSv1_2", "TLSv1_3")
    newest = context_of(**base, ssl_enabled_protocols="TLSv1.3")
    assert newest.minimum_version.name == "TLSv1_3"
    suites = (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,"
        "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"
    )
    chosen = context_of(**base, ssl_cipher_suites=suites)
    assert chosen.maximum_version.name == "TLSv1_2", "the list has no suite of TLS 1.3"
    assert [each["name"] for each in chosen.get_ciphers() if each["protocol"] == "TLSv1.2"] == [
        "ECDHE-RSA-AES256-GCM-SHA384",
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        "DHE-RSA-AES128-SHA256",
    ]


def one_line(pem: bytes) -> str:
    """As a properties file may have it."""
    return " ".join(pem.decode().split("\n"))


def test_pem_in_the_settings(ca: trustme.CA, cert: trustme.LeafCert) -> None:
    chain = b"".join(each.bytes() for each in cert.cert_chain_pems)
    context = context_of(
        ssl_keystore_type="PEM",
        ssl_keystore_key=one_line(cert.private_key_pem.bytes()),
        ssl_keystore_certificate_chain=one_line(chain),
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=one_line(ca.cert_pem.bytes()),
        ssl_client_auth="requested",
    )
    assert context.verify_mode is ssl.CERT_OPTIONAL
    assert len(context.get_ca_certs()) == 1


def private_key(cert: trustme.LeafCert):  # type: ignore[no-untyped-def]
    return load_pem_private_key(cert.private_key_pem.bytes(), None)


def encrypted(cert: trustme.LeafCert) -> bytes:
    key = private_key(cert).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode())
    )
    return key + cert.cert_chain_pems[0].bytes()


def test_an_encrypted_key(cert: trustme.LeafCert, tmp_path: Path) -> None:
    path = tmp_path / "encrypted.pem"
    path.write_bytes(encrypted(cert))
    base = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(path)}
    assert context_of(**base, ssl_key_password=SECRET)
    with pytest.raises(BadSetting, match=r"has an encrypted private key, expected ssl.key.password with it"):
        context_of(**base)
    with pytest.raises(BadSetting, match=r"has a private key that ssl.key.password does not open") as refused:
        context_of(**base, ssl_key_password="no" + SECRET)
    assert SECRET not in str(refused.value)


@pytest.fixture(scope="module")
def key_store(ca: trustme.CA, cert: trustme.LeafCert, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("p12") / "node.p12"
    own = load_pem_x509_certificate(cert.cert_chain_pems[0].bytes())
    root = load_pem_x509_certificate(ca.cert_pem.bytes())
    path.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"node", private_key(cert), own, [root], BestAvailableEncryption(SECRET.encode())
        )
    )
    return path


@pytest.mark.parametrize("kind", ["PKCS12", "JKS", None])
def test_pkcs12_also_under_javas_default_name(key_store: Path, kind: str | None) -> None:
    settings = {} if kind is None else {"ssl_keystore_type": kind, "ssl_truststore_type": kind}
    context = context_of(
        ssl_keystore_location=str(key_store),
        ssl_keystore_password=SECRET,
        ssl_key_password=SECRET,
        ssl_truststore_location=str(key_store),
        ssl_truststore_password=SECRET,
        ssl_client_auth="required",
        **settings,
    )
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"ssl_keystore_password": "no" + SECRET},
            "cannot be opened: it is damaged, .* ssl.keystore.password is not",
        ),
        ({}, "cannot be opened"),
        (
            {"ssl_keystore_password": SECRET, "ssl_key_password": "other"},
            "ssl.key.password differs from ssl.keystore.password",
        ),
    ],
)
def test_pkcs12_that_cannot_be_opened(key_store: Path, settings: dict[str, str], why: str) -> None:
    with pytest.raises(BadSetting, match=why) as refused:
        context_of(ssl_keystore_type="PKCS12", ssl_keystore_location=str(key_store), **settings)
    assert SECRET not in str(refused.value)


def test_pkcs12_without_its_package(store: Path, key_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    of_pem = {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(store)}
    assert context_of(**of_pem)
    why = r"package cryptography is missing: install penstock\[tls\], or use PEM"
    with pytest.raises(BadSetting, match=why):
        context_of(ssl_keystore_location=str(key_store), ssl_keystore_password=SECRET)
    with pytest.raises(BadSetting, match=why):
        context_of(**of_pem, ssl_truststore_location=str(key_store), ssl_client_auth="required")


@given(st.data())
def test_damaged_files_are_refused_in_a_sentence(
    ca: trustme.CA, cert: trustme.LeafCert, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.pem"
    whole = bytearray(pem_of(cert) + ca.cert_pem.bytes())
    at = data.draw(st.integers(0, len(whole)))
    whole[at : at + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=40) | st.just("ü".encode()))
    path.write_bytes(whole)
    with suppress(BadSetting):
        context_of(
            ssl_keystore_type="PEM",
            ssl_keystore_location=str(path),
            ssl_truststore_type="PEM",
            ssl_truststore_location=str(path),
            ssl_client_auth="required",
        )


def test_the_type_must_be_that_of_the_file(store: Path, key_store: Path) -> None:
    with pytest.raises(BadSetting, match="is PEM, but its type is JKS, expected the type PEM"):
        context_of(ssl_keystore_location=str(store))
    with pytest.raises(BadSetting, match="is not PKCS#12"):
        context_of(ssl_keystore_location=str(store), ssl_keystore_type="PKCS12")
    with pytest.raises(BadSetting, match="has no BEGIN line, expected PEM"):
        context_of(ssl_keystore_location=str(key_store), ssl_keystore_type="PEM")


def test_no_password_is_shown(cert: trustme.LeafCert) -> None:
    key = pem_of(cert).decode()
    config = told(
        ssl_keystore_type="PEM",
        ssl_keystore_key=key,
        ssl_keystore_certificate_chain=key,
        ssl_key_password=SECRET,
        listener_name_ssl_ssl_key_password=SECRET,
    )
    for shown in (repr(config), str(config), repr(config.tls)):
        assert SECRET not in shown
        assert "PRIVATE KEY" not in shown
    for flags in (
        [f"ssl.key.password={SECRET}", "ssl.key.password=x"],
        [f"ssl.key.password={SECRET}", "zzz=1"],
    ):
        with pytest.raises(BadSetting) as refused:
            load(flags=flags, environment={})
        assert SECRET not in str(refused.value)
