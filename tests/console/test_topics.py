"""Topics in the browser: the list, creation, partitions, settings, segments; and a topic that goes while one looks."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect
from tests.console.browsing import WAIT_MS_MAX, assert_accessible, open_console
from tests.console.modules import Modules
from tests.processes import Process

expect.set_options(timeout=WAIT_MS_MAX)

LONG = "l" + "o" * 247 + "g"


@pytest.fixture(scope="module")
def http(node: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.http_url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module", autouse=True)
def topics(http: httpx.Client) -> None:
    for name, partitions in (("orders", 3), ("payments", 1), (LONG, 2)):
        assert http.post("/topics", json={"name": name, "partitions": partitions}).status_code == 201
    http.post("/api/architecture/setup")
    http.post("/api/architecture/produce?count=8000")


def settings_of(http: httpx.Client, topic: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in http.get(f"/topics/{topic}/configs").json()["configs"]}


def row(page: Page, name: str) -> Any:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


# -- the list ---------------------------------------------------------------------------------------------


def test_topics_are_listed_and_found(page: Page, node: Process, http: httpx.Client) -> None:
    open_console(page, node.http_url, "/topics", heading="Topics")
    demo = row(page, "architecture.demo")
    expect(demo).to_contain_text("9,000")
    expect(demo).to_contain_text("7 days")
    expect(page.get_by_text("4 topics")).to_be_visible()
    assert_accessible(page)
    page.keyboard.press("/")
    page.keyboard.type("PAY")
    expect(row(page, "payments")).to_be_visible()
    expect(row(page, "orders")).to_have_count(0)
    expect(page).to_have_url(re.compile(r"[?]q=PAY$"))
    expect(page.get_by_text("1 of 4 topics")).to_be_visible()
    page.get_by_label("Filter topics by name").fill("")
    # One that is created elsewhere appears by itself.
    http.post("/topics", json={"name": "elsewhere"})
    expect(row(page, "elsewhere")).to_be_visible()
    http.delete("/topics/elsewhere")
    expect(row(page, "elsewhere")).to_have_count(0)
    page.get_by_role("button", name="Records", exact=True).click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("architecture.demo")
    row(page, "orders").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="orders", level=1)).to_be_visible()


def many_topics(route: Route) -> None:
    rows = [
        {
            "name": f"topic-{number:05}",
            "id": str(number),
            "partitions": 5,
            "replication_factor": 3,
            "internal": False,
            "under_replicated": 1 if number == 7 else 0,
            "offline": 0,
            "size_bytes": number * 1000 if number != 8 else None,
            "messages": number,
            "bytes_in_per_second": 1.5,
            "messages_in_per_second": 0.1,
            "cleanup_policy": ["delete"],
            "retention_ms": 86_400_000,
            "retention_bytes": -1,
        }
        for number in range(10_000)
    ]
    route.fulfill(json={"topics": rows, "next": None, "total": 10_000, "unanswered": [3]})


@pytest.mark.long
def test_ten_thousand_topics_scroll_with_few_rows_in_the_document(page: Page, node: Process) -> None:
    page.route("**/topics?details=true*", many_topics)
    open_console(page, node.http_url, "/topics", heading="Topics")
    expect(page.get_by_text("10,000 topics")).to_be_visible()
    expect(page.get_by_text("Broker 3 does not answer")).to_be_visible()
    expect(row(page, "topic-00007")).to_contain_text("1 out of sync")
    expect(row(page, "topic-00008")).to_contain_text("unknown")
    scroller = page.locator(".table-scroll")
    sizes = set()
    for part in range(0, 101, 10):
        scroller.evaluate("(each, part) => { each.scrollTop = each.scrollHeight * part / 100; }", part)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        sizes.add(page.locator("tbody tr").count())
    expect(row(page, "topic-09999")).to_be_visible()
    assert max(sizes) < 60
    page.get_by_label("Filter topics by name").fill("0123")
    expect(row(page, "topic-00123")).to_be_visible()


# -- creation and deletion --------------------------------------------------------------------------------


def test_a_topic_is_created_after_mistakes(page: Page, node: Process, http: httpx.Client) -> None:
    open_console(page, node.http_url, "/topics", heading="Topics")
    page.get_by_role("button", name="Create topic").click()
    box = page.get_by_role("dialog")
    assert_accessible(page)
    create = box.get_by_role("button", name="Create", exact=True)
    create.click()
    expect(box.get_by_text("A topic needs a name.")).to_be_visible()
    box.get_by_label("Name", exact=True).fill("no spaces please")
    box.get_by_label("Partitions").fill("0")
    create.click()
    expect(box.get_by_text("Only letters, digits, dots, dashes and underscores are allowed.")).to_be_visible()
    expect(box.get_by_text("Expected a number from 1 to 10000.")).to_be_visible()
    # What only the node knows is said beside its field too, and all that was typed is still there.
    box.get_by_label("Name", exact=True).fill("orders")
    box.get_by_label("Partitions").fill("2")
    create.click()
    expect(box.locator(".field", has_text="Name").locator(".field-error").first).to_contain_text("orders")
    box.get_by_label("Name", exact=True).fill("made.here")
    box.get_by_label("Replicas", exact=True).fill("3")
    box.get_by_label("Keep records for").fill("1.5")
    expect(box.get_by_text("retention.ms = 129600000, 1 day 12 hours")).to_be_visible()
    box.get_by_text("More settings").click()
    box.get_by_label("One a line").fill("segment.bytes=12\nno.such.setting=1")
    create.click()
    expect(box.get_by_text("segment.bytes is 12, expected 1000")).to_be_visible()
    expect(box.get_by_text("unknown topic setting no.such.setting")).to_be_visible()
    box.get_by_label("One a line").fill("segment.bytes=1200000")
    create.click()
    expect(box.locator(".field", has_text="Replicas").locator(".field-error:visible")).to_be_visible()
    box.get_by_label("Replicas", exact=True).fill("1")
    create.click()
    expect(page.get_by_role("heading", name="made.here", level=1)).to_be_visible()
    made = settings_of(http, "made.here")
    assert (made["retention.ms"]["value"], made["segment.bytes"]["value"]) == ("129600000", "1200000")
    assert len(http.get("/topics/made.here").json()["partitions"]) == 2


def test_a_topic_is_deleted_by_its_name(page: Page, node: Process, http: httpx.Client) -> None:
    http.post("/topics", json={"name": "doomed"})
    open_console(page, node.http_url, "/topics/doomed", heading="doomed")
    page.get_by_role("button", name="Delete topic").click()
    box = page.get_by_role("dialog")
    confirm = box.get_by_role("button", name="Delete topic")
    expect(confirm).to_be_disabled()
    box.get_by_role("textbox").fill("doome")
    expect(confirm).to_be_disabled()
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    assert http.get("/topics/doomed").status_code == 200
    page.get_by_role("button", name="Delete topic").click()
    box.get_by_role("textbox").fill("doomed")
    confirm.click()
    expect(page.get_by_role("heading", name="Topics", level=1)).to_be_visible()
    expect(row(page, "orders")).to_be_visible()
    assert http.get("/topics/doomed").status_code == 404


@pytest.mark.long
def test_a_topic_that_is_deleted_while_one_looks_says_so(
    page: Page, node: Process, http: httpx.Client
) -> None:
    http.post("/topics", json={"name": "fleeting"})
    open_console(page, node.http_url, "/topics/fleeting/settings", heading="fleeting")
    expect(page.get_by_text("How long records are kept")).to_be_visible()
    http.delete("/topics/fleeting")
    expect(page.get_by_role("heading", name="This topic was deleted")).to_be_visible()
    assert_accessible(page)
    # It comes back with the topic.
    http.post("/topics", json={"name": "fleeting"})
    expect(page.get_by_text("How long records are kept")).to_be_visible()
    http.delete("/topics/fleeting")
    page.get_by_role("main").get_by_role("link", name="All topics").click()
    expect(row(page, "orders")).to_be_visible()


def test_a_topic_that_never_was_is_not_called_deleted(page: Page, node: Process) -> None:
    open_console(page, node.http_url, "/topics/never-was", heading="never-was")
    expect(page.get_by_role("heading", name="There is no such topic")).to_be_visible()


# -- partitions -------------------------------------------------------------------------------------------


def test_partitions_are_shown_and_added(page: Page, node: Process, http: httpx.Client) -> None:
    http.post("/topics", json={"name": "narrow", "partitions": 2})
    open_console(page, node.http_url, "/topics/narrow", heading="narrow")
    partitions = page.get_by_role("grid", name="Partitions")
    expect(partitions.get_by_role("row")).to_have_count(3)
    expect(partitions.get_by_text("in sync")).to_have_count(2)
    partitions.get_by_role("row").nth(2).click()
    expect(page).to_have_url(re.compile(r"[?]partition=1$"))
    replicas = page.get_by_role("grid", name="Replicas")
    expect(replicas.get_by_role("row").nth(1)).to_contain_text("leader")
    assert_accessible(page)
    page.get_by_role("button", name="Add partitions").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Number of partitions").fill("2")
    expect(box.get_by_text("partitions can be added, not removed")).to_be_visible()
    expect(box.get_by_role("button", name="Add", exact=True)).to_be_disabled()
    box.get_by_label("Number of partitions").fill("99999999")
    box.get_by_role("button", name="Add", exact=True).click()
    expect(box.get_by_role("alert").filter(has_text=re.compile("."))).to_be_visible()
    box.get_by_label("Number of partitions").fill("5")
    box.get_by_role("button", name="Add", exact=True).click()
    expect(partitions.get_by_role("row")).to_have_count(6)
    assert len(http.get("/topics/narrow").json()["partitions"]) == 5


def test_records_are_deleted_before_an_offset(page: Page, node: Process, http: httpx.Client) -> None:
    http.post("/topics", json={"name": "shrinking", "partitions": 1})
    for number in range(5):
        http.post("/produce", json={"topic": "shrinking", "value": "eA==", "key": str(number).zfill(4)})
    open_console(page, node.http_url, "/topics/shrinking", heading="shrinking")
    page.get_by_role("button", name="Delete records").click()
    box = page.get_by_role("dialog")
    box.get_by_label("Up to").select_option("offset")
    box.get_by_label("Delete records before offset").fill("3")
    expect(box.get_by_text("Deletes up to 3 records.")).to_be_visible()
    box.get_by_role("button", name="Delete records").click()
    expect(box).to_have_count(0)
    [left] = http.get("/topics/shrinking").json()["partitions"]
    assert (left["log_start"], left["end"]) == (3, 5)
    expect(page.get_by_role("grid", name="Partitions").get_by_role("row").nth(1)).to_contain_text("3")


def five_thousand(route: Route) -> None:
    answer = route.fetch().json()
    [first, *_] = answer["partitions"]
    answer["partitions"] = [{**first, "partition": number} for number in range(5_000)]
    answer["partitions"][1]["leader"] = None
    answer["partitions"][2]["replicas"] = [1, 2]
    answer["partitions"][2]["lag_max"] = None
    answer["summary"] |= {"partitions": 5_000, "offline": 1, "under_replicated": 2}
    route.fulfill(body=json.dumps(answer), content_type="application/json")


def test_five_thousand_partitions_scroll_with_few_rows_in_the_document(page: Page, node: Process) -> None:
    page.route("**/topics/orders?details=true", five_thousand)
    open_console(page, node.http_url, "/topics/orders", heading="orders")
    expect(page.get_by_text("1 without a leader")).to_be_visible()
    partitions = page.get_by_role("grid", name="Partitions")
    expect(partitions.get_by_role("row").nth(2)).to_contain_text("offline")
    expect(partitions.get_by_role("row").nth(3)).to_contain_text("out of sync")
    expect(partitions.get_by_role("row").nth(3)).to_contain_text("unknown")
    scroller = page.locator(".table-scroll").first
    for part in (0.3, 0.7, 1):
        scroller.evaluate("(each, part) => { each.scrollTop = each.scrollHeight * part; }", part)
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.locator("tbody tr").count() < 60
    expect(partitions.get_by_role("row").last).to_contain_text("4999")


# -- settings ---------------------------------------------------------------------------------------------


def test_settings_are_changed_after_a_look_at_the_difference(
    page: Page, node: Process, http: httpx.Client
) -> None:
    http.post("/topics", json={"name": "tuned", "configs": {"segment.bytes": 5_000_000}})
    open_console(page, node.http_url, "/topics/tuned/settings", heading="tuned")
    mine = page.locator(".settings").filter(has=page.get_by_role("heading", name="Set on this topic"))
    expect(mine).to_contain_text("segment.bytes")
    expect(mine).to_contain_text("4.8 MB")
    retention = page.locator("[data-name='retention.ms']")
    expect(retention).to_contain_text("7 days")
    retention.get_by_role("button", name="Edit").click()
    typed = retention.get_by_label("New value of retention.ms")
    typed.fill("soon")
    expect(retention.get_by_role("alert")).to_contain_text("retention.ms is 'soon', expected a number")
    expect(page.get_by_role("button", name="Review and save")).to_be_disabled()
    typed.fill("86400000")
    expect(retention.get_by_text("= 1 day")).to_be_visible()
    mine.get_by_role("button", name="Reset").click()
    expect(mine).to_contain_text("Will be reset to 1073741824 (1 GB).")
    policy = page.locator("[data-name='cleanup.policy']")
    policy.get_by_role("button", name="Edit").click()
    policy.get_by_label("New value of cleanup.policy").select_option("compact,delete")
    expect(page.get_by_role("region", name="Changes")).to_contain_text("3 changes")
    page.get_by_role("button", name="Review and save").click()
    difference = page.get_by_role("dialog").get_by_role("row")
    expect(difference.nth(1)).to_contain_text("604800000 (7 days)86400000 (1 day)")
    expect(difference.nth(2)).to_contain_text("5000000 (4.8 MB)1073741824 (1 GB) (default)")
    assert_accessible(page)
    assert settings_of(http, "tuned")["retention.ms"]["source"] == "default"
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("region", name="Changes")).to_have_count(0)
    expect(mine).to_contain_text("retention.ms")
    saved = settings_of(http, "tuned")
    assert saved["retention.ms"]["value"] == "86400000"
    assert saved["segment.bytes"]["source"] == "default"
    assert saved["cleanup.policy"]["value"] == "compact,delete"


def test_settings_that_contradict_each_other_cannot_be_saved(page: Page, node: Process) -> None:
    open_console(page, node.http_url, "/topics/orders/settings", heading="orders")
    page.get_by_label("Filter settings").fill("compaction.lag")
    expect(page.locator(".setting")).to_have_count(2)
    for name, value in (("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")):
        at = page.locator(f"[data-name='{name}']")
        at.get_by_role("button", name="Edit").click()
        at.get_by_label(f"New value of {name}").fill(value)
    changes = page.get_by_role("region", name="Changes")
    expect(changes).to_contain_text("more than max.compaction.lag.ms")
    expect(page.get_by_role("button", name="Review and save")).to_be_disabled()
    changes.get_by_role("button", name="Discard").click()
    expect(changes).to_have_count(0)


def test_a_read_only_console_changes_nothing(page: Page, node: Process) -> None:
    def read_only(route: Route) -> None:
        route.fulfill(json={**route.fetch().json(), "mode": "read-only"})

    page.route("**/session", read_only)
    open_console(page, node.http_url, "/topics/orders/settings", heading="orders")
    for name in ("Add partitions", "Delete records", "Delete topic"):
        button = page.get_by_role("button", name=name)
        expect(button).to_be_disabled()
        expect(button).to_have_attribute("title", re.compile("read-only"))
    expect(page.locator("[data-name='retention.ms']").get_by_role("button", name="Edit")).to_be_disabled()


# -- segments ---------------------------------------------------------------------------------------------


def test_a_segment_is_opened_in_the_picture(page: Page, node: Process, http: httpx.Client) -> None:
    view = http.get("/api/architecture/topics/architecture.demo?entries=0").json()["partitions"][0]
    first = view["segments"][0]
    open_console(page, node.http_url, "/topics/architecture.demo/segments", heading="architecture.demo")
    bars = page.get_by_role("button", name=re.compile("^Segment [0-9]+ of partition 0"))
    expect(bars).to_have_count(len(view["segments"]))
    # Drawn to scale: sealed segments of one size are equally wide, and the active one is as wide as its part.
    sizes = [each["sizeBytes"] for each in view["segments"]]
    widths = [bars.nth(at).bounding_box()["width"] for at in range(len(sizes))]  # type: ignore[index]
    room = sum(widths)
    for size, width in zip(sizes, widths, strict=True):
        assert abs(width / room - size / sum(sizes)) < 0.02
    bars.first.click()
    expect(page).to_have_url(re.compile("partition=0&segment=0$"))
    card = page.locator(".card").filter(has=page.get_by_role("heading", name="Segment 0", exact=True))
    expect(card).to_contain_text(f"{first['endOffset']:,}"[:1])
    expect(card).to_contain_text(f"{first['records']:,}")
    batches = http.get(
        "/api/architecture/topics/architecture.demo/partitions/0/batches?offset=0&limit=1000"
    ).json()["batches"]
    expect(card.locator("rect.batch")).to_have_count(min(len(batches), 100))
    expect(card.locator("rect.mark").first).to_be_attached()
    expect(card.get_by_role("grid", name="Batches").get_by_role("row").nth(1)).to_contain_text("0 – 24")
    expect(card.get_by_role("grid", name="Offset index").get_by_role("row").nth(1)).to_be_visible()
    assert_accessible(page)
    page.reload()
    expect(card.get_by_role("grid", name="Batches")).to_be_visible()
    card.get_by_role("button", name="Close").click()
    expect(card).to_have_count(0)


@pytest.mark.long
def test_the_steps_of_a_lookup_are_shown(page: Page, node: Process, http: httpx.Client) -> None:
    where = "/api/architecture/topics/architecture.demo/partitions/0/lookup?offset=777"
    expected = http.get(where).json()
    open_console(page, node.http_url, "/topics/architecture.demo/segments", heading="architecture.demo")
    sought = page.get_by_label("Offset or time")
    sought.fill("many")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.get_by_text("Expected an offset: a number from 0 on.")).to_be_visible()
    sought.fill("999999999")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="not 999999999")).to_be_visible()
    sought.fill("777")
    page.get_by_role("button", name="Find", exact=True).click()
    steps = page.locator(".steps > li")
    expect(steps).to_have_count(4)
    expect(page.get_by_text(expected["message"])).to_be_visible()
    expect(steps.nth(1).get_by_role("listitem")).to_have_count(len(expected["indexProbes"]))
    expect(steps.nth(2).locator(".scan-box")).to_have_count(len(expected["scanned"]))
    expect(steps.nth(3)).to_contain_text("offset 777")
    expect(steps.nth(3).get_by_role("link")).to_have_attribute(
        "href", "/console/topics/architecture.demo/messages?partition=0&offset=777"
    )
    page.wait_for_function("() => document.getAnimations().length === 0")
    assert_accessible(page)
    page.get_by_label("By", exact=True).select_option("time")
    sought.fill("2020-01-01")
    page.get_by_role("button", name="Find", exact=True).click()
    expect(steps.nth(1)).to_contain_text("Search the time index")
    page.get_by_role("button", name="Show all").click()
    expect(steps.last).to_contain_text("offset 0")
    page.get_by_role("button", name="Open the segment").click()
    expect(page.get_by_role("heading", name="Segment 0", exact=True)).to_be_visible()


# -- layout -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_long_names_fit_a_narrow_screen(page: Page, node: Process) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    for path in ("/topics", f"/topics/{LONG}", f"/topics/{LONG}/settings", f"/topics/{LONG}/segments"):
        open_console(page, node.http_url, path)
        expect(page.locator(".table-scroll, .setting, .log-row").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert page.evaluate("document.querySelector('main').scrollWidth") <= 360, path
        assert_accessible(page)


def test_groups_of_a_topic_lead_to_their_pages(page: Page, node: Process, http: httpx.Client) -> None:
    open_console(page, node.http_url, "/topics/payments/groups", heading="payments")
    expect(page.get_by_role("heading", name="No group consumes this topic")).to_be_visible()
    http.post("/groups/billing/offsets", json={"topic": "payments", "to": "earliest"})
    open_console(page, node.http_url, "/topics/payments/groups", heading="payments")
    expect(page.get_by_role("link", name="billing")).to_have_attribute("href", "/console/groups/billing")
    assert_accessible(page)


def test_messages_and_search_are_tabs_of_the_topic(page: Page, node: Process, http: httpx.Client) -> None:
    http.post("/produce", json={"topic": "orders", "partition": 0, "value": "aGVsbG8gY29uc29sZQ=="})
    open_console(page, node.http_url, "/topics/orders", heading="orders")
    tabs = page.get_by_role("navigation", name="Parts of this topic")
    tabs.get_by_role("link", name="Messages").click()
    expect(page.get_by_text("hello console").first).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    tabs.get_by_role("link", name="Search").click()
    expect(page).to_have_url(re.compile("/topics/orders/search$"))
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(tabs.get_by_role("link", name="Search")).to_have_attribute("aria-current", "page")
    expect(page.locator("main .problem")).to_have_count(0)


def test_values_of_settings_in_words(modules: Modules) -> None:
    found = modules.run(
        """
        const { words, span, groupOf } = await import(`${base}/pages/topic/words.js`);
        return [argument.map(([name, value]) => words(name, value)), span(90061001), groupOf("min.compaction.lag.ms")];
        """,
        [
            ["retention.ms", "86400000"],
            ["retention.ms", "-1"],
            ["retention.ms", "5400000"],
            ["retention.ms", "soon"],
            ["retention.bytes", "-1"],
            ["segment.bytes", "1073741824"],
            ["flush.messages", "9223372036854775807"],
            ["min.cleanable.dirty.ratio", "0.5"],
            ["cleanup.policy", ""],
            ["min.insync.replicas", "2"],
            ["segment.ms", "0"],
        ],
    )
    assert found == [
        [
            "1 day",
            "forever",
            "1 hour 30 minutes",
            "",
            "no limit",
            "1 GB",
            "no limit",
            "50%",
            "nothing is deleted or compacted",
            "",
            "0 milliseconds",
        ],
        "1 day 1 hour",
        "Compaction",
    ]
