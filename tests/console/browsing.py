"""What tests of the console do with a page.

open_console(page, node.http_url, "/topics")
assert_accessible(page)
errors.expect("404")        # before what causes it
"""

import re
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import ConsoleMessage, Page, expect

WAIT_MS_MAX = 15_000
"""Far more than anything takes, on a busy machine too."""

_FAILED_CALL = "Failed to load resource"


class PageErrors:
    """Errors in the browser's console, uncaught exceptions and violations of the content security policy.

    A call of the API that fails is none: the page has to show it.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._expected: list[str] = []

    def expect(self, pattern: str) -> None:
        """Ignore errors that match a regular expression."""
        self._expected.append(pattern)

    def reset(self) -> None:
        self.found.clear()
        self._expected.clear()

    def watch(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"uncaught: {error}"))
        page.on("crash", lambda _: self.found.append("the page crashed"))

    def _console(self, message: ConsoleMessage) -> None:
        url = message.location.get("url", "")
        if message.type != "error" or (message.text.startswith(_FAILED_CALL) and "/console/" not in url):
            return
        self.found.append(f"{message.text} ({url})")

    def check(self) -> None:
        unexpected = [
            each for each in self.found if not any(re.search(pattern, each) for pattern in self._expected)
        ]
        assert not unexpected, "\n".join(unexpected)


def open_console(page: Page, http_url: str, path: str = "/", *, heading: str | None = None) -> None:
    """Open a page of the console, and wait until it is shown."""
    page.goto(f"{http_url}/console{path}")
    shown = page.locator("main h1") if heading is None else page.get_by_role("heading", name=heading, level=1)
    expect(shown.first).to_be_visible(timeout=WAIT_MS_MAX)


def assert_accessible(page: Page, **options: Any) -> None:
    """Fail with what axe finds wrong with the page as it is shown now."""
    results = Axe().run(page, options=options or None)
    found = [
        f"{each['id']} ({each['impact']}): {each['help']}\n"
        + "\n".join(f"    {node['html'][:200]}\n    {node['failureSummary']}" for node in each["nodes"][:5])
        for each in results.response["violations"]
    ]
    assert not found, "\n".join(found)
