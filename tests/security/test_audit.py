"""The audit: what is a line, what is summed up, and what a hostile client can make of it."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.worlds import StillWorld

from penstock.base.metrics import AuditMeter
from penstock.handlers.support.context import Session
from penstock.metadata.acls import Acl, AclResourceType, Operation, PatternType, Permission
from penstock.security.audit import (
    CLIENT_LINES_MAX,
    CLIENTS_MAX,
    LINES_MAX,
    OTHERS,
    PENDING_MAX,
    WINDOW_MS,
    AuditLog,
)
from penstock.security.authorizer import Authorizer

READ, TOPIC = Operation.READ, AclResourceType.TOPIC
ALICE_READS = Acl(TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", READ, Permission.ALLOW)


class Audited:
    def __init__(self, *, records_allowed: bool = False) -> None:
        self.world = StillWorld()
        self.meter = AuditMeter()
        self.text: list[str] = []
        self.log = AuditLog(self.world, 3, self.meter, [self.text.extend], records_allowed=records_allowed)
        self.authorizer = Authorizer([ALICE_READS])

    def reads(self, topic: str, principal: str = "User:bob", address: str = "10.0.0.1") -> bool:
        session = Session("", 9092, f"{address}:5", "CLIENTS").within("ListOffsets", "app")
        session.principal = principal
        return self.log.allows(session, READ, TOPIC, topic, self.authorizer)

    def lines(self) -> list[dict[str, Any]]:
        self.world.advance(0)
        found = [json.loads(each) for each in self.text]
        self.text.clear()
        return found


def test_a_denied_operation_is_a_line_with_all_fields() -> None:
    audited = Audited()
    assert not audited.reads("orders")
    assert audited.reads("orders", "User:alice")
    assert audited.lines() == [
        {
            "time": "2023-11-14T22:13:20.000Z",
            "node": 3,
            "event": "operation",
            "listener": "CLIENTS",
            "client": "10.0.0.1",
            "principal": "User:bob",
            "client_id": "app",
            "request": "ListOffsets",
            "operation": "Read",
            "resource_type": "Topic",
            "resource_name": "orders",
            "result": "denied",
            "reason": "no ACL of the resource allows it",
            "count": 1,
        }
    ]


def test_allowed_operations_are_recorded_if_wished_with_the_rule() -> None:
    audited = Audited(records_allowed=True)
    assert audited.reads("orders", "User:alice")
    [line] = audited.lines()
    assert line["result"] == "allowed"
    assert line["reason"] == f"an ACL allows it: {ALICE_READS}"


def test_the_same_again_is_counted_in_one_line_at_the_end_of_the_window() -> None:
    audited = Audited()
    for _ in range(1000):
        audited.reads("orders")
    assert len(audited.lines()) == 1
    audited.world.advance(WINDOW_MS)
    [line] = audited.lines()
    assert (line["count"], line["since"]) == (999, "2023-11-14T22:13:20.000Z")
    assert line["resource_name"] == "orders"
    assert audited.meter.aggregated == 999
    audited.world.advance(5 * WINDOW_MS)
    assert not audited.lines(), "nothing happened since"
    audited.reads("orders")
    assert len(audited.lines()) == 1, "a new window begins with a line"


def test_a_client_with_ever_new_names_has_few_lines_and_one_that_counts_the_others() -> None:
    audited = Audited()
    for number in range(5000):
        audited.reads(f"guess-{number}")
    assert len(audited.lines()) == CLIENT_LINES_MAX
    audited.reads("orders", "User:carol")
    assert len(audited.lines()) == 1, "others still have lines"
    audited.world.advance(WINDOW_MS)
    [line] = audited.lines()
    assert (line["count"], line["reason"], line["principal"]) == (5000 - CLIENT_LINES_MAX, OTHERS, "User:bob")


def test_many_clients_have_a_bounded_number_of_lines() -> None:
    audited = Audited()
    for number in range(3000):
        audited.reads("orders", address=f"10.0.{number // 250}.{number % 250}")
    assert len(audited.lines()) == LINES_MAX
    audited.world.advance(WINDOW_MS)
    lines = audited.lines()
    assert len(lines) <= CLIENTS_MAX + 1
    assert sum(each["count"] for each in lines) == 3000 - LINES_MAX


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.integers(0, 3000)), max_size=200))
def test_the_counts_of_all_lines_add_up_to_the_events(steps: list[tuple[int, int, int]]) -> None:
    audited = Audited()
    for topic, client, pause_ms in steps:
        audited.reads(f"topic-{topic}", address=f"10.0.0.{client}")
        audited.world.advance(pause_ms)
    audited.log.stop()
    assert sum(each["count"] for each in audited.lines()) == len(steps)


def test_allowed_operations_do_not_hide_denied_ones() -> None:
    audited = Audited(records_allowed=True)
    for number in range(2 * LINES_MAX):
        audited.reads("orders", "User:alice", f"10.0.0.{number}")
    assert len(audited.lines()) == LINES_MAX
    audited.reads("orders", "User:alice", "10.1.0.1")
    audited.reads("payroll", "User:alice", "10.1.0.1")
    [line] = audited.lines()
    assert (line["resource_name"], line["result"]) == ("payroll", "denied")


def test_names_of_clients_are_cut_and_stay_on_one_line() -> None:
    audited = Audited()
    audited.reads("a\nb" + "\u2028" * 30_000)
    audited.world.advance(0)
    [text] = audited.text
    assert len(text.splitlines()) == 1
    assert text.isascii()
    assert len(text) < 3000
    assert json.loads(text)["resource_name"].startswith("a\nb\u2028")


def test_log_ins_and_failed_ones_are_recorded() -> None:
    audited = Audited()
    session = Session("", 9092, "10.0.0.1:5", "CLIENTS")
    for _ in range(3):
        audited.log.login_failed(session, "PLAIN", "unknown user or wrong password", "alice")
    session.principal = "User:alice"
    audited.log.logged_in(session, "PLAIN")
    failed, good = audited.lines()
    assert (failed["event"], failed["operation"], failed["result"]) == ("login", "PLAIN", "denied")
    assert (failed["principal"], failed["reason"]) == ("User:alice", "unknown user or wrong password")
    assert (good["event"], good["principal"], good["result"]) == ("login", "User:alice", "allowed")
    audited.world.advance(WINDOW_MS)
    [more] = audited.lines()
    assert (more["result"], more["count"]) == ("denied", 2)


def test_names_that_are_guessed_at_the_log_in_are_bounded() -> None:
    audited = Audited()
    session = Session("", 9092, "10.0.0.1:5", "CLIENTS")
    for number in range(1000):
        audited.log.login_failed(session, "PLAIN", "unknown user or wrong password", f"user-{number}")
    assert len(audited.lines()) == CLIENT_LINES_MAX
    audited.world.advance(WINDOW_MS)
    [rest] = audited.lines()
    assert rest["count"] == 1000 - CLIENT_LINES_MAX


def test_changes_are_never_summed_up_and_what_does_not_fit_is_said() -> None:
    audited = Audited()
    session = Session("", 9092, "10.0.0.1:5")
    for number in range(PENDING_MAX + 7):
        audited.log.changed(session, "CreateAcl", "Topic", f"topic-{number}", {"new": "an ACL"})
    lines = audited.lines()
    assert len(lines) == PENDING_MAX + 1
    assert (lines[-1]["event"], lines[-1]["result"], lines[-1]["count"]) == ("audit", "dropped", 7)
    assert audited.meter.dropped["queue"] == 7
