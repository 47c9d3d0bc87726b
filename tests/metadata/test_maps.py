"""The map that shares: it behaves as a dict that is copied, and copies little."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.metadata.maps import GONE, LEAF_MAX, Draft, FrozenMap

KEYS = st.integers(0, 400) | st.text(max_size=3) | st.binary(max_size=3)
CHANGES = st.dictionaries(KEYS, st.integers(0, 3) | st.just(GONE), max_size=150)


@given(st.lists(CHANGES, max_size=6))
def test_it_holds_what_a_dict_would(steps: list[dict[object, object]]) -> None:
    model: dict[object, object] = {}
    held: FrozenMap[object, object] = FrozenMap()
    for changes in steps:
        before, model_before = held, dict(model)
        held = held.changed(changes)
        for key, value in changes.items():
            model.pop(key, None)
            if value is not GONE:
                model[key] = value
        assert dict(held.entries()) == model
        assert len(held) == len(model)
        assert held == FrozenMap(model)
        assert all(held[key] == value and key in held for key, value in model.items())
        assert dict(before.entries()) == model_before
        changed = {
            key for key in {*model, *model_before} if model.get(key, GONE) != model_before.get(key, GONE)
        }
        assert set(before.differing(held)) == changed


def test_a_change_leaves_the_rest_where_it_is() -> None:
    large = FrozenMap({number: object() for number in range(10_000)})
    after = large.changed({7: object()})
    leaves_before = {id(leaf) for leaf in _leaves(large._root)}
    fresh = [leaf for leaf in _leaves(after._root) if id(leaf) not in leaves_before]
    assert len(fresh) == 1
    assert len(fresh[0]) <= LEAF_MAX
    assert list(large.differing(after)) == [7]


def _leaves(node: object) -> list[dict[object, object]]:
    if isinstance(node, dict):
        return [node]
    assert isinstance(node, tuple)
    return [leaf for child in node for leaf in _leaves(child)]


def test_a_draft_is_read_as_it_will_be() -> None:
    draft = Draft(FrozenMap({"a": 1, "b": 2}))
    draft.set("c", 3)
    draft.remove("a")
    draft.set("d", 4)
    draft.remove("d")
    assert [draft.get(key) for key in "abcd"] == [None, 2, 3, None]
    assert sorted(draft.keys()) == ["b", "c"]
    assert draft.freeze() == FrozenMap({"b": 2, "c": 3})
