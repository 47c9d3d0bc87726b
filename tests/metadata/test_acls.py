"""Filters of ACLs, and the controller's changes of them."""

import pytest
from tests.metadata.world import World

from penstock.base.errors import ErrorCode, KafkaError
from penstock.metadata.acls import Acl, AclFilter, AclResourceType, Operation, PatternType, Permission
from penstock.metadata.controller import acls as decisions
from penstock.metadata.controller.requests import OK, CreateAcls, DeleteAcls

READS = Acl(
    AclResourceType.TOPIC,
    "orders",
    PatternType.LITERAL,
    "User:alice",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
ALL_TOPICS = READS._replace(resource_name="*")
PREFIX = READS._replace(resource_name="ord", pattern_type=PatternType.PREFIXED)
OF_GROUP = READS._replace(resource_type=AclResourceType.GROUP)

EVERYTHING = AclFilter(AclResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


@pytest.mark.parametrize(
    ("name", "pattern", "found"),
    [
        ("orders", PatternType.LITERAL, {READS, OF_GROUP}),
        ("orders", PatternType.ANY, {READS, OF_GROUP}),
        ("orders", PatternType.MATCH, {READS, OF_GROUP, ALL_TOPICS, PREFIX}),
        ("ord", PatternType.PREFIXED, {PREFIX}),
        ("ord", PatternType.LITERAL, set()),
        ("order", PatternType.MATCH, {ALL_TOPICS, PREFIX}),
        (None, PatternType.PREFIXED, {PREFIX}),
        (None, PatternType.ANY, {READS, OF_GROUP, ALL_TOPICS, PREFIX}),
    ],
)
def test_a_filter_matches_names_by_its_pattern_type(
    name: str | None, pattern: PatternType, found: set[Acl]
) -> None:
    wanted = EVERYTHING._replace(resource_name=name, pattern_type=pattern)
    assert {each for each in (READS, OF_GROUP, ALL_TOPICS, PREFIX) if wanted.matches(each)} == found


def test_a_filter_that_names_everything_is_one_acl() -> None:
    exact = AclFilter(*READS)
    assert exact.as_acl == READS
    assert exact._replace(host=None).as_acl is None
    assert exact._replace(operation=Operation.ANY).as_acl is None
    assert exact._replace(pattern_type=PatternType.MATCH).as_acl is None


def test_a_number_that_the_protocol_does_not_have_is_unknown() -> None:
    assert Operation(99) is Operation.UNKNOWN
    assert PatternType(-3) is PatternType.UNKNOWN
    assert not EVERYTHING._replace(operation=Operation(99)).is_known


def test_acls_are_created_once_and_deleted_by_filters() -> None:
    world = World()
    assert world.ask(CreateAcls((READS, PREFIX, READS))) == (OK, OK, OK)
    assert set(world.image.acl_ids) == {READS.key, PREFIX.key}
    assert world.ask(CreateAcls((READS,))) == (OK,)
    assert len(world.image.acls) == 2
    deleted = world.ask(DeleteAcls((AclFilter(*READS), EVERYTHING, AclFilter(*OF_GROUP))))
    assert [set(each.acls) for each in deleted] == [{READS}, {READS, PREFIX}, set()]
    assert not world.image.acls


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": AclResourceType.CLUSTER}, "The only valid name for the CLUSTER resource"),
        ({"resource_type": AclResourceType.ANY}, "Invalid resourceType ANY"),
        ({"pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"permission": Permission.ANY}, "Invalid permissionType ANY"),
        ({"principal": "alice"}, "expected TYPE:NAME"),
    ],
)
def test_an_impossible_acl_is_refused_and_the_others_are_created(
    wrong: dict[str, object], message: str
) -> None:
    world = World()
    good, bad = world.ask(CreateAcls((READS, READS._replace(**wrong))))
    assert good == OK
    assert bad.code is ErrorCode.INVALID_REQUEST
    assert message in bad.message
    assert set(world.image.acl_ids) == {READS.key}


def test_one_request_changes_no_more_than_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    many = tuple(READS._replace(resource_name=f"topic-{number}") for number in range(4))
    world.ask(CreateAcls(many))
    monkeypatch.setattr(decisions, "CHANGES_MAX", 3)
    with pytest.raises(KafkaError, match="changes 4 ACLs, expected 3 at most"):
        world.ask(DeleteAcls((EVERYTHING,)))
    with pytest.raises(KafkaError, match="changes 4 ACLs"):
        world.ask(CreateAcls(tuple(each._replace(host="::1") for each in many)))
    monkeypatch.setattr(decisions, "COMPARISONS_MAX", 7)
    with pytest.raises(KafkaError, match=r"2 filters .* are too many for 4 ACLs"):
        world.ask(DeleteAcls((EVERYTHING, EVERYTHING)))
    assert len(world.image.acls) == 4
