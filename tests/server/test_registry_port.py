"""The registry's own port."""

import socket
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from tests.gateway.http.test_session import PAGE, cookie_of, log_in, told
from tests.server.test_door_security import ALICE, GUARDED, ask

from penstock.gateway.shared.door_logins import FAILURES_MAX
from penstock.server.config import config_from
from penstock.server.host import _listen_all
from penstock.server.listeners import CannotListen
from penstock.server.ports import free_ports
from penstock.testing import Broker


def test_the_registry_has_a_port_of_its_own() -> None:
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with (
        Broker(http=True, settings={"schema.registry.listener": f"127.0.0.1:{port}"}) as broker,
        SchemaRegistryClient({"url": url}) as client,
        SchemaRegistryClient({"url": broker.registry_url}) as other,
    ):
        first = client.register_schema("a-value", Schema('"string"', "AVRO"))
        assert other.get_latest_version("a-value").schema_id == first
        assert httpx.get(f"{url}/").json() == {}
        missing = httpx.get(f"{url}/topics")
        assert missing.status_code == 404
        assert missing.json()["error_code"] == 404
        assert missing.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
        assert httpx.post(f"{url}/schemas/types").json()["error_code"] == 405


def test_a_node_starts_without_a_port_that_nobody_asked_for(tmp_path: Path) -> None:
    """8081 is where Confluent's registry is, too. One that was asked for must be free."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        config = config_from(str(tmp_path), {"schema.registry.listener": at})
        listening, doors, _ = _listen_all(replace(config, optional_doors=frozenset({"registry"})))
        for each in listening.values():
            each.close()
        assert doors == {}
        with pytest.raises(CannotListen, match=r"schema\.registry\.listener"):
            _listen_all(config)


def test_users_of_the_console_log_in_beside_the_registrys_port() -> None:
    """The registry's port takes the same passwords, and no cookies of the console."""
    [port] = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    with Broker(http=True, settings={**GUARDED, "schema.registry.listener": f"127.0.0.1:{port}"}) as broker:
        cookie = cookie_of(log_in(broker, *ALICE))
        headers = {**PAGE, "Cookie": cookie}
        assert told(ask(broker, "/session", headers=headers))["principal"] == "User:alice"
        assert ask(broker, "/topics", headers=headers).status == 200
        assert httpx.get(f"{url}/subjects", auth=ALICE).json() == []
        name, _, value = cookie.partition("=")
        for each in (name, f"penstock-session-{port}", "penstock-session"):
            refused = httpx.get(f"{url}/subjects", headers={**PAGE, "Cookie": f"{each}={value}"})
            assert (refused.status_code, refused.json()["error_code"]) == (401, 40101)


def test_passwords_are_guessed_at_both_ports_no_faster_than_at_one() -> None:
    [port] = free_ports(1)
    with Broker(http=True, settings={**GUARDED, "schema.registry.listener": f"127.0.0.1:{port}"}) as broker:
        with httpx.Client() as client:
            statuses = [
                client.get(f"{url}/subjects", auth=("alice", f"wrong-{number}")).status_code
                for number in range(FAILURES_MAX)
                for url in (broker.registry_url, f"http://127.0.0.1:{port}")
            ]
        assert statuses.count(401) < FAILURES_MAX * 3 // 2
        assert statuses[-1] == 429
