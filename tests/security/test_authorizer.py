"""What ACLs allow."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata.acls import Acl, AclResourceType, Operation, PatternType, Permission
from penstock.metadata.maps import FrozenMap
from penstock.security import authorizer as authorizers
from penstock.security.authorizer import Authorizer

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE, BOB = "User:alice", "User:bob"
HERE, THERE = "10.0.0.1", "10.0.0.2"


def acl(
    permission: Permission,
    operation: Operation,
    name: str = "orders",
    *,
    pattern: PatternType = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    on: AclResourceType = TOPIC,
) -> Acl:
    return Acl(on, name, pattern, principal, host, operation, permission)


def may(
    acls: list[Acl],
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    principal: str = ALICE,
    host: str = HERE,
    on: AclResourceType = TOPIC,
) -> bool:
    return Authorizer(acls).allows(principal, host, operation, on, name)


def test_before_the_acls_are_read_super_users_alone_are_allowed() -> None:
    """Also with allow.everyone.if.no.acl.found: a controller's listener is open before the metadata is read."""
    unread = Authorizer((), frozenset({"User:admin"}), allows_without_acl=True, is_read=False)
    asked = "10.0.0.1", Operation.CLUSTER_ACTION, AclResourceType.CLUSTER, "kafka-cluster"
    assert unread.allows("User:admin", *asked)
    assert not unread.allows("User:bob", *asked)
    assert not unread.allows_any("User:bob", *asked[:3])
    assert unread.decide("User:bob", *asked).reason == "the ACLs are not read from the metadata log yet"
    assert unread.with_acls(FrozenMap()).allows("User:bob", *asked)


def test_without_an_acl_a_resource_is_denied_or_allowed_as_the_setting_says() -> None:
    assert not may([])
    assert Authorizer((), allows_without_acl=True).allows(ALICE, HERE, Operation.READ, TOPIC, "orders")
    of_bob = acl(ALLOW, Operation.READ, principal=BOB)
    one = Authorizer((of_bob,), allows_without_acl=True)
    assert not one.allows(ALICE, HERE, Operation.READ, TOPIC, "orders"), "the topic has an ACL"
    assert one.allows(ALICE, HERE, Operation.READ, TOPIC, "other")


def test_a_super_user_may_do_what_is_denied() -> None:
    everything = acl(DENY, Operation.ALL, "*", principal="User:*")
    one = Authorizer((everything,), frozenset((ALICE,)))
    assert one.allows(ALICE, HERE, Operation.WRITE, TOPIC, "orders")
    assert not one.allows(BOB, HERE, Operation.WRITE, TOPIC, "orders")


@pytest.mark.parametrize(
    ("name", "pattern", "applies"),
    [
        ("orders", LITERAL, True),
        ("order", LITERAL, False),
        ("*", LITERAL, True),
        ("orders", PREFIXED, True),
        ("ord", PREFIXED, True),
        ("orders-", PREFIXED, False),
        ("*", PREFIXED, False),
    ],
)
def test_an_acl_applies_by_name_by_prefix_or_to_all(name: str, pattern: PatternType, applies: bool) -> None:
    assert may([acl(ALLOW, Operation.READ, name, pattern=pattern)]) == applies


def test_an_acl_is_for_its_principal_host_and_type_of_resource() -> None:
    reads = acl(ALLOW, Operation.READ, host=HERE)
    assert may([reads])
    assert not may([reads], principal=BOB)
    assert not may([reads], host=THERE)
    assert not may([reads], on=GROUP)
    assert may([acl(ALLOW, Operation.READ, principal="User:*")], principal=BOB)


def test_a_denial_beats_what_allows() -> None:
    acls = [acl(ALLOW, Operation.ALL, "*"), acl(DENY, Operation.READ, "ord", pattern=PREFIXED)]
    assert not may(acls)
    assert may(acls, Operation.WRITE)
    assert may(acls, name="invoices")


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_what_is_allowed_implies_describe_and_what_is_denied_does_not(operation: Operation) -> None:
    assert may([acl(ALLOW, operation)], Operation.DESCRIBE)
    assert may([acl(ALLOW, Operation.DESCRIBE), acl(DENY, operation)], Operation.DESCRIBE)


def test_altering_settings_implies_describing_them() -> None:
    assert may([acl(ALLOW, Operation.ALTER_CONFIGS)], Operation.DESCRIBE_CONFIGS)
    assert not may([acl(ALLOW, Operation.ALTER)], Operation.DESCRIBE_CONFIGS)
    assert not may([acl(ALLOW, Operation.DESCRIBE)], Operation.READ)


def test_a_decision_names_its_acl() -> None:
    denied = acl(DENY, Operation.READ, "ord", pattern=PREFIXED)
    decision = Authorizer((denied,)).decide(ALICE, HERE, Operation.READ, TOPIC, "orders")
    assert decision.acl is denied
    assert "DENY READ on TOPIC ord* for User:alice from *" in decision.reason


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizers, "DECISIONS_MAX", 10)
    one = Authorizer((acl(ALLOW, Operation.READ, "topic-7"),))
    for number in range(100):
        assert one.allows(ALICE, HERE, Operation.READ, TOPIC, f"topic-{number}") == (number == 7)
        assert len(one._decisions) <= 10


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl(ALLOW, Operation.WRITE)], True),
        ([acl(ALLOW, Operation.ALL)], True),
        ([acl(ALLOW, Operation.READ)], False),
        ([acl(ALLOW, Operation.WRITE, "*")], True),
        ([acl(ALLOW, Operation.WRITE, "*"), acl(DENY, Operation.WRITE, "orders")], True),
        ([acl(ALLOW, Operation.WRITE, "*"), acl(DENY, Operation.WRITE, "*")], False),
        ([acl(ALLOW, Operation.WRITE), acl(DENY, Operation.WRITE)], False),
        ([acl(ALLOW, Operation.WRITE), acl(DENY, Operation.WRITE, "ord", pattern=PREFIXED)], False),
        ([acl(ALLOW, Operation.WRITE), acl(DENY, Operation.WRITE, "orders", pattern=PREFIXED)], False),
        ([acl(ALLOW, Operation.WRITE, pattern=PREFIXED), acl(DENY, Operation.WRITE)], True),
        ([acl(ALLOW, Operation.WRITE, principal=BOB)], False),
        ([acl(ALLOW, Operation.WRITE, host=THERE)], False),
    ],
)
def test_any_topic_may_be_written_if_an_acl_allows_one_that_none_denies(
    acls: list[Acl], expected: bool
) -> None:
    """KIP-679: an idempotent producer needs no ACL for the cluster."""
    assert Authorizer(acls).allows_any(ALICE, HERE, Operation.WRITE, TOPIC) == expected


NAMES = ["a", "ab", "abc", "b", "*"]
ACLS = st.builds(
    Acl,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([LITERAL, PREFIXED]),
    st.sampled_from([ALICE, BOB, "User:*"]),
    st.sampled_from([HERE, "*"]),
    st.sampled_from([Operation.ALL, Operation.READ, Operation.DESCRIBE, Operation.WRITE]),
    st.sampled_from([ALLOW, DENY]),
)


def looked_up_one_by_one(acls: list[Acl], principal: str, host: str, operation: Operation, name: str) -> bool:
    """The rules, without an index."""
    results = set()
    for each in acls:
        fits = each.resource_name in (name, "*") if each.pattern_type is LITERAL else False
        fits |= each.pattern_type is PREFIXED and name.startswith(each.resource_name)
        ops = {each.operation}
        if each.permission is ALLOW and each.operation in (Operation.READ, Operation.WRITE):
            ops.add(Operation.DESCRIBE)
        if (
            each.resource_type is TOPIC
            and fits
            and each.principal in (principal, "User:*")
            and each.host in (host, "*")
            and (operation in ops or each.operation is Operation.ALL)
        ):
            results.add(each.permission)
    return DENY not in results and ALLOW in results


@given(st.lists(ACLS, max_size=6))
def test_the_index_finds_every_acl_that_applies(acls: list[Acl]) -> None:
    one = Authorizer(acls)
    asked = product([ALICE, BOB], [HERE, THERE], [Operation.READ, Operation.DESCRIBE], ["a", "abc", "c"])
    for principal, host, operation, name in asked:
        expected = looked_up_one_by_one(acls, principal, host, operation, name)
        assert one.allows(principal, host, operation, TOPIC, name) == expected


def test_the_cost_of_a_decision_does_not_depend_on_the_length_of_the_name() -> None:
    """A client may ask for names of 32,767 characters; comparing each of their prefixes took 0.3 s."""
    one = Authorizer(
        [acl(ALLOW, Operation.READ, "or", pattern=PREFIXED), acl(DENY, Operation.READ, "orders")]
    )

    cuts: list[object] = []

    class Name(str):
        __slots__ = ()

        def __getitem__(self, key: Any) -> str:
            cuts.append(key)
            return str.__getitem__(self, key)

    assert one.allows(ALICE, HERE, Operation.READ, TOPIC, Name("or" + "x" * 32_000))
    assert len(cuts) == 1
    assert not one.allows(ALICE, HERE, Operation.READ, TOPIC, "o"), "shorter than the prefix"


def test_decisions_about_long_names_are_not_remembered() -> None:
    """The names come from clients, and 100,000 long ones would take gigabytes."""
    one = Authorizer([acl(ALLOW, Operation.READ)])
    one.allows(ALICE, HERE, Operation.READ, TOPIC, "x" * authorizers.REMEMBERED_NAME_MAX)
    one.allows(ALICE, HERE, Operation.READ, TOPIC, "x" * (authorizers.REMEMBERED_NAME_MAX + 1))
    assert len(one._decisions) == 1


def test_whether_any_resource_is_allowed_is_decided_once_for_a_principal() -> None:
    one = Authorizer([acl(ALLOW, Operation.WRITE), acl(ALLOW, Operation.READ, principal=BOB)])
    for _ in range(2):
        assert one.allows_any(ALICE, HERE, Operation.WRITE, TOPIC)
        assert not one.allows_any(BOB, HERE, Operation.WRITE, TOPIC)
    assert len(one._any_decisions) == 2


ACLS = st.builds(
    Acl,
    st.sampled_from((TOPIC, GROUP)),
    st.sampled_from(("*", "o", "or", "orders")),
    st.sampled_from((LITERAL, PREFIXED)),
    st.sampled_from((ALICE, "User:*")),
    st.just("*"),
    st.sampled_from((Operation.READ, Operation.ALL)),
    st.sampled_from((ALLOW, DENY)),
)


@given(st.lists(st.dictionaries(st.integers(0, 20), ACLS, max_size=8), min_size=2, max_size=4))
def test_an_authorizer_of_changed_acls_decides_as_a_new_one(sets: list[dict[int, Acl]]) -> None:
    """It is made from the ACLs that differ. The one before it stays as it was."""
    changed = [Authorizer(())]
    for acls in sets:
        changed.append(changed[-1].with_acls(FrozenMap(acls)))
    for acls, one in zip(({}, *sets), changed, strict=True):
        fresh = Authorizer(acls.values())
        for on, name in product((TOPIC, GROUP), ("o", "or", "orders", "x")):
            asked = ALICE, HERE, Operation.READ, on, name
            assert one.decide(*asked).is_allowed == fresh.decide(*asked).is_allowed
            assert one.decide(*asked).reason[:20] == fresh.decide(*asked).reason[:20]
        assert one.allows_any(ALICE, HERE, Operation.READ, TOPIC) == fresh.allows_any(
            ALICE, HERE, Operation.READ, TOPIC
        )
