"""Files of the console over HTTP: caching, compression, the security policy, and names that are none."""

import gzip
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest

from penstock.console.assets import imported, load
from penstock.testing import Broker

ROOT = Path(__file__).parents[2]
FIRST_VIEW_BYTES_MAX = 150_000


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with Broker(http=True) as broker, httpx.Client(base_url=broker.http_url, timeout=30) as client:
        yield client


def base_of(document: str) -> str:
    found = re.search(r'src="(/console/assets/[0-9a-f]{16})/app.js"', document)
    assert found
    return found[1]


def test_every_path_without_a_file_is_the_document(client: httpx.Client) -> None:
    document = client.get("/console/")
    assert document.status_code == 200
    assert document.headers["content-type"] == "text/html; charset=utf-8"
    for path in ("topics", "topics/a%2Fb/messages?partition=0&offset=42&offset=43", "a/b/c/d/e/f/g/"):
        assert client.get(f"/console/{path}").text == document.text
    moved = client.get("/console?x=1")
    assert (moved.status_code, moved.headers["location"]) == (308, "/console/")
    assert client.post("/console/").status_code == 405


def test_the_document_is_asked_for_each_time_and_forbids_all_but_its_own_files(client: httpx.Client) -> None:
    document = client.get("/console/topics")
    assert document.headers["cache-control"] == "no-cache"
    policy = document.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert document.headers["x-content-type-options"] == "nosniff"
    assert document.headers["referrer-policy"] == "no-referrer"
    again = client.get("/console/", headers={"If-None-Match": document.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == document.headers["etag"]


def test_other_files_are_kept_for_a_year(client: httpx.Client) -> None:
    base = base_of(client.get("/console/").text)
    for name, kind in (
        ("app.js", "text/javascript"),
        ("style/base.css", "text/css"),
        ("icon.svg", "image/svg+xml"),
    ):
        file = client.get(f"{base}/{name}")
        assert file.status_code == 200
        assert file.headers["content-type"].startswith(kind)
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert file.headers["x-content-type-options"] == "nosniff"
        tags = f'"other", {file.headers["etag"]}'
        assert client.get(f"{base}/{name}", headers={"If-None-Match": tags}).status_code == 304


def test_files_are_compressed_for_those_who_take_gzip(client: httpx.Client) -> None:
    base = base_of(client.get("/console/").text)
    plain = client.get(f"{base}/app.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    for accepted in ("gzip", "br;q=1.0, GZIP;q=0.5", "deflate, gzip ; q=1"):
        with client.stream("GET", f"{base}/app.js", headers={"Accept-Encoding": accepted}) as packed:
            assert packed.headers["content-encoding"] == "gzip"
            assert packed.headers["vary"] == "Accept-Encoding"
            assert packed.headers["etag"] != plain.headers["etag"]
            assert gzip.decompress(b"".join(packed.iter_raw())) == plain.content
    for accepted in ("gzip;q=0", "gzip;q=0.000, *", "br", "gzipped"):
        refused = client.get(f"{base}/app.js", headers={"Accept-Encoding": accepted})
        assert "content-encoding" not in refused.headers


@pytest.mark.parametrize(
    "name",
    [
        "../__init__.py",
        "%2e%2e/assets.py",
        "lib/../app.js",
        "lib",
        "lib/",
        "",
        "nothing.js",
        "app.js/",
        "%00",
        "/etc/passwd",
    ],
)
def test_names_that_are_no_files_are_not_found(client: httpx.Client, name: str) -> None:
    base = base_of(client.get("/console/").text)
    connection = HTTPConnection(client.base_url.host, client.base_url.port or 80, timeout=30)
    connection.request("GET", f"{base}/{name}")  # as it is: httpx would tidy it up
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    assert (response.status, body["error"]["code"]) == (404, "no_such_file")


def test_a_file_of_another_release_asks_to_reload(client: httpx.Client) -> None:
    response = client.get("/console/assets/0123456789abcdef/app.js")
    assert response.status_code == 404
    assert "Reload" in response.json()["error"]["message"]


def test_without_the_console_the_front_page_leads_to_the_description() -> None:
    with (
        Broker(http=True, settings={"console.mode": "off"}) as broker,
        httpx.Client(base_url=broker.http_url, timeout=30) as client,
    ):
        assert client.get("/").headers["location"] == "/docs"
        assert client.get("/console/").json()["error"]["code"] == "console_is_off"


def test_the_first_view_is_small() -> None:
    """What the overview loads, compressed: all of `lib`, the frame and its own modules."""
    assets = load()
    bodies = {name: asset.body for name, asset in assets.by_name.items()}
    named = re.findall(rf'{assets.release}/([\w/.-]+)"', assets.document.body.decode())
    assert {"app.js", "lib/dom.js", "style/base.css", "icon.svg"} <= set(named)
    loaded = {*named, "pages/overview.js", *imported(bodies, "pages/overview.js")}
    size = len(assets.document.gzipped) + sum(
        len(assets.by_name[name].gzipped or assets.by_name[name].body) for name in loaded
    )
    assert size < FIRST_VIEW_BYTES_MAX


def test_modules_keep_to_the_rules() -> None:
    """No markup from text, no evaluation, no inline style or handler: the security policy would stop them anyway."""
    web = ROOT / "src/penstock/console/web"
    for path in sorted(web.rglob("*.js")):
        text = path.read_text()
        found = re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function\b|setAttribute\(\"style\"",
            text,
        )
        assert found is None, f"{path.name} has {found[0] if found else ''}"
        assert text.startswith("//"), f"{path.name} does not say what it does"
        assert text.count("\n") <= 400, f"{path.name} is longer than 400 lines"
        assert "http://" not in text.replace("http://www.w3.org/", "") or path.parent.name == "pages"
    html = (web / "index.html").read_text()
    assert not re.search(r"<style|style=|<script>|\son\w+=", html)


@pytest.mark.long
def test_the_wheel_has_all_files(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-deps",
            "--quiet",
            "--wheel-dir",
            str(tmp_path),
            str(ROOT),
        ],
        check=True,
    )
    [wheel] = tmp_path.glob("*.whl")
    names = {each.removeprefix("penstock/console/web/") for each in zipfile.ZipFile(wheel).namelist()}
    assert {"index.html", *load().by_name} <= names
