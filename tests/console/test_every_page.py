"""What holds for every page, on a cluster with something to see: narrow, dark, accessible, without an error."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.console.browsing import WAIT_MS_MAX, assert_accessible
from tests.console.demo import Demo
from tests.console.screenshots import PAGES

NARROW_PX = 360

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("demo"), records=4_000) as demo:
        yield demo


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES.keys())
def test_a_page_is_accessible_in_light_and_dark_and_fits_a_phone(page: Page, demo: Demo, path: str) -> None:
    page.goto(f"{demo.http_url}/console{path}")
    expect(page.locator("main h1").first).to_be_visible(timeout=WAIT_MS_MAX)
    expect(page.locator(".skeleton")).to_have_count(0, timeout=WAIT_MS_MAX)
    assert_accessible(page)
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": NARROW_PX, "height": 640})
    assert_accessible(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW_PX
    assert page.evaluate(
        "document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth"
    )
