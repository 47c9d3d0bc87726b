"""`penstock acls`, against a broker of Penstock's in this process."""

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Command
from tests.cli.wire_tour import Shell

from penstock.testing import Broker

STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture
def broker() -> Iterator[Broker]:
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:ANONYMOUS;User:root"}
    with Broker(settings=settings) as running:
        yield running


@pytest.fixture
def shell(penstock: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(penstock, broker.bootstrap, monkeypatch)


def test_acls_are_created_listed_and_removed(shell: Shell) -> None:
    assert shell("acls", "list") == "no ACLs\n"
    allowed = shell("acls", "allow", "alice", "read,write", "topic", "orders")
    assert allowed.splitlines() == [
        "ALLOW READ on TOPIC orders for User:alice from *",
        "ALLOW WRITE on TOPIC orders for User:alice from *",
    ]
    shell("acls", "deny", "User:bob", "all", "topic", "pay", "--prefix", "--host", "10.0.0.7")
    shell("acls", "allow", "alice", "read", "group", "billing")
    rows = [line.split() for line in shell("acls", "list").splitlines()[1:]]
    assert ["topic", "pay", "(prefix)", "User:bob", "10.0.0.7", "all", "deny"] in rows
    assert len(rows) == 4
    of_topic = shell.json("acls", "list", "--topic", "payroll")
    assert [each["principal"] for each in of_topic] == ["User:bob"]
    removed = shell("acls", "remove", "topic", "orders", "--principal", "alice", "--yes")
    assert removed.startswith("removed 2 ACLs\n")
    left = shell.json("acls", "list", "--principal", "alice")
    assert [(each["resource"], each["name"]) for each in left] == [("group", "billing")]


def test_a_decision_is_explained(shell: Shell) -> None:
    shell("acls", "allow", "alice", "read", "topic", "orders")
    shell("acls", "deny", "*", "write", "topic", "ord", "--prefix")
    allowed = shell("acls", "explain", "alice", "describe", "topic", "orders")
    assert allowed == "allowed: an ACL allows it: ALLOW READ on TOPIC orders for User:alice from *\n"
    denied = shell.try_("acls", "explain", "alice", "write", "topic", "orders")
    assert denied.code == 1
    assert denied.out == "denied: an ACL denies it: DENY WRITE on TOPIC ord* for User:* from *\n"
    nothing = shell.try_("acls", "explain", "bob", "read", "group", "billing")
    assert "the resource has no ACL" in nothing.out
    assert "super user" in shell("acls", "explain", "root", "alter", "cluster")


def test_an_open_broker_is_explained_as_it_decides(
    penstock: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true"}
    with Broker(settings=settings) as broker:
        said = Shell(penstock, broker.bootstrap, monkeypatch)(
            "acls", "explain", "bob", "read", "topic", "orders"
        )
    assert said == "allowed: the resource has no ACL, and allow.everyone.if.no.acl.found is true\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("allow", "alice", "fly", "topic", "orders"), "'fly' is no operation, expected one of all, read"),
        (("allow", "alice", "read", "table", "orders"), "'table' is no resource, expected one of topic"),
        (("allow", "alice", "read", "topic"), "topic needs one name: topic NAME"),
        (("remove",), "nothing to remove"),
        (("list", "--topic", "a", "--group", "b"), "expected one of them"),
        (("allow", "alice", "read", "cluster", "mine"), "The only valid name for the CLUSTER resource"),
    ],
)
def test_what_cannot_be_is_a_sentence(shell: Shell, words: tuple[str, ...], sentence: str) -> None:
    ended = shell.try_("acls", *words)
    assert ended.code == 2
    assert sentence in ended.err
    assert "Traceback" not in ended.err


def test_without_an_authorizer_there_are_no_acls(penstock: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as plain:
        ended = Shell(penstock, plain.bootstrap, monkeypatch).try_("acls", "list")
    assert ended.code == 2
    assert "No Authorizer is configured" in ended.err
