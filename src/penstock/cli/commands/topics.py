"""`penstock topics`: creates, lists, describes, widens and deletes topics."""

from typing import Annotated, Any

import typer

from penstock.base.errors import ErrorCode
from penstock.base.ids import TopicPartition, uuid_text
from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, confirm, connected, parse_pairs
from penstock.cli.main import EXIT_CANNOT
from penstock.cli.options import Json, Yes
from penstock.cli.output import complain, counted, print_json, print_result, print_table
from penstock.client import admin
from penstock.client.admin import BROKER_DEFAULT, NewTopic
from penstock.client.cluster import Cluster
from penstock.client.errors import ClientError, refused
from penstock.client.offsets import EARLIEST, LATEST, list_offsets
from penstock.client.replicas import Eligible, eligible_replicas, log_ends
from penstock.client.topology import PartitionInfo, TopicInfo

app = command_group(
    """Create, list, describe, widen and delete topics.

    Works with Penstock and Apache Kafka.

    \b
    penstock topics create orders --partitions 3 --config retention.ms=86400000
    penstock topics describe orders
    penstock topics list --server 10.0.0.7:9092 --json
    """
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="A topic.")]


OFFSETS_WAIT_MS = 5_000
"""How long `describe` waits for a broker's offsets before it shows a dash."""
NO_REPLICAS = Eligible((), ())


@app.command("create")
def topics_create(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Topics to create.")],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            min=1,
            max=2**31 - 1,
            help="Number of partitions.  [the broker's default]",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            "-r",
            min=1,
            max=32767,
            help="Replicas of each partition.  [the broker's default]",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; repeatable."),
    ] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Ignore topics that exist.")] = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Create topics.

    \b
    penstock topics create orders payments --partitions 6
    penstock topics create events -p 3 -c cleanup.policy=compact -c segment.bytes=1048576
    """
    settings = parse_pairs(config or [], "setting")
    wanted = [
        NewTopic(name, partitions or BROKER_DEFAULT, replication_factor or BROKER_DEFAULT, settings)
        for name in dict.fromkeys(names)
    ]
    with connected(server, client_config) as cluster:
        outcomes = admin.create_topics(cluster, wanted)
    rows = []
    worst = 0
    for each in outcomes:
        is_there = each.error is not None and each.error.code == ErrorCode.TOPIC_ALREADY_EXISTS
        if each.error is not None and not (is_there and if_not_exists):
            complain(str(each.error))
            worst = EXIT_CANNOT
        elif not as_json:
            print(f"{each.name} exists already" if is_there else _created(each))
        rows.append(
            {
                "name": each.name,
                "created": each.error is None,
                "topicId": None if each.topic_id is None else uuid_text(each.topic_id),
                "partitions": each.partitions if each.partitions > 0 else None,
                "replicationFactor": each.replication_factor if each.replication_factor > 0 else None,
                "error": None if each.error is None else each.error.code.name,
            }
        )
    if as_json:
        print_json({"topics": rows})
    return worst


@app.command("list")
def topics_list(
    internal: Annotated[bool, typer.Option("--internal", help="Show internal topics too.")] = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """List the topics of a cluster.

    \b
    penstock topics list
    """
    with connected(server, client_config) as cluster:
        topics = [each for each in admin.list_topics(cluster) if internal or not each.is_internal]
    if as_json:
        print_json({"topics": [_summary(each) for each in topics]})
    elif not topics:
        print("No topics.")
    else:
        columns = ("topic", "partitions", "replicas", "under-replicated", "without leader", "topic id")
        print_table(columns, [tuple(_summary(each).values())[:6] for each in topics])


@app.command("describe")
def topics_describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="Topics; without a name, all.")
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Show partitions, leaders, replicas and offsets of topics, and settings that are not the default.

    Consumers read up to the high watermark. The lag of each follower behind the leader's log end comes from the
    follower: 3:117 is replica 3, which lacks 117 records; 3:? is a replica that does not answer. Eligible replicas
    (KIP-966) may lead although they are not in sync.

    \b
    penstock topics describe orders
    """
    worst = 0
    with connected(server, client_config) as cluster:
        if names:
            topics = admin.describe_topics(cluster, names)
        else:
            topics = [each for each in admin.list_topics(cluster) if not each.is_internal]
        documents = []
        for topic in topics:
            if topic.error_code:
                complain(str(refused(f"topic {topic.name}", topic.error_code)))
                worst = EXIT_CANNOT
            else:
                documents.append(_describe(cluster, topic))
    if as_json:
        print_json({"topics": documents})
        return worst
    if not topics:
        print("No topics.")
    for index, document in enumerate(documents):
        if index:
            print()
        _print(document)
    return worst


@app.command("alter")
def topics_alter(
    name: Name,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=1, max=2**31 - 1, help="The new number of partitions.")
    ],
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Give a topic more partitions. New records of a key may go to another partition than before.

    \b
    penstock topics alter orders --partitions 12
    """
    with connected(server, client_config) as cluster:
        (outcome,) = admin.create_partitions(cluster, {name: partitions})
        if outcome.error is not None:
            raise outcome.error
    document = {"name": name, "partitions": partitions}
    print_result(document, f"{name} has {partitions} partitions now", as_json=as_json)


@app.command("delete")
def topics_delete(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Topics to delete.")],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")] = False,
    yes: Yes = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Delete topics and all their records. Asks first, on a terminal.

    \b
    penstock topics delete orders --yes
    """
    names = list(dict.fromkeys(names))
    what = names[0] if len(names) == 1 else f"{len(names)} topics ({', '.join(names)})"
    confirm(f"Delete {what} and all records?", "nothing was deleted", yes=yes)
    with connected(server, client_config) as cluster:
        outcomes = admin.delete_topics(cluster, names)
    worst = 0
    for each in sorted(outcomes):
        is_absent = each.error is not None and each.error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if each.error is not None and not (is_absent and if_exists):
            complain(str(each.error))
            worst = EXIT_CANNOT
        elif not as_json:
            print(f"{each.name} does not exist" if is_absent else f"deleted {each.name}")
    if as_json:
        rows = [
            {
                "name": each.name,
                "deleted": each.error is None,
                "error": None if each.error is None else each.error.code.name,
            }
            for each in outcomes
        ]
        print_json({"topics": rows})
    return worst


def _created(outcome: admin.Outcome) -> str:
    if outcome.partitions < 1:
        return f"created {outcome.name}"
    partitions = counted(outcome.partitions, "partition")
    return f"created {outcome.name} with {partitions}, replication factor {outcome.replication_factor}"


def _summary(topic: TopicInfo) -> dict[str, Any]:
    partitions = topic.partitions.values()
    return {
        "name": topic.name,
        "partitions": len(partitions),
        "replicationFactor": max((len(each.replicas) for each in partitions), default=0),
        "underReplicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
        "withoutLeader": sum(each.leader < 0 for each in partitions),
        "topicId": None if topic.topic_id is None else uuid_text(topic.topic_id),
        "internal": topic.is_internal,
    }


def _describe(cluster: Cluster, topic: TopicInfo) -> dict[str, Any]:
    resource = admin.Resource(admin.ResourceType.TOPIC, topic.name)
    configs = {
        each.name: each.value
        for each in admin.describe_configs(cluster, resource)
        if each.source is not admin.ConfigSource.DEFAULT
    }
    starts, ends = (_offsets(cluster, topic, time) for time in (EARLIEST, LATEST))
    names = {number: TopicPartition(topic.name, number) for number in topic.partitions}
    eligible = eligible_replicas(cluster, [topic.name])
    log_end_of = log_ends(
        cluster, {names[number]: each.replicas for number, each in topic.partitions.items()}, OFFSETS_WAIT_MS
    )
    rows = []
    for number, each in topic.partitions.items():
        reported = {
            node_id: log_end_of[names[number], node_id]
            for node_id in each.replicas
            if (names[number], node_id) in log_end_of
        }
        rows.append(
            {
                "partition": number,
                "leader": each.leader if each.leader >= 0 else None,
                "leaderEpoch": each.leader_epoch if each.leader_epoch >= 0 else None,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "eligible": list(eligible.get(names[number], NO_REPLICAS).replicas),
                "lastKnownEligible": list(eligible.get(names[number], NO_REPLICAS).last_known),
                "offline": list(each.offline),
                "startOffset": starts.get(number),
                "endOffset": ends.get(number),
                "replicaList": _replicas(each, reported),
            }
        )
    return {**_summary(topic), "configs": configs, "partitionList": rows}


def _replicas(partition: PartitionInfo, log_end_of: dict[int, int]) -> list[dict[str, Any]]:
    """Log end of each replica, and its lag behind the leader's log end; None if unknown."""
    leaders = log_end_of.get(partition.leader)
    return [
        {
            "broker": node_id,
            "inSync": node_id in partition.isr,
            "logEnd": log_end_of.get(node_id),
            "lag": (
                max(leaders - log_end_of[node_id], 0)
                if leaders is not None and node_id in log_end_of
                else None
            ),
        }
        for node_id in partition.replicas
    ]


def _offsets(cluster: Cluster, topic: TopicInfo, time: int) -> dict[int, int]:
    """Of the partitions that have a leader; none where the leaders do not answer in time."""
    led = [
        TopicPartition(topic.name, each.partition) for each in topic.partitions.values() if each.leader >= 0
    ]
    try:
        found = list_offsets(cluster, dict.fromkeys(led, time), timeout_ms=OFFSETS_WAIT_MS)
    except ClientError as error:
        complain(str(error))
        return {}
    return {partition.partition: each.offset for partition, each in found.items()}


def _print(document: dict[str, Any]) -> None:
    partitions = counted(document["partitions"], "partition")
    title = f"{document['name']}: {partitions}, replication factor {document['replicationFactor']}"
    if document["topicId"] is not None:
        title += f", id {document['topicId']}"
    has_eligible = any(each["eligible"] for each in document["partitionList"])
    columns = ["partition", "leader", "epoch", "replicas", "isr"]
    columns += ["eligible"] * has_eligible + ["start", "high watermark", "log end", "behind"]
    rows = []
    for each in document["partitionList"]:
        row = [each["partition"], each["leader"], each["leaderEpoch"]]
        row += [_nodes(each["replicas"]), _nodes(each["isr"])]
        row += [_nodes(each["eligible"])] * has_eligible
        row += [each["startOffset"], each["endOffset"], _leaders_end(each), _behind(each)]
        rows.append(row)
    print_table(columns, rows, title=title)
    for name, value in document["configs"].items():
        print(f"{name}={value}")


def _leaders_end(partition: dict[str, Any]) -> int | None:
    ends = {each["broker"]: each["logEnd"] for each in partition["replicaList"]}
    return ends.get(partition["leader"])


def _behind(partition: dict[str, Any]) -> str:
    """Records that each follower lacks, such as `2:0 3:117`; a question mark if unknown."""
    followers = [each for each in partition["replicaList"] if each["broker"] != partition["leader"]]
    return " ".join(f"{each['broker']}:{'?' if each['lag'] is None else each['lag']}" for each in followers)


def _nodes(ids: list[int]) -> str:
    return ",".join(str(each) for each in ids) or "-"
