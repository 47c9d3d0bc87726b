"""Log-ins at the console: passwords, an identity provider, sessions that end, read-only mode, missing rights."""

import re
from collections.abc import Iterator
from time import time_ns

import pytest
from playwright.sync_api import Page, expect
from tests.console.browsing import assert_accessible, open_console
from tests.security.oidc_provider import OidcServer, oidc_server
from tests.server.test_door_security import ALICE, BOB, GUARDED, ROOT, acl, create_acls, create_topic

from penstock.testing import Broker


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    """A node whose clock the test moves, with users and ACLs."""
    with Broker(http=True, settings=GUARDED) as broker:
        create_topic(broker, "orders")
        create_acls(broker, acl("alice", "ALL", "TOPIC", "orders"), acl("alice", "ALL", "TOPIC", "lab.index"))
        yield broker


def log_in(page: Page, user: str, password: str) -> None:
    page.get_by_label("User", exact=True).fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_the_log_in_leads_back_to_the_wanted_page(page: Page, guarded: Broker) -> None:
    open_console(page, guarded.http_url, "/labs/simulator?seed=42", heading="Log in")
    expect(page.get_by_label("User", exact=True)).to_be_focused()
    assert_accessible(page)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").filter(has_text="Type the name of a user.")).to_be_visible()
    log_in(page, "alice", "wrong")
    expect(page.get_by_role("alert").filter(has_text="The user or the password is wrong.")).to_be_visible()
    assert page.get_by_label("User", exact=True).input_value() == "alice", "what was typed stays"
    log_in(page, *ALICE)
    expect(page.get_by_role("heading", name="Simulator", level=1)).to_be_visible()
    assert page.url.endswith("/console/labs/simulator?seed=42")
    [cookie] = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.get_by_label("Seed")).to_have_value("42")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in", level=1)).to_be_visible()
    assert page.context.cookies() == []
    page.go_back()
    page.reload()
    expect(page.get_by_role("heading", name="Log in", level=1)).to_be_visible()


def test_an_expired_session_asks_again_and_loses_nothing_typed(page: Page, guarded: Broker) -> None:
    open_console(page, guarded.http_url, "/labs/index/3", heading="Log in")
    log_in(page, *ALICE)
    page.get_by_label("Offset", exact=True).fill("4711")
    guarded.clock.advance(minutes=31)
    dialog = page.get_by_role("dialog", name="Your session is over")
    expect(dialog).to_be_visible()
    assert_accessible(page)
    expect(dialog.get_by_label("User", exact=True)).to_have_value("alice")
    expect(dialog.get_by_label("Password")).to_be_focused()
    dialog.get_by_label("Password").fill("wrong")
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("alert")).to_contain_text("The user or the password is wrong.")
    dialog.get_by_label("Password").fill(ALICE[1])
    page.keyboard.press("Enter")
    expect(dialog).to_have_count(0)
    expect(page.get_by_label("Offset", exact=True)).to_have_value("4711")


def test_a_user_at_the_page_is_not_logged_out(page: Page, guarded: Broker) -> None:
    """Activity renews the session; what the page fetches by itself does not."""
    page.clock.install()
    open_console(page, guarded.http_url, "/labs/simulator", heading="Log in")
    log_in(page, *ALICE)
    expect(page.get_by_label("Seed")).to_be_visible()
    for _ in range(2):
        guarded.clock.advance(minutes=20)
        page.clock.fast_forward("20:00")
        with page.expect_response(lambda each: each.request.method == "PUT" and each.status == 200):
            page.get_by_label("Seed").press("1")
    guarded.clock.advance(minutes=20)
    page.reload()
    expect(page.get_by_label("Seed")).to_be_visible()


def test_what_a_user_may_not_do_is_said(page: Page, guarded: Broker) -> None:
    open_console(page, guarded.http_url, "/labs/segments", heading="Log in")
    log_in(page, *BOB)
    page.get_by_role("button", name="Create both topics").click()
    expect(
        page.get_by_role("alert").filter(has_text="User:bob is not authorized: create on").first
    ).to_be_visible()


def test_a_read_only_console_offers_no_changes(page: Page) -> None:
    with Broker(http=True, settings={**GUARDED, "console.mode": "read-only"}) as broker:
        open_console(page, broker.http_url, "/labs/segments", heading="Log in")
        log_in(page, *ROOT)
        button = page.get_by_role("button", name="Create both topics")
        expect(button).to_be_disabled()
        assert "read-only" in (button.get_attribute("title") or "")
        expect(page.locator(".sidebar-foot").get_by_text("read-only")).to_be_visible()
        assert_accessible(page)


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcServer]:
    with oidc_server() as server:
        yield server


def test_the_identity_provider_logs_in_and_brings_back(page: Page, provider: OidcServer) -> None:
    with Broker(http=True, settings=provider.settings()) as broker:
        open_console(page, broker.http_url, "/labs/simulator?seed=42", heading="Log in")
        expect(page.get_by_label("Password")).to_have_count(0)
        page.get_by_role("link", name="Log in at the identity provider").click()
        page.get_by_label("Name").fill("nobody")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("The identity provider did not log you in")
        assert_accessible(page)
        page.get_by_role("link", name="Log in at the identity provider").click()
        page.get_by_label("Name").fill("carol")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_label("Seed")).to_have_value("42")
        expect(page.get_by_text("User:carol")).to_be_visible()
        provider.now_ms = lambda: time_ns() // 1_000_000 + broker.clock.ahead_ms
        broker.clock.advance(minutes=11)
        page.get_by_role("button", name="Run").click()
        dialog = page.get_by_role("dialog", name="Your session is over")
        with page.context.expect_page() as opened:
            dialog.get_by_role("link", name=re.compile("in a new tab")).click()
        tab = opened.value
        tab.get_by_label("Name").fill("carol")
        tab.get_by_role("button", name="Log in").click()
        expect(tab.get_by_text("You can close this tab.")).to_be_visible()
        expect(dialog).to_have_count(0)
        expect(page.get_by_label("Seed")).to_have_value("42")
