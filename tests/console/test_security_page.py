"""Security in the browser: users, ACLs, who may do what, quotas, tokens, the audit."""

from collections.abc import Iterator, Sequence

import httpx
import pytest
from playwright.sync_api import Page, expect
from tests.console.browsing import assert_accessible, open_console
from tests.processes import Process
from tests.server.test_door_security import ALICE, BOB, GUARDED, ROOT, basic

from penstock.testing import Broker

PLANTED = "planted-71ce0d secret"


@pytest.fixture(scope="module")
def node_arguments() -> Sequence[str]:
    settings = {**GUARDED, "audit.log": "denied", "delegation.token.secret.key": "key of tokens"}
    settings["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def http(node: Process) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.http_url, timeout=30, auth=ROOT) as client:
        assert client.post("/topics", json={"name": "orders"}).status_code == 201
        yield client


def log_in(page: Page, user: tuple[str, str]) -> None:
    page.set_extra_http_headers({"Authorization": basic(*user)})


def test_a_user_is_added_and_removed(page: Page, node: Process, http: httpx.Client) -> None:
    log_in(page, ROOT)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    open_console(page, node.http_url, "/security", heading="Security")
    expect(page.get_by_text("No users")).to_be_visible()
    assert_accessible(page)
    page.get_by_role("button", name="Add user…").click()
    dialog = page.get_by_role("dialog")
    add = dialog.get_by_role("button", name="Add", exact=True)
    add.click()
    expect(dialog.get_by_text("Enter a name.")).to_be_visible()
    expect(dialog.get_by_text("Enter a password.")).to_be_visible()
    expect(dialog.get_by_label("Name")).to_be_focused()
    assert_accessible(page)
    dialog.get_by_label("Name").fill("carol")
    dialog.get_by_label("Password").fill(PLANTED)
    dialog.get_by_label("The same again").fill("another")
    dialog.get_by_label("Iterations").fill("7")
    add.click()
    expect(dialog.get_by_text("The two passwords differ.")).to_be_visible()
    expect(dialog.get_by_text("Expected a whole number from 4,096 to 16,384.")).to_be_visible()
    dialog.get_by_label("The same again").fill(PLANTED)
    dialog.get_by_label("Iterations").fill("4096")
    add.click()
    expect(page.get_by_text("carol can log in at every broker.")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="carol")
    expect(row).to_contain_text("SCRAM-SHA-512")
    assert httpx.get(f"{node.http_url}/security", auth=("carol", PLANTED)).status_code == 200
    assert not any("planted" in each for each in asked), "a password is in no address"

    page.get_by_role("button", name="Add user…").click()
    dialog.get_by_label("Name").fill("carol")
    dialog.get_by_label("Password").fill("p")
    dialog.get_by_label("The same again").fill("p")
    add.click()
    expect(dialog.get_by_role("alert")).to_contain_text("has a password for SCRAM-SHA-512 already")
    page.keyboard.press("Escape")

    row.get_by_role("button", name="Remove…").click()
    dialog.get_by_role("textbox").fill("carol")
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("No users")).to_be_visible()
    assert PLANTED not in page.content()


def test_an_acl_is_added_asked_about_and_removed(page: Page, node: Process, http: httpx.Client) -> None:
    log_in(page, ROOT)
    open_console(page, node.http_url, "/security/acls", heading="Security")
    page.get_by_role("button", name="Add ACL…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_text("Enter a user.")).to_be_visible()
    expect(dialog.get_by_text("Enter a name, or *.")).to_be_visible()
    dialog.get_by_label("Principal").fill("alice")
    dialog.get_by_label("Name", exact=True).fill("orders")
    assert_accessible(page)
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("User:alice may read topic orders.")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="User:alice")
    expect(row.get_by_role("link", name="orders")).to_be_visible()
    assert httpx.get(f"{node.http_url}/topics/orders/records", auth=ALICE).status_code == 200

    page.get_by_role("link", name="Who may …?").click()
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("Enter the name of the resource.")).to_be_visible()
    page.get_by_label("Name").fill("orders")
    page.get_by_role("button", name="Ask").click()
    grid = page.get_by_role("grid", name="Principals")
    expect(grid.get_by_role("row").filter(has_text="User:alice")).to_contain_text(
        "ALLOW READ on TOPIC orders"
    )
    assert_accessible(page)
    page.get_by_role("textbox", name="Principal").fill("bob")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("User:bob may not read topic orders")).to_be_visible()
    assert "principal=bob" in page.url, "a question can be shared as a link"

    open_console(page, node.http_url, "/security/acls?principal=User%3Aalice", heading="Security")
    row.get_by_role("button", name="Remove…").click()
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("No ACLs")).to_be_visible()
    assert httpx.get(f"{node.http_url}/topics/orders/records", auth=ALICE).status_code == 403


def test_a_quota_is_set_and_removed(page: Page, node: Process, http: httpx.Client) -> None:
    log_in(page, ROOT)
    open_console(page, node.http_url, "/security/quotas", heading="Security")
    page.get_by_role("button", name="Add quota…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User", exact=True).fill("alice")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("Enter at least one limit.")).to_be_visible()
    dialog.get_by_label("Produce").fill("-5")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("Expected a whole number from 1")).to_be_visible()
    dialog.get_by_label("Produce").fill("1048576")
    dialog.get_by_label("Requests").fill("12.5")
    assert_accessible(page)
    dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("row").filter(has_text="user alice")
    expect(row).to_contain_text("1 MB/s")
    [quota] = http.get("/quotas").json()["quotas"]
    assert quota["limits"] == {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}
    row.get_by_role("button", name="Remove…").click()
    dialog.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("No quotas")).to_be_visible()


def test_a_token_is_created_and_its_password_is_shown_once(
    page: Page, node: Process, http: httpx.Client
) -> None:
    log_in(page, ROOT)
    open_console(page, node.http_url, "/security/tokens", heading="Security")
    page.get_by_role("button", name="Create token…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Renewable for").fill("0")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_text("Expected a whole number from 1")).to_be_visible()
    dialog.get_by_label("Renewable for").fill("2")
    dialog.get_by_label("Renewers").fill("alice")
    dialog.get_by_role("button", name="Create").click()
    done = page.get_by_role("dialog").filter(has_text="The token is created")
    password = done.locator("[data-password]").inner_text()
    [token] = http.get("/tokens").json()["tokens"]
    assert token["renewers"] == ["User:alice"]
    assert httpx.get(f"{node.http_url}/security", auth=(token["token_id"], password)).status_code == 200
    done.get_by_role("button", name="Done").click()
    assert password not in page.content()
    row = page.get_by_role("row").filter(has_text=token["token_id"])
    row.get_by_role("button", name="Renew").click()
    expect(page.get_by_text("The token expires in")).to_be_visible()
    assert_accessible(page)
    row.get_by_role("button", name="Remove…").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("No tokens")).to_be_visible()


def test_denials_are_in_the_feed_of_the_audit(page: Page, node: Process, http: httpx.Client) -> None:
    log_in(page, ROOT)
    assert httpx.get(f"{node.http_url}/topics/orders", auth=BOB).status_code == 403
    open_console(page, node.http_url, "/security/audit?result=denied", heading="Security")
    row = page.get_by_role("row").filter(has_text="User:bob").filter(has_text="Describe")
    expect(row.first).to_contain_text("Topic orders")
    assert_accessible(page)
    row.first.get_by_role("gridcell").nth(3).click()
    expect(page.get_by_role("dialog")).to_contain_text("GET /topics/{topic}")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_label("Event").select_option("change")
    assert "event=change" in page.url


def test_without_rights_a_page_says_what_is_missing(page: Page, node: Process, http: httpx.Client) -> None:
    log_in(page, BOB)
    open_console(page, node.http_url, "/security/users", heading="Security")
    expect(page.get_by_role("alert")).to_contain_text("User:bob is not authorized: describe on the cluster.")
    open_console(page, node.http_url, "/security/audit", heading="Security")
    expect(page.get_by_role("alert")).to_contain_text("alter on the cluster")


def test_a_cluster_without_security_says_so(page: Page) -> None:
    with Broker(http=True) as broker:
        open_console(page, broker.http_url, "/security/acls", heading="Security")
        expect(page.get_by_text("This cluster is open")).to_be_visible()
        expect(page.get_by_text("There are no ACLs")).to_be_visible()
        page.get_by_text("This cluster is open").click()
        expect(page.get_by_text("penstock secure init secrets")).to_be_visible()
        assert_accessible(page)
        page.get_by_role("link", name="Tokens").click()
        expect(page.get_by_text("Delegation tokens are off")).to_be_visible()
        page.get_by_role("link", name="Audit").click()
        expect(page.get_by_text("The audit is off")).to_be_visible()
        assert_accessible(page)


def test_a_read_only_console_offers_no_change_and_plans(page: Page) -> None:
    with Broker(http=True, settings={"console.mode": "read-only"}) as broker:
        broker.create_topic("orders")
        open_console(page, broker.http_url, "/security/users", heading="Security")
        add = page.get_by_role("button", name="Add user…")
        expect(add).to_be_disabled()
        expect(add).to_have_attribute("title", "This console is read-only (console.mode).")
        open_console(page, broker.http_url, "/cluster/reassignments", heading="Cluster")
        page.get_by_role("button", name="Plan").click()
        expect(page.get_by_text("Nothing has to move: 1 partition stays as it is.")).to_be_visible()
