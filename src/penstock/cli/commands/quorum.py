"""`penstock quorum`: the metadata quorum, described and its voters changed, over the wire."""

from typing import Annotated

import typer

from penstock.base.ids import Uuid, uuid_from_text, uuid_text
from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, connected
from penstock.cli.options import Json
from penstock.cli.output import Refused, print_json, print_result, print_table, show_time
from penstock.client import quorum as client
from penstock.client.quorum import Listener, Quorum, Replica
from penstock.client.settings import parse_address

app = command_group(
    """Show and change the quorum of controllers.

    Controllers keep the cluster's metadata log. Any broker forwards the request to the active controller. Works with
    Penstock and Apache Kafka.

    \b
    penstock quorum describe
    penstock quorum add-voter 4 10.0.0.4:9093
    penstock quorum remove-voter 2
    """
)
NodeId = Annotated[int, typer.Argument(metavar="ID", min=0, max=2**31 - 1, help="A controller's node.id.")]
Directory = Annotated[
    str | None,
    typer.Option(
        "--directory",
        metavar="ID",
        help="The directory.id in its meta.properties.  [as the quorum has it]",
    ),
]


LISTENER_DEFAULT = "CONTROLLER"


@app.command("describe")
def quorum_describe(
    server: Server = None, client_config: ClientConfigFile = None, as_json: Json = False
) -> None:
    """Show the leader, its epoch and high watermark, and the log end of every voter and observer.

    \b
    penstock quorum describe
    penstock quorum describe --server 10.0.0.7:9092 --json
    """
    with connected(server, client_config) as cluster:
        quorum = client.describe_quorum(cluster)
        cluster_id = cluster.info.cluster_id
    if as_json:
        print_json(
            {
                "clusterId": cluster_id,
                "leaderId": quorum.leader_id,
                "leaderEpoch": quorum.epoch,
                "highWatermark": quorum.high_watermark,
                "voters": [_as_json(each, quorum) for each in quorum.voters],
                "observers": [_as_json(each, quorum) for each in quorum.observers],
            }
        )
        return
    title = f"node {quorum.leader_id} leads epoch {quorum.epoch}, high watermark {quorum.high_watermark}"
    columns = ("node", "role", "listens at", "log end", "lag", "last fetch", "last caught up", "directory")
    rows = [
        (
            each.id,
            _role(each, quorum),
            ", ".join(str(one.address) for one in each.listeners) or None,
            each.log_end_offset,
            _lag(each, quorum),
            show_time(each.last_fetch_ms),
            show_time(each.last_caught_up_ms),
            None if each.directory_id is None else uuid_text(each.directory_id),
        )
        for each in (*quorum.voters, *quorum.observers)
    ]
    print_table(columns, rows, title=f"cluster {cluster_id}: {title}")


@app.command("add-voter")
def quorum_add_voter(
    node_id: NodeId,
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Address of its controller.")],
    directory: Directory = None,
    listener: Annotated[
        str | None,
        typer.Option(
            "--listener", metavar="NAME", help="Name of its listener.  [the name that the voters use]"
        ),
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Make an observer of the metadata log a voter. Returns once the change is committed.

    The voters must be in the metadata log (controller.quorum.bootstrap.servers), not in every node's settings
    (controller.quorum.voters).

    \b
    penstock quorum add-voter 4 10.0.0.4:9093
    """
    try:
        at = parse_address(address)
    except ValueError as error:
        raise Refused(str(error)) from error
    with connected(server, client_config) as cluster:
        quorum = client.describe_quorum(cluster)
        known = _directory(directory) or _only_directory(quorum.observers, node_id, "observer")
        names = [each.name for voter in quorum.voters for each in voter.listeners]
        name = listener or next(iter(names), LISTENER_DEFAULT)
        client.add_voter(cluster, node_id, known, [Listener(name, at)])
    _changed("added", node_id, known, as_json)


@app.command("remove-voter")
def quorum_remove_voter(
    node_id: NodeId,
    directory: Directory = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Remove a voter, which may be the leader. Returns once the change is committed.

    \b
    penstock quorum remove-voter 2
    """
    with connected(server, client_config) as cluster:
        known = _directory(directory)
        if known is None:
            known = _only_directory(client.describe_quorum(cluster).voters, node_id, "voter")
        client.remove_voter(cluster, node_id, known)
    _changed("removed", node_id, known, as_json)


def _as_json(replica: Replica, quorum: Quorum) -> dict[str, object]:
    return {
        "id": replica.id,
        "directoryId": None if replica.directory_id is None else uuid_text(replica.directory_id),
        "role": _role(replica, quorum),
        "logEndOffset": replica.log_end_offset,
        "lag": _lag(replica, quorum),
        "lastFetchTimestamp": replica.last_fetch_ms,
        "lastCaughtUpTimestamp": replica.last_caught_up_ms,
        "listeners": [
            {"name": each.name, "host": each.address.host, "port": each.address.port}
            for each in replica.listeners
        ],
    }


def _role(replica: Replica, quorum: Quorum) -> str:
    if replica in quorum.observers:
        return "observer"
    return "leader" if replica.id == quorum.leader_id else "follower"


def _lag(replica: Replica, quorum: Quorum) -> int | None:
    """How far a replica is behind the leader's log; None where it has not fetched."""
    end = next((each.log_end_offset for each in quorum.voters if each.id == quorum.leader_id), -1)
    return max(0, end - replica.log_end_offset) if end >= 0 and replica.log_end_offset >= 0 else None


def _directory(text: str | None) -> Uuid | None:
    try:
        return None if text is None else uuid_from_text(text)
    except ValueError as error:
        raise Refused(f"--directory: {error}") from error


def _only_directory(replicas: tuple[Replica, ...], node_id: int, what: str) -> Uuid:
    """The directory of the one replica of that kind with that id."""
    found = [each for each in replicas if each.id == node_id]
    if not found:
        ids = ", ".join(str(each.id) for each in replicas) or "none"
        raise Refused(f"the quorum has no {what} {node_id}, it has {ids}")
    known = [each.directory_id for each in found if each.directory_id is not None]
    if len(known) != 1:
        why = "its directory is unknown" if not known else f"{len(known)} directories have that id"
        raise Refused(f"{what} {node_id}: {why}, expected --directory ID")
    return known[0]


def _changed(what: str, voter_id: int, directory: Uuid, as_json: bool) -> None:
    document = {what: {"id": voter_id, "directoryId": uuid_text(directory)}}
    print_result(document, f"{what} voter {voter_id} ({uuid_text(directory)})", as_json=as_json)
