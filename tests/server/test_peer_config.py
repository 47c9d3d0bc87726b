"""How a node connects to other nodes, from Kafka's settings."""

import re
from pathlib import Path

import pytest

from penstock.base.settings import BadSetting
from penstock.security.sasl.client import PlainLogin, ScramLogin, ServerNotBelieved
from penstock.server.config import NodeConfig, config_from, load

PAGE = (Path(__file__).parents[2] / "docs/security.md").read_text()

SECRET = "planted-s3cret"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
CREDENTIALS = f'username="node" password="{SECRET}"'

PEM_STORES = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/node.pem",
    "ssl.truststore.type": "PEM",
    "ssl.truststore.location": "/ca.pem",
}
CLUSTER = {
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@10.0.0.1:9093,2@10.0.0.2:9093",
    "listeners": "INTERNAL://10.0.0.1:9091,CLIENTS://10.0.0.1:9092,CONTROLLER://10.0.0.1:9093",
    "inter.broker.listener.name": "INTERNAL",
}
PLAIN = {
    **CLUSTER,
    "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.internal.plain.sasl.jaas.config": f'{PLAIN_MODULE} {CREDENTIALS} user_node="{SECRET}";',
    "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN_MODULE} {CREDENTIALS} user_node="{SECRET}";',
}
BROKER_ONLY = {
    "process.roles": "broker",
    "listeners": "INTERNAL://10.0.0.1:9091",
    "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "controller.quorum.voters": "2@10.0.0.2:9093",
}


def told(**changes: str | None) -> NodeConfig:
    return told_from(PLAIN, changes)


def told_from(base: dict[str, str], changes: dict[str, str | None]) -> NodeConfig:
    settings = {**base, **changes}
    return config_from("/data", {name: value for name, value in settings.items() if value is not None})


def test_a_node_without_security_has_none_between_nodes() -> None:
    config = told_from(CLUSTER, {"listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENTS:PLAINTEXT"})
    assert (config.to_brokers.protocol, config.to_controllers.protocol) == ("PLAINTEXT", "PLAINTEXT")


def test_tls_between_nodes_has_the_settings_of_the_listener() -> None:
    config = told_from(
        {**CLUSTER, **PEM_STORES},
        {
            "listener.security.protocol.map": "INTERNAL:SSL,CLIENTS:PLAINTEXT,CONTROLLER:SSL",
            "listener.name.controller.ssl.keystore.location": "/controller.pem",
            "listener.name.controller.ssl.endpoint.identification.algorithm": "",
        },
    )
    brokers, controllers = config.to_brokers.tls, config.to_controllers.tls
    assert brokers is not None
    assert controllers is not None
    assert (brokers.files, brokers.checks_host) == (("/node.pem", "/ca.pem"), True)
    assert (controllers.files, controllers.checks_host) == (("/controller.pem", "/ca.pem"), False)
    assert set(config.tls) == {"INTERNAL", "CONTROLLER"}


def test_the_listener_between_brokers_is_named_or_found_by_its_protocol() -> None:
    protocols = {"listener.security.protocol.map": "INTERNAL:SSL,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    given = {**CLUSTER, **PEM_STORES, **protocols}
    del given["inter.broker.listener.name"]
    assert told_from(given, {}).cluster.listener == "CLIENTS"
    assert told_from(given, {"inter.broker.listener.name": "internal"}).cluster.listener == "INTERNAL"
    config = told_from(given, {"security.inter.broker.protocol": "SSL"})
    assert (config.cluster.listener, config.to_brokers.protocol) == ("INTERNAL", "SSL")
    assert config.to_controllers.protocol == "PLAINTEXT"


def test_what_a_node_logs_in_with_is_that_of_the_listener_or_of_all() -> None:
    config = told()
    assert isinstance(config.to_brokers.login, PlainLogin)
    assert config.to_brokers.login.who == "node"
    assert isinstance(config.to_controllers.login, PlainLogin)
    scram = told(
        **{
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.internal.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} {CREDENTIALS};",
        }
    )
    assert isinstance(scram.to_brokers.login, ScramLogin)
    assert scram.to_brokers.login.mechanism == "SCRAM-SHA-512"
    exchange = scram.to_brokers.login.begin()
    nonce = exchange.first().decode().partition(",r=")[2]
    with pytest.raises(ServerNotBelieved, match="asks for 16385 iterations"):
        exchange.respond(f"r={nonce}server,s=c2FsdA==,i=16385".encode())
    users = f'{PLAIN_MODULE} user_node="{SECRET}";'
    of_all = told(
        **{
            "listener.name.internal.plain.sasl.jaas.config": users,
            "listener.name.controller.plain.sasl.jaas.config": users,
            "sasl.jaas.config": f'{PLAIN_MODULE} username="all" password="x";',
        }
    )
    for security in (of_all.to_brokers, of_all.to_controllers):
        assert security.login is not None
        assert security.login.who == "all"
    assert of_all.warnings == ()


def test_credentials_that_no_listener_needs_are_warned_of() -> None:
    config = told(**{"sasl.jaas.config": f"{PLAIN_MODULE} {CREDENTIALS};"})
    assert ["sasl.jaas.config (settings) has no effect" in each for each in config.warnings] == [True]
    assert SECRET not in str(config)


def test_a_broker_logs_in_at_a_listener_that_only_controllers_have() -> None:
    config = told(**BROKER_ONLY)
    assert config.to_controllers.login is not None
    assert set(config.sasl) == {"INTERNAL"}


def test_controllers_that_a_broker_knows_by_their_addresses_alone_have_the_usual_name() -> None:
    """As `penstock cluster start --controllers 3` has them."""
    config = told(**BROKER_ONLY, **{"controller.listener.names": None})
    assert config.cluster.controller_listener == "CONTROLLER"
    assert config.to_controllers.login is not None


def test_a_broker_may_log_in_at_controllers_with_scram() -> None:
    """They have the metadata by then, other than a controller that asks another for it."""
    scram = {
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "listener.name.controller.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} {CREDENTIALS};",
    }
    login = told(**BROKER_ONLY, **scram).to_controllers.login
    assert login is not None
    assert login.mechanism == "SCRAM-SHA-512"
    with pytest.raises(BadSetting, match="this node is a controller, expected PLAIN, or the protocol SSL"):
        told(**scram)


def test_a_single_node_needs_nothing_to_log_in_with() -> None:
    config = config_from(
        "/data",
        {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        },
    )
    assert (config.cluster.listener, config.to_brokers.protocol) == ("SASL_PLAINTEXT", "PLAINTEXT")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": None},
            "sasl.mechanism.inter.broker.protocol is 'GSSAPI', its default, and nodes log in at the listener "
            "INTERNAL, expected one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ({"sasl.mechanism.controller.protocol": "OAUTHBEARER"}, "is 'OAUTHBEARER' and nodes log in at"),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            "which the listener INTERNAL does not have, expected it in sasl.enabled.mechanisms",
        ),
        (
            {"listener.name.internal.plain.sasl.jaas.config": f'{PLAIN_MODULE} user_a="{SECRET}";'},
            "nothing to log in with at the listener INTERNAL of other nodes, expected username and password in "
            "listener.name.internal.plain.sasl.jaas.config",
        ),
        (
            {"listener.name.controller.plain.sasl.jaas.config": f'{PLAIN_MODULE} password="{SECRET}";'},
            "listener.name.controller.plain.sasl.jaas.config (settings) has a username or password that is empty",
        ),
        (
            {"security.inter.broker.protocol": "SASL_SSL"},
            "inter.broker.listener.name is 'INTERNAL' (settings) and security.inter.broker.protocol is 'SASL_SSL'",
        ),
        (
            {"security.inter.broker.protocol": "SASL_SSL", "inter.broker.listener.name": None},
            "expected a listener with this protocol; the listeners are INTERNAL:SASL_PLAINTEXT, CLIENTS:PLAINTEXT",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changes: dict[str, str | None], why: str) -> None:
    with pytest.raises(BadSetting) as refused:
        told(**changes)
    assert why in str(refused.value)
    assert SECRET not in str(refused.value)


def test_the_listener_of_controllers_that_a_node_uses_is_the_first_of_the_names() -> None:
    listeners = f"{CLUSTER['listeners']},SECURE://10.0.0.1:9193"
    config = told(
        **{
            "listeners": listeners,
            "controller.listener.names": "SECURE,CONTROLLER",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENTS:PLAINTEXT,SECURE:SSL,CONTROLLER:PLAINTEXT",
            "listener.name.internal.plain.sasl.jaas.config": None,
            "listener.name.controller.plain.sasl.jaas.config": None,
            **PEM_STORES,
        }
    )
    assert config.cluster.controller_listener == "SECURE"
    assert config.to_controllers.protocol == "SSL"
    assert list(config.cluster.controllers) == ["SECURE", "CONTROLLER"]


# -- docs/security.md ------------------------------------------------------------------------------------


def examples(section: str) -> list[str]:
    part = re.split(r"\n##+ ", PAGE.split(f"### {section}\n")[1])[0]
    return [
        re.sub(r"^ +(?=\S+=)", "", each, flags=re.M)
        for each in re.findall(r"```properties\n(.*?)```", part, re.S)
    ]


def loaded(tmp_path: Path, text: str) -> NodeConfig:
    file = tmp_path / "server.properties"
    file.write_text(text)
    users = "bootstrap.scram.users=SCRAM-SHA-256=[name=broker,password=broker-secret]"
    return load(file=str(file), flags=[users], environment={})


def test_the_example_of_three_secured_machines_is_taken(tmp_path: Path) -> None:
    (example,) = examples("Three secured machines")
    config = loaded(tmp_path, example)
    assert config.warnings == ()
    assert (config.to_brokers.protocol, config.to_controllers.protocol) == ("SASL_SSL", "SASL_SSL")
    assert config.to_brokers.login is not None
    assert config.to_controllers.login is not None
    assert (config.to_brokers.login.mechanism, config.to_controllers.login.mechanism) == (
        "SCRAM-SHA-256",
        "PLAIN",
    )
    assert config.sasl["CONTROLLER"].mechanisms == ("PLAIN",)
    assert [each.name for each in config.first_users] == ["broker"]


def test_the_steps_that_secure_a_running_cluster_are_taken(tmp_path: Path) -> None:
    """tests/cluster/test_secured.py goes through them with real nodes."""
    (machines,) = examples("Three secured machines")
    jaas = machines[machines.index("ssl.keystore") : machines.index("authorizer")]
    for old, new in (("name.internal", "name.secure"), ("name.controller", "name.csecure")):
        jaas = jaas.replace(old, new)
    first, third = examples("Secure a running cluster")
    before = loaded(tmp_path, f"node.id=1\nlog.dirs=/data\n{jaas}{first}")
    assert (before.to_brokers.protocol, before.to_controllers.protocol) == ("PLAINTEXT", "PLAINTEXT")
    assert (set(before.sasl), set(before.tls)) == ({"SECURE", "CSECURE"}, {"SECURE", "CSECURE"})
    after = loaded(tmp_path, f"node.id=1\nlog.dirs=/data\n{jaas}{first}{third}")
    assert (after.to_brokers.protocol, after.to_controllers.protocol) == ("SASL_SSL", "SASL_SSL")
