"""Transactions in the browser: seen while they are open, and aborted."""

import httpx
import pytest
from confluent_kafka import KafkaException, Producer
from playwright.sync_api import Page, expect
from tests.cli.group_tour import produced_code, stray_batch
from tests.console.browsing import assert_accessible, open_console
from tests.processes import Process

from penstock.base.ids import TopicPartition
from penstock.client.cluster import Cluster
from penstock.client.coordinators import ask_leader
from penstock.client.settings import parse_servers


def test_an_open_transaction_is_found_and_aborted(page: Page, node: Process) -> None:
    open_console(page, node.http_url, "/transactions", heading="Transactions")
    expect(page.get_by_text("No open transactions")).to_be_visible()
    name = "billing/<b>1</b>"
    producer = Producer({"bootstrap.servers": node.bootstrap, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("orders", b"maybe")
    assert producer.flush(20) == 0

    page.get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    expect(page.get_by_text("Ongoing")).to_be_visible()
    expect(page.get_by_role("link", name="orders")).to_be_visible()
    assert_accessible(page)

    page.get_by_role("button", name="Abort…").click()
    dialog = page.get_by_role("dialog")
    abort = dialog.get_by_role("button", name="Abort", exact=True)
    dialog.get_by_role("textbox").fill("billing")
    expect(abort).to_be_disabled()
    dialog.get_by_role("textbox").fill(name)
    abort.click()
    expect(page.get_by_text("Aborted on 1 partition.")).to_be_visible()
    expect(page.get_by_text("Empty", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Abort…")).to_be_disabled()
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link").click()
    page.get_by_role("link", name="All ids").click()
    expect(page.get_by_role("row").filter(has_text=name)).to_be_visible()


def test_a_transaction_that_hangs_is_aborted_where_it_hangs(page: Page, node: Process) -> None:
    with httpx.Client(base_url=node.http_url, timeout=30) as http:
        assert http.post("/topics", json={"name": "stuck", "partitions": 1}).status_code == 201
        check = "transaction.partition.verification.enable"  # which keeps such a write out
        assert http.patch("/cluster/configs", json={"configs": {check: False}}).status_code == 200
        with Cluster(parse_servers(node.bootstrap)) as cluster:
            reply = ask_leader(cluster, TopicPartition("stuck", 0), stray_batch(987_654), produced_code)
        assert produced_code(reply) == 0
        assert http.patch("/cluster/configs", json={"configs": {check: None}}).status_code == 200
    open_console(page, node.http_url, "/transactions?view=hanging", heading="Transactions")
    row = page.get_by_role("row").filter(has_text="stuck-0")
    expect(row).to_contain_text("987654, epoch 0")
    assert_accessible(page)
    row.get_by_role("button", name="Abort…").click()
    page.get_by_role("dialog").get_by_role("button", name="Abort", exact=True).click()
    expect(page.get_by_text("Aborted in stuck-0.")).to_be_visible()
    expect(page.get_by_text("Nothing hangs")).to_be_visible()


def test_a_transaction_that_does_not_exist_is_said_so(page: Page, node: Process) -> None:
    open_console(page, node.http_url, "/transactions/nobody", heading="nobody")
    expect(page.get_by_role("alert")).to_contain_text("No such transactional id: 'nobody'.")
    expect(page.get_by_role("button", name="Abort…")).to_be_disabled()
