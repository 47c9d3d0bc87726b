"""The registry's own port."""

import socket
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

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
