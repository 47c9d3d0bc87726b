"""Records in the browser: browse, jump, follow, produce, send again, link, download."""

import base64
import csv
import io
import json
import threading
import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect
from tests.console.browsing import assert_accessible, open_console
from tests.processes import Process

START = 1_700_000_000_000


def b64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def make(node: Process, topic: str, partitions: int, records: Sequence[dict[str, Any]]) -> None:
    """A topic with these records."""
    body = {"name": topic, "partitions": partitions}
    httpx.post(f"{node.http_url}/topics", json=body, timeout=30).raise_for_status()
    produce(node, topic, records)


def produce(node: Process, topic: str, records: Sequence[dict[str, Any]]) -> None:
    rows = [
        {**each, "topic": topic, "key": b64(each.get("key")), "value": b64(each["value"])} for each in records
    ]
    for at in range(0, len(rows), 1000):
        answer = httpx.post(f"{node.http_url}/produce", json=rows[at : at + 1000], timeout=30)
        answer.raise_for_status()
        assert not [each for each in answer.json() if "error" in each]


def rows(page: Page) -> Locator:
    return page.locator("tbody tr[data-key]")


def ids(page: Page) -> list[str]:
    return page.evaluate("[...document.querySelectorAll('tbody tr[data-key]')].map((row) => row.dataset.key)")


@pytest.fixture(scope="module")
def orders(node: Process) -> str:
    """120 records, one a second, in three partitions in turn."""
    records = [
        {
            "key": b"customer-%d" % (number % 7),
            "value": json.dumps({"order": number, "items": [{"sku": "A"}]}).encode(),
            "partition": number % 3,
            "timestamp": START + number * 1000,
            "headers": {"source": b64(b"web")},
        }
        for number in range(120)
    ]
    make(node, "orders", 3, records)
    return "orders"


def test_newest_records_come_first_and_older_ones_follow(page: Page, node: Process, orders: str) -> None:
    open_console(page, node.http_url, f"/topics/{orders}/messages")
    expect(rows(page).first).to_have_attribute("data-key", "2:39")
    assert ids(page)[:4] == ["2:39", "1:39", "0:39", "2:38"]
    expect(page.get_by_text("50 shown, there are more")).to_be_visible()
    page.get_by_role("button", name="Load more").click()
    expect(page.get_by_text("100 shown, there are more")).to_be_visible()
    page.get_by_role("button", name="Load more").click()
    expect(page.get_by_text("120 shown", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Load more")).to_be_hidden()
    assert_accessible(page)


def test_a_place_to_start_is_chosen_and_is_in_the_address(page: Page, node: Process, orders: str) -> None:
    open_console(page, node.http_url, f"/topics/{orders}/messages")
    page.get_by_label("Start").select_option("oldest")
    expect(rows(page).first).to_have_attribute("data-key", "0:0")
    page.get_by_label("Start").select_option("offset")
    page.get_by_label("Offset").fill("-1")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_role("alert").filter(has_text="The offset is a number")).to_be_visible()
    page.get_by_label("Offset").fill("37")
    page.get_by_role("button", name="Go").click()
    expect(rows(page).first).to_have_attribute("data-key", "0:37")
    assert "offset=37" in page.url
    page.get_by_label("Partition").select_option("1")
    expect(page.get_by_text("3 shown", exact=True)).to_be_visible()
    assert ids(page) == ["1:37", "1:38", "1:39"]
    page.get_by_label("Start").select_option("time")
    page.get_by_label("Time", exact=True).fill("soon")
    page.get_by_role("button", name="Go").click()
    expect(page.get_by_role("alert").filter(has_text="The time is")).to_be_visible()
    page.get_by_label("Time", exact=True).fill(str(START + 116_000))
    page.get_by_role("button", name="Go").click()
    expect(rows(page).first).to_have_attribute("data-key", "1:39")
    page.reload()
    expect(rows(page).first).to_have_attribute("data-key", "1:39")
    page.get_by_label("Start").select_option("newest")
    page.go_back()
    expect(page.get_by_label("Start")).to_have_value("time")
    expect(page.get_by_text("1 shown", exact=True)).to_be_visible()


def test_a_record_is_shown_and_its_link_opens_it_in_another_page(
    page: Page, node: Process, orders: str
) -> None:
    open_console(page, node.http_url, f"/topics/{orders}/messages")
    rows(page).nth(1).click()
    detail = page.get_by_role("region", name="Record")
    expect(detail.get_by_role("heading", name="Partition 1, offset 39")).to_be_visible()
    expect(detail.locator(".json-tree")).to_contain_text("order: 118")
    expect(detail.get_by_role("row", name="source web")).to_be_visible()
    assert_accessible(page)
    detail.get_by_role("button", name="Copy link").click()
    link = page.evaluate("navigator.clipboard.readText()")
    other = page.context.new_page()
    other.goto(link)
    expect(other.get_by_role("heading", name="Partition 1, offset 39")).to_be_visible()
    expect(rows(other).first).to_have_attribute("data-key", "1:39")
    # The decoder of the value is remembered for the topic.
    other.get_by_label("Decoder of the value").select_option("hex")
    expect(other.get_by_role("region", name="bytes in hexadecimal")).to_contain_text("7b 22 6f 72 64 65 72")
    other.close()
    page.reload()
    expect(page.get_by_label("Decoder of the value")).to_have_value("hex")
    page.get_by_label("Decoder of the value").select_option("number")
    expect(detail).to_contain_text("A number has 1, 2, 4 or 8 bytes")
    page.get_by_label("Decoder of the value").select_option("auto")
    page.get_by_role("button", name="Close record").click()
    expect(detail).to_be_hidden()


def test_records_that_are_not_there_say_why(page: Page, node: Process, orders: str) -> None:
    open_console(page, node.http_url, f"/topics/{orders}/messages?record=0:4000")
    expect(page.get_by_role("alert").filter(has_text="is not written yet")).to_be_visible()
    open_console(page, node.http_url, "/topics/no-such-topic/messages")
    expect(page.get_by_role("main")).to_contain_text("There is no such topic")


# -- live --------------------------------------------------------------------------------------------------


def test_new_records_appear_and_wait_while_paused(page: Page, node: Process) -> None:
    make(node, "live", 1, [{"value": b"before"}])
    open_console(page, node.http_url, "/topics/live/messages?from=live")
    expect(page.get_by_text("Live, ")).to_be_visible()
    produce(node, "live", [{"value": b"first"}])
    expect(rows(page).first).to_contain_text("first")
    page.get_by_role("button", name="Pause").click()
    produce(node, "live", [{"value": b"second"}])
    expect(page.get_by_text("Paused, 1 new")).to_be_visible()
    assert ids(page) == ["0:1"]
    page.get_by_role("button", name="Resume").click()
    expect(rows(page).first).to_contain_text("second")
    assert ids(page) == ["0:2", "0:1"]


@pytest.mark.long
def test_a_busy_topic_does_not_freeze_the_page(page: Page, node: Process) -> None:
    """Thousands of records a second are counted, a part is shown, and no task of the page takes long."""
    make(node, "busy", 2, [])
    open_console(page, node.http_url, "/topics/busy/messages?from=live")
    expect(page.get_by_text("Live, ")).to_be_visible()
    watch_long_tasks(page)
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        batch = [{"topic": "busy", "value": b64(b"x" * 200)}] * 1000
        with httpx.Client(base_url=node.http_url, timeout=30) as client:
            while not stop.is_set():
                client.post("/produce", json=batch).raise_for_status()
                written += 1000

    writer = threading.Thread(target=write)
    writer.start()
    try:
        expect(page.get_by_text("not shown: too many to read")).to_be_visible()
        begun = time.monotonic()
        while time.monotonic() - begun < 3:
            page.wait_for_timeout(200)
    finally:
        stop.set()
        writer.join()
    assert page.evaluate("document.querySelectorAll('tbody tr[data-key]').length") < 100
    assert not is_frozen(page)
    # What is shown and what is not are all that was written.
    page.wait_for_function(
        """(written) => {
            const number = (text) => Number((/([\\d,]+)/.exec(text) ?? ["", "0"])[1].replaceAll(",", ""));
            const grid = document.querySelector("[role=grid]").getAttribute("aria-rowcount") - 1;
            const missed = [...document.querySelectorAll("[role=status] .muted")].map((each) => each.textContent);
            const hidden = number(missed.find((text) => text.includes("not shown")) ?? "0");
            return grid + hidden === written || grid === 1000 && hidden + grid <= written;
        }""",
        arg=written,
    )


FROZEN_MS = 200
"""A task of the page that takes longer is felt."""


def watch_long_tasks(page: Page) -> None:
    """Note how long scripts of the console run at a time, and layouts take; what the test itself evaluates does not
    count."""
    page.evaluate(
        """() => {
            window.longTasks = [];
            new PerformanceObserver((list) => {
                for (const {startTime, duration, styleAndLayoutStart, scripts} of list.getEntries()) {
                    for (const each of scripts) {
                        if (each.sourceURL.includes("/console/")) window.longTasks.push(each.duration);
                    }
                    if (styleAndLayoutStart) window.longTasks.push(startTime + duration - styleAndLayoutStart);
                }
            }).observe({type: "long-animation-frame"});
        }"""
    )


def is_frozen(page: Page) -> bool:
    """Whether a task took too long. Tasks are timed by the clock: on a machine that does other work too, a loop of
    always the same length tells how much longer they take than they should."""
    found: bool = page.evaluate(
        """(frozenMs) => {
            const loop = () => {
                const start = performance.now();
                let sum = 0;
                for (let at = 0; at < 4e6; at++) sum = (sum + at * 7) % 1000003;
                return performance.now() - start + sum * 0;
            };
            const times = Array.from({length: 12}, loop).sort((a, b) => a - b);
            const slower = Math.max(1, times[times.length - 1] / times[0]);
            return Math.max(0, ...window.longTasks) > frozenMs * slower;
        }""",
        FROZEN_MS,
    )
    return found


# -- writing -----------------------------------------------------------------------------------------------


def test_a_record_is_produced_with_key_headers_and_partition(page: Page, node: Process) -> None:
    make(node, "produced", 2, [])
    open_console(page, node.http_url, "/topics/produced/messages")
    expect(page.get_by_role("heading", name="No records")).to_be_visible()
    page.get_by_role("button", name="Produce…").click()
    dialog = page.get_by_role("dialog")
    assert_accessible(page)
    dialog.get_by_label("Key", exact=True).fill("zz")
    dialog.get_by_label("Form of the key").select_option("hex")
    dialog.get_by_label("Form of the value").select_option("json")
    dialog.get_by_label("Value", exact=True).fill('{"a": 1,}')
    dialog.get_by_label("Repeat").fill("0")
    dialog.get_by_label("Timestamp").fill("yesterday")
    dialog.get_by_role("button", name="Add a header").click()
    dialog.get_by_role("button", name="Produce").click()
    for message in (
        "Expected pairs of hexadecimal digits",
        "Not JSON: expected a key in quotes at character 9",
        "Expected a number from 1 to 1,000",
        "Expected milliseconds since 1970",
        "A header has no name",
    ):
        expect(dialog.get_by_text(message)).to_be_visible()
    dialog.get_by_label("Key", exact=True).fill("ff 00")
    dialog.get_by_label("Value", exact=True).fill('{"a": 9007199254740993}')
    dialog.get_by_label("Repeat").fill("3")
    dialog.get_by_label("Timestamp").fill(str(START))
    dialog.get_by_label("Name of header 1").fill("who")
    dialog.get_by_label("Value of header 1").fill("é")
    dialog.get_by_label("Partition").select_option("1")
    dialog.get_by_role("button", name="Produce").click()
    expect(page.get_by_text("3 records written")).to_be_visible()
    expect(page.get_by_text("3 shown", exact=True)).to_be_visible()
    found = httpx.get(f"{node.http_url}/topics/produced/partitions/1/records").json()["records"]
    assert len(found) == 3
    assert found[2] == {
        "partition": 1,
        "offset": 2,
        "timestamp": START,
        "key": b64(b"\xff\x00"),
        "value": b64(b'{"a": 9007199254740993}'),
        "headers": [{"key": "who", "value": b64("é".encode())}],
    }


def test_a_tombstone_is_produced_and_a_refusal_keeps_what_was_typed(page: Page, node: Process) -> None:
    body = {"name": "table", "partitions": 1, "configs": {"cleanup.policy": "compact"}}
    httpx.post(f"{node.http_url}/topics", json=body).raise_for_status()
    open_console(page, node.http_url, "/topics/table/messages")
    page.get_by_role("button", name="Produce…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("With a key").uncheck()
    dialog.get_by_label("Value", exact=True).fill("kept")
    dialog.get_by_role("button", name="Produce").click()
    expect(dialog.get_by_text("is compacted")).to_be_visible()
    expect(dialog.get_by_label("Value", exact=True)).to_have_value("kept")
    dialog.get_by_label("With a key").check()
    dialog.get_by_label("Key", exact=True).fill("k")
    dialog.get_by_label("Tombstone").check()
    dialog.get_by_role("button", name="Produce").click()
    expect(page.get_by_text("Written to partition 0, offset 0")).to_be_visible()
    expect(rows(page).first).to_contain_text("tombstone")
    [record] = httpx.get(f"{node.http_url}/topics/table/records").json()["records"]
    assert (record["key"], record["value"]) == (b64(b"k"), None)


def test_selected_records_are_sent_again_to_another_topic(page: Page, node: Process, orders: str) -> None:
    make(node, "again", 1, [])
    open_console(page, node.http_url, f"/topics/{orders}/messages?partition=0&offset=30&from=offset")
    expect(rows(page).first).to_have_attribute("data-key", "0:30")
    send = page.get_by_role("button", name="Send again…")
    expect(send).to_be_disabled()
    for offset in (30, 32):
        page.get_by_label(f"Select 0:{offset}").check()
    send.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 records of orders")
    expect(dialog).to_contain_text("0:32")
    assert_accessible(page)
    dialog.get_by_label("To topic").fill("no such topic!")
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog.get_by_text("The name of a topic has")).to_be_visible()
    dialog.get_by_label("To topic").fill("again")
    dialog.get_by_label("Keep timestamps").check()
    dialog.get_by_role("button", name="Send", exact=True).click()
    expect(dialog.get_by_text("2 of 2 records were written")).to_be_visible()
    dialog.get_by_role("link", name="again").click()
    expect(page.get_by_text("2 shown", exact=True)).to_be_visible()
    originals = httpx.get(f"{node.http_url}/topics/orders/partitions/0/records?offset=30&until=33").json()
    copies = httpx.get(f"{node.http_url}/topics/again/records").json()["records"]
    for copy, original in zip(copies, originals["records"][::2], strict=True):
        assert {**copy, "offset": original["offset"]} == original


def test_what_is_shown_is_downloaded(page: Page, node: Process, orders: str) -> None:
    open_console(page, node.http_url, f"/topics/{orders}/messages?partition=2&offset=36&from=offset")
    expect(page.get_by_text("4 shown", exact=True)).to_be_visible()
    content = {}
    for label in ("NDJSON", "CSV"):
        with page.expect_download() as download:
            page.get_by_role("link", name=label, exact=True).click()
        assert download.value.suggested_filename == f"orders.{label.lower()}"
        content[label] = download.value.path().read_bytes()
    expected = [json.dumps({"order": each * 3 + 2, "items": [{"sku": "A"}]}) for each in range(36, 40)]
    assert [json.loads(line)["value"] for line in content["NDJSON"].splitlines()] == expected
    table = list(csv.DictReader(io.StringIO(content["CSV"].decode(), newline="")))
    assert [row["value"] for row in table] == expected
    assert [row["offset"] for row in table] == ["36", "37", "38", "39"]


@pytest.mark.long
def test_messages_fit_a_narrow_screen(page: Page, node: Process, orders: str) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    open_console(page, node.http_url, f"/topics/{orders}/messages?record=0:0")
    expect(page.locator(".json-tree")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert_accessible(page)


def test_records_are_reached_with_the_keyboard(page: Page, node: Process, orders: str) -> None:
    open_console(page, node.http_url, f"/topics/{orders}/messages")
    expect(rows(page).first).to_be_visible()
    rows(page).first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Partition 1, offset 39")).to_be_visible()
