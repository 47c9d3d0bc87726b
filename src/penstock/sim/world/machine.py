"""A machine: a disk, and the successive processes of one node on it.

    kill         the process ends; the disk keeps everything that was written
    power cut    the process ends; of what was not synced, the disk keeps a random part
    stop         the node stops cleanly
    pause        the process is stopped (SIGSTOP) and resumed later
    flips        bits of the disk change, while a process runs or while none does
    wipe         the disk is replaced by an empty one
    trouble      the disk fails or is slow for a while (`disk_troubles`), also over restarts of the process

After a failed sync the kernel's page cache has bytes that the disk does not have. The process that saw the failure
writes them again; the next process cannot know of it. So a kill after a failed sync counts as a power cut here, as
operators restart a machine with such a disk.

A kill or a power cut happens between two events or within one: at the n-th change of the disk from now. At that
moment the disk is copied, and the next process gets the copy.
"""

import asyncio
import errno
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from itertools import count
from typing import Protocol

from penstock.base.errors import KafkaError
from penstock.base.settings import BadSetting
from penstock.base.world import World
from penstock.server.config import NodeConfig
from penstock.sim.checkers.history import Killed, PowerCut, Started, Stopped
from penstock.sim.checkers.violation import Violation
from penstock.sim.clients.client import Recorder
from penstock.sim.faults.disk_damage import Target, flip_bits, flip_unread, remove_metadata
from penstock.sim.faults.disk_troubles import ActiveTrouble, apply_trouble
from penstock.sim.faults.hole_trials import lose
from penstock.sim.world.network import Network
from penstock.sim.world.process_world import TRUE, Clock, SimWorld
from penstock.sim.world.schedule import Event, Schedule
from penstock.storage import Log
from penstock.vfs import FaultyDisk, MemoryDisk, Vfs
from penstock.vfs.faulty import Rule

ALONE = "127.0.0.1"
"""Host of a single node."""
KAFKA_PORT, CONTROLLER_PORT = 9092, 9093
LISTENER, CONTROLLER = "PLAINTEXT", "CONTROLLER"
SECURED_PORT, SECURED_LISTENER = 9094, "CLIENTS"
"""Where clients log in, if the cluster is secured."""
DOOR_PORTS = {"http": 8080, "line": 9090}

LONELY = "initial.broker.registration.timeout.ms"
"""Named in the error of a broker that found no controller in time, which is allowed while the network is cut."""

STOP_US_MAX = 60_000_000
"""A stop that takes longer is a violation."""

START_US_MAX = 60_000_000


class NodeLike(Protocol):
    """`server.node.Node`, as the machine uses it."""

    def start(self, ready: Callable[[], None], failed: Callable[[str], None]) -> None: ...

    def connection(self, listener: str) -> asyncio.BufferedProtocol: ...

    def open_doors(self, opened: Callable[[], None]) -> None: ...

    def door(self, name: str) -> asyncio.BufferedProtocol: ...

    def stop(self, done: Callable[[], None]) -> None: ...


MakeNode = Callable[[World, Vfs, NodeConfig], NodeLike]


class State(Enum):
    DOWN = "down"
    STARTING = "starting"
    UP = "up"
    STOPPING = "stopping"


class Machine:
    def __init__(
        self,
        schedule: Schedule,
        network: Network,
        recorder: Recorder,
        config: NodeConfig,
        make_node: MakeNode,
        *,
        host: str = ALONE,
        number: int = 1,
        incarnations: Iterator[int] | None = None,
        clock: Clock = TRUE,
        later_config: NodeConfig | None = None,
        has_faults: bool = False,
        may_have_trouble: bool = False,
    ) -> None:
        """`later_config` applies once the node was ready for the first time."""
        self.disk = MemoryDisk()
        self.host = host
        self.number = number
        """The node's id."""
        self.state = State.DOWN
        self.incarnation = 0
        """Number of the current or last process, counted over all machines."""
        self.process_count = 0
        self.on_down: Callable[[], None] = lambda: None
        """Called whenever the process has ended."""
        self.is_timed = host == ALONE
        """Whether a start or a stop has a deadline. In a cluster it may have to wait for other nodes."""
        self.has_faults = has_faults
        """Whether the disk fails sometimes."""
        self.trouble: ActiveTrouble | None = None
        """Current trouble of the disk."""
        self.has_run = False
        """Whether its process has run anything since this was reset."""
        self.lost_power = False
        """Whether it may have lost data. `is_in_sync` resets this."""
        self.is_distrusted = False
        """Whether it stopped uncleanly, so that the controller may assume lost data. `is_in_sync` resets this."""
        self.is_spoilt = False
        """Whether its disk was damaged: bits have flipped."""
        self.lacks_metadata = False
        """Whether it lost the end of its metadata log. `has_lost_metadata` resets this."""
        self.has_given_up = False
        """Whether its node has refused to run on a damaged disk, which must be replaced."""
        self._schedule = schedule
        self._network = network
        self._recorder = recorder
        self._config = config
        self._later_config = later_config or config
        self._make_node = make_node
        self._clock = clock
        self._incarnations = incarnations or count(1)
        self._boot = 1
        """Number of boots; each power cut adds one."""
        self._rng = schedule.rng(f"machine {number}")
        self._world: SimWorld | None = None
        self._node: NodeLike | None = None
        self._failing_sync: Rule | None = None
        self._may_have_trouble = may_have_trouble
        self._faulty: FaultyDisk | None = None
        """The process's view of a disk that may get into trouble."""
        self._deadline: Event | None = None
        """Timer of a start or a stop."""

    @property
    def boot_id(self) -> str:
        """Identifies this boot of the machine to its node."""
        return f"{self.host}, boot {self._boot}"

    # -- starting --------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.state is not State.DOWN:
            return
        self.incarnation = next(self._incarnations)
        self.process_count += 1
        self.state = State.STARTING
        self._network.powered(self.host)
        world = self._world = SimWorld(
            self._schedule,
            self.incarnation,
            host=self.host,
            clock=self._clock,
            network=self._network,
            boot=self._boot,
        )
        world.on_run = self._about_to_run
        self._trace("starts")
        self._recorder.record(Started(self.incarnation))
        self._set_deadline(START_US_MAX, "is not ready")
        vfs = self._vfs()
        world.run(lambda: self._start(world, vfs))

    def _start(self, world: SimWorld, vfs: Vfs) -> None:
        try:
            node = self._make_node(world, vfs, self._config)
            if world.is_alive:
                self._node = node
                node.start(lambda: self._ready(world, node), lambda reason: self._failed(world, reason))
                # A quorum needs connections between controllers before its nodes are ready.
                if self._config.cluster.is_controller:
                    self._network.listen(world, CONTROLLER_PORT, lambda: node.connection(CONTROLLER))
        except (KafkaError, BadSetting) as error:
            self._failed(world, str(error))

    def _vfs(self) -> Vfs:
        self._failing_sync = None
        if self._may_have_trouble:
            return self._troubled_vfs()
        if not self.has_faults:
            return self.disk
        rng = self._rng
        faulty = FaultyDisk(self.disk, rng=self._schedule.rng(f"faults {self.incarnation}"))
        if rng.random() < 0.5:
            after = rng.randrange(5, 200)
            self._failing_sync = faulty.fail("sync", path="*.log", error=errno.EIO, times=1, after=after)
        if rng.random() < 0.5:
            faulty.fail("write", path="*.log", error=errno.ENOSPC, times=1, after=rng.randrange(5, 300))
        if rng.random() < 0.5:
            faulty.tear_writes(path="*.log", times=1, after=rng.randrange(5, 300))
        return faulty

    def _troubled_vfs(self) -> FaultyDisk:
        rng = self._schedule.rng(f"faults {self.incarnation}")
        self._faulty = FaultyDisk(self.disk, rng=rng, sleep=self._sleep)
        if self.trouble is not None:
            self._failing_sync = apply_trouble(self.trouble, self._faulty)
        return self._faulty

    def _ready(self, world: SimWorld, node: NodeLike) -> None:
        if world.is_alive and self.state is State.STARTING:
            self.state = State.UP
            self._config = self._later_config
            self._clear_deadline()
            self._trace("is ready")
            if self.is_broker:
                self._network.listen(world, KAFKA_PORT, lambda: node.connection(LISTENER))
                if SECURED_LISTENER in self._config.listeners:
                    self._network.listen(world, SECURED_PORT, lambda: node.connection(SECURED_LISTENER))
            if self._config.doors:
                node.open_doors(lambda: self._listen_at_doors(world, node))

    def _listen_at_doors(self, world: SimWorld, node: NodeLike) -> None:
        if world.is_alive and self.state is State.UP:
            for name in filter(
                DOOR_PORTS.__contains__, self._config.doors
            ):  # simulated clients use no registry
                self._network.listen(world, DOOR_PORTS[name], partial(node.door, name))

    def _failed(self, world: SimWorld, reason: str) -> None:
        """The node refused to start or to continue."""
        if not world.is_alive:
            return
        is_lonely = LONELY in reason and not self.is_timed and not self._network.is_calm
        if not (self.has_faults or self.trouble is not None or self.is_spoilt or is_lonely):
            raise Violation(f"NodeLives: process {self.incarnation} of {self.host} gave up: {reason}")
        self._trace(f"gives up: {reason}")
        self.has_given_up = self.is_spoilt and not is_lonely
        self.kill()

    # -- ending ----------------------------------------------------------------------------------------

    def kill(self) -> None:
        if self.state is State.DOWN:
            return
        if self._failing_sync is not None and self._failing_sync.hits:
            self.cut_power()
        else:
            self._die(self.disk.kill_clone(), is_power_cut=False)

    def cut_power(self) -> None:
        self.lost_power = True
        self._boot += 1
        self._die(self.disk.crash_clone(self._rng), is_power_cut=True)

    def crash_within(
        self,
        changes: int,
        *,
        is_power_cut: Callable[[], bool],
        happens: Callable[[], bool] = lambda: True,
    ) -> None:
        """Crash before the n-th change or sync of the disk from now. `is_power_cut` and `happens` are called at that
        moment."""
        left = changes
        disk = self.disk

        def strike(_: str) -> None:
            nonlocal left
            left -= 1
            if left <= 0 and self.disk is disk:
                disk.on_change = disk.on_sync = None
                if not happens():
                    return
                if is_power_cut():
                    self.cut_power()
                else:
                    self.kill()

        disk.on_change = disk.on_sync = strike

    def disarm(self) -> None:
        """Cancel a pending `crash_within`."""
        self.disk.on_change = self.disk.on_sync = None

    def _die(self, disk: MemoryDisk, *, is_power_cut: bool) -> None:
        self.disarm()
        self.is_distrusted = True
        what = "loses power" if is_power_cut else "is killed"
        self._trace(f"{what} while {self.state.value}")
        self.disk = disk
        self._end()
        self._network.node_died(self.host, is_power_cut=is_power_cut)
        self._recorder.record(PowerCut(self.incarnation) if is_power_cut else Killed(self.incarnation))
        self.on_down()

    def stop(self) -> None:
        """Stop the node cleanly."""
        if self.state is not State.UP:
            return
        world, node = self._world, self._node
        assert world is not None
        assert node is not None
        self._trace("is asked to stop")
        self.state = State.STOPPING
        self.resume()
        self._network.stop_listening(self.host)
        self._set_deadline(STOP_US_MAX, "does not stop")
        world.run(lambda: node.stop(lambda: self._stopped(world)))

    def _stopped(self, world: SimWorld) -> None:
        if not world.is_alive:
            return
        self._trace("has stopped")
        self.disarm()
        self._end()
        self._network.node_died(self.host, is_power_cut=False)
        self._recorder.record(
            Stopped(self.incarnation, is_clean=not self.has_faults and not self._may_have_trouble)
        )
        if self._failing_sync is not None and self._failing_sync.hits:
            self.cut_power()
        else:
            self.on_down()

    # -- while it is down ------------------------------------------------------------------------------

    def flip_bits(self, targets: tuple[Target, ...]) -> None:
        """Flip some bits on the disk."""
        self._note_damage(flip_bits(self.disk, targets, self._rng))

    def lose_files(self) -> None:
        """Damage a partition: remove a segment or part of it, a transaction marker, an index or a snapshot."""
        lost = lose(self.disk, self._rng)
        self._note_damage(lost and lost.what)

    def flip_unread(self, logs: Iterable[Log]) -> None:
        """Flip bits that a running node, which has these logs open, has not read yet."""
        disk = self.disk
        hook, disk.on_change = disk.on_change, None  # the node has changed nothing
        done = flip_unread(disk, logs, self._rng)
        disk.on_change = hook
        self._note_damage(done)

    def _note_damage(self, done: str | None) -> None:
        """`done` describes the damage, or is None if there is none."""
        if done is not None:
            self._trace(done)
            self.is_spoilt = self.lost_power = self.is_distrusted = True

    def spoil_metadata(self, done: str | None) -> None:
        """Note that the metadata log lost its end; `done` describes how, or is None if it did not."""
        if done is not None:
            self._trace(done)
            self.lacks_metadata = True

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        self._trace("gets an empty disk")
        self.disk = MemoryDisk()
        self.is_spoilt = self.has_given_up = False
        self.lost_power = self.is_distrusted = True

    def lose_metadata(self) -> None:
        """Remove its damaged metadata log, which other voters have. Its partitions stay."""
        self._trace("loses its damaged metadata log")
        remove_metadata(self.disk)
        self.has_given_up = False

    def make_unwatched(self, make_node: MakeNode) -> None:
        """Use unwatched nodes from now on, which may refuse to start."""
        self._make_node = make_node
        self.is_spoilt = True
        self.on_down = lambda: None

    # -- a disk that fails for a while -----------------------------------------------------------------

    def begin_trouble(self, trouble: ActiveTrouble) -> None:
        """Make the disk fail from now on."""
        self.trouble = trouble
        self._trace(f"has a disk that {trouble}")
        self.lost_power = True  # what it cannot write or sync is missing
        if self._faulty is not None and self.state is not State.DOWN:
            self._failing_sync = apply_trouble(trouble, self._faulty)

    def end_trouble(self) -> None:
        """Make the disk work again."""
        self.trouble = None
        self.lost_power = True  # until it has caught up
        self._trace("has a disk that works")
        if self._faulty is not None:
            self._faulty.clear()

    def _sleep(self, seconds: float) -> None:
        """Delay a disk operation: on a thread its callback is late; on the loop the whole process stands still."""
        if self._world is None or self._world.is_beside:
            if self._world is not None:
                self._world.slept(seconds)
            return
        if not self._world.is_paused:
            self._trace(f"waits for its disk for {seconds:.1f} s")
            world = self._world
            world.pause()
            self._schedule.later(round(seconds * 1_000_000), lambda: self._wake(world))

    def _wake(self, world: SimWorld) -> None:
        if self._world is world:
            self.resume()

    # -- standing still --------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop the process (SIGSTOP)."""
        if self._world is not None and not self._world.is_paused:
            self._trace("is paused")
            self._world.pause()

    def resume(self) -> None:
        if self._world is not None and self._world.is_paused:
            self._trace("resumes")
            self._world.resume()
            self._network.resumed(self.host)

    def _end(self) -> None:
        self.state = State.DOWN
        self._clear_deadline()
        if self._world is not None:
            self._world.end()
        self._world = self._node = None

    # -- small things ----------------------------------------------------------------------------------

    @property
    def node(self) -> NodeLike | None:
        """The node of the current process."""
        return self._node

    @property
    def is_broker(self) -> bool:
        return self._config.cluster.is_broker

    @property
    def is_voter(self) -> bool:
        return self._config.cluster.is_controller

    @property
    def is_paused(self) -> bool:
        return self._world is not None and self._world.is_paused

    def _about_to_run(self) -> None:
        self.has_run = True
        if self._world is not None:
            self.disk.now_ms = self._world.now_ms()

    def _set_deadline(self, delay_us: int, complaint: str) -> None:
        self._clear_deadline()
        if not self.is_timed:
            return
        incarnation = self.incarnation

        def complain() -> None:
            seconds = delay_us // 1_000_000
            raise Violation(f"NodeLives: process {incarnation} of {self.host} {complaint} after {seconds} s")

        self._deadline = self._schedule.later(delay_us, complain)

    def _clear_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _trace(self, what: str) -> None:
        counts = f"{self.disk.change_count} changes, {self.disk.sync_count} syncs"
        where = "" if self.host == ALONE else f" of {self.host}"
        self._recorder.trace(f"process {self.incarnation}{where} {what} ({counts})")
