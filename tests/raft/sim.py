"""A cluster of raft nodes on simulated clocks, disks and network, from one seed.

The driver here does what `node.py` asks of one, and no more: it may die between any two steps of a `Ready`, its syncs
come late, its clock runs fast or slow. The network delays, drops, doubles and reorders, and is cut, also
one way. Checkers see every change.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from uuid import UUID

from tests.raft.checkers import (
    CommittedStays,
    HighWatermarkForward,
    LeaderCompleteness,
    LogMatching,
    NoProgress,
    OneLeaderAnEpoch,
    PromisesKept,
    ReadsAreCurrent,
)
from tests.raft.memlog import MemoryLog

from penstock.base.errors import ErrorCode
from penstock.raft.config import RaftConfig
from penstock.raft.election import ElectionState
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import (
    AddVoter,
    FetchReply,
    FetchSnapshotReply,
    LogSlice,
    Message,
    ReadIndex,
    ReadIndexReply,
    RemoveVoter,
    Reply,
    Request,
    RequestFailed,
    SnapshotSlice,
    VoterChangeReply,
)
from penstock.raft.node import Node
from penstock.raft.ready import Outbound, Ready, RoleName
from penstock.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet

FAST = RaftConfig(
    election_timeout_ms=100,
    fetch_timeout_ms=200,
    election_backoff_ms_max=80,
    request_timeout_ms=90,
    retry_backoff_ms=10,
    fetch_wait_ms_max=50,
    snapshot_bytes_max=150,
)


@dataclass(frozen=True)
class Faults:
    """How bad the world is, as chances for each message or moment."""

    loss: float = 0.03
    duplicate: float = 0.03
    delay_ms_max: int = 12
    slow: float = 0.03
    slow_ms_max: int = 120
    crash_in_ready: float = 0.0015
    crash_every_ms: int = 600
    cut_every_ms: int = 500
    snapshot_every_ms: int = 250
    change_voters_every_ms: int = 0
    resign_every_ms: int = 1500
    power_cut_every_ms: int = 2500
    """All machines at once. 0 turns an `every` off."""
    forget_every_ms: int = 0
    """One machine crashes and comes back without the end of its log, synced or not. Only while no other is recovering
    from that: what a majority has lost nobody can bring back."""
    read_every_ms: int = 0
    """Every node that takes itself for the leader reads the committed end."""
    sync_ms_max: int = 6
    fetch_records_max: int = 20


CALM = Faults(0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0)
ROUGH = Faults()
CHANGING = Faults(change_voters_every_ms=150)


def voter(node_id: int, life: int = 0) -> Voter:
    """A replica; another life is another disk under the same id."""
    key = ReplicaKey(node_id, UUID(int=node_id * 1000 + life + 1))
    return Voter(key, (Endpoint("CONTROLLER", f"node{node_id}", 9093),))


class Crashed(Exception):
    """The process died at this point."""


@dataclass
class Host:
    """One machine: its disk outlives the process, its process does not outlive a crash."""

    local: Voter
    log: MemoryLog
    rate: float
    election: ElectionState | None = None
    synced_end: OffsetAndEpoch | None = None
    """The file in which the driver records how far the log was synced."""
    node: Node | None = None
    life: int = 0
    """Of the process: answers to an earlier one find nobody."""
    applied: int = 0
    applied_fingerprint: int = 0
    tokens: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Of requests that are open here: who asked, in which life, by which id."""
    next_token: int = 0
    sync_scheduled: bool = False
    wake_ms: int | None = None

    @property
    def id(self) -> int:
        return self.local.key.id

    @property
    def is_behind(self) -> bool:
        """Whether the log lacks records that were synced."""
        end, log = self.synced_end, self.log
        return end is not None and (log.last_epoch, log.end_offset) < (end.epoch, end.offset)

    def record_end(self) -> None:
        """Record that the whole log is on disk, unless it was already longer."""
        if not self.is_behind:
            self.synced_end = OffsetAndEpoch(self.log.end_offset, self.log.last_epoch)


NodeFactory = Callable[..., Node]


class Cluster:
    def __init__(
        self,
        seed: int,
        voters: int = 3,
        observers: int = 0,
        faults: Faults = ROUGH,
        node_factory: NodeFactory = Node,
        config: RaftConfig = FAST,
        heeds_synced_end: bool = True,
    ) -> None:
        """Without `heeds_synced_end` nodes vote with whatever log they have: the checkers must find that."""
        self.heeds_synced_end = heeds_synced_end
        self.rng = Random(seed)
        self.faults = faults
        self.config = config
        self.node_factory = node_factory
        self.now_ms = 0
        self.trace: list[str] = []
        self.cut: set[tuple[int, int]] = set()
        self.stops: Callable[[Message], bool] = lambda _: False
        """A filter on the wire, for histories that are written by hand."""
        self.replies: dict[int, VoterChangeReply] = {}
        """Answers to voter changes, by the client's number."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._event_count = 0
        self._proposals = 0
        self.one_leader = OneLeaderAnEpoch()
        self.log_matching = LogMatching()
        self.committed = CommittedStays()
        self.completeness = LeaderCompleteness(self.committed)
        self.high_watermark = HighWatermarkForward()
        self.promises = PromisesKept()
        self.reads = ReadsAreCurrent(self.committed)
        self._read_count = 0
        first = VoterSet.of(voter(node_id) for node_id in range(1, voters + 1))
        self.hosts = {
            node_id: Host(voter(node_id), MemoryLog(first), self.rng.uniform(0.95, 1.05))
            for node_id in range(1, voters + observers + 1)
        }
        self.by_name = {host.local.endpoints[0].host: host for host in self.hosts.values()}
        for host in self.hosts.values():
            self.start(host)

    # Time.

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._event_count += 1
        heappush(self._events, (self.now_ms + delay_ms, self._event_count, action))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, action = heappop(self._events)
            action()
        self.now_ms = end_ms

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms} {text}")

    def local_ms(self, host: Host) -> int:
        return int(self.now_ms * host.rate)

    # Processes.

    def start(self, host: Host) -> None:
        host.life += 1
        host.tokens.clear()
        host.sync_scheduled = False
        host.wake_ms = None
        latest = host.log.latest_snapshot()
        host.applied = latest.offset if latest is not None else host.log.start_offset
        host.applied_fingerprint = host.log.snapshots[latest].fingerprint if latest is not None else 0
        self.high_watermark.on_start(host.id)
        if not self.heeds_synced_end:
            host.synced_end = None
        self.note(
            f"start {host.id} at {host.election} end {host.log.end_offset}"
            + (f" of {host.synced_end}" if host.is_behind else "")
        )
        synced_end = host.synced_end
        host.record_end()
        host.node = self.node_factory(
            host.local,
            host.log,
            Random(self.rng.getrandbits(32)),
            self.local_ms(host),
            election=host.election,
            synced_end=synced_end,
            bootstrap=[voter(1).endpoints[0], voter(2).endpoints[0]],
            config=self.config,
        )
        self.carry_out(host)

    def crash(self, host: Host) -> None:
        if host.node is None:
            return
        self.note(f"crash {host.id}")
        host.node = None
        host.log.crash(self.rng)
        self.after(self.rng.randint(20, 500), lambda: self.start(host) if host.node is None else None)

    def forget(self, host: Host) -> None:
        """Crash, and come back without the end of the log: damage that was taken for a torn write."""
        others = [each for each in self.hosts.values() if each is not host]
        if host.node is None or any(each.is_behind for each in others):
            return
        voters, end = host.node.voters, (host.log.last_epoch, host.log.end_offset)
        holders = [
            each
            for each in others
            if voters.find(each.local.key)
            and (each.log.last_epoch, len(each.log.flushed) + each.log.start_offset) >= end
        ]
        if len(holders) < (voters.majority if self.faults.change_voters_every_ms else 1):
            return  # nobody else has what this one would lose, or those who have it may leave with it
        self.crash(host)
        log = host.log
        kept = self.rng.randint(0, len(log.records))
        self.note(f"node {host.id} forgets from {log.start_offset + kept} to {log.end_offset}")
        log.truncate(log.start_offset + kept)
        log.flushed = list(log.records)

    def replace_disk(self, host: Host) -> None:
        """The machine comes back with its id and nothing else."""
        self.note(f"node {host.id} lost its disk")
        host.node = None
        host.local = voter(host.id, life=host.life)
        host.log = MemoryLog()
        host.election = host.synced_end = None
        self.promises.on_new_disk(host.id)
        self.start(host)

    def with_node(self, host: Host, act: Callable[[Node], None]) -> None:
        if host.node is not None:
            act(host.node)
            self.carry_out(host)

    def carry_out(self, host: Host) -> None:
        """What a driver owes after every call."""
        assert host.node is not None
        try:
            while not (ready := host.node.ready()).is_empty:
                self._apply(host, ready)
                if ready.changes_log:
                    host.node.tick(self.local_ms(host))
        except Crashed:
            self.crash(host)
        else:
            self._schedule_wake(host)

    def _may_die(self) -> None:
        if self.faults.crash_in_ready and self.rng.random() < self.faults.crash_in_ready:
            raise Crashed

    def _apply(self, host: Host, ready: Ready) -> None:
        self._may_die()
        if ready.election is not None:
            self.note(f"node {host.id} persists {ready.election}")
            self.promises.on_persist(host.id, ready.election)
            host.election = ready.election
            self._may_die()
        self._change_log(host, ready)
        for role in ready.roles:
            self.note(f"node {host.id} is {role.role.value} of epoch {role.epoch}, leader {role.leader_id}")
            if role.role is RoleName.LEADER:
                self.one_leader.on_leader(host.id, role.epoch)
                self.completeness.on_leader(host.id, host.log)
        self._may_die()
        for outbound in ready.requests:
            self._send_request(host, outbound)
        for reply in ready.replies:
            self._send_reply(host, reply)
        if ready.high_watermark is not None:
            self._commit(host, ready.high_watermark)

    def _change_log(self, host: Host, ready: Ready) -> None:
        log = host.log
        if ready.truncate_to is not None:
            self.note(f"node {host.id} truncates from {log.end_offset} to {ready.truncate_to}")
            is_behind = host.is_behind
            log.truncate(ready.truncate_to)
            self._may_die()
            if not is_behind:
                host.synced_end = OffsetAndEpoch(log.end_offset, log.last_epoch)
        for chunk in ready.snapshot_chunks:
            log.store_chunk(chunk)
        if ready.load_snapshot is not None:
            self.note(f"node {host.id} loads snapshot {ready.load_snapshot}")
            snapshot = log.load_snapshot(ready.load_snapshot)
            self.committed.on_snapshot(host.id, ready.load_snapshot, snapshot)
            host.applied, host.applied_fingerprint = ready.load_snapshot.offset, snapshot.fingerprint
            host.record_end()
        before = log.end_offset
        if ready.fetched is not None:
            log.append_fetched(ready.fetched)
        for append in ready.appends:
            log.append(append)
        for offset in range(before, log.end_offset):
            self.log_matching.on_append(log, offset)
        if log.end_offset > before:
            self._schedule_sync(host)

    def _schedule_sync(self, host: Host) -> None:
        if host.sync_scheduled:
            return
        host.sync_scheduled = True
        life, generation, end_offset = host.life, host.log.generation, host.log.end_offset

        def synced() -> None:
            if host.node is None or host.life != life:
                return
            host.sync_scheduled = False
            if host.log.generation == generation:
                host.log.sync(end_offset)
                synced = OffsetAndEpoch(end_offset, host.log.at(end_offset - 1).epoch)
                if host.synced_end is None or synced[::-1] > host.synced_end[::-1]:
                    host.synced_end = synced
                self.with_node(host, lambda node: node.flushed(end_offset, self.local_ms(host)))
            if host.node is not None and host.node.flushed_offset < host.log.end_offset:
                self._schedule_sync(host)

        self.after(self.rng.randint(0, self.faults.sync_ms_max), synced)

    def _schedule_wake(self, host: Host) -> None:
        if host.node is None:
            return
        deadline = host.node.next_deadline()
        if deadline is None:
            host.wake_ms = None
            return
        wake_ms = max(self.now_ms + 1, int(deadline / host.rate) + 1)
        if host.wake_ms == wake_ms:
            return
        host.wake_ms, life = wake_ms, host.life

        def wake() -> None:
            if host.life == life and host.wake_ms == wake_ms and host.node is not None:
                host.wake_ms = None
                self.with_node(host, lambda node: node.tick(self.local_ms(host)))

        self.after(wake_ms - self.now_ms, wake)

    def _commit(self, host: Host, high_watermark: int) -> None:
        self.high_watermark.on_move(host.id, high_watermark)
        self.committed.on_commit(host.id, host.log, host.applied, high_watermark)
        for offset in range(host.applied, high_watermark):
            host.applied_fingerprint = self.committed.fingerprints[offset + 1]
        host.applied = max(host.applied, high_watermark)

    # The network.

    def _deliver(self, source: int, target: int, message: Message, action: Callable[[], None]) -> bool:
        """Let action happen at the target, perhaps twice, perhaps never; False if it surely does not."""
        if (source, target) in self.cut or self.stops(message) or self.rng.random() < self.faults.loss:
            return False
        for _ in range(2 if self.rng.random() < self.faults.duplicate else 1):
            is_slow = self.rng.random() < self.faults.slow
            longest = self.faults.slow_ms_max if is_slow else self.faults.delay_ms_max
            self.after(self.rng.randint(1, max(1, longest)), action)
        return True

    def _send_request(self, host: Host, outbound: Outbound) -> None:
        target = self.by_name.get(outbound.to.endpoints[0].host)
        life, request = host.life, outbound.request

        def fail(refused: bool) -> None:
            if host.life == life:
                failure = RequestFailed(request.request_id, refused)
                self.with_node(host, lambda node: node.step(failure, self.local_ms(host)))

        def arrive() -> None:
            if target is None or target.node is None:
                if self.rng.random() < 0.5:
                    self.after(1, lambda: fail(refused=True))
                return
            token, target.next_token = target.next_token, target.next_token + 1
            target.tokens[token] = (host.id, life, request.request_id)
            self.step(target, request._replace(request_id=token))

        delivered = self._deliver(host.id, target.id if target else 0, request, arrive)
        if not delivered and self.rng.random() < 0.3:
            self.after(self.rng.randint(1, 40), lambda: fail(refused=False))

    def _send_reply(self, host: Host, reply: Reply) -> None:
        origin = host.tokens.pop(reply.request_id, None)
        if isinstance(reply, ReadIndexReply):
            if reply.error is ErrorCode.NONE:
                self.reads.on_reply(host.id, -reply.request_id, reply.high_watermark)
            return
        if origin is None:
            assert isinstance(reply, VoterChangeReply)
            self.replies[-reply.request_id] = reply
            return
        origin_id, life, request_id = origin
        target = self.hosts[origin_id]
        filled = self._fill(host, reply)._replace(request_id=request_id)

        def arrive() -> None:
            if target.life == life:
                self.step(target, filled)

        self._deliver(host.id, origin_id, filled, arrive)

    def _fill(self, host: Host, reply: Reply) -> Reply:
        """Read what the core named."""
        if isinstance(reply, FetchReply) and isinstance(reply.records, LogSlice):
            count = self.rng.randint(1, self.faults.fetch_records_max)
            end = min(reply.records.end, reply.records.start + count)
            return reply._replace(
                records=tuple(host.log.at(each) for each in range(reply.records.start, end))
            )
        if isinstance(reply, FetchSnapshotReply) and isinstance(reply.data, SnapshotSlice):
            piece = reply.data
            data = host.log.snapshots[piece.snapshot_id].data
            return reply._replace(data=data[piece.position : piece.position + piece.bytes_max])
        return reply

    def step(self, host: Host, message: Message) -> None:
        self.with_node(host, lambda node: node.step(message, self.local_ms(host)))

    # What users and the world do.

    def leader(self) -> Host | None:
        """The leader of the latest epoch, as far as it is up."""
        leaders = [host for host in self.hosts.values() if host.node is not None and host.node.is_leader]
        return max(leaders, key=lambda host: host.node.epoch if host.node else -1, default=None)

    def propose(self, host: Host, count: int = 1) -> int | None:
        node = host.node
        if node is None or not node.is_leader:
            return None
        values = [f"{host.id}.{self._proposals + place}" for place in range(count)]
        self._proposals += count
        offset = node.propose(values, node.epoch, self.local_ms(host))
        self.carry_out(host)
        return offset

    def read(self, host: Host) -> None:
        self._read_count += 1
        self.reads.on_read(self._read_count)
        self.step(host, ReadIndex(-self._read_count))

    def change(self, host: Host, request: Request) -> int:
        """Ask for a voter change as a client; its number, under which `replies` has the answer."""
        number = 1_000_000 + self.rng.getrandbits(20)
        self.step(host, request._replace(request_id=-number))
        return number

    def snapshot(self, host: Host) -> None:
        if host.node is None:
            return
        taken = host.log.take_snapshot(host.applied, host.applied_fingerprint)
        if taken is not None:
            self.note(f"node {host.id} takes snapshot {taken}")
            host.log.delete_before_latest_snapshot()

    def unleash(self, duration_ms: int) -> None:
        """Work and trouble for a while, then none and time to recover."""
        end_ms = self.now_ms + duration_ms
        faults, rng = self.faults, self.rng

        def every(interval_ms: int, act: Callable[[], None]) -> None:
            def again() -> None:
                if self.now_ms < end_ms:
                    act()
                    self.after(rng.randint(1, 2 * interval_ms), again)

            if interval_ms:
                self.after(rng.randint(1, 2 * interval_ms), again)

        every(25, self._work)
        every(faults.crash_every_ms, lambda: self.crash(self._any()))
        every(faults.power_cut_every_ms, self._cut_power)
        every(faults.cut_every_ms, self._cut_somewhere)
        every(faults.snapshot_every_ms, lambda: self.snapshot(self._any()))
        every(faults.resign_every_ms, lambda: self.with_node(self._any(), self._resign))
        every(faults.change_voters_every_ms, self._change_voters)
        every(faults.read_every_ms, self._read)
        every(faults.forget_every_ms, lambda: self.forget(self._any()))
        self.run(duration_ms)
        self.faults = CALM
        self.cut.clear()
        self.note("calm")

    def _cut_power(self) -> None:
        self.note("power cut")
        for host in self.hosts.values():
            self.crash(host)

    def _any(self) -> Host:
        return self.hosts[self.rng.choice(list(self.hosts))]

    def _resign(self, node: Node) -> None:
        node.resign(int(self.now_ms * self.hosts[node.key.id].rate))

    def _work(self) -> None:
        for host in self.hosts.values():
            self.propose(host, self.rng.randint(1, 3))

    def _read(self) -> None:
        for host in self.hosts.values():
            if host.node is not None and host.node.is_leader:
                self.read(host)

    def _cut_somewhere(self) -> None:
        ids = list(self.hosts)
        kind = self.rng.random()
        self.cut.clear()
        if kind < 0.4:
            self.note("heal")
            return
        self.rng.shuffle(ids)
        side = ids[: self.rng.randint(1, len(ids) // 2)]
        others = [each for each in ids if each not in side]
        self.cut |= {(a, b) for a in side for b in others}
        if kind < 0.8:
            self.cut |= {(b, a) for a in side for b in others}
        self.note(f"cut {sorted(self.cut)}")

    def _change_voters(self) -> None:
        leaders = [host for host in self.hosts.values() if host.node is not None and host.node.is_leader]
        for leader in leaders:
            self._change_voters_through(leader)

    def _change_voters_through(self, leader: Host) -> None:
        if leader.node is None:
            return
        voters = leader.node.voters
        outside = [host for host in self.hosts.values() if voters.find(host.local.key) is None]
        if outside and (len(voters) <= 2 or self.rng.random() < 0.5):
            joining = self.rng.choice(outside)
            number = self.change(leader, AddVoter(0, joining.local, 500))
            self.note(f"leader {leader.id} is asked to add {joining.id} as {number}")
        elif len(voters) > 1:
            leaving = self.rng.choice(voters.voters).key
            number = self.change(leader, RemoveVoter(0, leaving, 500))
            self.note(f"leader {leader.id} is asked to remove {leaving.id} as {number}")

    # At the end.

    def settle(self, within_ms: int = 6000) -> None:
        """Progress resumes once faults stop: a leader, a new record committed everywhere, logs alike."""
        deadline = self.now_ms + within_ms
        goal: int | None = None
        while self.now_ms < deadline:
            self.run(50)
            leader = self.leader()
            if goal is not None and self._all_reached(goal):
                return
            if leader is not None and (goal is None or leader.log.end_offset <= goal):
                goal = self.propose(leader)
        state = {
            host.id: (host.node and host.node.role.name, host.log.end_offset) for host in self.hosts.values()
        }
        raise NoProgress(f"no progress within {within_ms} ms after the last fault: {state}, goal {goal}")

    def _all_reached(self, goal: int) -> bool:
        return all(host.node is not None and host.node.high_watermark > goal for host in self.hosts.values())


def run_seed(
    seed: int,
    voters: int,
    observers: int = 0,
    faults: Faults = ROUGH,
    duration_ms: int = 2500,
    node_factory: NodeFactory = Node,
    *,
    heeds_synced_end: bool = True,
) -> Cluster:
    """One history with all checkers on."""
    cluster = Cluster(seed, voters, observers, faults, node_factory, heeds_synced_end=heeds_synced_end)
    cluster.unleash(duration_ms)
    cluster.settle()
    return cluster
