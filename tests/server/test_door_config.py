"""Settings of TLS and log-ins at the HTTP and line ports: what they inherit, and what is refused in one sentence."""

from pathlib import Path

import pytest
import trustme
from tests.server.tls_nodes import issue, write_ca, write_store

from penstock.base.settings import BadSetting
from penstock.server.config import NodeConfig, config_from

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KAFKA = {
    "listeners": "PLAINTEXT://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,"
    "OUTSIDE:SASL_PLAINTEXT,MORE:SASL_PLAINTEXT,HTTP:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.outside.plain.sasl.jaas.config": f'{MODULE} user_alice="a";',
}
SECURED = {"http.security.protocol": "SASL_PLAINTEXT", "http.listener": "127.0.0.1:0"}


def config(*settings: dict[str, str], **more: str) -> NodeConfig:
    merged: dict[str, str] = {}
    for each in settings:
        merged |= each
    return config_from("data", merged | {name.replace("_", "."): each for name, each in more.items()})


def test_a_door_has_the_users_of_the_one_listener_with_plain() -> None:
    users = config(KAFKA, SECURED).sasl["HTTP"].plain_users
    assert users is not None
    assert users.knows("alice", "a")


def test_a_door_may_have_users_of_its_own() -> None:
    own = {"listener.name.http.plain.sasl.jaas.config": f'{MODULE} user_bob="b";'}
    users = config(KAFKA, SECURED, own).sasl["HTTP"].plain_users
    assert users is not None
    assert users.knows("bob", "b")
    assert not users.knows("alice", "a")


def test_users_of_controllers_are_not_users_of_doors() -> None:
    """They are nodes, which may do everything."""
    settings = {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:1",
        "controller.quorum.voters": "1@127.0.0.1:1",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f'{MODULE} username="n" password="n" user_n="n";',
    }
    config(settings)
    with pytest.raises(BadSetting, match="listener HTTP has the mechanism PLAIN without users"):
        config(settings, SECURED)


def test_settings_of_a_door_that_is_off_or_has_another_name_are_not_in_the_way() -> None:
    found = config(
        KAFKA,
        {"http.listener": "off"},
        {"listener.name.http.ssl.client.auth": "none"},
        SECURED,
        http_listener="off",
    )
    assert set(found.sasl) == {"OUTSIDE"}
    named = KAFKA | {
        "listeners": "HTTP://127.0.0.1:0",
        "listener.name.http.plain.sasl.jaas.config": f'{MODULE} user_a="b";',
    }
    del named["listener.name.outside.plain.sasl.jaas.config"]
    both = config(named, http_listener="127.0.0.1:0")
    assert set(both.sasl) == {"HTTP"}
    assert set(both.listeners) == {"HTTP"}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (
            {
                "listeners": "OUTSIDE://127.0.0.1:0,MORE://127.0.0.1:0",
                "listener.name.more.plain.sasl.jaas.config": f'{MODULE} user_b="b";',
            },
            "listener HTTP has the mechanism PLAIN without users",
        ),
        (
            {"http.security.protocol": "TLS"},
            "http.security.protocol is 'TLS', expected one of PLAINTEXT, SSL",
        ),
        (
            {"http.security.protocol": "SSL"},
            "the listener HTTP has no certificate, expected ssl.keystore.location",
        ),
        (
            {"http.security.protocol": "PLAINTEXT", "listener.name.http.sasl.enabled.mechanisms": "PLAIN"},
            "protocol PLAINTEXT, expected http.security.protocol=SASL_SSL or SASL_PLAINTEXT",
        ),
        (
            {
                "line.listener": "127.0.0.1:0",
                "line.security.protocol": "SASL_PLAINTEXT",
                "listener.name.line.sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "file:///keys",
            },
            "clients of the line protocol log in with a password",
        ),
        (
            {"line.listener": "0.0.0.0:9090"},
            "line.listener is at 0.0.0.0:9090 and a listener has SASL, expected a loopback address, off or "
            "line.security.protocol=SASL_SSL: everyone could use the line door without a log-in",
        ),
        (
            {
                "listeners": "HTTP://127.0.0.1:0",
                "listener.name.http.plain.sasl.jaas.config": f'{MODULE} user_b="b";',
            },
            "listeners has HTTP, expected another name",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_sentence(more: dict[str, str], sentence: str) -> None:
    settings = {**KAFKA, **SECURED, **more}
    if "listeners" in more and "OUTSIDE" not in more["listeners"]:
        del settings["listener.name.outside.plain.sasl.jaas.config"]
    with pytest.raises(BadSetting) as error:
        config(settings)
    assert sentence in str(error.value)
    assert "user_" not in str(error.value)


def test_a_door_for_everyone_is_one_with_acls_certificates_or_log_ins(tmp_path: Path) -> None:
    ca = trustme.CA()
    tls = {
        "http.listener": "0.0.0.0:8443",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(write_store(tmp_path / "node.pem", issue(ca))),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": write_ca(tmp_path / "ca.pem", ca),
        "http.security.protocol": "SSL",
    }
    with pytest.raises(BadSetting, match="everyone could use the http door"):
        config(KAFKA, tls)
    certificates = {
        "listeners": "OUTSIDE://127.0.0.1:9092",
        "listener.security.protocol.map": "OUTSIDE:SSL",
        "listener.name.outside.ssl.client.auth": "required",
    }
    with pytest.raises(BadSetting, match="and a listener asks for certificates"):
        config(certificates, tls)
    with pytest.raises(BadSetting, match="everyone could use the http door"):
        config(KAFKA, tls, authorizer_class_name="")
    assert config(KAFKA, tls, ssl_client_auth="required").tls["HTTP"].client_auth == "required"
    assert config(KAFKA, tls, http_security_protocol="SASL_SSL").sasl["HTTP"]
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    assert not config(KAFKA, tls, authorizer_class_name=authorizer).warnings
    [warning] = config(KAFKA, SECURED, http_listener="0.0.0.0:8080").warnings
    assert warning.startswith(
        "http.security.protocol is SASL_PLAINTEXT at 0.0.0.0:8080: passwords cross the network"
    )
