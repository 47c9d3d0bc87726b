"""Search in the browser: conditions, progress, cancel, detail, the index."""

import json

import httpx
import pytest
from playwright.sync_api import Page, Route, expect
from tests.console.browsing import assert_accessible, open_console
from tests.console.test_messages import ids, make, rows
from tests.processes import Process

pytest.importorskip("cel_expr_python")

FIRST_MS_MAX = 60_000
"""The first search of a node starts its helper processes."""


@pytest.fixture(scope="module")
def shop(node: Process) -> str:
    records = [
        {"key": b"k%d" % number, "value": json.dumps({"n": number, "word": f"w{number % 10}"}).encode()}
        for number in range(200)
    ]
    make(node, "shop", 2, records)
    return "shop"


def test_conditions_find_records_and_a_result_opens(page: Page, node: Process, shop: str) -> None:
    open_console(page, node.http_url, f"/topics/{shop}/search")
    page.get_by_label("Contains").fill('"w3"')
    page.get_by_label("Expression (CEL)").fill("value.n > 150 && value.n < 180")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_text("3 results")).to_be_visible(timeout=FIRST_MS_MAX)
    expect(page.get_by_role("status").filter(has_text="Complete:")).to_contain_text("(100%)")
    assert len(ids(page)) == 3
    assert_accessible(page)
    rows(page).first.click()
    expect(page.get_by_role("region", name="Record").locator(".json-tree")).to_contain_text('word: "w3"')
    page.reload()  # an address is a search
    expect(page.get_by_text("3 results")).to_be_visible()
    expect(page.get_by_role("region", name="Record").locator(".json-tree")).to_be_visible()


def test_errors_stand_beside_their_field(page: Page, node: Process, shop: str) -> None:
    open_console(page, node.http_url, f"/topics/{shop}/search")
    page.get_by_text("Range and limits").click()
    for label, text, message in (
        ("Contains", "", "Say what to look for"),
        ("Regular expression", "(", "Regex is not a regular expression"),
        ("Expression (CEL)", "value.n >", "Where is not a CEL expression"),
        ("From time", "soon", "A time is ISO 8601"),
        ("Partition", "7", "has no partition 7"),
    ):
        if label not in ("Contains", "Regular expression", "Expression (CEL)"):
            page.get_by_label("Contains").fill("w")
        page.get_by_label(label).fill(text)
        page.get_by_role("button", name="Search", exact=True).click()
        field = page.locator(".field", has=page.get_by_label(label))
        expect(field.locator(".field-error")).to_contain_text(message, timeout=FIRST_MS_MAX)
        expect(page.get_by_label(label)).to_have_value(text)
        page.get_by_label(label).fill("")


def test_progress_is_shown_and_cancel_ends_the_search(page: Page, node: Process, shop: str) -> None:
    """The node's stream stops half way: the page shows that half, and a cancel closes the connection."""
    page.add_init_script(
        """
        const send = window.fetch;
        window.fetch = (target, options) => {
            if (!String(target).includes("/search?")) return send(target, options);
            const lines = [
                {type: "progress", bytes: {searched: 0, total: 1000000, skipped: 0}, results: 0},
                {type: "result", record: {partition: 0, offset: 1, timestamp: 17000000, key: null, value: "eA=="}},
                {type: "progress", bytes: {searched: 500000, total: 1000000, skipped: 0}, results: 1},
            ];
            const text = lines.map((each) => JSON.stringify(each) + "\\n").join("");
            const body = new ReadableStream({
                start(control) {
                    control.enqueue(new TextEncoder().encode(text));
                    options.signal.addEventListener("abort", () => {
                        window.wasCancelled = true;
                        control.error(options.signal.reason);
                    });
                },
            });
            return Promise.resolve(new Response(body, {headers: {"Content-Type": "application/x-ndjson"}}));
        };
        """
    )
    open_console(page, node.http_url, f"/topics/{shop}/search")
    page.get_by_label("Contains").fill("x")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="(50%)")).to_contain_text("left")
    expect(page.get_by_role("progressbar")).to_have_js_property("value", 0.5)
    expect(rows(page).first).to_contain_text("x")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status").filter(has_text="Cancelled:")).to_be_visible()
    assert page.evaluate("window.wasCancelled")
    expect(page.get_by_role("button", name="Search", exact=True)).to_be_enabled()


def test_a_search_that_is_cut_off_says_so(page: Page, node: Process, shop: str) -> None:
    def cut(route: Route) -> None:
        line = {"type": "progress", "bytes": {"searched": 5, "total": 10, "skipped": 0}, "results": 0}
        route.fulfill(content_type="application/x-ndjson", body=json.dumps(line) + "\n")

    page.route("**/search?*", cut)
    open_console(page, node.http_url, f"/topics/{shop}/search")
    page.get_by_label("Contains").fill("x")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Interrupted")).to_be_visible()


def test_the_index_is_switched_on(page: Page, node: Process, shop: str) -> None:
    open_console(page, node.http_url, f"/topics/{shop}/search")
    page.get_by_role("button", name="Switch").click()
    expect(page.get_by_text("Searches with Contains skip what cannot match.", exact=True)).to_be_visible()
    configs = httpx.get(f"{node.http_url}/topics/{shop}/configs").json()["configs"]
    assert [str(each["value"]).lower() for each in configs if each["name"] == "search.index"] == ["true"]


def test_a_topic_is_chosen_for_a_search(page: Page, node: Process, shop: str) -> None:
    open_console(page, node.http_url, "/search")
    page.get_by_label("Topic").fill("sho")
    page.get_by_role("link", name=shop).click()
    expect(page.get_by_label("Contains")).to_be_visible()
    assert_accessible(page)
