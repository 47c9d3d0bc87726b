"""Groups and pipelines in the browser: a real consumer's lag, offsets edited with a preview, the graph of a report."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place
from playwright.sync_api import Page, expect
from tests.console.browsing import assert_accessible, open_console
from tests.processes import Process
from tests.spark.pipeline.test_progress import told

from penstock.base.ids import TopicPartition
from penstock.base.pipeline_report import COMMIT_METADATA
from penstock.client.cluster import Cluster
from penstock.client.group_offsets import commit_offsets
from penstock.client.settings import parse_servers
from penstock.spark.pipeline import load
from penstock.spark.pipeline.options import Brokers
from penstock.spark.pipeline.progress import FlowProgress
from penstock.spark.pipeline.report import Reporter

HOSTILE = "<img src=x onerror=alert(1)> \u202ekcab"


@pytest.fixture(scope="module")
def http(node: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.http_url, timeout=30) as client:
        client.post("/topics", json={"name": "orders", "partitions": 3}).raise_for_status()
        producer = Producer({"bootstrap.servers": node.bootstrap})
        for partition in range(3):
            for _ in range(10):
                producer.produce("orders", b"x", partition=partition)
        assert producer.flush(30) == 0
        yield client


def set_offsets(http: httpx.Client, group: str, *offsets: int) -> None:
    body = [{"topic": "orders", "partition": at, "to": to} for at, to in enumerate(offsets)]
    http.post(f"/groups/{group}/offsets", json=body).raise_for_status()


def committed(http: httpx.Client, group: str) -> list[int | None]:
    return [each["committed"] for each in http.get(f"/groups/{group}/lag").json()["partitions"]]


@pytest.fixture
def consumer(node: Process, http: httpx.Client) -> Iterator[Consumer]:
    """A member of the group `live` that has committed 4 in partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "live",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    until = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < until
        consumer.poll(0.2)
    consumer.commit(offsets=[Place("orders", 0, 4)], asynchronous=False)
    yield consumer
    consumer.close()


def cell(page: Page, row: str, column: int) -> Any:
    return page.get_by_role("row").filter(has_text=row).first.locator("td").nth(column)


def test_groups_are_listed_with_lag_in_records_and_time(
    page: Page, node: Process, http: httpx.Client, consumer: Consumer
) -> None:
    set_offsets(http, "far-behind", 0, 0, 0)
    set_offsets(http, "level", 10, 10, 10)
    with Cluster(parse_servers(node.bootstrap)) as cluster:
        commit_offsets(cluster, "spark-orders", {TopicPartition("orders", 0): 4}, metadata=COMMIT_METADATA)
    open_console(page, node.http_url, "/groups")
    expect(cell(page, "far-behind", 2)).to_have_text("30")
    expect(cell(page, "far-behind", 3)).to_have_text(re.compile(r"\d (s|min|ms)"))
    expect(cell(page, "level", 2)).to_have_text("0")
    expect(cell(page, "live", 1)).to_have_text("Stable")
    expect(cell(page, "live", 4)).to_have_text("1")
    expect(cell(page, "spark-orders", 0)).to_contain_text("Spark")
    assert_accessible(page)
    page.keyboard.press("/")
    page.keyboard.type("beh")
    expect(page.get_by_role("row").filter(has_text="level")).to_have_count(0)
    assert "filter=beh" in page.url
    page.get_by_role("row").filter(has_text="far-behind").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="far-behind", level=1)).to_be_visible()


def test_a_group_shows_members_and_partitions_and_refuses_other_offsets_meanwhile(
    page: Page, node: Process, http: httpx.Client, consumer: Consumer
) -> None:
    open_console(page, node.http_url, "/groups/live", heading="live")
    row = page.get_by_role("row").filter(has_text=re.compile(r"^orders0"))
    expect(row.locator("td").nth(2)).to_have_text("4")
    expect(row.locator("td").nth(4)).to_have_text("6")
    expect(row.locator("td").nth(6)).to_have_text("reader")
    expect(page.get_by_role("img", name="Lag in records")).to_be_visible()
    expect(page.get_by_role("button", name="Delete group")).to_be_disabled()
    assert_accessible(page)
    page.get_by_role("button", name="Edit offsets").click()
    expect(page.get_by_text("has members ('reader' at /127.0.0.1)")).to_be_visible()
    expect(page.get_by_role("button", name="Apply")).to_be_disabled()
    assert_accessible(page)
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Members").click()
    expect(page.get_by_role("row").filter(has_text="127.0.0.1").locator("td").nth(5)).to_have_text(
        "orders: 0, 1, 2"
    )
    before = http.get("/groups/live").json()["members"][0]["member_id"]
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_text("Removed reader")).to_be_visible()
    left = [each["member_id"] for each in http.get("/groups/live").json()["members"]]
    assert before not in left


def test_offsets_are_edited_one_by_one_with_a_preview(page: Page, node: Process, http: httpx.Client) -> None:
    set_offsets(http, "edited", 5, 5, 5)
    open_console(page, node.http_url, "/groups/edited", heading="edited")
    page.get_by_role("button", name="Edit offsets").click()
    dialog = page.get_by_role("dialog")
    expect(cell(page, "orders-0", 4)).to_have_text("skips 5")
    page.get_by_label("Target of orders-1").fill("2")
    page.get_by_label("Target of orders-2").fill("-1")
    expect(cell(page, "orders-1", 4)).to_have_text("reads 3 again")
    expect(cell(page, "orders-2", 4)).to_have_text("reads 1 again")
    expect(
        dialog.get_by_text("3 of 3 partitions change: 5 records are skipped, 4 are read again.")
    ).to_be_visible()
    assert committed(http, "edited") == [5, 5, 5]
    assert_accessible(page)

    page.get_by_label("Target of orders-1").fill("yesterday")
    expect(dialog.get_by_text("To is 'yesterday', expected earliest")).to_be_visible()
    page.keyboard.press("Enter")  # in the field: nothing is applied
    expect(dialog.get_by_role("button", name="Apply")).to_be_disabled()
    expect(page.get_by_label("Target of orders-1")).to_have_value("yesterday")
    page.get_by_label("Target of orders-1").fill("999")
    expect(dialog.get_by_text("Offset 999 is out of range: orders-1 has offsets 0 to 10.")).to_be_visible()
    assert committed(http, "edited") == [5, 5, 5]

    page.get_by_label("Target of orders-1").fill("keep")
    expect(cell(page, "orders-1", 4)).to_have_text("unchanged")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_have_count(0)
    assert committed(http, "edited") == [10, 5, 4]
    expect(
        page.get_by_role("row").filter(has_text=re.compile(r"^orders2")).locator("td").nth(2)
    ).to_have_text("4")


def test_offsets_go_to_a_time_and_follow_another_group(page: Page, node: Process, http: httpx.Client) -> None:
    set_offsets(http, "leader-group", 1, 2, 3)
    set_offsets(http, "follower", 9, 9, 9)
    open_console(page, node.http_url, "/groups/follower", heading="follower")
    page.get_by_role("button", name="Edit offsets").click()
    page.get_by_label("To", exact=True).select_option("Time")
    page.get_by_label("Time", exact=True).fill("2020-01-01T00:00:00")
    expect(cell(page, "orders-0", 4)).to_have_text("reads 9 again")
    page.get_by_label("To", exact=True).select_option("Offsets of another group")
    page.get_by_label("Group", exact=True).fill("leader-group")
    expect(cell(page, "orders-2", 3)).to_have_text("3")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert committed(http, "follower") == [1, 2, 3]


def test_offsets_and_groups_are_deleted(page: Page, node: Process, http: httpx.Client) -> None:
    set_offsets(http, "doomed", 1, 1, 1)
    open_console(page, node.http_url, "/groups/doomed", heading="doomed")
    page.get_by_role("button", name="Delete group").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Delete")
    expect(button).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("doomed")
    button.click()
    expect(page.get_by_role("heading", name="Groups", level=1)).to_be_visible()
    assert http.get("/groups/doomed").status_code == 404
    open_console(page, node.http_url, "/groups/doomed")
    expect(page.get_by_role("alert").filter(has_text="No such group: 'doomed'")).to_be_visible()


def test_a_console_that_may_only_read_says_why(page: Page, node: Process, http: httpx.Client) -> None:
    set_offsets(http, "fixed", 1)
    session = http.get("/session").json() | {"mode": "read-only"}
    page.route("**/session", lambda route: route.fulfill(json=session))
    open_console(page, node.http_url, "/groups/fixed", heading="fixed")
    for name in ("Edit offsets", "Delete offsets", "Delete group"):
        button = page.get_by_role("button", name=name)
        expect(button).to_be_disabled()
        assert "read-only" in (button.get_attribute("title") or "")


@pytest.mark.long
def test_pipelines_show_their_graph_batches_and_errors(
    page: Page, node: Process, http: httpx.Client, tmp_path: Path
) -> None:
    open_console(page, node.http_url, "/pipelines", heading="Pipelines")
    expect(page.get_by_role("heading", name="No pipelines report here")).to_be_visible()
    assert_accessible(page)
    file = tmp_path / "orders.yaml"
    file.write_text(
        """
pipeline: daily
checkpoint: state
sources: {orders: {topic: orders, value: json, schema: id BIGINT}}
views: {paid: SELECT * FROM orders}
flows:
  archive: {reads: paid, to: {parquet: out}}
  copy: {reads: orders, to: {topic: copied, key: id}}
"""
    )
    spec = load(file)
    flows = [FlowProgress(each.name, "running") for each in spec.flows]
    with Reporter(spec, Brokers(node.bootstrap), "local[2]", pytest.fail) as reporter:
        for batch in range(3):
            for each in flows:
                each.take(told(batch, 10))
            reporter.update("running", flows)
        flows[0].state, flows[0].error = "failed", HOSTILE
        reporter.update("failed", flows, f"flow archive failed: {HOSTILE}")
    expect(cell(page, "daily", 1)).to_have_text("failed")
    page.get_by_role("link", name="daily").click()
    expect(page.get_by_role("heading", name="daily", level=1)).to_be_visible()
    graph = page.get_by_role("region", name="Graph of pipeline daily")
    for name in (
        "source orders: topic orders",
        "view paid",
        "flow archive",
        "flow copy",
        "sink copied: topic copied",
    ):
        expect(graph.get_by_label(name, exact=True)).to_be_visible()
    assert graph.locator("path").count() == 5
    expect(page.get_by_role("alert").filter(has_text="<img src=x")).to_be_visible()
    expect(page.get_by_role("img", name="Batch duration")).to_be_visible()
    expect(cell(page, "copy", 3)).to_have_text("30")
    assert_accessible(page)
    page.set_viewport_size({"width": 360, "height": 640})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.set_viewport_size({"width": 1280, "height": 800})
    with Cluster(parse_servers(node.bootstrap)) as cluster:
        commit_offsets(cluster, "daily.copy", {TopicPartition("orders", 0): 4}, metadata=COMMIT_METADATA)
    graph.get_by_label("flow copy", exact=True).click()
    expect(page.get_by_role("heading", name="daily.copy", level=1)).to_be_visible()
    expect(page.get_by_role("heading", name=re.compile("Flow copy of pipeline daily"))).to_be_visible()
    expect(page.get_by_role("img", name="Batch duration")).to_be_visible()
    assert_accessible(page)
