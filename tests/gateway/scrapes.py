"""Pages of metrics, read as Prometheus reads them, and held to the rules that `promtool check metrics` has."""

import json
import re
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open_metrics

from penstock.testing import Broker

NAME = re.compile(r"(penstock|process)_[a-z][a-z0-9_]*")

Series = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    """One page; `scrape("penstock_requests_total", api="Produce")` is a sample, 0 where there is none."""

    def __init__(self, text: str, *, is_open: bool = False) -> None:
        self.text = text
        self.families = {
            each.name: each
            for each in (read_open_metrics if is_open else parser.text_string_to_metric_families)(text)
        }
        self.series: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.series, f"{key} is there twice"
                self.series[key] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        return self.series.get((name, frozenset(labels.items())), 0.0)

    def has(self, name: str, **labels: str) -> bool:
        return (name, frozenset(labels.items())) in self.series

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.series} | set(re.findall(r"^# TYPE (\S+)", self.text, re.M))


def get(broker: Broker, path: str, accept: str | None = None) -> tuple[int, str, str]:
    """Status, content type and body."""
    connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=30)
    try:
        connection.request("GET", path, headers={} if accept is None else {"Accept": accept})
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def get_json(broker: Broker, path: str) -> tuple[int, Any]:
    status, _, body = get(broker, path)
    return status, json.loads(body)


def scrape(broker: Broker, query: str = "") -> Scrape:
    status, content_type, body = get(broker, f"/metrics{query}")
    assert status == 200, body
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    return Scrape(body)


def check(page: Scrape) -> None:
    """What promtool would complain about, and what would make a histogram lie."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", page.text, re.M))
    helped = re.findall(r"^# HELP (\S+) (.+)$", page.text, re.M)
    assert [name for name, _ in helped] == list(kinds), "each family has HELP, then TYPE"
    assert len(kinds) == page.text.count("# TYPE "), "a family is there once"
    for name, kind in kinds.items():
        assert NAME.fullmatch(name), name
        assert kind in ("counter", "gauge", "histogram")
        assert (kind == "counter") == name.endswith("_total"), name
        assert not re.search(r"milliseconds|_ms$|_kb$", name), f"{name} is not in a base unit"
    _check_order(page.text, kinds)
    for name, kind in kinds.items():
        if kind == "histogram":
            _check_histogram(page, name)


def _check_order(text: str, kinds: Mapping[str, str]) -> None:
    """Samples stand behind the TYPE of their family, and nowhere else."""
    family = ""
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            family = line.split()[2]
        elif not line.startswith("#"):
            name = re.split(r"[{ ]", line)[0]
            suffixes = ("_bucket", "_sum", "_count") if kinds[family] == "histogram" else ("",)
            assert name in {family + each for each in suffixes}, f"{name} in the family {family}"


def _check_histogram(page: Scrape, name: str) -> None:
    buckets: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
    for (sample, labels), value in page.series.items():
        if sample == f"{name}_bucket":
            rest = frozenset(each for each in labels if each[0] != "le")
            buckets.setdefault(rest, []).append((float(dict(labels)["le"]), value))
    for labels, found in buckets.items():
        counts = [value for _, value in sorted(found)]
        assert counts == sorted(counts), f"{name} {set(labels)}: buckets are cumulative"
        assert max(found)[0] == float("inf")
        assert page.series[f"{name}_count", labels] == counts[-1]
        assert page.series[f"{name}_sum", labels] >= 0
        assert (page.series[f"{name}_sum", labels] > 0) <= (counts[-1] > 0)
