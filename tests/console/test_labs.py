"""The labs: each is gone through step by step, on a real node."""

import re
from urllib.request import urlopen

import pytest
from playwright.sync_api import Page, expect
from tests.cluster.processes import ClusterProcesses
from tests.console.browsing import assert_accessible, open_console
from tests.processes import Process


def do(page: Page, label: str, said: str) -> None:
    """Do what a step offers, and wait for what it says."""
    page.get_by_role("button", name=label, exact=True).click()
    confirmed = page.get_by_role("dialog")
    if label.startswith("Delete"):
        confirmed.get_by_role("button", name="Delete", exact=True).click()
        expect(confirmed).to_have_count(0)
    expect(page.get_by_role("status").filter(has_text=said)).to_be_visible()


def next_step(page: Page, title: str) -> None:
    page.get_by_role("link", name="Next", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile(title), level=2)).to_be_visible()


def test_segments_are_made_found_and_deleted(page: Page, node: Process) -> None:
    open_console(page, node.http_url, "/labs", heading="Labs")
    assert_accessible(page)
    page.get_by_role("link", name="Segments").click()
    do(page, "Create both topics", "Both topics exist")
    next_step(page, "The same messages, twice")
    do(page, "Write 100 messages to each", "Written")
    small = page.locator(".lab-topic", has_text="lab.segments.small").locator(".lab-segment")
    large = page.locator(".lab-topic", has_text="lab.segments.large").locator(".lab-segment")
    expect(small).to_have_count(4)
    expect(large).to_have_count(1)
    next_step(page, "The name is the first offset")
    page.get_by_label("Offset", exact=True).fill("31")
    expect(page.get_by_text("Offset 31 is in 00000000000000000030.log")).to_be_visible()
    page.get_by_label("Offset", exact=True).fill("5000")
    expect(page.get_by_text("The log ends before offset 5,000")).to_be_visible()
    assert_accessible(page)
    assert page.url.endswith("/console/labs/segments/3")
    next_step(page, "Deleting from the front")
    do(page, "Delete the records of the first two segments", "The log starts at offset 60")
    expect(page.get_by_text("deleted soon")).to_have_count(2)
    next_step(page, "Clean up")
    do(page, "Delete both topics", "Both topics are deleted")
    assert b"lab.segments" not in urlopen(f"{node.http_url}/topics").read()


def test_an_offset_is_found_step_by_step(page: Page, node: Process) -> None:
    open_console(page, node.http_url, "/labs/index")
    do(page, "Create the topic and write the messages", "Written")
    page.goto(f"{node.http_url}/console/labs/index/3")
    expect(page.get_by_text("60 batches")).to_be_visible()
    page.get_by_label("Offset", exact=True).fill("123456")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_role("alert").filter(has_text="123456")).to_be_visible()
    page.get_by_label("Offset", exact=True).fill("333")
    page.keyboard.press("Enter")
    further = page.get_by_role("button", name="Next of the lookup")
    while further.is_enabled():
        further.click()
    expect(page.locator(".lab-lookup li").last).to_contain_text("Offset 333 is record")
    expect(page.locator(".lab-lookup li").nth(1)).to_contain_text("Index entry")
    expect(page.locator(".lab-batches .found")).to_have_count(1)
    assert_accessible(page)
    page.goto(f"{node.http_url}/console/labs/index/5")
    do(page, "Delete the topic", "The topic is deleted")


@pytest.mark.long
def test_a_simulated_cluster_is_replayed_event_by_event(page: Page, node: Process) -> None:
    open_console(page, node.http_url, "/labs/simulator?seed=7&seconds=4")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("every rule held")).to_be_visible(timeout=60_000)
    now = page.locator(".lab-now")
    expect(now).to_have_text("Before the first event.")
    page.get_by_role("button", name="Step", exact=True).click()
    expect(now).to_contain_text("process 1 of node-1 starts")
    expect(page.locator(".lab-node")).to_have_count(1)
    onward = page.get_by_role("button", name="Next fault or election")
    while page.locator(".lab-node", has_text="leads the quorum").count() == 0:
        onward.click()
    expect(page.locator(".lab-node", has_text="leads the quorum")).to_have_count(1)
    while "loses power" not in now.inner_text():
        onward.click()
    expect(page.locator(".lab-node[data-state=off]")).to_have_count(1)
    assert_accessible(page)
    expect(now).to_contain_text("process 3 of node-3 loses power")  # the seed decides it
    expect(page).to_have_url(re.compile(r"seed=7.*at=\d+"))
    page.reload()  # the address leads to the same event
    expect(now).to_contain_text("process 3 of node-3 loses power", timeout=60_000)


@pytest.mark.long
def test_a_simulation_can_be_cancelled(page: Page, node: Process) -> None:
    open_console(page, node.http_url, "/labs/simulator?seed=3&seconds=30&nodes=5")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    page.get_by_label("Seconds").fill("99")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("expected a number from 1 to 30")


@pytest.mark.long
def test_the_page_watches_a_broker_leave_the_isr_and_return(page: Page, cluster: ClusterProcesses) -> None:
    first = min(cluster.nodes)
    open_console(page, cluster.nodes[first].http_url, "/labs/isr")
    expect(page.get_by_text("This cluster has 3 brokers")).to_be_visible()
    next_step(page, "A topic with three replicas")
    do(page, "Create lab.isr and write 300 messages", "Every in-sync replica")
    expect(page.locator(".lab-replica")).to_have_count(9)
    next_step(page, "Stop a broker")
    victim = max(cluster.nodes)
    expect(page.get_by_text(f"penstock cluster stop {victim}")).to_be_visible()
    cluster.nodes[victim].stop()
    expect(page.get_by_role("status").filter(has_text=f"Broker {victim} has left the ISR")).to_be_visible()
    expect(page.locator(".lab-news")).to_contain_text(f"broker {victim} left the ISR")
    next_step(page, "Write without it")
    do(page, "Write 300 more messages", "Acknowledged")
    next_step(page, "Start it again")
    cluster.nodes[victim].start()
    expect(
        page.get_by_role("status").filter(has_text="All replicas are in sync, with 600 messages")
    ).to_be_visible(timeout=30_000)
    assert_accessible(page)
    next_step(page, "Clean up")
    do(page, "Delete the topic", "The topic is deleted")
