"""Decisions on changes, replayed: ids and versions, deletion, modes; whatever the order of changes."""

import json
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.registry import decisions
from penstock.registry.changes import (
    DeleteConfig,
    DeleteSubject,
    DeleteVersion,
    Register,
    SetConfig,
    SetMode,
)
from penstock.registry.errors import RegistryError
from penstock.registry.schema import AVRO, Reference, Schema
from penstock.registry.view import LATEST, RegistryView

SUBJECTS = st.sampled_from(["a", "b", ":.x:a"])
TEXTS = st.sampled_from([f'"{each}"' for each in ("int", "long", "string", "bytes", "null")])


class Topic:
    """A view, the records it was made of, and what compaction would leave of them."""

    def __init__(self) -> None:
        self.view = RegistryView()
        self.log: list[tuple[bytes, bytes | None]] = []

    def apply(self, decision: decisions.Decision) -> Any:
        for key, value in decision.records:
            self.view.replay(key, value, len(self.log))
            self.log.append((key, value))
        return decision.reply

    def register(self, subject: str, text: str, **more: Any) -> decisions.Registered:
        change = Register(subject, Schema(AVRO, text), **more)
        decisions.check_may_register(self.view, change)
        equal = next(
            (each for each in self.view.versions(subject, deleted=True) if each.schema == change.schema), None
        )
        reply: decisions.Registered = self.apply(decisions.register(self.view, change, change.schema, equal))
        return reply

    def change(self, change: Any) -> Any:
        return self.apply(decisions.DECISIONS[type(change)](self.view, change))

    def compacted(self) -> RegistryView:
        """As a node finds it after compaction that has removed tombstones too."""
        last = {key: (offset, value) for offset, (key, value) in enumerate(self.log)}
        view = RegistryView()
        for key, (offset, value) in sorted(last.items(), key=lambda each: each[1][0]):
            if value is not None:
                view.replay(key, value, offset)
        return view


def shown(view: RegistryView) -> Any:
    return {
        (each.subject, each.version): (each.id, each.schema.text, each.is_deleted)
        for versions in view.subjects.values()
        for each in versions.values()
    }


class AnyOrder(RuleBasedStateMachine):
    """Ids are never given to two schemas, also after compaction and a restart."""

    def __init__(self) -> None:
        super().__init__()
        self.topic = Topic()
        self.given: dict[tuple[str, int], str] = {}

    @rule(subject=SUBJECTS, text=TEXTS)
    def register(self, subject: str, text: str) -> None:
        done = self.topic.register(subject, text)
        context = subject[1:3] if subject.startswith(":") else "."
        assert self.given.setdefault((context, done.id), text) == text
        assert self.topic.view.version(subject, done.version).id == done.id

    @rule(subject=SUBJECTS, number=st.sampled_from([1, 2, LATEST]), permanent=st.booleans())
    def delete_version(self, subject: str, number: int, permanent: bool) -> None:
        deleted = self._delete(DeleteVersion(subject, number, permanent))
        if deleted is not None:
            with pytest.raises(RegistryError):
                self.topic.view.version(subject, deleted)

    def _delete(self, change: Any) -> Any:
        """None if there is nothing to delete."""
        try:
            return self.topic.change(change)
        except RegistryError as error:
            if error.status != 404:
                raise
            return None

    @rule(subject=SUBJECTS, permanent=st.booleans())
    def delete_subject(self, subject: str, permanent: bool) -> None:
        if self._delete(DeleteSubject(subject, permanent)) is not None:
            assert not self.topic.view.has_subject(subject, deleted=permanent)

    @rule()
    def restart(self) -> None:
        view = self.topic.compacted()
        view.position = self.topic.view.position
        self.topic.view = view

    @invariant()
    def compaction_changes_nothing(self) -> None:
        view, compacted = self.topic.view, self.topic.compacted()
        assert shown(view) == shown(compacted)
        for name, context in view.contexts.items():
            if name in compacted.contexts:
                assert compacted.contexts[name].next_id == context.next_id
                assert compacted.contexts[name].ids == context.ids


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = hypothesis_settings(max_examples=60, stateful_step_count=20, deadline=None)


def refused(code: int, topic: Topic, change: Any) -> None:
    with pytest.raises(RegistryError) as error:
        topic.change(change)
    assert error.value.error_code == code
    assert error.value.status == (code if code < 1000 else code // 100)


def test_settings_of_a_subject_go_with_it() -> None:
    topic = Topic()
    topic.register("a", '"int"')
    topic.change(SetConfig("a", {"compatibilityLevel": "none"}))
    topic.change(SetMode("a", "READONLY"))
    refused(42205, topic, DeleteSubject("a"))
    topic.change(SetMode("a", "READWRITE"))
    assert topic.change(DeleteSubject("a")) == [1]
    assert topic.view.config("a") is None
    assert topic.view.mode("a") is None
    refused(40401, topic, DeleteConfig("a"))


def test_read_only_override_counts_before_the_subjects_own_mode() -> None:
    topic = Topic()
    topic.change(SetMode("a", "READWRITE"))
    topic.change(SetMode(None, "READONLY_OVERRIDE"))
    with pytest.raises(RegistryError, match="read-only mode"):
        topic.register("a", '"int"')
    topic.change(SetMode(None, "READWRITE"))
    assert topic.register("a", '"int"').id == 1


def with_references(count: int, *, is_cycle: bool = False) -> RegistryView:
    """Subject s0 refers to s1, that to s2, and so on; the last to s0 if it is a cycle."""
    view = RegistryView()
    for number in range(count):
        target = (number + 1) % count
        references = [{"name": f"n{target}", "subject": f"s{target}", "version": 1}]
        value: dict[str, Any] = {
            "subject": f"s{number}", "version": 1, "id": number + 1, "schema": f'"t{number}"'
        }  # fmt: skip
        if is_cycle or target:
            value["references"] = references
        key = {"keytype": "SCHEMA", "subject": f"s{number}", "version": 1, "magic": 1}
        view.replay(json.dumps(key).encode(), json.dumps(value).encode(), number)
    return view


def test_references_are_resolved_deepest_first() -> None:
    view = with_references(4)
    resolved = decisions.resolve(view, "s0", view.version("s0", 1).schema)
    assert [name for name, _ in resolved.references] == ["n3", "n2", "n1"]


@pytest.mark.parametrize(("count", "is_cycle"), [(1, True), (3, True), (200, False)])
def test_cycles_and_long_chains_of_references_are_refused(count: int, is_cycle: bool) -> None:
    """They cannot be registered, but a topic that is taken over may have them."""
    view = with_references(count, is_cycle=is_cycle)
    with pytest.raises(RegistryError, match=r"refers to itself|through more than"):
        decisions.resolve(view, "x", Schema(AVRO, '"a"', (Reference("n", "s0", 1),)))


def test_references_that_are_followed_are_bounded() -> None:
    """Schemas that all refer to the same ones: few schemas, many ways to them."""
    topic = Topic()
    names = [f"s{number}" for number in range(99)]
    for number, name in enumerate(names):
        references = tuple(Reference(each, each, 1) for each in names[:number])
        change = Register(name, Schema(AVRO, f'"{name}"', references))
        topic.apply(decisions.register(topic.view, change, change.schema, None))
    all_of_them = tuple(Reference(each, each, 1) for each in names)
    resolved = decisions.resolve(topic.view, "x", Schema(AVRO, '"int"', all_of_them))
    assert [name for name, _ in resolved.references] == names
    twice = tuple(Reference(f"{each}-again", each, 1) for each in names)
    with pytest.raises(RegistryError, match="more than 5000 references"):
        decisions.resolve(topic.view, "x", Schema(AVRO, '"int"', all_of_them + twice))
