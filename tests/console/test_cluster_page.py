"""The cluster in the browser: brokers, the quorum, moves of partitions, settings."""

import re
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.cluster.processes import ClusterProcesses
from tests.console.browsing import assert_accessible, open_console


@pytest.fixture(scope="module")
def http(cluster: ClusterProcesses) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=cluster.nodes[1].http_url, timeout=30) as client:
        for name in ("orders", "payments"):
            wanted = {"name": name, "partitions": 4, "replication_factor": 2}
            assert client.post("/topics", json=wanted).status_code == 201
        yield client


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_brokers_and_the_quorum_are_shown(page: Page, cluster: ClusterProcesses, http: httpx.Client) -> None:
    url = cluster.nodes[1].http_url
    open_console(page, url, "/cluster", heading="Cluster")
    expect(page.get_by_text("3 of 3")).to_be_visible()
    rows = page.get_by_role("grid", name="Brokers").get_by_role("row")
    expect(rows).to_have_count(4)
    assert_accessible(page)
    page.get_by_role("button", name="Elect preferred leaders…").click()
    page.get_by_role("dialog").get_by_role("button", name="Elect", exact=True).click()
    expect(page.get_by_text(re.compile("No leader had to change|another leader"))).to_be_visible()

    page.get_by_role("link", name="2", exact=True).click()
    expect(page.get_by_role("heading", name="Broker 2", level=1)).to_be_visible()
    expect(page.get_by_role("grid", name="Logs by topic")).to_contain_text("orders")
    assert_accessible(page)

    open_console(page, url, "/cluster/quorum", heading="Cluster")
    expect(page.get_by_role("grid", name="Voters and observers").get_by_role("row")).to_have_count(4)
    assert_accessible(page)
    open_console(page, url, "/cluster/brokers/9", heading="Broker 9")
    expect(page.get_by_text("There is no broker 9; the cluster has 1, 2, 3.")).to_be_visible()


@pytest.mark.long
def test_a_broker_is_emptied_by_a_plan(page: Page, cluster: ClusterProcesses, http: httpx.Client) -> None:
    open_console(page, cluster.nodes[1].http_url, "/cluster/reassignments", heading="Cluster")
    expect(page.get_by_text("No partition moves.")).to_be_visible()
    drain, plan = page.get_by_label("Brokers to empty"), page.get_by_role("button", name="Plan")
    drain.fill("three")
    plan.click()
    expect(page.get_by_text("“three” is no broker id: expected numbers such as 1, 2, 3.")).to_be_visible()
    expect(drain).to_be_focused()
    drain.fill("9")
    plan.click()
    expect(page.get_by_role("alert")).to_contain_text("There is no broker 9; the cluster has 1, 2, 3.")
    drain.fill("3")
    page.get_by_label("Topics").fill("orders, payments")
    plan.click()
    expect(page.get_by_text(re.compile(r"partitions? to change, \d+ replicas? to copy"))).to_be_visible()
    expect(page.get_by_role("grid", name="Plan")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Start…").click()
    page.get_by_role("dialog").get_by_role("button", name="Start", exact=True).click()
    expect(page.get_by_text(re.compile("partitions? started to move"))).to_be_visible()

    def is_drained() -> bool:
        topics = [http.get(f"/topics/{name}").json() for name in ("orders", "payments")]
        return not any(3 in each["replicas"] for topic in topics for each in topic["partitions"])

    until(is_drained)
    expect(page.get_by_text("No partition moves.")).to_be_visible()
    plan.click()
    expect(page.get_by_text("Nothing has to move: 8 partitions stay as they are.")).to_be_visible()


def test_a_setting_is_changed_after_a_look_at_the_difference(
    page: Page, cluster: ClusterProcesses, http: httpx.Client
) -> None:
    open_console(page, cluster.nodes[1].http_url, "/cluster/settings?broker=2", heading="Cluster")
    page.keyboard.press("/")
    page.keyboard.type("log.retention.ms")
    row = page.get_by_role("row").filter(has_text="log.retention.ms")
    expect(row).to_contain_text("default")
    assert_accessible(page)
    row.get_by_role("button", name="Edit…").click()
    value = page.get_by_label("New value")
    value.fill("soon")
    page.get_by_role("button", name="Review…").click()
    expect(page.get_by_text("log.retention.ms is 'soon', expected a number")).to_be_visible()
    expect(value).to_have_value("soon")
    assert_accessible(page)
    value.fill("86400000")
    page.get_by_role("button", name="Review…").click()
    change = page.get_by_role("dialog").filter(has_text="Change log.retention.ms?")
    expect(change).to_contain_text("broker 2")
    expect(change).to_contain_text("86400000")
    change.get_by_role("button", name="Change", exact=True).click()
    expect(row).to_contain_text("this broker")

    def of(broker: int) -> str | None:
        found = http.get(f"/brokers/{broker}/configs").json()["configs"]
        return next(each["value"] for each in found if each["name"] == "log.retention.ms")

    assert (of(2), of(1)) == ("86400000", None)
    row.get_by_role("button", name="Edit…").click()
    page.get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Change", exact=True).click()
    expect(row).to_contain_text("default")


@pytest.mark.long
def test_it_fits_a_narrow_screen(page: Page, cluster: ClusterProcesses, http: httpx.Client) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    for tab in ("brokers", "quorum", "reassignments", "settings"):
        open_console(page, cluster.nodes[1].http_url, f"/cluster/{tab}", heading="Cluster")
        expect(page.get_by_role("grid").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.long
def test_a_broker_that_is_down_stays_in_the_list(
    page: Page, cluster: ClusterProcesses, http: httpx.Client
) -> None:
    """The last test: a broker is killed."""
    open_console(page, cluster.nodes[1].http_url, "/cluster", heading="Cluster")
    expect(page.get_by_text("3 of 3")).to_be_visible()
    cluster.nodes[3].kill()
    expect(page.get_by_text("2 of 3")).to_be_visible(timeout=60_000)
    expect(
        page.get_by_role("row").filter(has=page.get_by_role("link", name="3", exact=True))
    ).to_contain_text("fenced")
