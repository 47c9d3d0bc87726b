"""`penstock groups reset-offsets`: plans new committed offsets of a group, and commits them.

The plan shows the committed and the new offset of each partition. It is committed only with `--execute`, and only
while the group has no members: a live member would continue at its position and overwrite the commit. An offset
outside of its partition becomes the log start or the log end, as in Kafka's tool, and the plan notes it.
"""

import csv
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from penstock.base.ids import INT64_MAX, Offset, TopicPartition
from penstock.cli.connecting import connected
from penstock.cli.output import Refused, complain, print_json, print_table, printable
from penstock.cli.positions import LogPosition, parse_position
from penstock.cli.selection import INT32_MAX, Selection, partitions_of
from penstock.client.cluster import Cluster
from penstock.client.group_offsets import Committed, commit_offsets, fetch_offsets
from penstock.client.groups import Group, find_group
from penstock.client.offsets import EARLIEST, LATEST, list_offsets

FILE_BYTES_MAX = 64 * 2**20
"""Limit of an offsets file; a line is some 30 bytes, so this is millions of partitions."""

CURRENT = "current"


class ResetTarget(NamedTuple):
    """The new position. One field is set."""

    to: str | None = None
    shift: int | None = None
    file: str | None = None


class OffsetChange(NamedTuple):
    partition: TopicPartition
    before: Offset | None
    asked: Offset
    """The offset requested."""
    after: Offset
    """The requested offset, limited to the range of the partition."""


def reset(
    server: str | None,
    client_config: str | None,
    group_id: str,
    selections: list[Selection],
    target: ResetTarget,
    *,
    execute: bool,
    as_csv: bool,
    as_json: bool,
) -> None:
    if sum(each is not None for each in target) != 1:
        raise Refused("expected one of --to, --shift-by and --from-file")
    if target.file is not None and selections:
        raise Refused("--from-file and --topic exclude each other: the file names the partitions")
    from_file = None if target.file is None else read_file(target.file, group_id)
    with connected(server, client_config) as cluster:
        group = find_group(cluster, group_id)
        if execute:
            _refuse_live(group)
        committed = fetch_offsets(cluster, group_id)
        if from_file is not None:
            asked: Mapping[TopicPartition, Offset] = from_file
        else:
            partitions = partitions_of(cluster, selections) if selections else _own(cluster, committed)
            if not partitions:
                raise Refused(f"group {group_id} has no committed offsets: name topics with --topic")
            asked = _asked(cluster, target, partitions, committed)
        changes = _plan(cluster, asked, committed)
        if execute:
            commit_offsets(cluster, group_id, {each.partition: each.after for each in changes})
    if as_json:
        _print_json(group_id, changes, execute)
    elif as_csv:
        print(write_csv(changes), end="")
    else:
        _print(group_id, changes, execute)
    if not execute and group is not None and group.is_live:
        complain(f"{_live(group)}: --execute will fail until they leave")


def _own(cluster: Cluster, committed: Mapping[TopicPartition, Committed]) -> list[TopicPartition]:
    """Partitions with committed offsets that still exist."""
    topics = cluster.refresh({each.topic for each in committed}).topics if committed else {}
    return [
        each for each in committed if each.topic in topics and each.partition in topics[each.topic].partitions
    ]


def _live(group: Group) -> str:
    count = len(group.members)
    members = "a live member" if count == 1 else f"{count} live members"
    return f"group {group.group_id} has {members} (state {group.state})"


def _refuse_live(group: Group | None) -> None:
    if group is not None and group.is_live:
        raise Refused(f"{_live(group)}: offsets can be reset once they have left")


def _asked(
    cluster: Cluster,
    target: ResetTarget,
    partitions: list[TopicPartition],
    committed: Mapping[TopicPartition, Committed],
) -> dict[TopicPartition, Offset]:
    if target.shift is not None:
        for each in partitions:
            if each not in committed:
                raise Refused(f"cannot shift {each}: the group has no committed offset there")
        return {each: committed[each].offset + target.shift for each in partitions}
    assert target.to is not None  # one of them is set, and a file was read before
    if target.to == CURRENT:
        ends = _at(cluster, [each for each in partitions if each not in committed], LATEST)
        return {each: committed[each].offset if each in committed else ends[each] for each in partitions}
    position = parse_position(target.to, cluster.clock.wall_ms(), f"earliest, latest, {CURRENT}")
    return _resolve(cluster, position, partitions)


def _resolve(
    cluster: Cluster, position: LogPosition, partitions: list[TopicPartition]
) -> dict[TopicPartition, Offset]:
    if position.edge is not None:
        return _at(cluster, partitions, EARLIEST if position.edge == "earliest" else LATEST)
    if position.offset is not None and position.offset >= 0:
        return dict.fromkeys(partitions, position.offset)
    ends = _at(cluster, partitions, LATEST)
    if position.offset is not None:
        return {each: end + position.offset for each, end in ends.items()}
    assert position.time_ms is not None  # one of them is set
    found = _at(cluster, partitions, position.time_ms)
    # Without a record that late, the position is the log end.
    return {each: offset if offset >= 0 else ends[each] for each, offset in found.items()}


def _at(cluster: Cluster, partitions: list[TopicPartition], time: int) -> dict[TopicPartition, Offset]:
    if not partitions:
        return {}
    return {
        name: each.offset for name, each in list_offsets(cluster, dict.fromkeys(partitions, time)).items()
    }


def _plan(
    cluster: Cluster,
    asked: Mapping[TopicPartition, Offset],
    committed: Mapping[TopicPartition, Committed],
) -> list[OffsetChange]:
    partitions = sorted(asked)
    starts, ends = _at(cluster, partitions, EARLIEST), _at(cluster, partitions, LATEST)
    changes = []
    for each in partitions:
        before = committed.get(each)
        after = min(max(asked[each], starts[each]), ends[each])
        changes.append(OffsetChange(each, None if before is None else before.offset, asked[each], after))
    return changes


# -- files ------------------------------------------------------------------------------------------------


def read_file(path: str, group_id: str) -> dict[TopicPartition, Offset]:
    """Offsets from a file as kafka-consumer-groups exports it: topic,partition,offset, or with the group before.

    Lines of other groups are skipped.
    """
    data = Path(path).read_bytes() if Path(path).stat().st_size <= FILE_BYTES_MAX else None
    if data is None:
        raise Refused(f"{path} has more than {FILE_BYTES_MAX} bytes: too large for a file of offsets")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{path} is not UTF-8 at byte {error.start}") from error
    found: dict[TopicPartition, Offset] = {}
    reader = csv.reader(StringIO(text, newline=""))
    try:
        for row in reader:
            cells = [each.strip() for each in row]
            if not any(cells):
                continue
            where = f"{path}, line {reader.line_num}"
            if len(cells) == 4:
                if cells[0] != group_id:
                    continue
                cells = cells[1:]
            partition, offset = _parse_row(cells, where)
            if partition in found:
                raise Refused(f"{where}: {partition} is listed twice")
            found[partition] = offset
    except csv.Error as error:
        raise Refused(f"{path}, line {reader.line_num}: {error}") from error
    if not found:
        raise Refused(f"{path} has no offsets of group {group_id}")
    return found


def _parse_row(cells: list[str], where: str) -> tuple[TopicPartition, Offset]:
    if len(cells) != 3 or not cells[0]:
        raise Refused(f"{where}: expected topic,partition,offset")
    topic, partition, offset = cells
    for text, most in ((partition, INT32_MAX), (offset, INT64_MAX)):
        if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
            raise Refused(f"{where}: found {text!r}, expected a number from 0 to {most}")
    return TopicPartition(topic, int(partition)), int(offset)


def write_csv(changes: list[OffsetChange]) -> str:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows((each.partition.topic, each.partition.partition, each.after) for each in changes)
    return out.getvalue()


# -- output -----------------------------------------------------------------------------------------------


def _note(change: OffsetChange) -> str:
    if change.asked == change.after:
        return ""
    return f"{change.asked} is {'before the start' if change.asked < change.after else 'beyond the end'}"


def _print(group_id: str, changes: list[OffsetChange], execute: bool) -> None:
    columns = ["topic", "partition", "committed", "new"]
    has_notes = any(_note(each) for each in changes)
    if has_notes:
        columns.append("note")
    rows: list[list[str | int | None]] = []
    for each in changes:
        row: list[str | int | None] = [*each.partition, each.before, each.after]
        rows.append([*row, _note(each)] if has_notes else row)
    done = "reset" if execute else "dry run, nothing is changed"
    print_table(columns, rows, title=f"{printable(group_id)}: {done}")
    if not execute:
        print("\nAdd --execute to commit this.")


def _print_json(group_id: str, changes: list[OffsetChange], execute: bool) -> None:
    rows = [
        {
            **each.partition._asdict(),
            "committedOffset": each.before,
            "newOffset": each.after,
            "askedOffset": each.asked,
        }
        for each in changes
    ]
    print_json({"groupId": group_id, "executed": execute, "partitions": rows})
