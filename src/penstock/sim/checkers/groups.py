"""Rules for groups: ownership of partitions, and committed offsets."""

from collections import defaultdict
from dataclasses import dataclass

from penstock.base.hashing import partition_for
from penstock.base.ids import TopicPartition
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.sim.checkers.history import (
    CoordinatorLoaded,
    CoordinatorUnloaded,
    Event,
    LeaderFound,
    Leased,
    OffsetCommit,
    OffsetFetchSent,
    OffsetsAcked,
    OffsetsFetched,
    OffsetsRefused,
    OffsetsSent,
    Owned,
    Txn,
    TxnEnd,
    TxnEnded,
)
from penstock.sim.checkers.records import Checker


class OneOwner(Checker):
    """Two members never own a partition in the same generation, and never while the other's session lasts.

    For members in different epochs of the consumer protocol only the second part applies.

    The group's coordinator keeps the sessions. A former coordinator that does not know of its successor yet (it was
    partitioned or paused) still answers heartbeats, but those sent after the successor leads renew nothing. Neither do
    heartbeats sent to a coordinator that is still loading the group: like Kafka, it answers them unchecked.
    """

    def begin(self) -> None:
        self._owners: dict[tuple[str, int, int], str] = {}
        """Owner by group, generation and partition."""
        self._leases: dict[str, dict[str, Leased]] = defaultdict(dict)
        """Lease by group and member."""
        self._leaders: dict[int, list[LeaderFound]] = defaultdict(list)
        """Successive leaders of each partition of `__consumer_offsets`."""
        self._loaded_us: dict[tuple[int, int], list[tuple[int, int | None]]] = defaultdict(list)
        """Periods in which the leader had its groups loaded, by partition and epoch; None for a period that lasts."""

    def see(self, event: Event) -> None:
        match event:
            case Owned(group, generation, member_id, partitions, _):
                for partition in partitions:
                    owner = self._owners.setdefault((group, generation, partition), member_id)
                    if owner != member_id:
                        raise self.violation(
                            f"partition {partition} was given to {owner} in generation {generation} of {group},"
                            f" and then to {member_id}"
                        )
                    self._check_leases(event, partition)
            case Leased(group, _, member_id, _, _):
                self._leases[group][member_id] = event
            case LeaderFound(_, at) if at.topic == OFFSETS_TOPIC:
                self._leaders[at.partition].append(event)
            case CoordinatorLoaded(_, number, epoch, now_us):
                self._loaded_us[number, epoch].append((now_us, None))
            case CoordinatorUnloaded(_, number, epoch, now_us):
                known = self._loaded_us[number, epoch]
                known.append((known.pop()[0], now_us))

    def _check_leases(self, owned: Owned, partition: int) -> None:
        for holder, lease in self._leases[owned.group].items():
            # A member may learn of an earlier generation long after a later one has begun.
            is_earlier = holder != owned.member_id and lease.generation < owned.generation
            if not is_earlier or partition not in lease.partitions or not self._is_renewed(lease):
                continue
            if owned.now_us < lease.until_us:
                raise self.violation(
                    f"partition {partition} of {owned.group} was assigned to {owned.member_id} at {owned.now_us},"
                    f" though {holder} has it until {lease.until_us}"
                )

    def _is_renewed(self, lease: Leased) -> bool:
        """Return whether the node that answered was the coordinator when the heartbeat was sent, as far as known."""
        renewal = lease.renewal
        if renewal is None:
            return True
        number = partition_for(lease.group, self.rules.offsets_partitions)
        leaders = [each for each in self._leaders[number] if each.now_us <= renewal.sent_us]
        if not leaders:
            return True
        leader = max(leaders, key=lambda each: each.epoch)
        return leader.node == renewal.node and any(
            from_us <= renewal.sent_us and (to_us is None or renewal.sent_us < to_us)
            for from_us, to_us in self._loaded_us[number, leader.epoch]
        )


@dataclass
class CommitState:
    """What is known of a commit. Times are numbers of events."""

    commit: OffsetCommit
    sent: int
    placed: int | None = None
    """Latest time at which it got its place among the commits of its partition."""
    visible: int | None = None
    """Latest time from which it is visible; for one in a transaction, to readers that wait for pending ones."""
    seen: int | None = None
    """Time of the first read that returned it."""
    is_void: bool = False
    """It was rejected, or its transaction was aborted."""


class OffsetsNotLostOrRewound(Checker):
    """A read of a group's offset returns one that was committed, and that no later commit had replaced.

    A commit whose reply was lost may become visible at any time. One in a transaction gets its place when it is
    written, and becomes visible when the transaction is committed.
    """

    def begin(self) -> None:
        self._states: dict[str, CommitState] = {}
        """State by name of the commit."""
        self._of_partition: dict[tuple[str, TopicPartition], list[CommitState]] = defaultdict(list)
        self._wanted: dict[tuple[str, int], int] = {}
        self._moment = 0

    def see(self, event: Event) -> None:
        self._moment += 1
        match event:
            case OffsetsSent(commits):
                for commit in commits:
                    state = self._states[commit.name] = CommitState(commit, self._moment)
                    self._of_partition[commit.group, commit.at].append(state)
            case OffsetsAcked(commits):
                for commit in commits:
                    self._place(self._states[commit.name])
            case OffsetsRefused(commits):
                for commit in commits:
                    self._avoid(commit)
            case TxnEnded(txn):
                self._end(txn)
            case OffsetFetchSent(request):
                self._wanted[request] = self._moment
            case OffsetsFetched(request, group, names, is_stable):
                since = self._wanted.pop(request)
                for at, (offset, name) in names.items():
                    self._check(group, at, offset, name, since, is_stable)

    def _place(self, state: CommitState) -> None:
        state.placed = min(state.placed or self._moment, self._moment)
        if state.commit.txn is None:
            state.visible = state.placed

    def _end(self, txn: Txn) -> None:
        for commit in txn.commits:
            if txn.end is TxnEnd.ABORTED:
                self._avoid(commit)
            elif txn.end is TxnEnd.COMMITTED:
                self._states[commit.name].visible = self._moment

    def _avoid(self, commit: OffsetCommit) -> None:
        state = self._states[commit.name]
        state.is_void = True
        if state.seen is not None:
            raise self.violation(f"{commit} was rejected or aborted, though it was read")

    def _check(
        self, group: str, at: TopicPartition, offset: int, name: str, since: int, is_stable: bool
    ) -> None:
        states = self._of_partition[group, at]
        if offset < 0:
            standing = next((each for each in states if self._counts(each, since, is_stable)), None)
            if standing is not None:
                raise self.violation(
                    f"{group} has no offset for {at}, though {standing.commit} was committed"
                )
            return
        found = self._states.get(name)
        if (
            found is None
            or found.commit.offset != offset
            or (found.commit.group, found.commit.at) != (group, at)
        ):
            raise self.violation(f"{group} has {offset} ({name}) for {at}, which was never committed")
        commit = found.commit
        if found.is_void or (commit.txn is not None and not commit.txn.commit_sends):
            raise self.violation(f"{group} has {commit}, which was not committed")
        found.seen = min(found.seen or self._moment, self._moment)
        found.placed = min(found.placed or self._moment, self._moment)
        for other in states:
            if self._counts(other, since, is_stable) and other.sent > found.placed:
                raise self.violation(f"{group} has {commit}, though {other.commit} was committed after it")

    def _counts(self, state: CommitState, since: int, is_stable: bool) -> bool:
        """Return whether a commit was certainly visible when the read began."""
        if state.seen is not None and state.seen < since:
            return True
        if state.commit.txn is not None and not is_stable:
            return False
        return state.visible is not None and state.visible < since
