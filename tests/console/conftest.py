"""A real browser on a real node: Debian's Chromium, driven by Playwright.

Playwright keeps an event loop running in the thread that it was started in, and tests that run a loop of their own in
the same worker would fail: so it is started for one module, and stopped after it.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.cluster.processes import ClusterProcesses
from tests.console.browsing import WAIT_MS_MAX, PageErrors
from tests.console.modules import Modules
from tests.processes import Process

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of a module in one worker: they share a browser and a node."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(f"console-{item.path.stem}"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium, or set CHROMIUM to its path")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def errors() -> PageErrors:
    return PageErrors()


@contextmanager
def new_page(browser: Browser, errors: PageErrors) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, permissions=["clipboard-read", "clipboard-write"]
    )
    context.set_default_timeout(WAIT_MS_MAX)
    page = context.new_page()
    errors.watch(page)
    yield page
    context.close()


@pytest.fixture
def page(browser: Browser, errors: PageErrors) -> Iterator[Page]:
    """A page in a fresh context. The test fails on an error in it that the test does not expect (`errors.expect`)."""
    with new_page(browser, errors) as page:
        yield page
    errors.check()


@pytest.fixture(scope="module")
def _shared(browser: Browser) -> Iterator[tuple[Page, PageErrors]]:
    errors = PageErrors()
    with new_page(browser, errors) as page:
        yield page, errors


@pytest.fixture
def modules(_shared: tuple[Page, PageErrors], node: Process) -> Iterator[Modules]:
    """Modules of the console on an empty page. All tests of a module share one context: making one takes a second."""
    page, errors = _shared
    errors.reset()
    yield Modules(page, node.http_url)
    page.unroute_all()
    errors.check()


@pytest.fixture(scope="module")
def node_arguments() -> Sequence[str]:
    """Flags of `penstock up`; a module that needs some defines this fixture itself."""
    return ()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, node_arguments: Sequence[str]) -> Iterator[Process]:
    """A real node with HTTP: `node.http_url`, `node.bootstrap`."""
    with Process(*node_arguments, data=tmp_path_factory.mktemp("node") / "data", http=True) as process:
        yield process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """Three real nodes with HTTP: `cluster.nodes[1].http_url`."""
    with ClusterProcesses(tmp_path_factory.mktemp("cluster"), http=True) as processes:
        yield processes
