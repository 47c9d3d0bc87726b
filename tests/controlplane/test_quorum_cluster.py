"""Several quorums with a log each: what the core asks of its driver when there are others.

The messages go over a network of the test's own, a millisecond each way; the logs are real ones.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from uuid import UUID

import pytest
from tests.controlplane.quorum_bench import ALONE, Bench, setting, settings_in
from tests.worlds import StillWorld

from penstock.controlplane.quorum_settings import QuorumSettings
from penstock.metadata.image import EMPTY
from penstock.metadata.records import AnyRecord
from penstock.raft.messages import AddVoter, Message, Reply, Request, RequestFailed
from penstock.raft.ready import Outbound
from penstock.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from penstock.vfs import MemoryDisk

HOP_MS = 1


def directory_id(node_id: int) -> bytes:
    return bytes(15) + bytes([100 + node_id])


def voter(node_id: int) -> Voter:
    return Voter(
        ReplicaKey(node_id, UUID(bytes=directory_id(node_id))), (Endpoint("C", f"n{node_id}", 9093),)
    )


class Cluster:
    def __init__(self, ids: tuple[int, ...] = (1, 2, 3), settings: QuorumSettings | None = None) -> None:
        self.world = StillWorld(seed=5)
        voters = VoterSet.of(Voter(ReplicaKey(each), voter(each).endpoints) for each in ids)
        self.settings = settings or replace(ALONE, voters=voters)
        self.disks = {each: MemoryDisk() for each in ids}
        self.benches: dict[int, Bench] = {}
        self.cut: set[int] = set()
        for each in ids:
            self.start(each)

    def start(self, node_id: int, settings: QuorumSettings | None = None) -> None:
        self.benches[node_id] = bench = Bench(
            self.disks.setdefault(node_id, MemoryDisk()),
            replace(settings or self.settings, endpoints=voter(node_id).endpoints),
            world=self.world,
            node_id=node_id,
            directory_id=directory_id(node_id),
            transport=partial(self.send, node_id),
        )
        bench.quorum.start()

    def kill(self, node_id: int) -> None:
        self.benches.pop(node_id).quorum.abandon()

    def send(self, sender: int, message: Outbound, tell: Callable[[Message], None]) -> None:
        self.world.call_later(HOP_MS, partial(self.deliver, sender, message, tell))

    def deliver(self, sender: int, message: Outbound, tell: Callable[[Message], None]) -> None:
        request_id = message.request.request_id
        host = message.to.endpoints[0].host
        target = next((each for each in self.benches if host == f"n{each}"), None)
        if target is None or {sender, target} & self.cut:
            tell(RequestFailed(request_id, refused=target is None))
            return

        def answer(reply: Reply) -> None:
            if {sender, target} & self.cut:
                tell(RequestFailed(request_id))
            else:
                tell(reply._replace(request_id=request_id))

        self.ask(target, message.request, lambda reply: self.world.call_later(HOP_MS, partial(answer, reply)))

    def ask(self, target: int, request: Request, answer: Callable[[Reply], object]) -> None:
        self.benches[target].quorum.receive(request).then(answer)

    @property
    def leader(self) -> Bench | None:
        leading = [bench for bench in self.benches.values() if bench.hearer.epoch is not None]
        return max(leading, key=lambda bench: bench.hearer.epoch or 0, default=None)

    def wait_for_leader(self, *, other_than: Bench | None = None) -> Bench:
        self.world.run_until(lambda: self.leader is not None and self.leader is not other_than)
        assert self.leader is not None
        return self.leader

    def id_of(self, bench: Bench) -> int:
        return next(node_id for node_id, each in self.benches.items() if each is bench)

    def settle(self) -> None:
        self.world.advance(3000)

    def check_alike(self) -> dict[str, str]:
        """All nodes have the same image; what is in it."""
        for bench in self.benches.values():
            assert bench.hearer.failure is None
        images = [bench.hearer.now for bench in self.benches.values()]
        assert all(image == images[0] for image in images)
        return settings_in(images[0])


def test_followers_have_what_the_leader_commits() -> None:
    cluster = Cluster()
    leader = cluster.wait_for_leader()
    for name in "abc":
        leader.propose(setting(name))
    cluster.settle()
    assert cluster.check_alike() == dict.fromkeys("abc", "1")
    assert {bench.quorum.leader_id for bench in cluster.benches.values()} == {leader.quorum.leader_id}
    assert [row.log_end_offset for row in leader.quorum.describe().voters] == [leader.quorum.end_offset] * 3


def test_a_cut_off_leader_loses_what_only_it_had() -> None:
    """Raft 5.3: the entries that a new leader does not have are cut off, on disk too."""
    cluster = Cluster()
    old = cluster.wait_for_leader()
    old.propose(setting("kept"))
    cluster.settle()
    cluster.cut.add(cluster.id_of(old))
    for number in range(5):
        old.propose(setting("lost", str(number)))
    new = cluster.wait_for_leader(other_than=old)
    new.propose(setting("new"))
    cluster.settle()
    assert old.hearer.epoch is None
    cluster.cut.clear()
    cluster.settle()
    assert cluster.check_alike() == {"kept": "1", "new": "1"}
    assert len({bench.quorum.end_offset for bench in cluster.benches.values()}) == 1
    for node_id in list(cluster.benches):
        cluster.kill(node_id)
        cluster.start(node_id)
        cluster.settle()
    assert cluster.check_alike() == {"kept": "1", "new": "1"}


def test_a_follower_that_was_away_too_long_is_given_a_snapshot() -> None:
    cluster = Cluster()
    cluster.settings = replace(
        cluster.settings, segment_bytes=2000, snapshot_bytes=1000, retention_bytes=3000
    )
    for node_id in list(cluster.benches):
        cluster.kill(node_id)
        cluster.start(node_id)
    leader = cluster.wait_for_leader()
    away = next(each for each in cluster.benches if cluster.benches[each] is not leader)
    cluster.kill(away)
    for number in range(60):
        leader.propose(setting(f"s{number % 9}", f"{number}{'x' * 100}"))
        cluster.world.advance(100)
    assert leader.quorum.start_offset > 0
    cluster.start(away)
    cluster.settle()
    behind = cluster.benches[away]
    assert [each[0] for each in behind.hearer.heard].count("loaded") == 2
    assert behind.quorum.start_offset > 0
    assert len(cluster.check_alike()) == 9
    cluster.kill(away)
    cluster.start(away)
    cluster.settle()
    cluster.check_alike()


def test_a_leader_that_stops_hands_over_at_once() -> None:
    cluster = Cluster()
    leader = cluster.wait_for_leader()
    cluster.settle()
    stopped: list[int] = []
    began = cluster.world.now_ms()
    leader.quorum.stop(lambda: stopped.append(cluster.world.now_ms()))
    cluster.world.run_until(lambda: bool(stopped))
    assert stopped[0] - began < 1000
    del cluster.benches[cluster.id_of(leader)]
    assert cluster.wait_for_leader() is not leader


def test_a_node_joins_the_quorum_of_another() -> None:
    """KIP-853: a voter is added, and its set is in every log from there on."""
    cluster = Cluster((1,), ALONE)
    leader = cluster.wait_for_leader()
    leader.propose(setting("a"))
    joining = replace(ALONE, is_standalone=False, bootstrap=voter(1).endpoints)
    cluster.start(2, joining)
    cluster.settle()
    assert cluster.check_alike() == {"a": "1"}
    answers: list[Reply] = []
    cluster.ask(1, AddVoter(0, voter(2), 5000), answers.append)
    cluster.settle()
    assert [int(answer.error) for answer in answers] == [0]
    for bench in cluster.benches.values():
        assert [each.key.id for each in bench.quorum.voters] == [1, 2]
    for node_id in (1, 2):
        cluster.kill(node_id)
    cluster.start(1, ALONE)
    cluster.start(2, joining)
    leader = cluster.wait_for_leader()
    assert [each.key.id for each in leader.quorum.voters] == [1, 2]


@pytest.mark.parametrize("seed", range(8))
def test_nodes_that_crash_and_come_back_agree(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster()
    cluster.settings = replace(cluster.settings, segment_bytes=1500, snapshot_bytes=800, retention_bytes=3000)
    values: dict[int, tuple[AnyRecord, ...]] = {}

    def gather() -> None:
        for bench in cluster.benches.values():
            for offset, records in bench.hearer.batches.items():
                assert values.setdefault(offset, records) == records

    for number in range(40):
        cluster.world.advance(rng.choice([5, 30, 700]))
        leader = cluster.leader
        if leader is not None and leader.quorum.is_leader:
            leader.propose(setting(f"s{number % 6}", f"{number}{'x' * 50}"), setting("last", str(number)))
        gather()
        if rng.random() < 0.25:
            node_id = rng.choice(list(cluster.benches))
            cluster.kill(node_id)
            cluster.disks[node_id] = cluster.disks[node_id].crash_clone(rng)
            cluster.start(node_id)
    cluster.world.advance(10_000)
    leader = cluster.wait_for_leader()
    leader.propose(setting("end"))
    cluster.settle()
    gather()
    image = EMPTY
    for offset in sorted(values):
        image = image.replay(values[offset], offset, 0)
    assert len(values) > 10
    assert cluster.check_alike() == settings_in(image)
