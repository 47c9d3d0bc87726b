"""Leaders and ISRs: every change to a partition is made here.

A leader is elected from the ISR. With eligible leader replicas (KIP-966) the ISR may become empty; then a leader is
elected from the ELR, which are replicas that left the ISR while it was smaller than `min.insync.replicas`, and so have
every acknowledged record. If both are empty, the partition waits for its last leader. Where unclean elections are
allowed, any other replica becomes leader and the only member of the ISR, marked as recovering. Otherwise the partition
has no leader: -1.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from penstock.base.ids import Uuid, is_reserved
from penstock.metadata import records as s
from penstock.metadata import versions as v
from penstock.metadata.configs import min_insync_replicas, unclean_election_allowed
from penstock.metadata.image import ClusterImage, PartitionRegistration, Topic
from penstock.metadata.records import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED

from .view import ControllerView


class Elect(Enum):
    PREFERRED = auto()
    """The first replica if it may lead, even if another replica leads."""
    ONLINE = auto()
    """The current leader if it may stay, otherwise the first replica that may lead."""
    UNCLEAN = auto()
    """As ONLINE, and if there is none, any live replica."""


@dataclass(slots=True)
class PartitionEdit:
    """A change of a partition in progress; `record` returns the record to write for it."""

    view: ControllerView
    topic: Topic
    number: int
    partition: PartitionRegistration
    acceptable: Callable[[int], bool]
    """Whether a replica is on a live broker, and so could lead."""
    elect: Elect = Elect.ONLINE
    isr: s.Ids = ()
    """The target, and so the fields that follow."""
    elr: s.Ids = ()
    replicas: s.Ids = ()
    adding: s.Ids = ()
    removing: s.Ids = ()
    recovery_state: int = s.RECOVERED
    unclean_broker: int | None = None
    """A broker that stopped uncleanly, and may have lost unsynced records."""
    moved: dict[int, Uuid] = field(default_factory=dict)
    """New directory of each broker whose old one, with the replica, is lost."""

    def __post_init__(self) -> None:
        held = self.partition
        self.isr, self.elr, self.replicas = held.isr, held.elr, held.replicas
        self.adding, self.removing, self.recovery_state = held.adding, held.removing, held.recovery_state

    def record(self) -> s.PartitionChangeRecord | None:
        """Return the change; None if nothing changes."""
        held, image = self.partition, self.view.image
        with_elr = image.elr_enabled
        self._complete_reassignment()
        self._keep_eligible(with_elr)
        leader, unclean = self._choose()
        leader_change = s.NO_LEADER_CHANGE
        if leader != held.leader:
            leader_change = leader
            if unclean:
                self.isr, self.recovery_state = (leader,), s.RECOVERING
            elif leader in self.elr:
                self.isr, self.elr = (leader,), _without(self.elr, leader)
        if unclean or not with_elr:
            self.elr = ()
        isr = None
        if self.isr != held.isr and (self.isr or with_elr):
            isr = self.isr
        if leader_change == s.NO_LEADER_CHANGE and self._needs_new_epoch(isr):
            leader_change = held.leader
        last_known = self._last_leader(isr, leader_change) if with_elr else None
        change = s.PartitionChangeRecord(
            version=v.partition_version(image.metadata_version),
            partition_id=self.number,
            topic_id=self.topic.id,
            isr=isr,
            leader=leader_change,
            replicas=_if_changed(held.replicas, self.replicas),
            removing_replicas=_if_changed(held.removing, self.removing),
            adding_replicas=_if_changed(held.adding, self.adding),
            leader_recovery_state=(
                s.NO_RECOVERY_CHANGE if self.recovery_state == held.recovery_state else self.recovery_state
            ),
            eligible_leader_replicas=_if_changed(held.elr, self.elr),
            last_known_elr=last_known,
            directories=self._directories(image),
        )
        return None if change == _no_change(change) else change

    def _complete_reassignment(self) -> None:
        """A reassignment ends when all added replicas are in sync; if it removes more than it adds, when all target
        replicas are."""
        if not (self.adding or self.removing) or not set(self.adding) <= set(self.isr):
            return
        isr, replicas = _without(self.isr, *self.removing), _without(self.replicas, *self.removing)
        if len(self.adding) < len(self.removing) and not set(replicas) <= set(isr):
            return
        if isr:
            self.isr, self.replicas = isr, replicas
            self.adding = self.removing = ()

    def _keep_eligible(self, with_elr: bool) -> None:
        if not with_elr:
            return
        least = min(
            min_insync_replicas(self.topic.name, self.view.image, self.view.settings), len(self.replicas)
        )
        if len(self.isr) >= least:
            self.elr = ()
            return
        leaving = (*self.elr, *(each for each in self.partition.isr if each not in self.elr))
        staying = (each for each in leaving if each not in self.isr and each in self.replicas)
        self.elr = tuple(each for each in staying if each != self.unclean_broker)

    def _may_lead(self, replica: int) -> bool:
        in_sync = replica in self.isr or (not self.isr and replica in self.elr)
        return in_sync and self.acceptable(replica)

    def _choose(self) -> tuple[int, bool]:
        """Return the leader, and whether its election is unclean."""
        candidates = [self.partition.leader, *self.replicas]
        if self.elect is Elect.PREFERRED:
            candidates.insert(0, self.replicas[0])
        for replica in candidates:
            if self._may_lead(replica):
                return replica, False
        last = self.partition.last_known_elr
        if (
            self.view.image.elr_enabled
            and not self.isr
            and not self.elr
            and len(last) == 1
            and self.acceptable(last[0])
        ):
            return last[0], True
        if self.elect is Elect.UNCLEAN:
            for replica in self.replicas:
                if self.acceptable(replica):
                    return replica, True
        return s.NO_LEADER, False

    def _needs_new_epoch(self, isr: s.Ids | None) -> bool:
        """Return whether the leader epoch must rise: a replica was removed or, with old versions, left the ISR."""
        if not set(self.partition.replicas) <= set(self.replicas):
            return True
        shrinks = isr is not None and not set(self.partition.isr) <= set(isr)
        return shrinks and v.bumps_epoch_on_isr_shrink(self.view.image.metadata_version)

    def _last_leader(self, isr: s.Ids | None, leader_change: int) -> s.Ids | None:
        """Return the leader that the partition had when it lost its leader; kept until it has a leader again."""
        held = self.partition
        leader = held.leader if leader_change == s.NO_LEADER_CHANGE else leader_change
        if leader != s.NO_LEADER:
            last: s.Ids = ()
        elif isr == () and held.leader != s.NO_LEADER:
            last = (held.leader,)
        elif isr == () and not held.last_known_elr:
            last = held.isr[:1]
        else:
            last = held.last_known_elr
        last = _without(last, *self.moved)  # a lost replica is not waited for
        return _if_changed(held.last_known_elr, last)

    def _directories(self, image: ClusterImage) -> s.Uuids | None:
        is_same = self.replicas == self.partition.replicas and not self.moved
        if not v.has_directories(image.metadata_version) or is_same:
            return None
        held = dict(zip(self.partition.replicas, self.partition.directories, strict=False)) | self.moved
        return tuple(held.get(replica, default_directory(image, replica)) for replica in self.replicas)


def _no_change(change: s.PartitionChangeRecord) -> s.PartitionChangeRecord:
    return s.PartitionChangeRecord(
        version=change.version, partition_id=change.partition_id, topic_id=change.topic_id
    )


def _if_changed(held: s.Ids, target: s.Ids) -> s.Ids | None:
    return None if held == target else target


def _without(replicas: s.Ids, *gone: int) -> s.Ids:
    return tuple(each for each in replicas if each not in gone)


def default_directory(image: ClusterImage, broker_id: int) -> Uuid:
    """Return the directory of a new replica, if known: a broker with several directories chooses one."""
    if not v.has_directories(image.metadata_version):
        return DIRECTORY_MIGRATING
    broker = image.brokers.get(broker_id)
    return broker.log_dirs[0] if broker is not None and len(broker.log_dirs) == 1 else DIRECTORY_UNASSIGNED


def has_online_directory(image: ClusterImage, partition: PartitionRegistration, broker_id: int) -> bool:
    """Return whether the directory of a replica is online."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker_id not in partition.replicas:
        return False
    directory = partition.directories[partition.replicas.index(broker_id)]
    if directory == DIRECTORY_LOST:
        return False
    return directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING) or directory in broker.log_dirs


def acceptance(
    image: ClusterImage,
    partition: PartitionRegistration,
    out: frozenset[int] = frozenset(),
    back: int | None = None,
) -> Callable[[int], bool]:
    """Return a predicate for replicas that could lead, given brokers that leave and one that returns."""

    def acceptable(replica: int) -> bool:
        if replica in out or not has_online_directory(image, partition, replica):
            return False
        return replica == back or image.is_active(replica)

    return acceptable


def updates(
    view: ControllerView,
    partitions: Iterable[tuple[Topic, int, PartitionRegistration]],
    *,
    out: int | None = None,
    back: int | None = None,
    unclean: int | None = None,
    directory: Uuid | None = None,
) -> Iterator[s.AnyRecord]:
    """Return the changes of partitions when a broker leaves (`out` or `unclean`) or returns. With `directory`, it
    returns with that new, empty directory."""
    gone = frozenset(each for each in (out, unclean) if each is not None)
    for topic, number, partition in partitions:
        edit = PartitionEdit(
            view,
            topic,
            number,
            partition,
            acceptance(view.image, partition, gone, back),
            unclean_broker=unclean,
            moved={} if directory is None else dict.fromkeys(gone, directory),
        )
        edit.isr = _without(partition.isr, *gone)
        if unclean_election_allowed(topic.name, view.image, view.settings):
            edit.elect = Elect.UNCLEAN
        record = edit.record()
        if record is not None:
            yield record


def in_sync_with(view: ControllerView, broker_id: int) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    """Return the partitions that have the broker in their ISR."""
    return (each for each in view.partitions() if broker_id in each[2].isr)


def eligible_with(view: ControllerView, broker_id: int) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    return (each for each in view.partitions() if broker_id in each[2].elr)


def lost_by(
    view: ControllerView, broker_id: int, directories: s.Uuids
) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    """Return the partitions with a replica in a directory that the broker no longer has, given those it has."""
    for each in view.partitions():
        replicas, held = each[2].replicas, each[2].directories
        if broker_id in replicas:
            directory = held[replicas.index(broker_id)]
            if not is_reserved(directory) and directory not in directories:
                yield each


def leaderless(view: ControllerView) -> Iterator[tuple[Topic, int, PartitionRegistration]]:
    return (each for each in view.partitions() if each[2].leader == s.NO_LEADER)


def leads_any(view: ControllerView, broker_id: int) -> bool:
    return any(partition.leader == broker_id for _, _, partition in view.partitions())
