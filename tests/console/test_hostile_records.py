"""Records that somebody made to harm the page: they neither run nor freeze it, and nothing is rounded or hidden."""

import gzip
import json
from collections.abc import Sequence

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.console.browsing import open_console
from tests.console.test_messages import b64, is_frozen, produce, rows, watch_long_tasks
from tests.processes import Process


@pytest.fixture(scope="module")
def node_arguments() -> Sequence[str]:
    return ("--set", "message.max.bytes=20000000")


def make_large(node: Process, topic: str) -> None:
    body = {"name": topic, "partitions": 1, "configs": {"max.message.bytes": 20_000_000}}
    httpx.post(f"{node.http_url}/topics", json=body, timeout=30).raise_for_status()


def show(page: Page, node: Process, topic: str, offset: int = 0) -> None:
    open_console(page, node.http_url, f"/topics/{topic}/messages")
    expect(rows(page).first).to_be_visible()
    watch_long_tasks(page)
    page.locator(f"tr[data-key='0:{offset}']").click()
    expect(page.get_by_role("heading", name=f"Partition 0, offset {offset}")).to_be_visible()


def test_markup_is_text(page: Page, node: Process) -> None:
    make_large(node, "markup")
    markup = b"<script>window.harm = 1</script><img src=x onerror='window.harm = 2'><b>bold</b>"
    harm = {"key": markup, "value": markup, "headers": [{"key": markup.decode(), "value": b64(markup)}]}
    nested = json.dumps({markup.decode(): markup.decode(), "__proto__": {"harm": True}}).encode()
    produce(node, "markup", [harm, {**harm, "value": nested}])
    show(page, node, "markup")
    detail = page.get_by_role("region", name="Record")
    expect(detail).to_contain_text(markup.decode())
    expect(rows(page).nth(1)).to_contain_text("<script>window.harm = 1</script>")
    page.locator("tr[data-key='0:1']").click()
    tree = detail.locator(".json-tree")
    expect(tree).to_contain_text("<b>bold</b>")
    expect(tree).to_contain_text("__proto__")
    assert page.evaluate("window.harm") is None
    assert page.evaluate("({}).harm") is None
    assert page.locator("main img, main b").count() == 0


def test_bytes_of_a_record_are_never_a_page(page: Page, node: Process) -> None:
    make_large(node, "as-page")
    produce(node, "as-page", [{"value": b"<!doctype html><script>document.title = 'harm'</script>"}])
    with page.expect_download() as download:
        page.goto("about:blank")
        page.evaluate(f"window.location = '{node.http_url}/topics/as-page/partitions/0/records/0/value'")
    assert download.value.suggested_filename == "as-page-0-0.value"
    assert page.title() != "harm"


def test_terminal_codes_and_marks_of_direction_are_seen_and_do_nothing(page: Page, node: Process) -> None:
    make_large(node, "marks")
    text = "\x1b[31mred\x1b[0m \u202etxt.exe\u202c \u2066x\u2069 \x00 end"
    produce(node, "marks", [{"key": text.encode(), "value": text.encode()}])
    show(page, node, "marks")
    block = page.locator("[data-part=value] pre")
    expect(block).to_contain_text("␛[31mred␛[0m [U+202E]txt.exe[U+202C]")
    shown = page.evaluate("document.querySelector('main').innerText")
    assert not set("\x1b\u202e\u202c\u2066\u2069\x00") & set(shown)
    assert page.evaluate("getComputedStyle(document.querySelector('td bdi')).unicodeBidi") == "isolate"


def test_bytes_that_are_no_text_are_shown_as_bytes(page: Page, node: Process) -> None:
    make_large(node, "binary")
    produce(node, "binary", [{"key": b"\xff\xfe\x00", "value": bytes(range(256))}])
    show(page, node, "binary")
    expect(rows(page).first).to_contain_text("0xfffe00")
    expect(page.locator("[data-part=key] .hex")).to_contain_text("ff fe 00")
    expect(page.locator("[data-part=value] .hex")).to_contain_text("00 01 02 03")


def test_large_numbers_keep_their_digits(page: Page, node: Process) -> None:
    make_large(node, "numbers")
    value = b'{"a": 9007199254740993, "b": [-0, 1.10, 1e400, 123456789012345678901234567890.5], "c": 12}'
    produce(node, "numbers", [{"value": value}])
    show(page, node, "numbers")
    tree = page.locator(".json-tree")
    for digits in ("9007199254740993", "-0", "1.10", "1e400", "123456789012345678901234567890.5", "12"):
        expect(tree.get_by_text(digits, exact=True)).to_be_visible()
    page.get_by_role("button", name="As text").click()
    expect(page.locator("[data-part=value] pre")).to_contain_text('"a": 9007199254740993,')


def test_deep_nesting_opens(page: Page, node: Process) -> None:
    make_large(node, "deep")
    produce(node, "deep", [{"value": b"[" * 100_000 + b"]" * 100_000}, {"value": b"[" * 100_000}])
    show(page, node, "deep")
    expect(page.locator(".json-tree")).to_be_visible()
    assert not is_frozen(page)
    page.locator(".json-tree summary").last.click()
    page.locator("tr[data-key='0:1']").click()
    expect(page.locator("[data-part=value] pre")).to_contain_text("[[[[")
    assert not is_frozen(page)


def test_ten_megabytes_of_json_do_not_freeze_the_page(page: Page, node: Process) -> None:
    make_large(node, "large")
    rows_of = [{"id": number, "name": f"name {number}", "tags": ["a", "b"]} for number in range(200_000)]
    value = json.dumps(rows_of).encode()
    assert len(value) > 10_000_000
    produce(node, "large", [{"value": value}])
    show(page, node, "large")
    expect(page.get_by_text("Only the first 1 MB of")).to_be_visible()
    page.get_by_role("button", name="Load all of it").click()
    expect(page.locator(".json-tree")).to_contain_text("200,000 items", timeout=60_000)
    page.get_by_role("button", name="Show 100 more of 199,900").first.click()
    page.get_by_role("button", name="As text").click()
    expect(page.locator("[data-part=value] pre")).to_contain_text('"name": "name 3"')
    assert not is_frozen(page)


def test_a_megabyte_in_one_line_and_a_thousand_headers(page: Page, node: Process) -> None:
    make_large(node, "long")
    headers = [{"key": f"header-{number}", "value": b64(b"\xff" * 100)} for number in range(1000)]
    produce(node, "long", [{"key": b"k" * 100_000, "value": b"x" * 1_000_000, "headers": headers}])
    show(page, node, "long")
    expect(page.locator("[data-part=value] pre")).to_be_visible()
    page.get_by_role("button", name="Show 50,000 more of 950,000 characters").click()
    expect(page.locator("[data-part=headers] tr")).to_have_count(100)
    page.get_by_role("button", name="Show more of 900 headers").click()
    expect(page.locator("[data-part=headers] tr")).to_have_count(200)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert not is_frozen(page)


def test_what_bytes_are_is_found_out(page: Page, node: Process) -> None:
    make_large(node, "kinds")
    kinds = [
        (gzip.compress(b'{"zipped": true}'), "zipped: true"),
        (bytes.fromhex("82a16101a162cf0020000000000001"), "b: 9007199254740993"),
        (bytes.fromhex("0123456789ab4def8123456789abcdef"), "01234567-89ab-4def-8123-456789abcdef"),
        ((2**53 + 1).to_bytes(8, "big"), "9007199254740993"),
        (gzip.compress(b"a" * 40_000_000), "1f 8b"),
        (b"\x00\x00\x00\x00\x07\xff\xfe\xfd\xfc\xfb", "schema 7 of a registry"),
        (b"\x1f\x8bnot gzip", "1f 8b"),
    ]
    produce(node, "kinds", [{"value": value} for value, _ in kinds])
    open_console(page, node.http_url, "/topics/kinds/messages")
    for offset, (_, shown) in enumerate(kinds):
        page.locator(f"tr[data-key='0:{offset}']").click()
        expect(page.get_by_role("heading", name=f"Partition 0, offset {offset}")).to_be_visible()
        expect(page.locator("[data-part=value]")).to_contain_text(shown)
