"""Groups, row by row: how soon a large one has settled, what a heartbeat costs, what commits cost.

Heartbeats and commits come from members of settled groups, a connection each. Commits come at a steady rate and in
several groups, so that they are many small writes to several partitions of the topic that groups are kept in.
"""

from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.broker.crowd import Settled
from benchmarks.broker.load import Load
from benchmarks.broker.members import (
    CONSUMER_HEARTBEAT_ERROR_AT,
    HEARTBEAT_ERROR_AT,
    Joined,
    commit_error_at,
    commit_frame,
    consumer_heartbeat_frame,
    heartbeat_frame,
)
from benchmarks.broker.rows import Company, HotRow, Line, Topic, us_each

PROTOCOLS: Final = ("classic", "consumer")
GROUP_NAME: Final = "bench-group-{:06}"
SETTLE_MEMBERS, SETTLE_PARTITIONS = 500, 1000
HEARTBEAT_MEMBERS: Final = 64
COMMIT_GROUPS, COMMIT_MEMBERS = 1, 50
COMMIT_RATE: Final = 1000
_OFFSETS: Final = 8
"""Different ones that a member commits in turn."""

_STAND_IN = {
    "classic": Joined(GROUP_NAME.format(0), "rdkafka-00000000-0000-0000-0000-000000000000", 0, (0,)),
    "consumer": Joined(GROUP_NAME.format(0), "A" * 22, 0, (0,)),
}
"""The floor has no members, but its requests are to have the same size."""


def hot_rows() -> list[HotRow]:
    return [
        _heartbeat("classic", heartbeat_frame, HEARTBEAT_ERROR_AT),
        _heartbeat("consumer", consumer_heartbeat_frame, CONSUMER_HEARTBEAT_ERROR_AT),
        _commits(),
    ]


def _heartbeat(protocol: str, frame: Callable[[Joined], bytes], error_at: int) -> HotRow:
    def load(topic: Topic, scale: float) -> Load:
        members = topic.members or [_STAND_IN[protocol]]
        return Load(
            rings=[[frame(each)] for each in members],
            connections=HEARTBEAT_MEMBERS,
            in_flight=1,
            requests=int(20_000 * scale),
            requests_warm=int(2_000 * scale),
            error_at=error_at,
        )

    name = f"heartbeat-{protocol}"
    return HotRow(
        name,
        [Line(name, f"Heartbeat of {HEARTBEAT_MEMBERS} members, {protocol} protocol", "us")],
        load,
        lambda measured: {name: us_each(measured)},
        partitions=HEARTBEAT_MEMBERS,
        company=Company(protocol, 1, HEARTBEAT_MEMBERS),
    )


def _commits() -> HotRow:
    """Each of one partition. What a second's commits cost, as a part of one core."""
    name = f"commits-{COMMIT_RATE}"

    def load(topic: Topic, scale: float) -> Load:
        members = topic.members or [_STAND_IN["consumer"]]
        return Load(
            rings=[
                [commit_frame(each, topic.name, offset) for offset in range(_OFFSETS)] for each in members
            ],
            connections=COMMIT_GROUPS * COMMIT_MEMBERS,
            in_flight=1,
            requests=int(3_000 * scale),
            requests_warm=int(500 * scale),
            error_at=commit_error_at(topic.name),
            rate=COMMIT_RATE,
        )

    return HotRow(
        name,
        [Line(name, f"OffsetCommit, {COMMIT_RATE:,} a second", "% core")],
        load,
        lambda measured: {name: us_each(measured) * COMMIT_RATE / 1e6 * 100},
        partitions=COMMIT_MEMBERS,
        company=Company("consumer", COMMIT_GROUPS, COMMIT_MEMBERS),
    )


# -- settling -----------------------------------------------------------------------------------------


def settle_sizes(scale: float) -> tuple[int, int]:
    """How many members, on how many partitions."""
    return max(2, int(SETTLE_MEMBERS * scale)), max(4, int(SETTLE_PARTITIONS * scale))


def settle_lines(protocol: str) -> list[Line]:
    name = f"settle-{protocol}"
    work = f"{SETTLE_MEMBERS} members on {SETTLE_PARTITIONS:,} partitions settle, {protocol} protocol"
    return [
        Line(name, work, "s", yardstick=""),
        Line(f"{name}-cpu", f"{work}, CPU", "s", yardstick=""),
    ]


def settle_figures(protocol: str, settled: Settled) -> Mapping[str, float]:
    name = f"settle-{protocol}"
    return {name: settled.seconds, f"{name}-cpu": settled.cpu_seconds}
