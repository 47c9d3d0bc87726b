"""A page that is left open while its node dies and comes back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.console.browsing import PageErrors, open_console
from tests.processes import Process

BANNER = "The node does not answer."


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[Process]:
    with Process(data=tmp_path / "data", http=True) as process:
        yield process


def test_the_page_says_so_reconnects_and_keeps_what_was_typed(
    page: Page, mortal: Process, errors: PageErrors
) -> None:
    errors.expect("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED")
    open_console(page, mortal.http_url, "/topics")
    page.get_by_role("button", name="Create topic").first.click()
    name = page.get_by_role("dialog").get_by_label("Name", exact=True)
    name.fill("typed-before")
    mortal.kill()
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text(BANNER)
    expect(page.locator(".banner")).to_contain_text(BANNER)
    expect(name).to_have_value("typed-before")
    mortal.start()
    expect(page.locator(".banner")).to_be_hidden()
    expect(name).to_have_value("typed-before")
    page.get_by_role("dialog").get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    open_console(page, mortal.http_url, "/topics")
    expect(page.get_by_role("link", name="typed-before")).to_be_visible()


def test_a_page_that_could_not_be_loaded_meanwhile_is_shown_once_the_node_is_back(
    page: Page, mortal: Process, errors: PageErrors
) -> None:
    errors.expect("ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED")
    open_console(page, mortal.http_url)
    mortal.kill()
    page.get_by_role("link", name="Topics", exact=True).first.click()
    expect(page.locator(".banner")).to_contain_text(BANNER)
    expect(page.get_by_role("alert").filter(has_text="could not be loaded")).to_be_visible()
    mortal.start()
    expect(page.get_by_role("heading", name="Topics", level=1)).to_be_visible()
    expect(page.locator(".banner")).to_be_hidden()
