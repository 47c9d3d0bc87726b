"""`penstock quotas`, against a broker of Penstock's in this process."""

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Command
from tests.cli.wire_tour import Shell

from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def shell(penstock: Command, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    made = Shell(penstock, broker.bootstrap, monkeypatch)
    yield made
    for each in made.json("quotas", "list"):
        options = [part for kind, name in each["entity"].items() for part in (f"--{kind}", name or "default")]
        made("quotas", "remove", *options, "--yes")


def test_quotas_are_set_listed_and_removed(shell: Shell) -> None:
    assert shell("quotas", "list") == "no quotas\n"
    told = shell(
        "quotas", "set", "producer_byte_rate=1000000", "request_percentage=12.5", "--user", "User:alice"
    )
    assert told.splitlines() == [
        "user alice: producer_byte_rate 1000000",
        "user alice: request_percentage 12.5",
    ]
    shell("quotas", "set", "consumer_byte_rate=5", "--user", "alice", "--client-id", "default")
    shell("quotas", "set", "connection_creation_rate=50", "--ip", "10.0.0.7")
    rows = [line.split("  ") for line in shell("quotas", "list").splitlines()]
    assert ["ip 10.0.0.7", "connection_creation_rate", "50"] in [
        [cell.strip() for cell in row if cell.strip()] for row in rows
    ]
    of_alice = shell.json("quotas", "list", "--user", "alice")
    assert [(each["entity"], each["quota"], each["limit"]) for each in of_alice] == [
        ({"client-id": None, "user": "alice"}, "consumer_byte_rate", 5),
        ({"user": "alice"}, "producer_byte_rate", 1000000),
        ({"user": "alice"}, "request_percentage", 12.5),
    ]
    removed = shell("quotas", "remove", "request_percentage", "--user", "alice", "--yes")
    assert removed == "removed 1 quota\n  user alice: request_percentage 12.5\n"
    assert len(shell.json("quotas", "list")) == 3
    assert shell("quotas", "remove", "--user", "nobody") == "removed 0 quotas\n"


def test_which_quota_applies_is_explained(shell: Shell) -> None:
    shell("quotas", "set", "producer_byte_rate=1000", "--user", "default")
    shell("quotas", "set", "producer_byte_rate=5000", "--user", "alice", "--client-id", "billing")
    shell("quotas", "set", "connection_creation_rate=50", "--ip", "default")
    told = shell("quotas", "explain", "--user", "alice", "--client-id", "billing", "--ip", "10.0.0.7")
    assert told.splitlines() == [
        "producer_byte_rate: 5000, the quota of user alice, client-id billing",
        "  shared by all connections of user alice with client id billing, at each broker",
        "  overrides 1000 of default user, which is less specific",
        "consumer_byte_rate: no limit; no quota covers this client",
        "request_percentage: no limit; no quota covers this client",
        "controller_mutation_rate: no limit; no quota covers this client",
        "connection_creation_rate: 50, the quota of default ip",
    ]
    document = shell.json("quotas", "explain", "--user", "bob")[0]
    assert (document["limit"], document["entity"]) == (1000, {"user": None})
    assert document["sharedBy"] == "all clients of user bob"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["set", "producer_byte_rate=1"], "whose quota is not said"),
        (["set", "producer_byte_rate=1", "--ip", "10.0.0.7"], "is no quota of ip 10.0.0.7"),
        (["set", "speed=1", "--user", "a"], "'speed' is no quota of user a"),
        (["set", "producer_byte_rate", "--user", "a"], "is no limit"),
        (["set", "producer_byte_rate=0", "--user", "a"], "with a number above 0"),
        (["set", "producer_byte_rate=1.5", "--user", "a"], "must be a whole number"),
        (["set", "connection_creation_rate=1", "--ip", "host.example"], "Host names are not looked up"),
        (["set", "producer_byte_rate=1", "--ip", "10.0.0.7", "--user", "a"], "expected it alone"),
        (["remove", "speed", "--user", "a"], "is no quota"),
    ],
)
def test_what_cannot_be_is_said(shell: Shell, arguments: list[str], why: str) -> None:
    told = shell.try_("quotas", *arguments)
    assert told.code == 2
    assert why in told.err
