"""`penstock log strays`: lists, restores and deletes partitions that no topic claims.

Restoring opens the directory as a starting node does, with its locks: it scans logs after their recovery points,
renames the stray, and closes all logs cleanly. The topics are read from the node's metadata log.
"""

import os.path
import random
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.errors import KafkaError
from penstock.base.ids import Uuid
from penstock.base.settings import LogSettings
from penstock.cli.command_group import command_group
from penstock.cli.log_paths import LogPath, locate
from penstock.cli.options import Json
from penstock.cli.output import Refused, print_json
from penstock.cli.stray_table import as_document, print_strays
from penstock.controlplane.metadata_opening import PARTITION, MetadataLogOpener
from penstock.metadata.image import ClusterImage, Topic
from penstock.storage import LogDirectory, open_directory
from penstock.storage import names as dirs
from penstock.storage.strays import Stray, find_strays, make_of_topic
from penstock.vfs import RealDisk, Vfs, remove_tree

app = command_group(
    """Show, restore or delete partitions that no topic claims.

    A broker never deletes a partition because the cluster's metadata does not mention it. It renames the directory to
    <topic>-<partition>.<id>-stray, which Apache Kafka ignores too, and keeps it until you restore or delete it.

    \b
    penstock log strays list penstock-data
    penstock log strays restore penstock-data orders-0
    penstock log strays delete penstock-data --all
    """
)
DataDirectory = Annotated[
    Path, typer.Argument(metavar="DIR", help="A data directory, or a Kafka log directory.")
]
Chosen = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME...", help="Partitions, such as orders-0, or names of stray directories."),
]
All = Annotated[bool, typer.Option("--all", help="All strays of the directory.")]


@app.command("list")
def list_command(directory: DataDirectory, as_json: Json = False) -> None:
    """List strays with their size and why they were set aside.

    Takes no lock and writes nothing: safe beside a running broker. The exit code is 0 whether there are any or not.

    \b
    penstock log strays list penstock-data
    penstock log strays list /var/lib/kafka --json
    """
    path = str(directory)
    vfs = RealDisk()
    log_path = _directory(vfs, path)
    found = list(find_strays(vfs, _logs(log_path)))
    if as_json:
        print_json({"directory": path, "strays": [as_document(each) for each in found]})
    elif not found:
        print("No strays.")
    else:
        print_strays(found)


@app.command("restore")
def restore_command(
    directory: DataDirectory,
    names: Chosen = None,
    everything: All = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Make the partition that now has the name a stray instead."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Make strays partitions again. Fails while a broker has the directory open.

    The node's metadata log must have the topic. If its topic id is the stray's, because the metadata was restored, the
    stray becomes the same partition as before. If the topic was created again, its id differs: then the partition must
    have one replica, on this node, so that no other replica overwrites the restored records. Add replicas with
    `penstock reassign` once the node serves the partition.

    \b
    penstock log strays restore penstock-data orders-0 orders-1
    penstock log strays restore penstock-data --all
    """
    path = str(directory)
    vfs = RealDisk()
    log_path = _directory(vfs, path)
    chosen = _choose(
        list(find_strays(vfs, _logs(log_path))), names or [], everything=everything, may_be_many=False
    )
    if chosen:
        _restore_all(vfs, _root(log_path), chosen, is_replaced=replace)
    _print_outcome("restored", path, chosen, as_json=as_json)


@app.command("delete")
def delete_command(
    directory: DataDirectory, names: Chosen = None, everything: All = False, as_json: Json = False
) -> None:
    """Delete strays and their records. Safe beside a running broker.

    \b
    penstock log strays delete penstock-data orders-0
    penstock log strays delete penstock-data --all
    """
    path = str(directory)
    vfs = RealDisk()
    logs = _logs(_directory(vfs, path))
    chosen = _choose(list(find_strays(vfs, logs)), names or [], everything=everything, may_be_many=True)
    for each in chosen:
        remove_tree(vfs, each.path)
    vfs.sync_dir(logs)
    _print_outcome("deleted", path, chosen, as_json=as_json)


# -- restore ---------------------------------------------------------------------------------------------


def _restore_all(vfs: Vfs, path: str, chosen: list[Stray], *, is_replaced: bool) -> None:
    now_ms = time.time_ns() // 1_000_000
    rng = random.Random()
    try:
        directory = open_directory(vfs, path, now_ms=now_ms, rng=rng)
    except KafkaError as error:
        raise Refused(f"{error}; stop the node that uses it first") from error
    directory.broker_epoch = directory.previous_broker_epoch
    try:
        topics = _topics(directory, now_ms)
        prepared = [(each, *_topic_id_for(each, directory, topics)) for each in chosen]
        for stray in chosen:
            _check_place(stray, directory, is_replaced=is_replaced)
        for stray, topic_id, is_other in prepared:
            if is_other and topic_id is not None:
                make_of_topic(vfs, stray.path, topic_id)
            if stray.partition in directory.logs:
                _clear_place(stray, directory, rng, now_ms)
            directory.take_back(stray, now_ms=now_ms)
    finally:
        directory.close()


def _topics(directory: LogDirectory, now_ms: int) -> ClusterImage | None:
    """The cluster image in this node's metadata log; None without one: a single node then creates topics for the
    partitions that it finds."""
    logs = directory.layout.logs
    if directory.vfs.stat(f"{logs}/{dirs.partition_dir(PARTITION)}") is None:
        return None
    opened = MetadataLogOpener(directory.vfs, directory.files, logs, LogSettings(), now_ms).open(None)
    image, log = opened.image, opened.log
    for batch in log.committed(max(image.offset + 1, log.start_offset), log.end_offset):
        image = image.replay(batch.records, batch.last_offset, batch.epoch)
    return image


def _topic_id_for(
    stray: Stray, directory: LogDirectory, image: ClusterImage | None
) -> tuple[Uuid | None, bool]:
    """The id of the stray's future topic, None if no metadata names it; and whether its leader epochs belong to
    another topic. Raises if the stray cannot be restored."""
    if image is None:
        return stray.topic_id, False
    (name, number), node_id = stray.partition, directory.identity.node_id
    topic: Topic | None = image.topics.get(name)
    placed = None if topic is None else topic.partitions.get(number)
    if topic is None or placed is None:
        what = f"no topic {name}" if topic is None else f"no partition {number} of topic {name}"
        raise Refused(
            f"the metadata log of {directory.layout.logs} has {what}: restore the metadata, or create the topic "
            f"with {number + 1} partitions or more and one replica, on node {node_id}, and stop the node again"
        )
    replicas = list(placed.replicas)
    if node_id not in replicas:
        raise Refused(
            f"{stray.partition} is on brokers {replicas}, expected node {node_id} among them: move it there with "
            "`penstock reassign` first"
        )
    is_other = topic.id != stray.topic_id or stray.epoch > placed.leader_epoch
    if is_other and replicas != [node_id]:
        what = (
            f"topic {name} was created again, with another id"
            if topic.id != stray.topic_id
            else f"the metadata is older than {stray.name}"
        )
        raise Refused(
            f"{what}, and {stray.partition} is on brokers {replicas}: the others would overwrite the restored "
            f"records. Make node {node_id} its only replica with `penstock reassign`, restore, then add the others"
        )
    return topic.id, is_other


def _check_place(stray: Stray, directory: LogDirectory, *, is_replaced: bool) -> None:
    log = directory.logs.get(stray.partition)
    if log is not None and log.log_end > 0 and not is_replaced:
        raise Refused(
            f"{log.directory} has records from {log.log_start} to {log.log_end}: --replace makes it a stray, "
            f"and restores {stray.name}"
        )


def _clear_place(stray: Stray, directory: LogDirectory, rng: random.Random, now_ms: int) -> None:
    """Make the partition that has the name a stray, or delete it if its log is empty."""
    if directory.logs[stray.partition].log_end == 0:
        directory.delete(stray.partition, rng).run()
    else:
        directory.set_aside(stray.partition, rng, reason=f"{stray.name} was restored", now_ms=now_ms)


# -- arguments -------------------------------------------------------------------------------------------


def _directory(vfs: Vfs, path: str) -> LogPath:
    log_path = locate(vfs, path)
    if log_path.is_partition:
        raise Refused(f"{path} is a partition, expected the log directory that contains it")
    return log_path


def _logs(log_path: LogPath) -> str:
    assert log_path.logs is not None, "a partition has none"
    return log_path.logs


def _root(log_path: LogPath) -> str:
    """The data directory, as in `penstock up --data`."""
    logs = _logs(log_path)
    above = os.path.dirname(os.path.abspath(logs))
    return above if os.path.abspath(log_path.meta) == os.path.join(above, "meta") else os.path.abspath(logs)


def _choose(found: list[Stray], names: list[str], *, everything: bool, may_be_many: bool) -> list[Stray]:
    """The named strays. If a partition has two strays, `restore` needs the directory's name."""
    if everything == bool(names):
        raise Refused(
            "name the strays, or use --all" if not names else "name the strays or use --all, not both"
        )
    chosen: dict[str, Stray] = {}
    for name in names:
        fitting = [each for each in found if name in (each.name, str(each.partition))]
        if not fitting:
            raise Refused(f"there is no stray {name}: `penstock log strays list` lists them")
        chosen |= {each.name: each for each in fitting}
    if everything:
        chosen = {each.name: each for each in found}
    partitions = [each.partition for each in chosen.values()]
    twice = next((each for each in partitions if partitions.count(each) > 1), None)
    if twice is not None and not may_be_many:
        several = ", ".join(each.name for each in chosen.values() if each.partition == twice)
        raise Refused(f"there are several strays of {twice}: name one of {several}")
    return list(chosen.values())


def _print_outcome(done: str, path: str, chosen: list[Stray], *, as_json: bool) -> None:
    if as_json:
        print_json({"directory": path, done: [as_document(each) for each in chosen]})
        return
    for each in chosen:
        print(f"{each.name}: {done}{f' as {each.partition}' if done == 'restored' else ''}")
    if not chosen:
        print("No strays.")
