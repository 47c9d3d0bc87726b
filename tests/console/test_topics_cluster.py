"""Topics of a cluster of three in the browser: replicas on other brokers, logs led elsewhere, a broker that dies."""

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.cluster.processes import ClusterProcesses
from tests.console.browsing import WAIT_MS_MAX, assert_accessible, open_console

expect.set_options(timeout=WAIT_MS_MAX)


@pytest.mark.long
def test_replicas_and_logs_of_other_brokers_are_shown_until_one_dies(
    page: Page, cluster: ClusterProcesses
) -> None:
    url = cluster.nodes[1].http_url
    with httpx.Client(base_url=url, timeout=60) as http:
        made = http.post("/topics", json={"name": "orders", "partitions": 3, "replication_factor": 3})
        assert made.status_code == 201
        for number in range(30):
            answer = http.post("/produce", json={"topic": "orders", "value": "eA==", "partition": number % 3})
            assert answer.status_code == 200, answer.text

    open_console(page, url, "/topics/orders?partition=1", heading="orders")
    replicas = page.get_by_role("grid", name="Replicas").get_by_role("row")
    expect(replicas).to_have_count(4)
    expect(page.get_by_role("grid", name="Replicas").get_by_text("leader")).to_have_count(1)
    for number in range(3):
        open_console(page, url, f"/topics/orders/segments?partition={number}", heading="orders")
        page.get_by_label("Offset or time").fill("9")
        page.get_by_role("button", name="Find", exact=True).click()
        page.get_by_role("button", name="Show all").click()
        expect(page.locator(".steps > li").last).to_contain_text("offset 9")

    cluster.nodes[3].kill()
    open_console(page, url, "/topics", heading="Topics")
    expect(page.get_by_text("Broker 3 does not answer")).to_be_visible(timeout=3 * WAIT_MS_MAX)
    orders = page.get_by_role("row").filter(has=page.get_by_role("link", name="orders", exact=True))
    expect(orders).to_contain_text("unknown")
    expect(orders).to_contain_text("3 out of sync", timeout=3 * WAIT_MS_MAX)
    assert_accessible(page)
    orders.get_by_role("link").click()
    expect(page.get_by_text("3 under-replicated")).to_be_visible()
    expect(page.get_by_role("grid", name="Partitions").get_by_text("3 ✕")).to_have_count(3)
