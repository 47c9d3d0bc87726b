"""Reads and changes of the registry, on any node of the cluster.

A read waits until the view has everything that was written before it (`SchemasTopic.latest`); a schema that is found
by its id never changes, so that read waits only if the view is older than a second, or does not have the id.

A change is decided by the leader of `_schemas-0`, one at a time: on a view of its whole log, written in one batch with
acks=all, and answered when the view has it. Before the write nothing else may have been written: otherwise the change
is decided anew. A leader that was deposed cannot commit, so its change fails and is sent to the new leader, which
finds what was written of it.
"""

import logging
from collections import deque
from typing import Any, Final

import msgspec

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.promise import Promise
from penstock.base.steps import Steps
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import ChangeSchemas, SchemasChanged
from penstock.gateway.peer_rpc.retry import retry_while_moving
from penstock.gateway.peer_rpc.routed_partition import RoutedPartition, find_partition
from penstock.gateway.schemas.compared import Compared
from penstock.gateway.schemas.schema_work import SchemaWork
from penstock.gateway.schemas.schemas_topic import SchemasTopic
from penstock.gateway.shared.new_records import append
from penstock.handlers.support.context import Context, Session
from penstock.metadata.configs import topic_setting
from penstock.records import BatchBuilder
from penstock.registry import decisions
from penstock.registry.changes import Change, Register
from penstock.registry.compatibility import NONE, previous_of
from penstock.registry.decisions import Decision, KeyValue, Registered
from penstock.registry.errors import RegistryError, incompatible, invalid_schema
from penstock.registry.schema import ResolvedSchema, Schema
from penstock.registry.topic_records import TOPIC
from penstock.registry.view import RegistryView, Version

logger = logging.getLogger(__name__)

AGE_MS_MAX: Final = 1000
"""How old a view may be that finds a schema by its id."""

CHANGES_MAX: Final = 500
"""Changes that wait for their turn on the leader."""

ATTEMPTS_MAX: Final = 5
"""Decisions on one change, if others write to the topic too."""

_encode = msgspec.json.Encoder().encode


class SchemaRegistry:
    """A `Part` of the gateway."""

    def __init__(self, context: Context) -> None:
        self._context, self.world = context, context.world
        self._topic = SchemasTopic(context)
        self.work = SchemaWork(context)
        self._is_changing = False
        self._turns: deque[Promise[None]] = deque()
        """Changes that wait for the one under way."""

    def start(self) -> None:
        """Nothing is read before the first request."""

    def stop(self) -> None:
        self._topic.stop()

    # -- reads -----------------------------------------------------------------------------------------

    @property
    def known(self) -> RegistryView:
        """The view as it is: for what never changes, and for hints."""
        return self._topic.view

    def is_recent(self) -> bool:
        topic = self._topic
        age_ms = self._context.world.clock_ns() // 1_000_000 - topic.updated_ms
        return topic.updated_ms >= 0 and age_ms <= AGE_MS_MAX

    def latest(self) -> Steps[RegistryView]:
        """The view with everything that was written before the call."""
        yield self._topic.latest()
        return self._topic.view

    def resolve(self, view: RegistryView, subject: str, schema: Schema) -> ResolvedSchema:
        return decisions.resolve(view, subject, schema)

    def find(
        self, view: RegistryView, subject: str, schema: Schema, *, is_normalized: bool, deleted: bool
    ) -> Steps[Version | None]:
        """The version of a subject that is the same schema, the latest of several."""
        versions = list(reversed(view.versions(subject, deleted=deleted)))
        resolved = self.resolve(view, subject, schema)
        text = self.work.known(resolved, is_normalized=is_normalized)
        found = None if text is None else _same_text(versions, schema, text)
        if found is not None:
            return found
        candidates, those = yield from Compared(self._context, view).candidates(versions, schema.type)
        prepared = yield from self.work.prepare(
            resolved, is_new=False, is_normalized=is_normalized, candidates=candidates
        )
        return None if prepared.equal is None else those[prepared.equal]

    def check(
        self,
        view: RegistryView,
        subject: str,
        schema: Schema,
        versions: list[Version],
        *,
        is_normalized: bool,
    ) -> Steps[list[str]]:
        """Why a schema is not compatible with these versions, by the level of the subject."""
        level = view.config_in_scope(subject)["compatibilityLevel"]
        resolved = self.resolve(view, subject, schema)
        previous = yield from Compared(self._context, view).previous(() if level == NONE else versions)
        prepared = yield from self.work.prepare(
            resolved,
            is_new=True,
            is_normalized=is_normalized,
            level=level,
            previous=previous,
        )
        return prepared.messages

    # -- changes ---------------------------------------------------------------------------------------

    def change(self, session: Session, change: Change) -> Steps[SchemasChanged]:
        """Make a change, and wait until this node's view has it. Raises the leader's error, if it did not decide."""
        attempts = 0

        def attempt() -> Steps[SchemasChanged]:
            nonlocal attempts
            attempts += 1
            yield from self._topic.ensure()
            partition = find_partition(self._context, TOPIC, 0)
            if partition.here is not None:
                return (yield from self.change_here(session, change))
            changed: SchemasChanged = yield peer_rpc_of(self._context).send(
                partition.leader, ChangeSchemas(change), session=session
            )
            return changed

        changed = yield from retry_while_moving(self._context, attempt)
        if attempts > 1 and changed.status == 404 and not isinstance(change, Register):
            raise RegistryError(
                50002,
                "The leader changed meanwhile. What was to be deleted is gone, perhaps by this request.",
            )
        if self._topic.view.position < changed.offset:
            yield self._topic.latest()
        return changed

    def change_here(self, _: Session, change: Change) -> Steps[SchemasChanged]:
        """Make a change as the leader of the topic."""
        yield from self._turn()
        try:
            for _attempt in range(ATTEMPTS_MAX):
                changed = yield from self._try(change)
                if changed is not None:
                    return changed
            raise RegistryError(50001, f"Others write to {TOPIC} too, and the change was not made. Retry.")
        except RegistryError as error:
            return SchemasChanged(
                error.status, _encode({"error_code": error.error_code, "message": str(error)}), 0
            )
        finally:
            self._end_turn()

    def _turn(self) -> Steps[None]:
        if not self._is_changing:
            self._is_changing = True
            return
        if len(self._turns) >= CHANGES_MAX:
            raise RegistryError(42901, f"{len(self._turns)} changes wait for their turn. Retry later.")
        turn: Promise[None] = Promise()
        self._turns.append(turn)
        try:
            yield turn
        except GeneratorExit:
            if turn.is_settled:
                self._end_turn()
            else:
                self._turns.remove(turn)
            raise

    def _end_turn(self) -> None:
        if self._turns:
            self._turns.popleft().resolve(None)
        else:
            self._is_changing = False

    def _try(self, change: Change) -> Steps[SchemasChanged | None]:
        """Decide and write; None if the log has grown meanwhile."""
        yield self._topic.latest()
        view = self._topic.view
        partition = find_partition(self._context, TOPIC, 0)
        epoch = self._epoch(partition)
        if isinstance(change, Register):
            decision = yield from self._register(view, change)
        else:
            decision = decisions.DECISIONS[type(change)](view, change)
        if not decision.records:
            return SchemasChanged(200, _encode(_shown(decision.reply)), view.position)
        self._check_compacted()
        here = partition.here
        if here is None or self._epoch(partition) != epoch or view is not self._topic.view:
            return None
        if here.log.log_end != view.position:
            return None
        appended = yield append(self._context, here, _batch(decision.records, self._context.world.now_ms()))
        yield from self._topic.read_up_to(partition, appended.last_offset + 1)
        if isinstance(change, Register) and not _is_registered(self._topic.view, change, decision.reply):
            return None
        return SchemasChanged(200, _encode(_shown(decision.reply)), appended.last_offset + 1)

    def _register(self, view: RegistryView, change: Register) -> Steps[Decision]:
        subject = change.subject
        live = view.versions(subject)
        config = view.config_in_scope(subject)
        is_normalized = change.is_normalized or config.get("normalize") is True
        resolved = self.resolve(view, subject, change.schema)
        text = self.work.known(resolved, is_normalized=is_normalized)
        equal = None if text is None else _same_text(live[::-1], change.schema, text)
        if equal is not None and not decisions.is_import(change):
            return Decision(Registered(equal.id, equal.version, equal.schema))
        decisions.check_may_register(view, change)
        if not change.schema.text.strip():
            raise invalid_schema("Empty schema")
        every = list(reversed(view.versions(subject, deleted=True)))
        every.sort(key=lambda each: each.is_deleted)
        compared = Compared(self._context, view)
        candidates, those = yield from compared.candidates(every, change.schema.type)
        level = NONE if decisions.is_import(change) else config["compatibilityLevel"]
        previous = yield from compared.previous(previous_of(level, live))
        prepared = yield from self.work.prepare(
            resolved,
            is_new=not decisions.is_import(change),
            is_normalized=is_normalized,
            candidates=candidates,
            level=level,
            previous=previous,
        )
        schema = msgspec.structs.replace(change.schema, text=prepared.text)
        equal = None if prepared.equal is None else those[prepared.equal]
        if equal is not None:
            schema = msgspec.structs.replace(
                schema, text=equal.schema.text, references=equal.schema.references
            )
            if equal.schema != schema:
                equal = None  # other metadata or rules: a version of its own
        if prepared.messages:
            raise incompatible(prepared.messages)
        return decisions.register(view, change, schema, equal)

    def _epoch(self, partition: RoutedPartition) -> int:
        here = partition.here
        if here is None:
            raise KafkaError(
                f"this broker no longer leads {partition.name}", ErrorCode.NOT_LEADER_OR_FOLLOWER
            )
        return here.leader_epoch

    def _check_compacted(self) -> None:
        policy = topic_setting(TOPIC, "cleanup.policy", self._context.image, self._context.settings) or ""
        if "compact" not in policy or "delete" in policy:
            raise RegistryError(
                50001, f"cleanup.policy of {TOPIC} is {policy!r}, expected compact: schemas would be deleted"
            )


def _same_text(versions: list[Version], schema: Schema, text: str) -> Version | None:
    """The first version with this text, and what else the schema has."""
    wanted = msgspec.structs.replace(schema, text=text)
    return next((each for each in versions if each.schema == wanted), None)


def _is_registered(view: RegistryView, change: Register, registered: Registered) -> bool:
    version = view.subjects.get(change.subject, {}).get(registered.version)
    return version is not None and version.id == registered.id


def _batch(records: Any, now_ms: int) -> bytearray:
    builder = BatchBuilder()
    key_value: KeyValue
    for key_value in records:
        builder.append(key_value[0], key_value[1], now_ms)
    return bytearray(builder.build())


def _shown(reply: Any) -> Any:
    """The JSON of a reply. Not the schema: Python's client would take its text for the descriptor that it sent."""
    if not isinstance(reply, Registered):
        return reply
    return {"id": reply.id, "version": reply.version, "guid": reply.schema.guid}
