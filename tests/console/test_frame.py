"""The frame of the console: pages, addresses, theme, narrow screens."""

from playwright.sync_api import Page, expect
from tests.console.browsing import PageErrors, assert_accessible, open_console
from tests.processes import Process


def test_the_front_page_leads_to_the_overview(page: Page, node: Process) -> None:
    page.goto(node.http_url)
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    assert page.url == f"{node.http_url}/console/"
    assert page.title() == "Overview · Penstock"
    assert_accessible(page)


def test_an_address_that_is_no_page_says_so(page: Page, node: Process) -> None:
    page.goto(f"{node.http_url}/console/no/such/page/at/all")
    expect(page.get_by_role("alert").filter(has_text="There is no such page")).to_be_visible()


def test_the_theme_is_kept(page: Page, node: Process) -> None:
    open_console(page, node.http_url)
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    for label in ("auto", "light"):
        page.get_by_role("button", name=f"Theme: {label}").click()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(background) != light
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert page.evaluate(background) != light
    assert_accessible(page)


def test_a_page_that_cannot_be_loaded_breaks_no_other(page: Page, node: Process, errors: PageErrors) -> None:
    errors.expect("labs.js")
    page.route("**/pages/labs.js", lambda route: route.abort())
    open_console(page, node.http_url)
    page.get_by_role("link", name="Labs").click()
    expect(page.get_by_role("alert").filter(has_text="could not be loaded")).to_be_visible()
    page.get_by_role("link", name="Overview", exact=True).click()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()


def test_on_a_narrow_screen_pages_are_behind_a_menu(page: Page, node: Process) -> None:
    page.set_viewport_size({"width": 360, "height": 640})
    open_console(page, node.http_url)
    link = page.get_by_role("link", name="Overview", exact=True)
    expect(link).to_be_hidden()
    page.get_by_role("button", name="Menu").click()
    expect(link).to_be_visible()
    assert_accessible(page)
    page.keyboard.press("Escape")
    expect(link).to_be_hidden()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
