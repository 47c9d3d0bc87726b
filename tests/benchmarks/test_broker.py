"""The benchmark of the broker runs: its frames are what they claim to be, its generator counts and complains, its
rows measure something. How fast anything is, is not judged here."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.broker import frames, groups
from benchmarks.broker.goals import AIMS, GOALS, Against, Goal
from benchmarks.broker.load import BadReply, Load, cpu_seconds, drive, receive_frame
from benchmarks.broker.report import Result
from benchmarks.broker.rounds import FLOOR_TOPIC, YARDSTICK, all_rows
from benchmarks.broker.rows import Line, hot_rows
from benchmarks.broker.servers import floor

from penstock.records import RecordBatch
from penstock.wire import parse_fetch, parse_header, parse_produce

ROOT = Path(__file__).parents[2]
QUICK_ROWS = [
    ("produce-64", "fetch-1m", "fsync-8", "rest"),
    ("heartbeat-consumer", "commits-1000", "settle-classic", "settle-consumer"),
]
BESIDE_A_YARDSTICK = {"produce-64", "fetch-1m", "fsync-8", "heartbeat-consumer", "commits-1000"}


# -- frames -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16 * frames.KB, 128 * frames.KB, frames.MB])
def test_a_batch_has_exactly_the_size_that_was_asked_for(size: int) -> None:
    batch = RecordBatch.parse(frames.batch_of(size))

    assert batch.crc_valid
    assert sum(1 for _ in batch.records()) == frames.records_in(frames.batch_of(size))
    assert len(frames.batch_of(size)) == size


def test_a_produce_frame_reads_back() -> None:
    frame = memoryview(frames.produce_frame("bench", [0, 3], b"records", acks=-1))[4:]
    header = parse_header(frame)
    request = parse_produce(frame, header.body_at, header.api_version)

    assert (header.api_version, header.correlation_id) == (frames.PRODUCE_VERSION, 0)
    assert request.acks == -1
    [topic] = request.topics
    assert topic.topic == "bench"
    assert [(each.partition, bytes(each.records or b"")) for each in topic.partitions] == [
        (0, b"records"),
        (3, b"records"),
    ]


def test_a_fetch_frame_reads_back() -> None:
    frame = memoryview(frames.fetch_frame(bytes(range(16)), [7, 8]))[4:]
    header = parse_header(frame)
    request = parse_fetch(frame, header.body_at, header.api_version)

    assert (request.session_id, request.session_epoch, request.min_bytes) == (0, -1, 0)
    [topic] = request.topics
    assert topic.topic == bytes(range(16))
    assert [(each.partition, each.fetch_offset) for each in topic.partitions] == [(0, 7), (1, 8)]


def test_all_frames_of_a_row_have_one_size() -> None:
    for row in [*hot_rows(), *groups.hot_rows()]:
        load = row.load(FLOOR_TOPIC, 0.01)
        assert len({len(frame) for ring in load.rings for frame in ring}) == 1, row.name


# -- the generator ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("connections", "in_flight", "size"), [(8, 1, 200), (4, 8, 200), (2, 3, 700_000)])
def test_the_generator_counts_the_replies_of_the_floor(connections: int, in_flight: int, size: int) -> None:
    load = Load([[bytes(size)]], connections, in_flight, requests=60, requests_warm=10, error_at=20)
    with floor(size, 64) as server:
        measured = drive(server.port, server.pid, load)

    assert 60 <= measured.requests <= 60 + connections * in_flight
    assert (measured.request_bytes, measured.reply_bytes) == (size, 64)
    assert 0 < measured.cpu_seconds <= measured.seconds * 2
    assert measured.load_cpu_seconds > 0


def test_the_generator_stops_when_its_time_is_up() -> None:
    load = Load([[bytes(64)]], 1, 1, requests=10**9, requests_warm=0, error_at=20, seconds_max=0.05)
    with floor(64, 64) as server:
        assert 0 < drive(server.port, server.pid, load).requests < 10**9


def test_the_generator_keeps_to_a_rate() -> None:
    load = Load([[bytes(64)]], 4, 1, requests=50, requests_warm=10, error_at=20, rate=500.0)
    with floor(64, 64) as server:
        measured = drive(server.port, server.pid, load)

    assert measured.requests >= 50
    # What was late may be made up for, by no more than the connections have in flight.
    assert measured.seconds >= (50 - 4) / 500.0 - 0.02


@contextmanager
def answering(*replies: bytes) -> Iterator[int]:
    """A server for one connection, which answers frames of 64 bytes with what it was given, and then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with listener.accept()[0] as client:
                for reply in replies:
                    client.recv(64, socket.MSG_WAITALL)
                    client.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join()


GOOD = (60).to_bytes(4, "big") + bytes(60)
ONE_AT_A_TIME = Load([[(60).to_bytes(4, "big") + bytes(60)]], 1, 1, 100, 0, error_at=20)


@pytest.mark.parametrize(
    ("replies", "complaint"),
    [
        ([GOOD, GOOD[:20] + b"\0\6" + GOOD[22:]], "error code 6"),
        ([GOOD[:20] + b"\0\6" + GOOD[22:]], "error code 6"),
        ([GOOD, (64).to_bytes(4, "big") + bytes(64)], "a reply of 64 bytes"),
        ([(4).to_bytes(4, "big") + bytes(4)], "the first reply has 8 bytes only"),
        ([GOOD, GOOD], "the connection was closed"),
    ],
)
def test_the_generator_refuses_to_measure_failures(replies: list[bytes], complaint: str) -> None:
    with answering(*replies) as port, pytest.raises(BadReply, match=complaint):
        drive(port, os.getpid(), ONE_AT_A_TIME)


def test_a_frame_is_received_whole_however_it_arrives() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(GOOD + b"tail")
        assert receive_frame(ours) == GOOD


def test_the_cpu_clock_of_a_process_moves_with_its_work() -> None:
    before = cpu_seconds(os.getpid())
    sum(range(200_000))
    assert cpu_seconds(os.getpid()) > before


# -- goals --------------------------------------------------------------------------------------------


def test_every_goal_and_aim_belongs_to_a_line() -> None:
    lines = [line for row in all_rows() for line in row.lines]

    assert set(GOALS) <= {line.key for line in lines}
    assert set(AIMS) <= {line.unit for line in lines}
    assert len({line.key for line in lines}) == len(lines)


@pytest.mark.parametrize(
    ("goal", "figure", "yardstick", "is_met"),
    [
        (Goal(2), 2.0, None, True),
        (Goal(2), 2.1, None, False),
        (Goal(2, at_least=True), 1.9, None, False),
        (Goal(2, Against.TIMES_YARDSTICK), 6.0, 3.0, True),
        (Goal(2, Against.TIMES_YARDSTICK), 6.1, 3.0, False),
        (Goal(2, Against.ABOVE_YARDSTICK), 5.0, 3.0, True),
        (Goal(2, Against.ABOVE_YARDSTICK), 5.1, 3.0, False),
    ],
)
def test_a_goal_is_held_against_what_it_names(
    goal: Goal, figure: float, yardstick: float | None, is_met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GOALS, "made-up", goal)
    rounds = {"penstock": [figure] * 3, **({YARDSTICK: [yardstick] * 3} if yardstick else {})}

    assert Result(Line("made-up", "work", "us"), rounds).is_met is is_met


def test_a_goal_without_its_yardstick_is_neither_met_nor_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GOALS, "made-up", Goal(2, Against.TIMES_YARDSTICK))

    assert Result(Line("made-up", "work", "us"), {"penstock": [1.0]}).is_met is None


# -- a run --------------------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.broker", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(QUICK_ROWS[0], id="records"),
        pytest.param(QUICK_ROWS[1], id="groups", marks=pytest.mark.long),
    ],
)
def test_a_quick_run_measures_every_figure_of_its_rows(rows: tuple[str, ...]) -> None:
    done = run("--quick", "--no-goals", "--json", "--rows", ",".join(rows))

    assert done.returncode == 0, done.stderr
    found = {each["key"]: each for each in json.loads(done.stdout)["rows"]}
    assert set(found) == {line.key for row in all_rows() if row.name in rows for line in row.lines}
    assert all(each["medians"]["penstock"] is not None for each in found.values())
    assert all(found[key]["times_yardstick"] > 0 for key in BESIDE_A_YARDSTICK & set(rows))


def test_a_row_that_does_not_exist_is_named() -> None:
    done = run("--rows", "produce-64,nonsense")

    assert done.returncode == 1
    assert done.stderr.startswith("no row nonsense; there are: produce-8, ")
