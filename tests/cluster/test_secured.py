"""Three real nodes with TLS and log-ins between them."""

import json
import logging
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.cluster.secured import (
    LISTENERS,
    PASSWORDS,
    PLAIN_MODULE,
    SCRAM_MODULE,
    SecuredProcesses,
    Sequence,
    read_all,
)
from tests.compat.clients.patient import wait_until

PAUSE_S_MAX = 15.0
"""Between two acknowledged records, on a machine that runs other tests too."""

FIRST_USER = f"SCRAM-SHA-256=[name=broker,password={PASSWORDS['broker']}]"


def test_a_new_cluster_whose_brokers_log_in_with_scram_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-900: the first records have the brokers' user."""
    cluster = SecuredProcesses(tmp_path, on_threads=True)
    for number, node in cluster.nodes.items():
        node.configure({**cluster.settings(number), "bootstrap.scram.users": FIRST_USER})
    with cluster:
        admin = AdminClient(cluster.client())
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(30)
        sequence = Sequence(cluster.client(), "orders", "a")
        wait_until(lambda: len(sequence.acknowledged) > 10)
        sequence.end()
        assert not sequence.failed
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.long
def test_a_leader_of_a_secured_cluster_is_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    with SecuredProcesses(tmp_path, {"PENSTOCK_BOOTSTRAP_SCRAM_USERS": FIRST_USER}) as cluster:
        client = cluster.client()
        admin = AdminClient(client)
        admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(30)
        sequence = Sequence(client, "orders", "a")
        wait_until(lambda: len(sequence.acknowledged) > 100)
        leader = admin.list_topics("orders", 30).topics["orders"].partitions[0].leader
        cluster.nodes[leader].kill()
        so_far = len(sequence.acknowledged)
        wait_until(lambda: len(sequence.acknowledged) > so_far + 100)
        cluster.nodes[leader].start()

        wait_until(lambda: is_in_sync(client, "orders"))
        sequence.end()
        assert not sequence.failed
        values = read_all(client, "orders")
        assert sorted(values) == sorted(f"a:{number}" for number in sequence.acknowledged)
        said = cluster.complaints
        assert " ERROR " not in said, said
        assert not any(password in said for password in PASSWORDS.values())


def is_in_sync(client: dict[str, str], topic: str) -> bool:
    found = AdminClient(client).list_topics(topic, 30).topics[topic]
    return all(len(each.isrs) == 3 for each in found.partitions.values())


def restart_each(
    cluster: SecuredProcesses, settings: Callable[[int], dict[str, str]], is_ready: Callable[[], bool]
) -> None:
    """Give each node new settings and restart it, one after the other, when all replicas are in sync."""
    for number, node in cluster.nodes.items():
        node.configure(settings(number))
        assert node.stop() == 0
        node.start()
        wait_until(is_ready)


@pytest.mark.long
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["voters", "bootstrap servers"])
def test_a_running_cluster_of_three_is_secured_without_a_stop(tmp_path: Path, is_dynamic: bool) -> None:
    cluster = SecuredProcesses(tmp_path)
    said = secure(cluster, is_dynamic=is_dynamic)
    assert " ERROR " not in said, said


def test_a_running_cluster_of_three_threads_is_secured_without_a_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secure(SecuredProcesses(tmp_path, on_threads=True))
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def secure(cluster: SecuredProcesses, *, is_dynamic: bool = False) -> str:
    """docs/security.md, "Secure a running cluster". Two producers with acks=all: one without security until clients
    have moved, one with log-ins from when the new listeners are there. Returns what the nodes logged."""

    def finding(settings: dict[str, str], listener: str) -> dict[str, str]:
        """With the addresses of controllers."""
        if not is_dynamic:
            return {**settings, "controller.quorum.voters": cluster.voters(listener)}
        settings.pop("controller.quorum.voters", None)
        return {
            **settings,
            "controller.quorum.bootstrap.servers": cluster.bootstrap_at(listener),
            "controller.quorum.auto.join.enable": "true",
        }

    def without(number: int) -> dict[str, str]:
        """A new dynamic quorum begins with node 1 alone."""
        settings = finding(cluster.plain(number), "CONTROLLER")
        if is_dynamic and number == 1:
            own = f"127.0.0.1:{cluster.ports['CONTROLLER'][1]}"
            settings["controller.quorum.bootstrap.servers"] = own
        return settings

    def with_listeners(number: int) -> dict[str, str]:
        """Step 1: more listeners, which nobody uses yet."""
        settings = {
            **cluster.secured(number, LISTENERS),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER,CSECURE",
        }
        return finding(settings, "CONTROLLER")

    def between_nodes(number: int) -> dict[str, str]:
        """Step 3: nodes use the new listeners."""
        settings = {
            **with_listeners(number),
            "inter.broker.listener.name": "SECURE",
            "controller.listener.names": "CSECURE,CONTROLLER",
        }
        return finding(settings, "CSECURE")

    def only_secured(number: int) -> dict[str, str]:
        """Step 5: without the old listeners, with ACLs."""
        return finding(cluster.settings(number), "CSECURE")

    plain, secured = {"bootstrap.servers": cluster.bootstrap_at("PLAINTEXT")}, cluster.client()
    for number, node in cluster.nodes.items():
        node.configure(without(number))
    with cluster:
        admin = AdminClient(plain)
        admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(30)
        old = Sequence(plain, "orders", "old")
        restart_each(cluster, with_listeners, lambda: is_in_sync(plain, "orders"))
        user = UserScramCredentialUpsertion(
            "broker",
            ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096),
            PASSWORDS["broker"].encode(),
        )
        for done in admin.alter_user_scram_credentials([user]).values():
            done.result(30)
        new = Sequence(secured, "orders", "new")
        restart_each(cluster, between_nodes, lambda: is_in_sync(secured, "orders"))
        old.end()
        restart_each(cluster, only_secured, lambda: is_in_sync(secured, "orders"))
        new.end()
        assert (old.failed, new.failed) == ([], [])
        assert max(old.longest_pause_s, new.longest_pause_s) < PAUSE_S_MAX, cluster.complaints
        expected = [f"{each.name}:{number}" for each in (old, new) for number in each.acknowledged]
        assert sorted(read_all(secured, "orders")) == sorted(expected)
        for port in (*cluster.ports["PLAINTEXT"].values(), *cluster.ports["CONTROLLER"].values()):
            with socket.socket() as probe:
                assert probe.connect_ex(("127.0.0.1", port)) != 0, "the old listeners are closed"
        return cluster.complaints


@pytest.mark.long
def test_a_cluster_on_one_machine_starts_with_a_file_and_its_first_users(tmp_path: Path) -> None:
    """`penstock cluster start --config FILE --add-scram USER`: no password is in arguments or files of nodes."""
    made = SecuredProcesses(tmp_path)
    settings = made.settings(1)
    common = {name: value for name, value in settings.items() if name.startswith(("ssl.", "sasl."))}
    broker, controller = PASSWORDS["broker"], PASSWORDS["controller"]
    common |= {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.jaas.config": f'{SCRAM_MODULE} username="broker" password="{broker}";',
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN_MODULE} username="controller" '
        f'password="{controller}" user_controller="{controller}";',
    }
    made.close()
    file = tmp_path / "secured.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in common.items()))
    alice = FIRST_USER.replace("name=broker", "name=alice").replace(broker, PASSWORDS["alice"])
    command = [sys.executable, "-m", "penstock", "cluster"]
    where = ["--data", str(tmp_path / "cluster")]
    of_alice = tmp_path / "alice.properties"
    of_alice.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-256\nsasl.username=alice\n"
        f"sasl.password={PASSWORDS['alice']}\nssl.truststore.type=PEM\nssl.truststore.location={made.ca_file}\n"
    )
    words = [*command, "start", *where, "--base-port", "0", "--config", str(file), "--json"]
    words += ["--client-config", str(of_alice)]
    with subprocess.Popen(
        [*words, "--add-scram", FIRST_USER, "--add-scram", alice], stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        ready = json.loads(running.stdout.readline())
        try:
            assert {each["state"] for each in ready["nodes"]} == {"up"}
            servers = ",".join(each["kafka"] for each in ready["nodes"])
            client = made.client() | {"bootstrap.servers": servers, "sasl.mechanism": "SCRAM-SHA-256"}
            admin = AdminClient(client)
            admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(60)
            for each in (tmp_path / "cluster").glob("*.*"):
                assert "planted" not in each.read_text(), each
            for each in ready["nodes"]:
                assert b"planted" not in Path(f"/proc/{each['pid']}/cmdline").read_bytes()
        finally:
            subprocess.run([*command, "stop", *where], check=True, capture_output=True)
            running.wait(60)
