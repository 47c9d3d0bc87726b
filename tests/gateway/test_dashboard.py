"""The dashboard and the documentation speak of metrics that there are."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.gateway.scrapes import Scrape, get, scrape
from tests.security.tokens import jwks

from penstock.client.cluster import Cluster
from penstock.client.line import LineClient
from penstock.client.quotas import alter_quotas
from penstock.client.settings import parse_servers
from penstock.testing import Broker

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana" / "penstock.json").read_text())
GUIDE = (DOCS / "metrics.md").read_text()

METRIC = re.compile(r"\b(?:penstock|process)_[a-z0-9_]+")
SELECTOR = re.compile(r"\b((?:penstock|process)_[a-z0-9_]+)\{([^}]*)\}")
TARGET_LABELS = {"instance", "job"}
"""What Prometheus adds."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrape]:
    """Of a node on which everything has happened once. It has listeners with TLS and with bearer tokens too."""
    directory = tmp_path_factory.mktemp("security")
    keys = directory / "keys.json"
    keys.write_bytes(jwks())
    store = directory / "node.pem"
    store.write_bytes(trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.bytes())
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "audit.log": "all",
        "audit.file": str(directory / "audit.json"),
    }
    with Broker(http=True, line=True, settings=settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        producer.produce("orders", b"x")
        assert producer.flush(30) == 0
        client = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "log_level": 0})
        client.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        client.close()
        failing = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "h",
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        failing.assign([TopicPartition("orders", 0, 99)])
        failing.poll(20)
        failing.close()
        entity: tuple[tuple[str, str | None], ...] = (("user", "ANONYMOUS"),)
        with Cluster(parse_servers(broker.bootstrap)) as cluster:
            alter_quotas(cluster, entity, {"producer_byte_rate": 1.0})
            producer.produce("orders", b"x" * 100)
            assert producer.flush(30) == 0
            alter_quotas(cluster, entity, {"producer_byte_rate": None})
        get(broker, "/health/live")
        with LineClient("127.0.0.1", broker.line_port) as line:
            line.produce("orders", b"x")
        yield scrape(broker, "?partitions=true")


def panels() -> list[dict[str, Any]]:
    return [each for each in DASHBOARD["panels"] if each["type"] != "row"]


def expressions() -> list[str]:
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    return found + [each["definition"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]


def test_every_metric_of_the_dashboard_is_on_the_page(page: Scrape) -> None:
    named = {name for each in expressions() for name in METRIC.findall(each)}
    assert len(named) > 30
    with_samples = {name for name, _ in page.series}
    assert named - with_samples == set()


def test_every_label_of_the_dashboard_is_one_that_its_metric_has(page: Scrape) -> None:
    for expression in expressions():
        for name, matchers in SELECTOR.findall(expression):
            has = {label for sample, labels in page.series if sample == name for label, _ in labels}
            asked = set(re.findall(r"(\w+)\s*=~?", matchers))
            assert asked - TARGET_LABELS <= has, expression
        grouped = re.findall(r"by \(([^)]*)\)", expression)
        names = METRIC.findall(expression)
        has = {label for sample, labels in page.series if sample in names for label, _ in labels}
        for each in grouped:
            assert {label.strip() for label in each.split(",")} <= has | TARGET_LABELS, expression


def test_rates_are_of_counters_and_of_nothing_else(page: Scrape) -> None:
    for expression in expressions():
        rated = set(re.findall(r"rate\((\w+)", expression))
        assert all(name.endswith(("_total", "_bucket", "_count", "_sum")) for name in rated), expression
        for name in set(METRIC.findall(expression)) - rated:
            assert not name.endswith(("_total", "_bucket", "_count", "_sum")), expression


def test_the_dashboard_can_be_imported_beside_any_data_source() -> None:
    assert (
        DASHBOARD["templating"]["list"][0] | {"type": "datasource", "query": "prometheus"}
        == (DASHBOARD["templating"]["list"][0])
    )
    assert "id" not in DASHBOARD
    for panel in panels():
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel["targets"])
    ids = [each["id"] for each in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    rows = [each["title"] for each in DASHBOARD["panels"] if each["type"] == "row"]
    assert rows == [
        "Overview",
        "Cluster",
        "Traffic",
        "Latency by API",
        "Storage and fsync",
        "Groups",
        "Connections and queues",
        "Process",
    ]


def test_who_imports_the_dashboard_is_asked_for_the_data_source() -> None:
    """Grafana asks for each of `__inputs` and puts the answer in the place of its name. Where nobody is asked, as when
    it is read from a file, the variable's value is no data source, and Grafana takes the first that there is."""
    [asked] = DASHBOARD["__inputs"]
    assert (asked["type"], asked["pluginId"]) == ("datasource", "prometheus")
    [variable] = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "datasource"]
    assert variable["name"] == "datasource"
    assert variable["current"]["value"] == "${" + asked["name"] + "}"


def test_no_panel_covers_another() -> None:
    for one, other in combinations([each["gridPos"] for each in DASHBOARD["panels"]], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(each["gridPos"]["x"] + each["gridPos"]["w"] <= 24 for each in DASHBOARD["panels"])


def test_the_guide_has_every_metric_and_no_other(page: Scrape) -> None:
    families = set(re.findall(r"^# TYPE (\S+)", page.text, re.M))
    parts = {f"{name}{suffix}" for name in families for suffix in ("_bucket", "_sum", "_count")}
    named = set(METRIC.findall(GUIDE))
    assert families - named == set()
    assert named - families - parts == set()


def test_the_alerts_of_the_guide_have_labels_that_there_are(page: Scrape) -> None:
    for name, matchers in SELECTOR.findall(GUIDE):
        has = {label for sample, labels in page.series if sample == name for label, _ in labels}
        assert set(re.findall(r"(\w+)=", matchers)) <= has, name
