"""Groups and transactions, asked at random, right and wrong: Penstock answers as Apache Kafka does, field by field.

Clients of all versions join, sync, commit, produce and end, with ids, epochs and generations that are their own, old
or invented. Each seed is a script that both brokers go through; a difference is told with what came before it.
"""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.compat.beside import Side, Step, converse
from tests.compat.kafka.peer import KafkaPeer
from tests.wire_requests import fetch_body, produce_body

from penstock.records import build_batch
from penstock.testing import Broker
from penstock.wire import Api

pytestmark = [pytest.mark.kafka, pytest.mark.long]

SETTINGS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.coordinator.append.linger.ms": "0",
}
SEEDS = 60
STEPS = 25


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


@pytest.fixture(scope="module")
def two(kafka: KafkaPeer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    log_dir: Path = tmp_path_factory.mktemp("beside") / "kafka"
    kafka.format_storage(log_dir)
    with kafka.running_kafka(log_dir, SETTINGS) as running, Broker(settings=SETTINGS) as penstock:
        sides = (Side(running.bootstrap), Side(penstock.bootstrap))
        for side in sides:
            _prepare(side)
        yield sides
        for side in sides:
            side.begin()


def _prepare(side: Side) -> None:
    """Topics, both coordinators, and the leaders of all: there, and ready."""
    sizes = {"orders": 3, "more": 3, "ledger": 2 * SEEDS}
    topics = [{"name": name, "num_partitions": size, "replication_factor": 1} for name, size in sizes.items()]
    side.call(Api.CREATE_TOPICS, 7, topics=topics, timeout=ms(30_000))
    asked = [{"name": name, "partition_indexes": tuple(range(size))} for name, size in sizes.items()]
    while any(
        each.error_code.value
        for topic in side.call(Api.DESCRIBE_PRODUCERS, 0, topics=asked).topics
        for each in topic.partitions
    ):
        pass
    for kind in (0, 1):
        while (
            side.call(Api.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=("x",))
            .coordinators[0]
            .error_code.value
        ):
            pass
    while side.call(Api.OFFSET_FETCH, 7, group_id="x", topics=None, require_stable=True).error_code.value:
        pass
    while side.call(
        Api.INIT_PRODUCER_ID,
        4,
        transactional_id="x",
        transaction_timeout=ms(60_000),
        producer_id=-1,
        producer_epoch=-1,
    ).error_code.value:
        pass


@pytest.mark.parametrize("seed", range(SEEDS))
def test_classic_groups(two: tuple[Side, Side], seed: int) -> None:
    assert converse(two, _Groups(seed).script()) > 0


@pytest.mark.parametrize("seed", range(SEEDS))
def test_transactions(two: tuple[Side, Side], seed: int) -> None:
    script = _Transactions(seed)
    assert converse(two, script.script(), before_each=script.rest) > 0


class _Groups:
    """Three clients of one group; a step is one of them, who asks something."""

    CLIENTS = ("anna", "ben", "cleo")

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self._group = f"group-{seed}"

    def script(self) -> list[Step]:
        kinds: dict[Callable[[int, str], Step], int] = {
            self._join: 10,
            self._sync: 8,
            self._beat: 4,
            self._leave: 2,
            self._commit: 4,
            self._fetch: 2,
            self._forget: 1,
            self._describe: 3,
            self._delete: 1,
        }
        chosen = self._rng.choices(list(kinds), list(kinds.values()), k=STEPS)
        return [make(number, self._rng.choice(self.CLIENTS)) for number, make in enumerate(chosen)]

    def _step(
        self,
        number: int,
        client: str,
        api: Api,
        version: int,
        values: Callable[[dict[str, Any]], dict[str, Any]],
        learn: Any = None,
    ) -> Step:
        line = f"{number} {client}: {api.label} {version}"

        def ask(side: Side) -> None:
            mine = side.known.setdefault(client, {"id": "", "generation": -1, "leader": "", "members": []})
            side.ask(
                line,
                client,
                api,
                version,
                None if learn is None else lambda reply: learn(mine, reply),
                **values(mine),
            )

        return Step(
            f"{line} {values({'id': 'own', 'generation': 'own', 'leader': '', 'members': []})}", client, ask
        )

    def _id(self) -> Callable[[dict[str, Any]], str]:
        how = self._rng.choices(("own", "none", "invented"), (12, 2, 1))[0]
        return lambda mine: {"own": mine["id"], "none": "", "invented": "who-is-this"}[how]

    def _generation(self) -> Callable[[dict[str, Any]], int]:
        how = self._rng.choices(("own", "none", "invented"), (12, 1, 1))[0]
        return lambda mine: {"own": mine["generation"], "none": -1, "invented": 99}[how]

    def _instance(self, version: int, since: int) -> str | None:
        found = self._rng.choice((None, None, None, "first", "second"))
        return found if version >= since else None

    def _join(self, number: int, client: str) -> Step:
        version = self._rng.choice(range(10))
        instance, member = self._instance(version, 5), self._id()
        kinds = self._rng.choices((("range", "robin"), ("robin",)), (5, 1))[0]
        metadata = _subscription(self._rng.choice((("orders",), ("orders", "more"))))
        kind = self._rng.choices(("consumer", "connect"), (14, 1))[0]
        session_ms = self._rng.choices((30_000, 50, 2_000_000), (14, 1, 1))[0]
        group = self._rng.choices((self._group, ""), (20, 1))[0]

        def learn(mine: dict[str, Any], reply: Any) -> None:
            if reply.member_id:
                mine["id"] = reply.member_id
            if not reply.error_code.value:
                mine.update(generation=reply.generation_id, leader=reply.leader, protocol=reply.protocol_name)
                mine["members"] = [each.member_id for each in reply.members]

        return self._step(
            number,
            client,
            Api.JOIN_GROUP,
            version,
            lambda mine: {
                "group_id": group,
                "session_timeout": ms(session_ms),
                "rebalance_timeout": ms(30_000),
                "member_id": member(mine),
                "group_instance_id": instance,
                "protocol_type": kind,
                "protocols": [{"name": each, "metadata": metadata} for each in kinds],
            },
            learn,
        )

    def _sync(self, number: int, client: str) -> Step:
        version = self._rng.choice(range(6))
        instance, member, generation = self._instance(version, 3), self._id(), self._generation()
        kind, protocol = (
            self._rng.choice(("consumer", "consumer", None, "x")),
            self._rng.choice(("own", "own", None, "x")),
        )

        def values(mine: dict[str, Any]) -> dict[str, Any]:
            leads = mine["id"] and mine["leader"] == mine["id"]
            return {
                "group_id": self._group,
                "generation_id": generation(mine),
                "member_id": member(mine),
                "group_instance_id": instance,
                "protocol_type": kind,
                "protocol_name": mine.get("protocol") if protocol == "own" else protocol,
                "assignments": [
                    {"member_id": each, "assignment": b"part %d" % index}
                    for index, each in enumerate(mine["members"])
                    if leads
                ],
            }

        return self._step(number, client, Api.SYNC_GROUP, version, values)

    def _beat(self, number: int, client: str) -> Step:
        version = self._rng.choice(range(5))
        instance, member, generation = self._instance(version, 3), self._id(), self._generation()
        return self._step(
            number,
            client,
            Api.HEARTBEAT,
            version,
            lambda mine: {
                "group_id": self._group,
                "generation_id": generation(mine),
                "member_id": member(mine),
                "group_instance_id": instance,
            },
        )

    def _leave(self, number: int, client: str) -> Step:
        version = self._rng.choice(range(6))
        instance, member = self._instance(version, 3), self._id()
        return self._step(
            number,
            client,
            Api.LEAVE_GROUP,
            version,
            lambda mine: {
                "group_id": self._group,
                "member_id": member(mine),
                "members": [{"member_id": member(mine), "group_instance_id": instance}],
            },
        )

    def _commit(self, number: int, client: str) -> Step:
        version = self._rng.choice(range(2, 10))
        instance, member, generation = self._instance(version, 7), self._id(), self._generation()
        metadata = self._rng.choices((None, "m", "m" * 5000), (4, 4, 1))[0]
        topic, partition = (
            self._rng.choice(("orders", "orders", "more", "nowhere")),
            self._rng.choice((0, 1, 99)),
        )
        offsets = [
            {
                "partition_index": each,
                "committed_offset": number,
                "committed_leader_epoch": 0,
                "committed_metadata": said,
            }
            for each, said in (
                (partition, metadata),
                (2, "good"),
            )  # a group that nothing is written of leaves traces
        ]
        return self._step(
            number,
            client,
            Api.OFFSET_COMMIT,
            version,
            lambda mine: {
                "group_id": self._group,
                "generation_id_or_member_epoch": generation(mine),
                "member_id": member(mine),
                "group_instance_id": instance,
                "retention_time": ms(-1),
                "topics": [{"name": topic, "partitions": offsets}],
            },
        )

    def _fetch(self, number: int, client: str) -> Step:
        version = self._rng.choice(range(1, 10))
        some = [{"name": name, "partition_indexes": (0, 1, 99)} for name in ("orders", "nowhere")]
        topics = None if version >= 2 and self._rng.random() < 0.4 else some
        groups = [
            {"group_id": each, "topics": topics, "member_id": None} for each in (self._group, "no-such")
        ]
        values = {"group_id": self._group, "topics": topics, "require_stable": True, "groups": groups}
        return self._step(number, client, Api.OFFSET_FETCH, version, lambda _: values)

    def _forget(self, number: int, client: str) -> Step:
        topics = [
            {"name": self._rng.choice(("orders", "more", "nowhere")), "partitions": [{"partition_index": 0}]}
        ]
        values = {"group_id": self._rng.choice((self._group, "no-such", "")), "topics": topics}
        return self._step(number, client, Api.OFFSET_DELETE, 0, lambda _: values)

    def _describe(self, number: int, client: str) -> Step:
        version = self._rng.choice(range(7))
        values = {"groups": (self._group, "no-such", ""), "include_authorized_operations": True}
        return self._step(number, client, Api.DESCRIBE_GROUPS, version, lambda _: values)

    def _delete(self, number: int, client: str) -> Step:
        values = {"groups_names": (self._group, "no-such", "")}
        return self._step(number, client, Api.DELETE_GROUPS, self._rng.choice(range(3)), lambda _: values)


def _subscription(topics: tuple[str, ...]) -> bytes:
    """As consumers write theirs, in version 0."""
    names = b"".join(len(each).to_bytes(2, "big") + each.encode() for each in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff" * 4


class _Transactions:
    """Two producers, of one transactional id or of two, that speak version 1 or 2 of transactions."""

    CLIENTS = ("paul", "quentin")

    def __init__(self, seed: int) -> None:
        rng = self._rng = Random(seed)
        self._group = f"group-of-transactions-{seed}"
        is_shared = rng.random() < 0.5
        self._ids = {each: f"id-{seed}-{'shared' if is_shared else each}" for each in self.CLIENTS}
        self._speaks_2 = {each: rng.random() < 0.6 for each in self.CLIENTS}
        self._partitions = (2 * seed, 2 * seed + 1)

    def rest(self, side: Side) -> None:
        """Wait until markers that are under way are written: how long they take is no question here."""
        while any(
            each.transaction_state.startswith("Prepare")
            for each in side.call(
                Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=tuple(dict.fromkeys(self._ids.values()))
            ).transaction_states
        ):
            pass

    def script(self) -> list[Step]:
        kinds: dict[Callable[[int, str], Step], int] = {
            self._init: 4,
            self._add: 4,
            self._add_group: 2,
            self._commit_offsets: 3,
            self._produce: 8,
            self._end: 6,
            self._read: 4,
            self._describe: 3,
            self._producers: 2,
            self._offsets: 2,
        }
        chosen = self._rng.choices(list(kinds), list(kinds.values()), k=STEPS)
        steps = [self._init(number, client, plainly=True) for number, client in enumerate(self.CLIENTS)]
        steps += [
            make(number, self._rng.choice(self.CLIENTS)) for number, make in enumerate(chosen, len(steps))
        ]
        return steps

    def _step(
        self,
        number: int,
        client: str,
        api: Api,
        version: int,
        values: Callable[[int, int], dict[str, Any]],
        learn: Any = None,
        own: bool = False,
    ) -> Step:
        who = "own" if own else self._rng.choices(("own", "invented", "nobody"), (24, 1, 1))[0]
        shift = 0 if own else self._rng.choices((0, -1, 1), (22, 1, 1))[0]
        line = f"{number} {client}: {api.label} {version}"

        def ask(side: Side) -> None:
            mine = side.known.setdefault(client, {"producer": -1, "epoch": -1, "sequences": {}})
            producer = {"own": mine["producer"], "invented": 999_999, "nobody": -1}[who]
            asked = values(producer, max(mine["epoch"] + shift, -1))
            told = None if learn is None else lambda reply: learn(mine, reply)
            if "body" in asked:
                side.ask_body(line, client, api, version, asked["body"](mine), told)
            else:
                side.ask(line, client, api, version, told, **asked)

        return Step(f"{line} as {who}, epoch {shift:+}", client, ask)

    def _init(self, number: int, client: str, plainly: bool = False) -> Step:
        version = self._rng.choice(range(6))
        timeout_ms = 60_000 if plainly else self._rng.choices((60_000, 2_000_000, 0), (14, 1, 1))[0]
        name = (
            self._ids[client] if plainly else self._rng.choices((self._ids[client], "", None), (14, 1, 1))[0]
        )
        goes_on = not plainly and self._rng.random() < 0.35

        def learn(mine: dict[str, Any], reply: Any) -> None:
            if not reply.error_code.value and name:
                mine.update(producer=reply.producer_id, epoch=reply.producer_epoch, sequences={})

        return self._step(
            number,
            client,
            Api.INIT_PRODUCER_ID,
            version,
            lambda producer, epoch: {
                "transactional_id": name,
                "transaction_timeout": ms(timeout_ms),
                "producer_id": producer if goes_on else -1,
                "producer_epoch": epoch if goes_on else -1,
            },
            learn,
        )

    def _me(self, client: str, producer: int, epoch: int) -> dict[str, Any]:
        return {"transactional_id": self._ids[client], "producer_id": producer, "producer_epoch": epoch}

    def _add(self, number: int, client: str) -> Step:
        version = self._rng.choice(range(4))
        partitions = (self._rng.choice(self._partitions), *self._rng.choices(((), (9999,)), (10, 1))[0])
        topics = [{"name": "ledger", "partitions": partitions}]

        def values(producer: int, epoch: int) -> dict[str, Any]:
            me = {**self._me(client, producer, epoch), "topics": topics}
            return {**me, **{f"v3_and_below_{name}": value for name, value in me.items()}}

        return self._step(number, client, Api.ADD_PARTITIONS_TO_TXN, version, values)

    def _add_group(self, number: int, client: str) -> Step:
        return self._step(
            number,
            client,
            Api.ADD_OFFSETS_TO_TXN,
            self._rng.choice(range(5)),
            lambda producer, epoch: {**self._me(client, producer, epoch), "group_id": self._group},
        )

    def _commit_offsets(self, number: int, client: str) -> Step:
        version = 5 if self._speaks_2[client] else self._rng.choice(range(5))
        metadata = "m" * self._rng.choices((1, 5000), (10, 1))[0]
        partitions = [
            {
                "partition_index": each,
                "committed_offset": number,
                "committed_leader_epoch": 0,
                "committed_metadata": metadata,
            }
            for each in (0, 7)
        ]
        return self._step(
            number,
            client,
            Api.TXN_OFFSET_COMMIT,
            version,
            lambda producer, epoch: {
                **self._me(client, producer, epoch),
                "group_id": self._group,
                "generation_id": -1,
                "member_id": "",
                "topics": [{"name": "orders", "partitions": partitions}],
            },
        )

    def _produce(self, number: int, client: str) -> Step:
        version = 12 if self._speaks_2[client] else self._rng.choice((3, 7, 9, 11))
        partition = self._rng.choice(self._partitions)
        jump = self._rng.choices((0, -1, 3), (16, 2, 1))[0]
        sent: list[tuple[int, int]] = []

        def body(producer: int, epoch: int) -> Callable[[dict[str, Any]], bytes]:
            def made(mine: dict[str, Any]) -> bytes:
                known = mine["sequences"].get((partition, epoch))
                sequence = 0 if known is None else max(known + jump, 0)
                sent.append((epoch, sequence))
                options = (
                    {
                        "producer_id": producer,
                        "producer_epoch": max(epoch, 0),
                        "base_sequence": sequence,
                        "transactional": True,
                    }
                    if producer >= 0
                    else {}
                )
                batch = build_batch([(b"k", b"v", 1_700_000_000_000)], **options)  # type: ignore[arg-type]
                return produce_body(version, [("ledger", [(partition, batch)])], -1, 5000, self._ids[client])

            return made

        def learn(mine: dict[str, Any], reply: Any) -> None:
            epoch, sequence = sent.pop(0)
            if not reply.responses[0].partition_responses[0].error_code.value:
                place = (partition, epoch)
                mine["sequences"][place] = max(sequence + 1, mine["sequences"].get(place, 0))

        return self._step(
            number,
            client,
            Api.PRODUCE,
            version,
            lambda producer, epoch: {"body": body(producer, epoch)},
            learn,
        )

    def _end(self, number: int, client: str) -> Step:
        version = 5 if self._speaks_2[client] else self._rng.choice(range(5))
        commits = self._rng.random() < 0.6

        def learn(mine: dict[str, Any], reply: Any) -> None:
            if version >= 5 and not reply.error_code.value:
                mine.update(producer=reply.producer_id, epoch=reply.producer_epoch)

        return self._step(
            number,
            client,
            Api.END_TXN,
            version,
            lambda producer, epoch: {**self._me(client, producer, epoch), "committed": commits},
            learn,
        )

    def _read(self, number: int, client: str) -> Step:
        partition, isolation = self._rng.choice(self._partitions), self._rng.choice((0, 1, 1))
        body = fetch_body(12, [("ledger", [(partition, 0)])], isolation_level=isolation)
        return self._step(number, client, Api.FETCH, 12, lambda *_: {"body": lambda _: body})

    def _describe(self, number: int, client: str) -> Step:
        values = {"transactional_ids": (self._ids[client], "no-such")}
        return self._step(number, client, Api.DESCRIBE_TRANSACTIONS, 0, lambda *_: values)

    def _producers(self, number: int, client: str) -> Step:
        values = {"topics": [{"name": "ledger", "partition_indexes": (*self._partitions, 9999)}]}
        return self._step(number, client, Api.DESCRIBE_PRODUCERS, 0, lambda *_: values)

    def _offsets(self, number: int, client: str) -> Step:
        topics = [{"name": "orders", "partition_indexes": (0, 7)}]
        values = {
            "require_stable": self._rng.random() < 0.7,
            "groups": [{"group_id": self._group, "member_id": None, "topics": topics}],
        }
        return self._step(number, client, Api.OFFSET_FETCH, 9, lambda *_: values)
