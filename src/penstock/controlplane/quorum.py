"""Drives the Raft core over the metadata log on disk, and publishes commits and leadership to the node.

After every call to the core, `_process_ready` carries out its `Ready` in order: write quorum-state, change the log,
send messages, publish. `metadata_publisher` queues what it publishes, so that the listener may propose records from
within a call: `propose` returns when they are in the log, and their commit is published after the current call.

Requests go out through a `Transport` (over the wire: `quorum_transport`). Requests of other replicas come in through
`receive` and wait in `quorum_inbox` for the core's reply.

    propose --> core --> log written --> (end of the tick) sync on a thread --> core: committed --> listener

`metadata_sync` runs one sync at a time; records appended meanwhile share the next one. A disk failure ends the quorum
(`QuorumListener.failed`), because the core's votes and acknowledgements relied on that disk. `snapshot_generator`
takes snapshots of the listener's image.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias
from uuid import UUID

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.ids import LeaderEpoch, Offset, Uuid
from penstock.base.promise import Promise
from penstock.base.settings import LogSettings
from penstock.base.world import Timer, World
from penstock.controlplane.metadata_opening import MetadataLogOpener
from penstock.controlplane.metadata_publisher import MetadataPublisher
from penstock.controlplane.metadata_sync import MetadataSync
from penstock.controlplane.quorum_inbox import QuorumInbox, refusal
from penstock.controlplane.quorum_records import encode_all
from penstock.controlplane.quorum_settings import QuorumListener, QuorumSettings
from penstock.controlplane.quorum_state_file import QuorumStateFile
from penstock.controlplane.quorum_transport import reached_at
from penstock.controlplane.snapshot_generator import SnapshotGenerator
from penstock.controlplane.synced_end import SyncedEnd, SyncedEndFile
from penstock.metadata.image import EMPTY
from penstock.metadata.records import AnyRecord
from penstock.raft.describe import QuorumDescription
from penstock.raft.election import NO_LEADER
from penstock.raft.errors import NotLeader
from penstock.raft.log import OffsetAndEpoch
from penstock.raft.messages import LeaderHint, Message, Reply, Request, RequestFailed
from penstock.raft.node import Node
from penstock.raft.ready import Outbound, Ready, RoleName
from penstock.raft.voters import ReplicaKey, Voter, VoterSet
from penstock.storage.errors import StorageError
from penstock.storage.open_files import OpenFiles
from penstock.vfs import Vfs
from penstock.wire.peers import Address

logger = logging.getLogger(__name__)

OBSERVER = "observer"
"""Kafka's name for a follower without a vote."""

HAND_OVER_MS_MAX = 5000
"""How long a stopping leader waits for a new leader; Kafka's constant."""

Transport: TypeAlias = Callable[[Outbound, Callable[[Message], None]], None]
"""Sends a request to its peer, and calls back exactly once, with the reply or `RequestFailed`."""


class MetadataQuorum:
    """A replica of the metadata log. The constructor recovers the log; `start` joins the quorum."""

    def __init__(
        self,
        world: World,
        vfs: Vfs,
        files: OpenFiles,
        logs_path: str,
        meta_path: str,
        *,
        node_id: int,
        directory_id: Uuid,
        settings: QuorumSettings,
        listener: QuorumListener,
        transport: Transport | None = None,
    ) -> None:
        """Raises `KafkaError` if the directory cannot be used."""
        self._world = world
        self._settings = settings
        self._listener = listener
        self._transport = transport
        self._local = Voter(ReplicaKey(node_id, UUID(bytes=directory_id)), settings.endpoints)
        self.second_listeners = frozenset(each.listener for each in settings.endpoints) - {settings.listener}
        """This node's controller listeners that it does not use itself to reach other controllers."""
        log_settings = LogSettings(segment_bytes=settings.segment_bytes, segment_ms=settings.segment_ms)
        opening = MetadataLogOpener(vfs, files, logs_path, log_settings, world.now_ms())
        alone = settings.is_standalone and not len(settings.voters)
        self.directory = opening.directory
        """Of the metadata log."""
        synced_file = SyncedEndFile(vfs, meta_path)
        self.synced_path = synced_file.path
        synced = synced_file.read()
        opened = opening.open(
            VoterSet.of([self._local]) if alone else None, synced.offset if synced is not None else 0
        )
        self._log = opened.log
        self._synced_end = SyncedEnd(synced_file, self._log)
        self._image = opened.image
        """Of the latest snapshot, until it is published."""
        self.bootstrap = opened.bootstrap
        """First records of a new cluster, if Kafka's formatting chose them."""
        self._state_file = QuorumStateFile(vfs, opening.directory)
        self._election = self._state_file.read()
        self._configured = settings.voters
        if alone and self._log.voters_before(self._log.end_offset) is None:
            # Kafka's static quorum: no record has the voters.
            self._state_file.check_single_voter(node_id)
            self._configured = VoterSet.of([Voter(ReplicaKey(node_id), settings.endpoints)])
        self._node: Node | None = None
        self._inbox = QuorumInbox(world, self._log)
        self._is_sending = False
        self._timer: Timer | None = None
        self._sync = MetadataSync(
            world,
            self._log.log,
            self._flushed,
            self._fail,
            idle=self._synced,
            record=self._synced_end.writer,
        )
        self._snapshots = SnapshotGenerator(world, self._log, settings, listener.image, self._continue_stop)
        self._publisher = MetadataPublisher(
            self._log, listener, self._snapshots, opened.image.offset + 1, self._fail
        )
        self._stopped: Callable[[], None] | None = None
        """Set while stopping: called when the quorum has stopped."""
        self._hand_over_timer: Timer | None = None
        self._is_over = False
        """Failed, stopped or abandoned: all calls are ignored."""
        self.elections = 0
        """Elections in which this node was a candidate."""
        self._is_recovering = False
        self._unreachable: set[int] = set()
        """Peers that refused the last connection."""

    # State.

    @property
    def is_leader(self) -> bool:
        return self._node is not None and self._node.is_leader and not self._is_over

    @property
    def role(self) -> str:
        """The Raft role; `observer` for a follower without a vote."""
        if self._node is None:
            return RoleName.UNATTACHED.value
        name = self._node.role.name
        is_observer = name is RoleName.FOLLOWER and not self._node.is_voter
        return OBSERVER if is_observer else name.value

    @property
    def leader_id(self) -> int:
        return self._node.leader_id if self._node is not None else NO_LEADER

    @property
    def leader_address(self) -> Address | None:
        """The leader's controller endpoint; None if it is unknown or this node."""
        if self._node is None or self._is_over:
            return None
        leader = self._node.role.hint
        if leader.leader_id == self._local.key.id:
            return None
        found = reached_at(leader.endpoints, self._settings.listener)
        return Address(found.host, found.port) if found is not None else None

    @property
    def request_timeout_ms(self) -> int:
        return self._settings.raft.request_timeout_ms

    @property
    def has_lost_majority(self) -> bool:
        """Whether too many voters are unreachable for a majority, so that nothing can be committed."""
        node = self._node
        if node is None:
            return False
        return len(self._reachable_voters) + node.is_voter < node.voters.majority

    @property
    def _reachable_voters(self) -> list[Voter]:
        """The other voters, without those that refused the last connection."""
        assert self._node is not None
        others = self._node.voters.others(self._node.key)
        return [each for each in others if each.key.id not in self._unreachable]

    @property
    def epoch(self) -> LeaderEpoch:
        if self._node is not None:
            return self._node.epoch
        return self._election.epoch if self._election is not None else 0

    @property
    def high_watermark(self) -> Offset:
        return self._node.high_watermark if self._node is not None else self._publisher.applied

    @property
    def start_offset(self) -> Offset:
        return self._log.start_offset

    @property
    def end_offset(self) -> Offset:
        return self._log.end_offset

    @property
    def voters(self) -> VoterSet:
        """The voters in force: those of the log, or else the configured ones."""
        if self._node is not None:
            return self._node.voters
        entry = self._log.voters_before(self._log.end_offset)
        return entry.voters if entry is not None else self._configured

    @property
    def kraft_version(self) -> int:
        return self._log.kraft_version_before(self._log.end_offset)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self._log.latest_snapshot()

    @property
    def cluster_id_in_log(self) -> str:
        """The cluster id at the start of the log, committed or not; empty without one."""
        return self._log.first_cluster_id()

    @property
    def lost_end(self) -> OffsetAndEpoch | None:
        """The former end of the metadata log, while it ends before that: synced records are lost."""
        return self._synced_end.lost

    @property
    def is_recovering(self) -> bool:
        """Whether this voter is no candidate, because it must fetch lost records first."""
        return self._is_recovering

    def describe(self) -> QuorumDescription:
        if self._node is None:
            return QuorumDescription(NO_LEADER, self.epoch, -1)
        return self._node.describe(self._world.now_ms())

    # Calls of the node.

    def start(self) -> None:
        """Join the quorum; a single voter becomes leader at once."""
        assert self._node is None, "a quorum is started once"
        image, self._image = self._image, EMPTY
        self._publisher.load(image)
        self._node = Node(
            self._local,
            self._log,
            self._world.rng,
            self._world.now_ms(),
            election=self._election,
            synced_end=self.lost_end,
            voters=self._configured,
            bootstrap=self._settings.bootstrap,
            config=self._settings.raft,
        )
        self._process_ready()

    def propose(self, records: Sequence[AnyRecord], epoch: LeaderEpoch) -> Offset:
        """Append records as one batch, which is committed as a whole; return the last offset. Raises `NotLeader`."""
        values = encode_all(records)
        if self._node is None or self._is_over:
            raise NotLeader(f"not the leader of epoch {epoch}: the quorum is not running")
        offset = self._node.propose(values, epoch, self._world.now_ms())
        self._process_ready()
        if self._is_over:
            raise NotLeader(f"not the leader of epoch {epoch}: the metadata log cannot be written")
        return offset

    def receive(self, request: Request) -> Promise[Reply]:
        """Handle a request of another replica or an operator, whose cluster id and partition were checked."""
        if self._node is None or self._is_over:
            answer: Promise[Reply] = Promise()
            answer.resolve(refusal(request, ErrorCode.BROKER_NOT_AVAILABLE, LeaderHint(self.epoch)))
            return answer
        numbered, answer = self._inbox.take(request)
        self._step(numbered)
        return answer

    def _step(self, message: Message) -> None:
        """Pass a message to the core; later, if a previous one is still being processed."""
        if self._publisher.is_publishing or self._is_sending:
            self._world.call_soon(partial(self._step, message))
        elif self._node is not None:
            self._drive(partial(self._node.step, message, self._world.now_ms()))

    def stop(self, done: Callable[[], None]) -> None:
        """Hand leadership over, sync and close the log; `done` is called in any case."""
        if self._publisher.is_publishing:
            self._world.call_soon(partial(self.stop, done))
            return
        if self._is_over or self._node is None:
            self.abandon()
            self._world.call_soon(done)
            return
        self._stopped = done
        self._drive(partial(self._node.close, self._world.now_ms()))
        if self._is_over:
            return
        if self._has_handed_over:
            self._finish_stop()
        else:
            self._hand_over_timer = self._world.call_later(HAND_OVER_MS_MAX, self._finish_stop)

    def abandon(self) -> None:
        """Stop at once, as a crash would."""
        self._is_over = True
        self._stopped = None
        self._publisher.close()
        self._inbox.forget()
        self._cancel_timers()

    def _cancel_timers(self) -> None:
        self._snapshots.close()
        self._sync.close()
        for timer in (self._timer, self._hand_over_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._hand_over_timer = None

    # Driving the core.

    def _drive(self, call: Callable[[], None]) -> None:
        """Call the core, then carry out its `Ready`."""
        if self._is_over:
            return
        try:
            call()
        except KafkaError as error:  # a lost commit or an internal error: both end the quorum
            self._fail(error)
            return
        self._process_ready()

    def _process_ready(self) -> None:
        node = self._node
        assert node is not None
        ready = node.ready()
        try:
            if ready.election is not None:
                self._state_file.write(ready.election, self.kraft_version, self._configured)
            is_sound = self._change_log(ready)
        except (KafkaError, OSError) as error:
            self._fail(error)
            return
        self._send(ready)
        if ready.high_watermark is not None:
            self._publisher.committed(ready.high_watermark)
        for change in ready.roles:
            self.elections += change.role is RoleName.CANDIDATE
            self._publisher.role_changed(change)
        self._sync.request()
        self._set_timer(node)
        self._note_recovery(node)
        self._publisher.publish()
        if self._hand_over_timer is not None and self._has_handed_over:
            self._finish_stop()
        elif not is_sound:
            self._drive(partial(node.append_failed, self._world.now_ms()))

    def _note_recovery(self, node: Node) -> None:
        was, self._is_recovering = self._is_recovering, node.is_recovering
        if was != self._is_recovering:
            self._synced_end.log_recovery(is_recovering=self._is_recovering)

    def _change_log(self, ready: Ready) -> bool:
        """Apply the core's changes to the log; False if fetched records are invalid."""
        log, now_ms = self._log, self._world.now_ms()
        if ready.truncate_to is not None:
            log.truncate(ready.truncate_to)
            if not self._sync.is_busy:
                self._synced_end.truncated()
        for chunk in ready.snapshot_chunks:
            log.snapshots.receive(chunk)
        if ready.load_snapshot is not None:
            log.snapshots.received(ready.load_snapshot)
            image = log.restart_at_snapshot(ready.load_snapshot, now_ms)
            self._publisher.restarted(image)
        if ready.fetched is not None:
            assert isinstance(ready.fetched.records, bytes | bytearray | memoryview)
            try:
                log.append_fetched(ready.fetched.base_offset, bytes(ready.fetched.records), now_ms)
            except StorageError:
                raise
            except KafkaError as error:
                logger.warning("fetched metadata is invalid, fetching it again: %s", error)
                return False
        if ready.appends:
            log.append(ready.appends, now_ms)
        return True

    def _send(self, ready: Ready) -> None:
        self._is_sending = True
        try:
            for request in ready.requests:
                if self._transport is not None:
                    self._transport(request, partial(self._reply_received, request.to.id))
                else:
                    self._step(RequestFailed(request.request.request_id))
            for reply in ready.replies:
                self._inbox.answer(reply)
        finally:
            self._is_sending = False

    def _reply_received(self, peer_id: int, message: Message) -> None:
        if isinstance(message, RequestFailed) and message.refused:
            self._unreachable.add(peer_id)
        else:
            self._unreachable.discard(peer_id)
        self._step(message)

    def _set_timer(self, node: Node) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = node.next_deadline()
        if deadline is not None:
            wait_ms = max(0, deadline - self._world.now_ms())
            self._timer = self._world.call_later(wait_ms, self._tick)

    def _tick(self) -> None:
        if self._node is not None:
            self._drive(partial(self._node.tick, self._world.now_ms()))

    def _fail(self, error: Exception) -> None:
        reason = str(error)
        logger.error("the metadata quorum failed: %s", reason)
        stopped = self._stopped
        self._inbox.refuse_all(LeaderHint(self.epoch))
        self.abandon()
        if stopped is not None:
            self._world.call_soon(stopped)
        else:
            self._world.call_soon(partial(self._listener.failed, reason))

    def _synced(self) -> None:
        """A sync has ended, and no thread writes the synced end."""
        if not self._is_over:
            try:
                self._synced_end.truncated()
            except StorageError as error:
                self._fail(error)
        self._continue_stop()

    def _flushed(self, offset: Offset) -> None:
        if self._node is not None:
            self._drive(partial(self._node.flushed, offset, self._world.now_ms()))

    # Stopping.

    @property
    def _has_handed_over(self) -> bool:
        """Whether the hand-over is finished: another node leads, or no majority could elect one."""
        node = self._node
        if node is None or self._transport is None or len(self._reachable_voters) < node.voters.majority:
            return True
        return not node.is_leader and node.leader_id != node.key.id

    def _finish_stop(self) -> None:
        """Leave the quorum; the log is closed when no thread works on it."""
        self._cancel_timers()
        self._inbox.refuse_all(LeaderHint(self.epoch))
        self._node = None
        self._continue_stop()

    def _continue_stop(self) -> None:
        if (
            self._is_over
            or self._stopped is None
            or self._node is not None
            or self._sync.is_busy
            or self._snapshots.is_busy
        ):
            return
        self._is_over = True
        self._world.beside(partial(self._log.log.checkpoint, is_last=True), self._closed)

    def _closed(self, _: object, error: Exception | None) -> None:
        if error is not None:
            logger.error("the metadata log was not closed cleanly: %s", error)
        for segment in self._log.log.segments:
            segment.forget_files()
        if self._stopped is not None:
            self._stopped()
