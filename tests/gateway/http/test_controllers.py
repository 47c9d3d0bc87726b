"""A node that is a controller and nothing else tells how it is over HTTP, and serves nobody anything else."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from penstock.testing import Broker, Cluster


@pytest.fixture(scope="module")
def controller() -> Iterator[Broker]:
    with Cluster(brokers=1, controllers=1, http=True) as cluster:
        yield cluster.controllers[0]


def get(controller: Broker, path: str, method: str = "GET") -> tuple[int, str]:
    connection = HTTPConnection(urlsplit(controller.http_url).netloc, timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def test_its_metrics_are_those_of_the_quorum(controller: Broker) -> None:
    status, page = get(controller, "/metrics")
    assert status == 200
    samples = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert samples["penstock_controller_active"] == "1"
    assert samples["penstock_partitions"] == "0"
    assert int(samples['penstock_requests_total{api="BrokerRegistration"}']) >= 1


def test_it_is_well_while_it_knows_who_leads(controller: Broker) -> None:
    status, body = get(controller, "/health")
    assert status == 200
    told = json.loads(body)
    assert (told["status"], told["node_id"], told["problems"]) == ("ok", 101, [])
    assert [get(controller, f"/health/{half}")[0] for half in ("live", "ready")] == [200, 200]


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/topics"), ("POST", "/produce"), ("GET", "/openapi.json"), ("GET", "/")]
)
def test_it_serves_nothing_else(controller: Broker, method: str, path: str) -> None:
    assert get(controller, path, method)[0] == 404


def test_it_can_ask_for_a_log_in() -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a";'
    settings = {
        "http.security.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.http.plain.sasl.jaas.config": jaas,
    }
    with Cluster(brokers=1, controllers=1, http=True, settings=settings) as cluster:
        [node] = cluster.controllers
        assert get(node, "/health")[0] == 200
        assert get(node, "/metrics")[0] == 401
        connection = HTTPConnection(urlsplit(node.http_url).netloc, timeout=30)
        connection.request("GET", "/metrics", headers={"Authorization": "Basic YWxpY2U6YQ=="})
        assert connection.getresponse().status == 200
        connection.close()
