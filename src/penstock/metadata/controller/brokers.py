"""Brokers: registration, heartbeats, fencing and controlled shutdown.

Which brokers are alive is soft state: a new controller has no heartbeats yet, gives each broker one session timeout to
send one, and accepts a registration at once, since no session contradicts it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import Offset, TimestampMs, Uuid, is_reserved, uuid_text
from penstock.base.outcome import Outcome
from penstock.metadata import records as s
from penstock.metadata import versions as v
from penstock.metadata.image import Broker, ClusterImage, PartitionRegistration, Topic
from penstock.metadata.snapshot import broker_record

from .elections import eligible_with, in_sync_with, leaderless, leads_any, lost_by, updates
from .requests import (
    BrokerHeartbeat,
    FenceBroker,
    HeartbeatReply,
    RegisterBroker,
    RegisterController,
    UnregisterBroker,
)
from .view import ControllerView


@dataclass(slots=True)
class _Session:
    epoch: int
    heard_ms: TimestampMs
    metadata_offset: Offset
    came_at: Offset
    """End of the metadata log when the session began: decisions about the broker while it was silent are below."""
    is_cut: bool = False
    """The connection of its heartbeats broke, and no heartbeat has arrived since."""


class State(Enum):
    FENCED = auto()
    UNFENCED = auto()
    CONTROLLED_SHUTDOWN = auto()
    """Once all brokers have this metadata, the broker leads no partition, and may stop."""
    SHUTDOWN_NOW = auto()


@dataclass(slots=True)
class Sessions:
    """Time of each broker's last heartbeat, and the metadata offset that it had reached."""

    timeout_ms: int
    since_ms: TimestampMs
    """When this controller became the active one."""
    _open: dict[int, _Session] = field(default_factory=dict)
    _leaving: dict[int, Offset] = field(default_factory=dict)
    """Brokers in controlled shutdown, with the offset of the record that says so."""

    def heard(
        self, broker_id: int, epoch: int, now_ms: TimestampMs, metadata_offset: Offset, end: Offset
    ) -> None:
        """Note a heartbeat of a broker that has read the metadata log to `metadata_offset`; the log ends at `end`."""
        held = self._open.get(broker_id)
        came_at = end if held is None or held.epoch != epoch else held.came_at
        self._open[broker_id] = _Session(epoch, now_ms, metadata_offset, came_at)

    def has_caught_up(self, broker: Broker) -> bool:
        """Return whether it has read all decisions about it from before its session: its registration, or that it was
        fenced and no longer leads."""
        session = self._open[broker.id]
        return session.metadata_offset >= max(broker.epoch, session.came_at)

    def close(self, broker_id: int) -> None:
        self._open.pop(broker_id, None)
        self._leaving.pop(broker_id, None)

    def cut(self, broker_id: int, epoch: int) -> None:
        session = self._open.get(broker_id)
        if session is not None and session.epoch == epoch:
            session.is_cut = True

    def is_cut(self, broker_id: int) -> bool:
        session = self._open.get(broker_id)
        return session is not None and session.is_cut

    def is_open(self, broker: Broker, now_ms: TimestampMs) -> bool:
        session = self._open.get(broker.id)
        return (
            session is not None
            and session.epoch == broker.epoch
            and now_ms < session.heard_ms + self.timeout_ms
        )

    def expires_ms(self, broker: Broker) -> TimestampMs:
        session = self._open.get(broker.id)
        known = session is not None and session.epoch == broker.epoch
        return (session.heard_ms if session is not None and known else self.since_ms) + self.timeout_ms

    def leaving(self, broker_id: int, offset: Offset) -> None:
        self._leaving.setdefault(broker_id, offset)

    def all_have_read_of_leaving(self, broker_id: int, image: ClusterImage) -> bool:
        offset = self._leaving.setdefault(broker_id, image.offset)
        return self.have_read(offset, (each for each in image.brokers.values() if each.is_active))

    def have_read(self, offset: Offset, brokers: Iterable[Broker]) -> bool:
        """Return whether all of these brokers have read the metadata log to the offset."""
        sessions = (self._open.get(each.id) for each in brokers)
        return all(each is not None and each.metadata_offset >= offset for each in sessions)


def register_broker(
    view: ControllerView, sessions: Sessions, request: RegisterBroker, now_ms: TimestampMs
) -> Outcome[int]:
    """Register a broker. The reply is its epoch: the offset of its registration record."""
    image = view.image
    cluster_id = image.cluster_id or view.cluster_id
    is_new = not request.cluster_id and image.cluster_id
    if not is_new and request.cluster_id != cluster_id:
        raise KafkaError(
            f"broker {request.broker_id} belongs to cluster {request.cluster_id or 'unknown'}, not to {cluster_id}",
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        )
    if request.broker_id < 0:
        raise _invalid(f"the broker id is {request.broker_id}, expected 0 or more")
    held: Broker | None = image.brokers.get(request.broker_id)
    same = held is not None and held.incarnation_id == request.incarnation_id
    if held is not None and not same and _is_alive(sessions, held, request, now_ms):
        raise KafkaError(
            f"another broker {request.broker_id} is registered and alive; if it has just restarted, its former "
            f"session ends within {sessions.timeout_ms} ms",
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        )
    _check_directories(image, request)
    _check_features(image, request)
    records: list[s.AnyRecord] = []
    if not same:
        clean = held is not None and held.epoch == request.previous_epoch
        records += _former_life(view, request, clean)
    broker = Broker(
        id=request.broker_id,
        epoch=held.epoch if held is not None and same else image.offset + 1,
        incarnation_id=request.incarnation_id,
        endpoints=request.endpoints,
        features=request.features,
        rack=request.rack,
        fenced=held.fenced if held is not None and same else True,
        in_controlled_shutdown=held.in_controlled_shutdown if held is not None and same else False,
        log_dirs=request.log_dirs,
    )
    records.append(broker_record(broker, image.metadata_version))
    if not same:
        sessions.close(broker.id)
    sessions.heard(broker.id, broker.epoch, now_ms, -1, max(broker.epoch, image.offset))
    return Outcome(broker.epoch, tuple(records))


def _is_alive(sessions: Sessions, held: Broker, request: RegisterBroker, now_ms: TimestampMs) -> bool:
    """Return whether the broker that is already registered may still run, beside the one that registers now.

    It cannot if its connection broke and the new one has the same address: two processes cannot listen there.
    """
    if held.in_controlled_shutdown or not sessions.is_open(held, now_ms):
        return False
    return not (sessions.is_cut(held.id) and held.endpoints == request.endpoints)


def _check_directories(image: ClusterImage, request: RegisterBroker) -> None:
    if not v.has_directories(image.metadata_version):
        return
    taken = {
        directory: broker.id
        for broker in image.brokers.values()
        for directory in broker.log_dirs
        if broker.id != request.broker_id
    }
    for directory in request.log_dirs:
        if is_reserved(directory):
            raise _invalid(f"{uuid_text(directory)} is a reserved directory id")
        if directory in taken:
            raise _invalid(f"directory {uuid_text(directory)} belongs to broker {taken[directory]}")
    if not request.log_dirs:
        raise _invalid(f"broker {request.broker_id} has no directories")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise _invalid(f"broker {request.broker_id} lists a directory twice")


def _check_features(image: ClusterImage, request: RegisterBroker) -> None:
    offered = {feature.name: (feature.min_level, feature.max_level) for feature in request.features}
    if v.METADATA_VERSION not in offered:
        raise _invalid(
            f"broker {request.broker_id} does not declare a supported range of {v.METADATA_VERSION}"
        )
    for name, level in sorted(image.features.items()):
        low, high = offered.get(name, (0, 0))
        if not low <= level <= high:
            raise KafkaError(
                f"broker {request.broker_id} supports {name} {low} to {high}, the cluster is at {level}",
                ErrorCode.UNSUPPORTED_VERSION,
            )


def _invalid(message: str) -> KafkaError:
    return KafkaError(message, ErrorCode.INVALID_REGISTRATION)


def _former_life(view: ControllerView, request: RegisterBroker, clean: bool) -> Iterator[s.AnyRecord]:
    """A broker that restarts is removed from ISRs, and after an unclean stop from ELRs too. If it has a new directory
    instead of its old one, its replicas are lost, and are placed in the new directory."""
    broker_id, with_elr = request.broker_id, view.image.elr_enabled
    is_unclean = with_elr and not clean
    lost = list(lost_by(view, broker_id, request.log_dirs)) if len(request.log_dirs) == 1 else []
    names = {(topic.name, number) for topic, number, _ in lost}
    held = [*in_sync_with(view, broker_id), *(eligible_with(view, broker_id) if is_unclean else ())]
    kept = [each for each in held if (each[0].name, each[1]) not in names]
    yield from _leave(view, kept, broker_id, is_unclean)
    if lost:
        yield from _leave(view, lost, broker_id, with_elr, request.log_dirs[0])


def _leave(
    view: ControllerView,
    partitions: Iterable[tuple[Topic, int, PartitionRegistration]],
    broker_id: int,
    is_unclean: bool,
    directory: Uuid | None = None,
) -> Iterator[s.AnyRecord]:
    if is_unclean:
        return updates(view, partitions, unclean=broker_id, directory=directory)
    return updates(view, partitions, out=broker_id, directory=directory)


def heartbeat(
    view: ControllerView, sessions: Sessions, request: BrokerHeartbeat, now_ms: TimestampMs
) -> Outcome[HeartbeatReply]:
    broker = view.broker(request.broker_id, request.broker_epoch)
    sessions.heard(broker.id, broker.epoch, now_ms, request.metadata_offset, view.image.offset)
    held, state = _state(broker), _next_state(view, sessions, broker, request)
    records: list[s.AnyRecord] = []
    if state is not held:
        if state in (State.FENCED, State.SHUTDOWN_NOW):
            if not broker.fenced:
                records += _fenced(view, broker)
        elif state is State.UNFENCED:
            records += _unfenced(view, broker)
        else:
            records += _leaving(view, broker)
    records += _directory_changes(view.after(records) if records else view, broker, request)
    if state is State.SHUTDOWN_NOW:
        sessions.close(broker.id)
    return Outcome(
        HeartbeatReply(
            is_caught_up=request.metadata_offset >= broker.epoch,
            is_fenced=state in (State.FENCED, State.SHUTDOWN_NOW),
            should_shut_down=state is State.SHUTDOWN_NOW,
        ),
        tuple(records),
    )


def _state(broker: Broker) -> State:
    if broker.fenced:
        return State.FENCED
    return State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else State.UNFENCED


def _next_state(  # noqa: PLR0911  (a state machine reads best in one piece)
    view: ControllerView, sessions: Sessions, broker: Broker, request: BrokerHeartbeat
) -> State:
    held = _state(broker)
    if held is State.FENCED:
        if request.want_shutdown:
            return State.SHUTDOWN_NOW
        # A broker that was released to shut down stays out until it registers again.
        back = sessions.has_caught_up(broker) and not request.want_fence and not broker.in_controlled_shutdown
        return State.UNFENCED if back else State.FENCED
    if held is State.UNFENCED:
        if request.want_fence:
            return State.SHUTDOWN_NOW if request.want_shutdown else State.FENCED
        if request.want_shutdown:
            leads = leads_any(view, broker.id)
            return State.CONTROLLED_SHUTDOWN if leads else State.SHUTDOWN_NOW
        return State.UNFENCED
    if leads_any(view, broker.id) or not sessions.all_have_read_of_leaving(broker.id, view.image):
        return State.CONTROLLED_SHUTDOWN
    return State.SHUTDOWN_NOW


def _fenced(view: ControllerView, broker: Broker) -> Iterable[s.AnyRecord]:
    yield from updates(view, in_sync_with(view, broker.id), out=broker.id)
    yield s.BrokerRegistrationChangeRecord(
        version=0, broker_id=broker.id, broker_epoch=broker.epoch, fenced=1
    )


def _unfenced(view: ControllerView, broker: Broker) -> Iterable[s.AnyRecord]:
    yield s.BrokerRegistrationChangeRecord(
        version=0, broker_id=broker.id, broker_epoch=broker.epoch, fenced=-1
    )
    yield from updates(view, leaderless(view), back=broker.id)


def _leaving(view: ControllerView, broker: Broker) -> Iterable[s.AnyRecord]:
    yield s.BrokerRegistrationChangeRecord(
        version=1, broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=1
    )
    yield from updates(view, in_sync_with(view, broker.id), out=broker.id)


def _directory_changes(
    view: ControllerView, broker: Broker, request: BrokerHeartbeat
) -> Iterable[s.AnyRecord]:
    """Take replicas in failed directories offline. Cordoned directories only get no new replicas."""
    version = view.image.metadata_version
    left = tuple(each for each in broker.log_dirs if each not in request.offline_dirs)
    if v.has_directories(version) and left and left != broker.log_dirs:
        change = s.BrokerRegistrationChangeRecord(
            version=2, broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left
        )
        yield change
        after = view.after([change])
        lost = [
            each for each in in_sync_with(after, broker.id) if _lies_in(each, broker.id, request.offline_dirs)
        ]
        yield from updates(after, lost, out=broker.id)
    cordoned = request.cordoned_dirs
    if v.has_cordoned_dirs(version) and cordoned is not None and cordoned != broker.cordoned_log_dirs:
        yield s.BrokerRegistrationChangeRecord(
            version=3, broker_id=broker.id, broker_epoch=broker.epoch, cordoned_log_dirs=cordoned
        )


def _lies_in(place: tuple[Topic, int, PartitionRegistration], broker_id: int, directories: s.Uuids) -> bool:
    partition = place[2]
    return partition.directories[partition.replicas.index(broker_id)] in directories


def fence_broker(view: ControllerView, sessions: Sessions, request: FenceBroker) -> Outcome[None]:
    broker = view.broker(request.broker_id, request.broker_epoch)
    sessions.close(broker.id)
    return Outcome(None, () if broker.fenced else tuple(_fenced(view, broker)))


def fence_stale(view: ControllerView, sessions: Sessions, now_ms: TimestampMs) -> list[s.AnyRecord]:
    """Fence every broker whose session has ended."""
    records: list[s.AnyRecord] = []
    for _, broker in sorted(view.image.brokers.items()):
        if not broker.fenced and now_ms >= sessions.expires_ms(broker):
            made = list(_fenced(view, broker))
            sessions.close(broker.id)
            view = view.after(made)
            records += made
    return records


def unregister_broker(view: ControllerView, sessions: Sessions, request: UnregisterBroker) -> Outcome[None]:
    broker: Broker | None = view.image.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(f"broker {request.broker_id} is not registered", ErrorCode.BROKER_ID_NOT_REGISTERED)
    gone = s.UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
    sessions.close(broker.id)
    return Outcome(None, (*updates(view, in_sync_with(view, broker.id), out=broker.id), gone))


def register_controller(view: ControllerView, request: RegisterController) -> Outcome[None]:
    offered = {feature.name: (feature.min_level, feature.max_level) for feature in request.features}
    for name, level in sorted(view.image.features.items()):
        low, high = offered.get(name, (0, 0))
        if not low <= level <= high:
            raise KafkaError(
                f"controller {request.controller_id} supports {name} {low} to {high}, the cluster is at {level}",
                ErrorCode.UNSUPPORTED_VERSION,
            )
    record = s.RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        endpoints=request.endpoints,
        features=request.features,
    )
    return Outcome(None, (record,))
