"""`penstock groups`: lists, describes and deletes consumer groups."""

from typing import Annotated, Any, NamedTuple

import typer

from penstock.base.errors import ErrorCode
from penstock.base.ids import INT64_MAX, Offset, TopicPartition
from penstock.base.internal_topics import OFFSETS_TOPIC
from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, confirm, connected
from penstock.cli.main import EXIT_CANNOT
from penstock.cli.offset_resets import ResetTarget, reset
from penstock.cli.options import Json, Yes
from penstock.cli.output import Refused, complain, print_json, print_table, printable
from penstock.cli.selection import Selection, parse_selection, partitions_of, show_partitions
from penstock.client import groups as client
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.group_offsets import Committed, delete_offsets, fetch_offsets, known_offsets
from penstock.client.groups import unlisted_partitions
from penstock.client.offsets import EARLIEST
from penstock.client.record_times import record_times
from penstock.client.settings import ClientSettings

app = command_group(
    """List, describe, reset and delete consumer groups.

    Works with Penstock and Apache Kafka.

    \b
    penstock groups list
    penstock groups describe billing
    penstock groups reset-offsets billing --to earliest --topic orders
    """
)
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", metavar="TOPIC[:P,...]", help="A topic, or some of its partitions; repeatable."
    ),
]


COORDINATOR_MS_MAX = 10_000
"""How long `describe` retries. Coordinators usually move or load faster; one that cannot read its partition never
becomes available."""
STATES = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "NotReady",
    "Dead",
)
TYPES = ("classic", "consumer", "share", "streams")
"""Kafka's names, including groups that Penstock does not have. A broker returns no group for any other name."""


@app.command("list")
def groups_list(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only groups in this state: Stable, Empty, ...; repeatable."),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only groups of this type: classic or consumer; repeatable."),
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """List the groups of a cluster.

    \b
    penstock groups list
    penstock groups list --state Empty --json
    """
    states, types = tuple(state or ()), tuple(kind or ())
    _check_words(states, STATES, "state")
    _check_words(types, TYPES, "type")
    with connected(server, client_config) as cluster:
        found = client.list_groups(cluster, states, types)
        worst = _report_unlisted(cluster)
    if as_json:
        rows = [
            {
                "groupId": each.group_id,
                "type": each.type,
                "state": each.state,
                "protocolType": each.protocol_type,
                "coordinator": each.coordinator,
            }
            for each in found
        ]
        print_json({"groups": rows})
    elif not found:
        print("No groups.")
    else:
        columns = ("group", "type", "state", "protocol", "coordinator")
        print_table(
            columns,
            [(e.group_id, e.type, e.state, e.protocol_type or None, e.coordinator) for e in found],
        )
    return worst


@app.command("describe")
def groups_describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP]...", help="Groups; without a name, all.")
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Show members, their assignment, and for each partition the committed offset, the log end and the lag.

    The lag is in records and in time: how long ago the first record was written that is not consumed.

    \b
    penstock groups describe billing
    """
    worst = 0
    documents = []
    with connected(server, client_config, ClientSettings(api_timeout_ms=COORDINATOR_MS_MAX)) as cluster:
        wanted = list(dict.fromkeys(names or ()))
        if not wanted:
            wanted = [each.group_id for each in client.list_groups(cluster)]
            worst = _report_unlisted(cluster)
        for name in wanted:
            try:
                group = client.describe_group(cluster, name)
            except BrokerRefused as error:
                complain(printable(str(error)))
                worst = EXIT_CANNOT
                continue
            documents.append((group, _positions(cluster, group)))
    if as_json:
        print_json({"groups": [_as_json(*each) for each in documents]})
        return worst
    if not wanted:
        print("No groups.")
    for index, each in enumerate(documents):
        if index:
            print()
        _print(*each)
    return worst


@app.command("reset-offsets")
def groups_reset_offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="A group without live members.")],
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="earliest, latest, current, an offset (120; -5 is five before the end), a time "
            "(2026-01-01T10:00:00Z, @MILLISECONDS) or a time ago (-1h).",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(
            "--shift-by",
            metavar="N",
            min=-INT64_MAX,
            max=INT64_MAX,
            help="Move N records forward; back if N is negative.",
        ),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from-file", metavar="FILE", help="Lines of topic,partition,offset, as --export writes them."
        ),
    ] = None,
    topic: Topics = None,
    execute: Annotated[bool, typer.Option("--execute", help="Commit the new offsets.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Print the new offsets as CSV.")] = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Change the committed offsets of a group: of all partitions it has committed, or of the topics named.

    Shows old and new offsets, and changes nothing without --execute. An offset before the log start or beyond the log
    end becomes that start or end. Fails while the group has live members.

    \b
    penstock groups reset-offsets billing --to earliest
    penstock groups reset-offsets billing --to -1h --topic orders:0,1 --execute
    penstock groups reset-offsets billing --shift-by -100 --execute
    penstock groups reset-offsets billing --to current --export > offsets.csv
    penstock groups reset-offsets billing --from-file offsets.csv --execute
    """
    if export and as_json:
        raise Refused("--export and --json exclude each other: give one of them")
    selections = [parse_selection(each) for each in topic or []]
    target = ResetTarget(to, shift_by, from_file)
    reset(server, client_config, group, selections, target, execute=execute, as_csv=export, as_json=as_json)


@app.command("delete")
def groups_delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", help="Groups without live members.")],
    topic: Topics = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore groups that do not exist.")] = False,
    yes: Yes = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Delete groups and their committed offsets; with --topic, only the offsets of that topic.

    \b
    penstock groups delete billing --yes
    penstock groups delete billing --topic old-orders
    """
    if topic:
        if len(names) != 1:
            raise Refused(f"--topic needs one group, and {len(names)} are named")
        selections = [parse_selection(each) for each in topic]
        return _forget(server, client_config, names[0], selections, as_json=as_json)
    names = list(dict.fromkeys(names))
    what = f"group {names[0]}" if len(names) == 1 else f"{len(names)} groups ({', '.join(names)})"
    confirm(f"Delete {what} and all committed offsets?", "nothing was deleted", yes=yes)
    worst = 0
    rows = []
    with connected(server, client_config) as cluster:
        for name in names:
            error = _delete_one(cluster, name)
            is_absent = error is not None and error.code == ErrorCode.GROUP_ID_NOT_FOUND
            if error is not None and not (is_absent and if_exists):
                complain(str(error))
                worst = EXIT_CANNOT
            elif not as_json:
                print(f"{name} does not exist" if is_absent else f"deleted {name}")
            code = None if error is None or error.code is None else error.code.name
            rows.append({"groupId": name, "deleted": error is None, "error": code})
    if as_json:
        print_json({"groups": rows})
    return worst


def _check_words(words: tuple[str, ...], known: tuple[str, ...], what: str) -> None:
    """Brokers do not mind the case, either."""
    for word in words:
        if word.lower() not in {each.lower() for each in known}:
            raise Refused(f"{word!r} is not a group {what}, expected one of {', '.join(known)}")


def _report_unlisted(cluster: Cluster) -> int:
    """Report coordinators whose groups are missing in a list; return the exit code."""
    found = unlisted_partitions(cluster)
    if not found.partitions:
        return 0
    numbers = ", ".join(str(each) for each in found.partitions)
    codes = ", ".join(dict.fromkeys(each.name for each in found.partitions.values()))
    complain(
        f"groups of {len(found.partitions)} of {found.of} partitions of {OFFSETS_TOPIC} cannot be listed "
        f"({numbers}): {codes}. The broker's log says why"
    )
    return EXIT_CANNOT


# -- describe ---------------------------------------------------------------------------------------------


class Position(NamedTuple):
    """How far a group is in one partition."""

    partition: TopicPartition
    committed: Committed | None
    start: Offset | None
    end: Offset | None
    member: client.GroupMember | None
    """The member that reads the partition."""
    lag_seconds: float | None = None
    """Age of the first record that is not consumed; 0 if there is none, None if it is not known."""

    @property
    def next_offset(self) -> Offset | None:
        """The first offset that is not consumed."""
        return self.start if self.committed is None else self.committed.offset

    @property
    def lag(self) -> int | None:
        """Offsets between the committed offset, or the log start, and the log end; None if either is unknown."""
        begin = self.next_offset
        return None if begin is None or self.end is None else max(self.end - begin, 0)


def _positions(cluster: Cluster, group: client.Group) -> list[Position]:
    """Every partition that the group has committed for, or that a member reads, in order."""
    committed = fetch_offsets(cluster, group.group_id)
    readers = {partition: member for member in group.members for partition in member.assignment}
    partitions = sorted({*committed, *readers})
    ends = known_offsets(cluster, partitions, on_error=lambda error: complain(str(error)))
    # Most partitions have a committed offset, so the log start is not needed.
    begins = known_offsets(
        cluster,
        [each for each in partitions if each not in committed and each in ends],
        EARLIEST,
        on_error=lambda error: complain(str(error)),
    )
    return _with_seconds(
        cluster,
        [
            Position(each, committed.get(each), begins.get(each), ends.get(each), readers.get(each))
            for each in partitions
        ],
    )


def _with_seconds(cluster: Cluster, positions: list[Position]) -> list[Position]:
    """The same with the lag in seconds."""
    behind = {each.partition: each.next_offset for each in positions if each.lag}
    times = record_times(cluster, {name: offset for name, offset in behind.items() if offset is not None})
    now_ms = cluster.clock.wall_ms()

    def seconds(position: Position) -> float | None:
        if not position.lag:
            return None if position.lag is None else 0.0
        time_ms = times.get(position.partition, -1)
        return max(now_ms - time_ms, 0) / 1000 if time_ms >= 0 else None

    return [each._replace(lag_seconds=seconds(each)) for each in positions]


def total_lag(positions: list[Position]) -> int:
    return sum(each.lag for each in positions if each.lag is not None)


def _lag_words(positions: list[Position]) -> str:
    """`lag 0`, or `lag 3, 2.5s behind, not known for 1 partition`."""
    unknown = sum(each.lag is None for each in positions)
    words = f"lag {total_lag(positions)}"
    longest = max((each.lag_seconds or 0.0 for each in positions), default=0.0)
    if longest:
        words += f", {duration(longest)} behind"
    if unknown:
        words += f", not known for {unknown} partition{'s' if unknown > 1 else ''}"
    return words


def duration(seconds: float) -> str:
    """`0s`, `3.2s`, `5m 10s`, `2h 5m` or `3d 4h`."""
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m" if hours < 24 else f"{hours // 24}d {hours % 24}h"


def _as_json(group: client.Group, positions: list[Position]) -> dict[str, Any]:
    return {
        "groupId": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocolType": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch,
        "coordinator": group.coordinator,
        "lag": total_lag(positions),
        "lagSeconds": max((each.lag_seconds or 0.0 for each in positions), default=0.0),
        "members": [_member(each) for each in group.members],
        "partitions": [
            {
                **each.partition._asdict(),
                "committedOffset": None if each.committed is None else each.committed.offset,
                "leaderEpoch": None
                if each.committed is None or each.committed.leader_epoch < 0
                else each.committed.leader_epoch,
                "metadata": None if each.committed is None else each.committed.metadata,
                "endOffset": each.end,
                "lag": each.lag,
                "lagSeconds": each.lag_seconds,
                "memberId": None if each.member is None else each.member.member_id,
            }
            for each in positions
        ],
    }


def _member(member: client.GroupMember) -> dict[str, Any]:
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "clientId": member.client_id,
        "host": member.host,
        "rack": member.rack,
        "epoch": member.epoch,
        "protocol": client.CLASSIC if member.is_classic else client.CONSUMER,
        "topics": list(member.topics),
        "topicRegex": member.topic_regex,
        "assignment": [each._asdict() for each in member.assignment],
        "target": None if member.target is None else [each._asdict() for each in member.target],
    }


def _print(group: client.Group, positions: list[Position]) -> None:
    count = len(group.members)
    members = {0: "no members", 1: "1 member"}.get(count, f"{count} members")
    # A group may have any name, and its members any protocol.
    print(printable(f"{group.group_id}: {group.state}, {members}, {_lag_words(positions)}"))
    words = [f"{group.type} protocol", f"type {group.protocol_type or 'none'}"]
    if group.assignor is not None:
        words.append(f"assignor {group.assignor}")
    if group.epoch is not None:
        words.append(f"epoch {group.epoch}")
    print(printable(f"{', '.join(words)}, coordinator {group.coordinator}"))
    if group.members:
        print()
        print_table(
            ("member", "instance", "client", "host", "reads"),
            [
                (e.member_id, e.instance_id, e.client_id, e.host, show_partitions(e.assignment) or None)
                for e in group.members
            ],
        )
    if positions:
        print()
        print_table(
            ("topic", "partition", "committed", "end", "lag", "behind", "member"),
            [
                (
                    e.partition.topic,
                    e.partition.partition,
                    None if e.committed is None else e.committed.offset,
                    e.end,
                    e.lag,
                    None if e.lag_seconds is None else duration(e.lag_seconds),
                    None if e.member is None else e.member.member_id,
                )
                for e in positions
            ],
        )


# -- delete -----------------------------------------------------------------------------------------------


def _delete_one(cluster: Cluster, name: str) -> BrokerRefused | None:
    try:
        client.delete_group(cluster, name)
    except BrokerRefused as error:
        return error
    return None


def _forget(
    server: str | None, client_config: str | None, name: str, selections: list[Selection], *, as_json: bool
) -> int:
    """Delete a group's committed offsets of some topics."""
    worst = 0
    rows = []
    with connected(server, client_config) as cluster:
        committed = fetch_offsets(cluster, name)
        chosen = {each for each in committed if any(one.takes(each) for one in selections)}
        # Partitions without a commit are requested too, so that a wrong name is reported.
        untouched = [one for one in selections if not any(one.takes(each) for each in chosen)]
        wanted = sorted({*chosen, *partitions_of(cluster, untouched)})
        for partition, error in delete_offsets(cluster, name, wanted).items():
            if error is not None:
                complain(str(error))
                worst = EXIT_CANNOT
            elif not as_json:
                was = committed.get(partition)
                at = "none was there" if was is None else f"it was {was.offset}"
                print(f"deleted the offset of {name} for {partition}, {at}")
            code = None if error is None or error.code is None else error.code.name
            rows.append({**partition._asdict(), "deleted": error is None, "error": code})
    if as_json:
        print_json({"groupId": name, "partitions": rows})
    return worst
