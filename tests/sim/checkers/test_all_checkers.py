"""Which rules are told of which events."""

from penstock.sim.checkers.all_checkers import _ALONE, CHECKERS
from penstock.sim.checkers.cluster import CLUSTER_CHECKERS
from penstock.sim.checkers.records import Durability, SentRecords


def names_in_see(kind: object) -> set[str]:
    """What the way in which a class looks at events, its ancestors' included, speaks of."""
    assert isinstance(kind, type)
    ways = [each.__dict__["see"] for each in kind.__mro__ if "see" in each.__dict__]
    return {name for see in ways for name in see.__code__.co_names}


def test_an_event_that_is_shown_to_one_rule_alone_says_nothing_to_the_others() -> None:
    for event, rule in _ALONE.items():
        others = [
            each for each in (Durability, SentRecords, *CHECKERS, *CLUSTER_CHECKERS) if each is not rule
        ]
        assert event.__name__ in names_in_see(rule)
        assert [each for each in others if event.__name__ in names_in_see(each)] == []
