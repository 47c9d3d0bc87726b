"""`penstock reassign`: plans, starts, shows and cancels partition reassignments."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition
from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, connected
from penstock.cli.main import EXIT_CANNOT, EXIT_WRONG
from penstock.cli.options import Json
from penstock.cli.output import Refused, complain, counted, print_json, print_table
from penstock.cli.reassign_file import document_of, read_file
from penstock.cli.throttles import clear_throttles, set_throttles
from penstock.client.admin import describe_topics
from penstock.client.cluster import Cluster
from penstock.client.errors import refused
from penstock.client.reassignments import Moving, alter_reassignments, list_reassignments
from penstock.client.replicas import log_ends
from penstock.metadata.reassignment_plan import Assignment, CannotPlan, PlannedBroker
from penstock.metadata.reassignment_plan import plan as plan_moves

app = command_group(
    """Move partitions to other brokers.

    Works with Penstock and Apache Kafka. A plan is a file in the format of kafka-reassign-partitions; each tool reads
    the other's plans.

    \b
    penstock reassign plan orders payments --brokers 1,2,3 --out plan.json
    penstock reassign apply plan.json --throttle 50000000
    penstock reassign status plan.json
    """
)
File = Annotated[Path, typer.Argument(metavar="FILE", help="A plan; - is standard input.")]
KeepThrottle = Annotated[
    bool, typer.Option("--keep-throttle", help="Keep the settings that throttle replication.")
]


LOOK_EVERY_S = 0.5
"""How often `--wait` checks whether all moves are done."""
OFFSETS_WAIT_MS = 5_000
"""How long to wait for the log end of a replica."""
SETTLE_MS = 2_000
"""How far the metadata of a broker may lag behind the controller, which reports the moves."""


@app.command("plan")
def plan_command(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to move.")],
    brokers: Annotated[
        str | None,
        typer.Option("--brokers", "-b", metavar="ID,ID,...", help="Brokers for the replicas.  [all brokers]"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor", "-r", min=1, max=32767, help="Replicas of each partition.  [as now]"
        ),
    ] = None,
    no_racks: Annotated[bool, typer.Option("--no-racks", help="Ignore racks.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the plan to this file.")
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Propose a plan: replicas spread evenly, over different racks, with as few moves as possible.

    Changes nothing. Brokers that --brokers does not list give up their replicas of these topics.

    \b
    penstock reassign plan orders --brokers 2,3,4 --out plan.json
    penstock reassign plan orders --replication-factor 3 --json
    """
    broker_ids = None if brokers is None else _broker_ids(brokers)
    with connected(server, client_config) as cluster:
        moving = list_reassignments(cluster)
        current = {
            # A plan starts from the target of a running reassignment.
            partition: moving[partition].target if partition in moving else replicas
            for partition, replicas in _current(cluster, list(dict.fromkeys(topics))).items()
        }
        chosen = _planned_brokers(cluster, broker_ids, with_racks=not no_racks)
        try:
            proposed = plan_moves(current, chosen, replication_factor)
        except CannotPlan as error:
            raise Refused(str(error)) from error
    changed = {each: replicas for each, replicas in proposed.items() if replicas != current[each]}
    copies = sum(len(set(replicas) - set(current[each])) for each, replicas in changed.items())
    if out is not None:
        out.write_text(json.dumps(document_of(changed or proposed)) + "\n", "utf-8")
    if as_json:
        print_json({**document_of(proposed), "current": document_of(current), "copies": copies})
        return
    if not changed:
        print("Nothing has to move.")
        return
    rows = [_plan_row(each, current[each], replicas) for each, replicas in changed.items()]
    print_table(("partition", "now", "then", "add", "remove"), rows)
    print(f"{counted(copies, 'replica')} to copy, {counted(len(changed), 'partition')} to change.")
    if out is not None:
        print(f"To start: penstock reassign apply {out}")
    else:
        print("Save the plan with --out FILE, then: penstock reassign apply FILE")


@app.command("apply")
def apply_command(
    file: File,
    throttle: Annotated[
        int | None,
        typer.Option(
            "--throttle", metavar="BYTES", min=1, help="Bytes per second that each broker may copy."
        ),
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Start although other partitions are moving.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return once all moves are done and the throttle is removed.")
    ] = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Start to move partitions. The old replicas stay until the new ones are in sync.

    Prints the current assignment, as a plan to go back. With --throttle, either pass --wait, or run
    `penstock reassign status FILE` later: once all moves are done, it removes the throttle.

    \b
    penstock reassign apply plan.json --throttle 50000000 --wait
    """
    wanted = read_file(file)
    with connected(server, client_config) as cluster:
        before = _check_wanted(cluster, wanted, additional)
        if throttle is not None:
            set_throttles(cluster, _to_be(cluster, wanted, before), throttle)
        outcomes = alter_reassignments(cluster, wanted)
        for error in outcomes.values():
            if error is not None:
                complain(str(error))
        is_done = wait and _wait(cluster, wanted)
        cleared = clear_throttles(cluster, {each.topic for each in wanted}) if is_done and throttle else []
    begun = sorted(each for each, error in outcomes.items() if error is None)
    if as_json:
        print_json(
            {
                "begun": [str(each) for each in begun],
                "refused": {str(each): str(error) for each, error in outcomes.items() if error is not None},
                "before": document_of(before),
                "throttle": throttle,
                "done": is_done,
            }
        )
    else:
        print(f"To go back, apply the previous assignment:\n{json.dumps(document_of(before))}\n")
        print(f"{counted(len(begun), 'partition')} started to move." if begun else "Nothing moves.")
        if is_done:
            print("All moves are done." + (" The throttle is removed." if cleared else ""))
        elif throttle is not None:
            print(
                f"Throttled to {throttle:,} bytes a second; to remove the throttle once all moves are done: "
                f"penstock reassign status {file}"
            )
    return 0 if len(begun) == len(outcomes) else EXIT_CANNOT


@app.command("status")
def status_command(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A plan; without it, all moving partitions.")
    ] = None,
    keep_throttle: KeepThrottle = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Show moving partitions, or the progress of a plan. Removes the throttle once all moves are done.

    The exit code is 1 if a partition neither has the replicas of the plan nor is moving to them.

    \b
    penstock reassign status
    penstock reassign status plan.json
    """
    wanted = None if file is None else read_file(file)
    with connected(server, client_config) as cluster:
        moving = list_reassignments(cluster)
        targets = {each: moved.target for each, moved in moving.items()} if wanted is None else wanted
        states = _states(cluster, targets, moving)
        cleared: list[str] = []
        if wanted is not None and not moving and not keep_throttle:
            cleared = clear_throttles(cluster, {each.topic for each in wanted})
    if as_json:
        rows = [{**each._asdict(), **each.partition._asdict()} for each in states]
        print_json({"partitions": rows, "throttlesCleared": cleared})
    elif not states:
        print("Nothing moves.")
    else:
        table = [(str(each.partition), each.state, *map(_ids, each[2:5]), each.behind) for each in states]
        print_table(("partition", "state", "replicas", "adding", "removing", "behind"), table)
        if cleared:
            print(f"Throttles removed: {', '.join(cleared)}.")
    return EXIT_WRONG if any(each.state == "elsewhere" for each in states) else 0


@app.command("cancel")
def cancel_command(
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="A plan.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Cancel all moves.")] = False,
    keep_throttle: KeepThrottle = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Cancel moves that are not done: replicas being added are removed, and the old replicas stay.

    \b
    penstock reassign cancel plan.json
    penstock reassign cancel --all
    """
    if (file is None) is not everything:
        raise Refused("expected either a file or --all")
    wanted = None if file is None else list(read_file(file))
    with connected(server, client_config) as cluster:
        moving = list_reassignments(cluster, wanted)
        outcomes = alter_reassignments(cluster, dict.fromkeys(moving)) if moving else {}
        for error in outcomes.values():
            if error is not None:
                complain(str(error))
        topics = {each.topic for each in (wanted or moving)}
        if not keep_throttle and not list_reassignments(cluster):
            clear_throttles(cluster, topics)
    back = sorted(each for each, error in outcomes.items() if error is None)
    if as_json:
        print_json({"cancelled": [str(each) for each in back]})
    elif not outcomes:
        print("Nothing moves.")
    else:
        stay = (
            "1 partition keeps its replicas"
            if len(back) == 1
            else f"{len(back)} partitions keep their replicas"
        )
        print(f"{stay}: {', '.join(str(each) for each in back)}." if back else "Nothing was cancelled.")
    return 0 if len(back) == len(outcomes) else EXIT_CANNOT


def _broker_ids(text: str) -> list[int]:
    words = [each.strip() for each in text.split(",")]
    for word in words:
        if not word.isdecimal() or int(word) >= 2**31:
            raise Refused(f"--brokers has {word!r}, expected broker ids, such as 1,2,3")
        if words.count(word) > 1:
            raise Refused(f"--brokers has broker {word} twice")
    return [int(word) for word in words]


# -- plan -------------------------------------------------------------------------------------------------


def _plan_row(partition: TopicPartition, now: Sequence[int], then: Sequence[int]) -> tuple[str, ...]:
    come = [each for each in then if each not in now]
    go = [each for each in now if each not in then]
    return str(partition), _ids(now), _ids(then), _ids(come), _ids(go)


def _planned_brokers(
    cluster: Cluster, wanted: Sequence[int] | None, *, with_racks: bool
) -> list[PlannedBroker]:
    known = cluster.info.brokers
    ids = sorted(known) if wanted is None else list(dict.fromkeys(wanted))
    _check_brokers(cluster, ids)
    return [PlannedBroker(each, known[each].rack if with_racks else None) for each in ids]


def _current(cluster: Cluster, topics: Sequence[str]) -> Assignment:
    """Replicas of every partition of these topics, which must exist."""
    found: Assignment = {}
    for topic in describe_topics(cluster, topics):
        if topic.error_code:
            raise refused(f"topic {topic.name}", topic.error_code)
        for each in topic.partitions.values():
            found[TopicPartition(topic.name, each.partition)] = each.replicas
    return found


def _check_brokers(cluster: Cluster, ids: Iterable[int]) -> None:
    for each in ids:
        if each not in cluster.info.brokers:
            known = _ids(sorted(cluster.info.brokers))
            raise Refused(f"there is no broker {each}; the cluster has {known}")


# -- apply ------------------------------------------------------------------------------------------------


def _check_wanted(cluster: Cluster, wanted: Assignment, additional: bool) -> Assignment:
    """Validate a plan before anything changes; return the current assignment of its partitions."""
    before = _current(cluster, sorted({each.topic for each in wanted}))
    for partition in wanted:
        if partition not in before:
            raise refused(f"partition {partition!s}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    _check_brokers(cluster, (each for replicas in wanted.values() for each in replicas))
    moving = list_reassignments(cluster)
    if moving and not additional:
        still = (
            f"{min(moving)!s} is still moving"
            if len(moving) == 1
            else f"{len(moving)} partitions are still moving"
        )
        raise Refused(f"{still}; use --additional to start more moves")
    return {
        each: moving[each].original if each in moving else replicas
        for each, replicas in sorted(before.items())
        if each in wanted
    }


def _to_be(cluster: Cluster, wanted: Assignment, before: Assignment) -> dict[TopicPartition, Moving]:
    """Planned and running moves."""
    moves = list_reassignments(cluster)
    for partition, replicas in wanted.items():
        come = tuple(each for each in replicas if each not in before[partition])
        go = tuple(each for each in before[partition] if each not in replicas)
        moves[partition] = Moving((*replicas, *go), come, go)
    return moves


def _wait(cluster: Cluster, wanted: Assignment) -> bool:
    while list_reassignments(cluster, list(wanted)):
        time.sleep(LOOK_EVERY_S)
    return True


# -- status and cancel ------------------------------------------------------------------------------------


class PartitionProgress(NamedTuple):
    """Progress of a partition."""

    partition: TopicPartition
    state: str
    """`moving`, `done`, or `elsewhere`: it neither has the replicas of the plan nor is moving to them."""
    replicas: tuple[int, ...]
    """Current replicas, or the target of a move."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    behind: int | None = None
    """Records that the slowest added replica lacks; None if none is added, or its log end is unknown."""


def _states(
    cluster: Cluster, wanted: Assignment, moving: Mapping[TopicPartition, Moving]
) -> list[PartitionProgress]:
    backoff = cluster.backoff(SETTLE_MS)
    while True:
        now = _current(cluster, sorted({each.topic for each in wanted}))
        behind = _behind(cluster, {each: moving[each] for each in wanted if each in moving})
        states = []
        for partition, replicas in sorted(wanted.items()):
            moved = moving.get(partition)
            there = now.get(partition, ()) if moved is None else moved.target
            state = "elsewhere" if there != replicas else "done" if moved is None else "moving"
            come, go = ((), ()) if moved is None else (moved.adding, moved.removing)
            states.append(PartitionProgress(partition, state, there, come, go, behind.get(partition)))
        pause_ms = backoff.next_pause_ms()
        if all(each.state != "elsewhere" for each in states) or pause_ms >= backoff.left_ms:
            return states
        cluster.clock.sleep_ms(pause_ms)


def _behind(cluster: Cluster, moving: Mapping[TopicPartition, Moving]) -> dict[TopicPartition, int]:
    """Records between the leader's log end and that of the slowest added replica, if both are known."""
    ends = log_ends(cluster, {each: moved.replicas for each, moved in moving.items()}, OFFSETS_WAIT_MS)
    found = {}
    for partition, moved in moving.items():
        leader = cluster.leader(partition)
        leads = None if leader is None else ends.get((partition, leader.leader))
        theirs = [ends.get((partition, each)) for each in moved.adding]
        known = [each for each in theirs if each is not None]
        if leads is not None and known and len(known) == len(theirs):
            found[partition] = max(leads - min(known), 0)
    return found


def _ids(ids: Iterable[int]) -> str:
    return ",".join(str(each) for each in ids) or "-"
