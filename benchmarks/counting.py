"""What counting costs a one-record Produce: `python -m benchmarks.counting`.

So many clients, in a process of their own, send one request each and wait for all replies, again and again. They are
answered by a node's way of a Produce request, on uvloop and over TCP, and its CPU is measured. Beside it the steps of
counting are done alone, as often. Of both, the least of several rounds.
"""

import argparse
import asyncio
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, Final, cast

import uvloop

from benchmarks.broker.frames import one_record, produce_frame
from penstock.base.ids import TopicPartition
from penstock.base.metrics import Metrics
from penstock.base.settings import LogSettings
from penstock.handlers.support.context import Context
from penstock.handlers.support.dispatch import Dispatcher
from penstock.metadata.image import PartitionRegistration
from penstock.replica.delayed_operations import Durability
from penstock.replica.partition import Partition
from penstock.replica.sync_lane import SyncLane
from penstock.server.connection import Connection
from penstock.server.loop_tick import LoopTick
from penstock.server.world import LoopWorld
from penstock.storage import open_directory
from penstock.vfs import RealDisk

SHARE_MAX: Final = 0.03
"""What counting may cost of the whole."""

TOPIC, TOPIC_ID = "bench-000001", bytes(range(16))
CROWDS: Final = (1, 8, 64)


class Crowd:
    """A node's way of a Produce request, from the loop to a log on disk, with nothing around it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: str) -> None:
        self._loop = loop
        world = LoopWorld(loop)
        opened = open_directory(
            RealDisk(),
            directory,
            now_ms=world.now_ms(),
            rng=Random(1),
            settings_of=lambda _: LogSettings(segment_bytes=64 << 20),
        )
        self._tick = tick = LoopTick(world)
        log = opened.create(TopicPartition(TOPIC, 0), now_ms=world.now_ms())
        partition = Partition(log, TOPIC_ID, world, SyncLane(world), Durability.ALONE, tick.write_later)
        partition.lead(PartitionRegistration(replicas=(1,), directories=(bytes(16),), isr=(1,), leader=1), 1)
        by_key = {(TOPIC, 0): partition, (TOPIC_ID, 0): partition}
        nothing = cast(Any, None)
        self._dispatcher = Dispatcher(
            Context(
                world=world,
                node_id=1,
                cluster_id="bench",
                settings=nothing,
                replicas=cast(Any, SimpleNamespace(led=lambda topic, number: by_key.get((topic, number)))),
                controller=nothing,
                quorum=nothing,
                fetch_sessions=nothing,
                producer_ids=nothing,
                groups=nothing,
                transactions=nothing,
                markers=nothing,
                broker_client=nothing,
                image=nothing,
                metrics=tick.metrics,
            )
        )
        self.metrics = tick.metrics
        self._here = 0

    def made(self, _: Connection) -> None:
        self._here += 1

    def lost(self, _: Connection) -> None:
        self._here -= 1
        if not self._here:
            self._loop.stop()

    def serve(self, count: int, turns: int) -> float:
        """CPU seconds that it took to answer so many clients that send and wait, so often."""
        listening = socket.create_server(("127.0.0.1", 0), backlog=count)
        child = os.fork()
        if not child:
            _produce(listening.getsockname(), count, turns)
            os._exit(0)
        self._loop.run_until_complete(
            self._loop.create_server(
                lambda: Connection(self._tick, self._dispatcher, 100 << 20, owner=self), sock=listening
            )
        )
        began = time.process_time()
        self._loop.run_forever()
        spent = time.process_time() - began
        _, status = os.waitpid(child, 0)
        assert status == 0, "the clients failed"
        return spent


def _produce(address: tuple[str, int], count: int, turns: int) -> None:
    """The clients, in a process of their own."""
    frame = produce_frame(TOPIC, [0], one_record())
    clients = [socket.create_connection(address) for _ in range(count)]
    for _ in range(turns):
        for each in clients:
            each.sendall(frame)
        for each in clients:
            assert each.recv(4096)
    for each in clients:
        each.close()


def whole_us(count: int, turns: int, rounds: int) -> float:
    """CPU of one request, all in."""
    loop = uvloop.new_event_loop()
    with tempfile.TemporaryDirectory() as directory:
        crowd = Crowd(loop, directory)
        best = min(crowd.serve(count, turns) for _ in range(rounds))
        assert crowd.metrics.produce.times.count == rounds * turns * count
    loop.close()
    return best / turns / count * 1e6


class _Node:
    """Where the numbers are that counting looks at and moves."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.produce = self.metrics.produce
        self.clock_ns = time.perf_counter_ns
        self.written_bytes = self.written_records = 0


def counting_us(count: int, turns: int, rounds: int) -> float:
    """CPU of what a request costs more because it is counted: the same steps, without what is around them."""
    node = _Node()
    requests = range(count)

    def play() -> None:
        for _ in range(turns):
            metrics = node.metrics  # server/loop_tick.py
            if not metrics.tick_began_ns:
                metrics.tick_began_ns = node.clock_ns()
            for _ in requests:  # handlers/support/dispatch.py
                meter = node.produce
                if meter.in_tick:
                    meter.in_tick += 1
                else:
                    meter.in_tick = 1
                    node.metrics.busy.append(meter)
            node.written_bytes += count  # storage/log.py
            node.written_records += count
            now_ns = node.clock_ns()
            node.metrics.tick_ended(now_ns, 0)

    def nothing() -> None:
        for _ in range(turns):
            for _ in requests:
                pass

    return (_least_us(play, rounds) - _least_us(nothing, rounds)) / turns / count


def _least_us(call: Callable[[], None], rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time_ns()
        call()
        best = min(best, (time.process_time_ns() - began) / 1000)
    return best


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.counting", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the work, to see that it runs")
    parser.add_argument("--no-goals", action="store_true", help="a missed goal is no failure")
    options = parser.parse_args(arguments)
    requests, rounds = (1000, 2) if options.quick else (20_000, 5)
    missed = False
    print(f"{'clients':>8} {'request, us':>12} {'counting, us':>13} {'share':>7}")
    for count in CROWDS:
        whole = whole_us(count, requests // count, rounds)
        counting = counting_us(count, requests // count, rounds)
        share = counting / whole
        missed |= share > SHARE_MAX
        print(f"{count:>8} {whole:>12.2f} {counting:>13.3f} {share:>7.1%}")
    if missed:
        print(f"counting costs more than {SHARE_MAX:.0%}")
    return 1 if missed and not options.no_goals else 0


if __name__ == "__main__":
    sys.exit(main())
