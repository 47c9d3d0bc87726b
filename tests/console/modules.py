"""Modules of the console alone, on an empty page of the node with the console's styles and its security policy."""

from typing import Any

import httpx
from playwright.sync_api import Page, Route

_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Modules</title>
<link rel="stylesheet" href="{base}/style/base.css"><link rel="stylesheet" href="{base}/style/parts.css"></head>
<body><main id="main"><h1>Modules</h1></main></body></html>"""

_PRELUDE = """
    const lib = (name) => import(`${base}/lib/${name}.js`);
    const main = document.getElementById("main");
    const frame = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
"""


class Modules:
    """`run` evaluates JavaScript that has `lib(name)`, `main` and `frame()`."""

    def __init__(self, page: Page, http_url: str) -> None:
        self.page = page
        document = httpx.get(f"{http_url}/console/")
        self.base = document.text.partition('src="')[2].partition("/app.js")[0]
        self._policy = document.headers["content-security-policy"]
        page.route(f"{http_url}/modules", self._serve)
        page.goto(f"{http_url}/modules")

    def _serve(self, route: Route) -> None:
        route.fulfill(
            content_type="text/html",
            body=_PAGE.format(base=self.base),
            headers={"Content-Security-Policy": self._policy},
        )

    def run(self, code: str, argument: Any = None) -> Any:
        return self.page.evaluate(
            "async ([base, argument]) => {" + _PRELUDE + code + "}", [self.base, argument]
        )
