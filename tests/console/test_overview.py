"""The overview in a browser: a node without topics and with some, and a cluster whose broker dies under the page."""

import json
import re
from urllib.request import Request, urlopen

from playwright.sync_api import Page, expect
from tests.cluster.processes import ClusterProcesses
from tests.console.browsing import assert_accessible, open_console
from tests.processes import Process

SECONDS_MAX = 60
SAMPLED_MS_MAX = 30_000
"""Two samples are taken within 15 seconds."""


def call(method: str, url: str, body: object = None) -> None:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(
        Request(url, data, {"Content-Type": "application/json"}, method=method), timeout=SECONDS_MAX
    ):
        pass


def test_empty_node_shows_how_to_begin_and_then_what_happens(page: Page, node: Process) -> None:
    open_console(page, node.http_url)
    status = page.get_by_role("region", name="Status")
    expect(status).to_contain_text("All is well")
    expect(status).to_contain_text("1 broker")
    begin = page.locator("section", has_text="Write the first records")
    command = begin.locator("pre").first.inner_text()
    assert command == f"penstock topics create orders --partitions 3 --server {node.bootstrap}"
    begin.get_by_role("button", name="Copy").first.click()
    assert page.evaluate("navigator.clipboard.readText()") == command
    assert_accessible(page)
    log = page.get_by_role("log")
    expect(log).to_contain_text("Broker 1 started")

    call("POST", f"{node.http_url}/topics", {"name": "orders", "partitions": 3})
    expect(log.get_by_text("Topic orders was created with 3 partitions")).to_be_visible()
    expect(begin).to_be_hidden()
    expect(page.get_by_role("link", name=re.compile("Topics 1"))).to_be_visible()
    expect(log.get_by_role("link", name="orders")).to_have_attribute("href", "/console/topics/orders")


def test_events_and_range_are_in_the_address(page: Page, node: Process) -> None:
    call("POST", f"{node.http_url}/topics", {"name": "told"})
    open_console(page, node.http_url, "/?events=topics&range=15m")
    log = page.get_by_role("log")
    expect(log).to_contain_text("Topic told was created")
    expect(log).not_to_contain_text("Broker 1 started")
    expect(page.get_by_role("button", name="15 min")).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Kinds of events").select_option("brokers")
    expect(log).to_contain_text("Broker 1 started")
    expect(log).not_to_contain_text("Topic told was created")
    page.get_by_role("button", name="5 min", exact=True).click()
    assert page.url.endswith("?events=brokers&range=5m")


def test_charts_show_the_load_of_the_node(page: Page, node: Process) -> None:
    open_console(page, node.http_url)
    expect(page.get_by_role("img", name="Throughput")).to_be_visible()
    cpu = page.locator("p-chart", has=page.get_by_role("img", name="CPU"))
    expect(cpu.locator(".chart-legend")).to_contain_text(
        re.compile(r"broker 1\s*[\d.]+%"), timeout=SAMPLED_MS_MAX
    )
    expect(page.get_by_role("grid", name="Brokers")).to_contain_text("up")
    assert_accessible(page)
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_overview_says_what_the_node_says_when_it_refuses(page: Page, node: Process) -> None:
    message = "User:eve is not authorized: describe on the cluster"
    body = json.dumps({"error": {"code": "cluster_authorization_failed", "message": message}})
    page.route("**/cluster/**", lambda route: route.fulfill(status=403, body=body))
    open_console(page, node.http_url)
    expect(page.get_by_role("alert").first).to_contain_text(message)


def test_broker_that_dies_under_the_page_is_told(page: Page, cluster: ClusterProcesses) -> None:
    url = cluster.nodes[1].http_url
    call("POST", f"{url}/topics", {"name": "orders", "partitions": 6, "replication_factor": 3})
    open_console(page, url)
    status, log = page.get_by_role("region", name="Status"), page.get_by_role("log")
    expect(status).to_contain_text("All is well")
    expect(status).to_contain_text("3 brokers")
    cluster.nodes[3].kill()
    expect(status).to_contain_text("Broker 3 is down", timeout=SECONDS_MAX * 1000)
    expect(status).to_contain_text("6 partitions lack replicas", timeout=SECONDS_MAX * 1000)
    expect(log).to_contain_text("Broker 3 was fenced", timeout=SECONDS_MAX * 1000)
    expect(log).to_contain_text("2 partitions of orders changed leader: broker 3 was fenced")
    row = page.get_by_role("grid", name="Brokers").get_by_role("row", name=re.compile("^3 "))
    expect(row).to_contain_text("down")
    assert_accessible(page)
    cluster.nodes[3].start()
    expect(status).to_contain_text("All is well", timeout=SECONDS_MAX * 1000)
    expect(log).to_contain_text("Broker 3 is up")
