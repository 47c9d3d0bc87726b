"""Takes pictures of every page of the console, for README.md and docs/console.md: `make screenshots`.

python -m tests.console.screenshots [--to DIRECTORY] [--png] [--only PAGE,PAGE] [--seconds N]

Each page is taken light and dark, wide and narrow, on a cluster of three with demo data that has run for a while.
Pictures are WebP: Chromium itself encodes them.
"""

import argparse
import base64
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.console.conftest import ARGUMENTS, CHROMIUM
from tests.console.demo import Demo

IMAGES = Path(__file__).parents[2] / "docs/images"
WIDE, NARROW = (1280, 800), (390, 800)
QUALITY = 0.6

PAGES: dict[str, str] = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders",
    "topic-settings": "/topics/orders/settings",
    "segments": "/topics/orders/segments",
    "messages": "/topics/orders/messages",
    "record": "/topics/orders/messages?record=0:42",
    "search": "/topics/orders/search?contains=Graz",
    "groups": "/groups",
    "group": "/groups/billing",
    "pipelines": "/pipelines",
    "pipeline": "/pipelines/orders",
    "transactions": "/transactions",
    "cluster": "/cluster",
    "security": "/security",
    "labs": "/labs",
    "simulator": "/labs/simulator",
}

NOTHING_TO_SEE = {"simulator"}
"""Pages that show little before something is chosen: pictures of them are taken only if they are named."""

_ENCODE = """async ([data, quality]) => {
    const image = new Image();
    image.src = data;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width;
    canvas.height = image.height;
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL("image/webp", quality);
}"""


def take(browser: Browser, http_url: str, wanted: dict[str, str], keep: Callable[[str, bytes], None]) -> None:
    for scheme in ("light", "dark"):
        for shape, (width, height) in (("wide", WIDE), ("narrow", NARROW)):
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,  # type: ignore[arg-type]
                reduced_motion="reduce",
            )
            page = context.new_page()
            for name, path in wanted.items():
                _show(page, f"{http_url}/console{path}")
                keep(f"{name}-{shape}-{scheme}", page.screenshot())
            context.close()


def _show(page: Page, url: str) -> None:
    page.goto(url)
    page.locator("main h1, main .problem").first.wait_for()
    expect(page.locator(".skeleton")).to_have_count(0, timeout=30_000)
    page.wait_for_timeout(6500)  # charts have drawn, and rates been measured between two polls


def webp(page: Page, png: bytes) -> bytes:
    data = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    found: str = page.evaluate(_ENCODE, [data, QUALITY])
    return base64.b64decode(found.partition(",")[2])


def main() -> None:
    options = argparse.ArgumentParser(description="Take pictures of every page of the console.")
    options.add_argument("--to", type=Path, default=IMAGES, help="directory for the pictures")
    options.add_argument("--png", action="store_true", help="keep them as PNG")
    options.add_argument("--only", default="", help="names of pages, separated by commas")
    options.add_argument("--seconds", type=float, default=60, help="how long the demo runs first")
    options.add_argument("--url", default="", help="a node that runs already")
    given = options.parse_args()
    names = given.only.split(",") if given.only else set(PAGES) - NOTHING_TO_SEE
    wanted = {name: path for name, path in PAGES.items() if name in names}
    given.to.mkdir(parents=True, exist_ok=True)

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as directory:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        encoder = browser.new_page()

        def keep(name: str, png: bytes) -> None:
            file = given.to / f"{name}.{'png' if given.png else 'webp'}"
            file.write_bytes(png if given.png else webp(encoder, png))
            print(f"{file} {file.stat().st_size:,} bytes")

        if given.url:
            take(browser, given.url, wanted, keep)
        else:
            with Demo(Path(directory)) as demo:
                time.sleep(given.seconds)
                take(browser, demo.http_url, wanted, keep)
        browser.close()


if __name__ == "__main__":
    main()
