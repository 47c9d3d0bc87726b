"""`penstock transactions`: listed, described and aborted, over the wire."""

from typing import Annotated, Any

import typer

from penstock.base.ids import INT64_MAX, TopicPartition
from penstock.cli.command_group import command_group
from penstock.cli.connecting import ClientConfigFile, Server, confirm, connected
from penstock.cli.main import EXIT_CANNOT
from penstock.cli.options import Json, Yes
from penstock.cli.output import Refused, complain, print_json, print_result, print_table, printable, show_time
from penstock.cli.positions import parse_duration
from penstock.cli.selection import parse_partition, show_partitions
from penstock.client import transactions as client
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.transactions import ANY_AGE, Filters
from penstock.coordinator.transactions.hanging import IDLE, OPEN, PartitionProducer

app = command_group(
    """List, describe and abort transactions.

    Works with Penstock and Apache Kafka.

    \b
    penstock transactions list
    penstock transactions describe billing-1
    penstock transactions abort billing-1
    """
)


@app.command("list")
def transactions_list(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only transactions in this state: Ongoing, Empty, ...; repeatable."),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option(
            "--producer-id", min=0, max=INT64_MAX, help="Only transactions of this producer; repeatable."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", help="Only ids that match this regular expression as a whole."),
    ] = None,
    older: Annotated[
        str | None,
        typer.Option(
            "--older", metavar="DURATION", help="Only those open for at least this long: 90s, 15m, 1h."
        ),
    ] = None,
    hanging: Annotated[
        bool,
        typer.Option(
            "--hanging",
            help="Search all partitions for open transactions that no coordinator knows, and that got no "
            "record for --older (15m).",
        ),
    ] = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """List transactional ids and their states, or with --hanging the transactions that hang in a partition.

    \b
    penstock transactions list --state Ongoing --older 5m
    penstock transactions list --hanging
    """
    age_ms = ANY_AGE if older is None else parse_duration(older, "--older")
    if hanging:
        if state or producer_id or pattern is not None:
            raise Refused("--hanging searches partitions: of the filters it allows only --older")
        _show_hanging(server, client_config, 15 * 60_000 if older is None else age_ms, as_json=as_json)
        return
    filters = Filters(tuple(state or ()), tuple(producer_id or ()), age_ms, pattern)
    with connected(server, client_config) as cluster:
        found = client.list_transactions(cluster, filters)
    if as_json:
        rows = [
            {
                "transactionalId": each.transactional_id,
                "state": each.state,
                "producerId": each.producer_id,
                "coordinator": each.coordinator,
            }
            for each in found
        ]
        print_json({"transactions": rows})
    elif not found:
        print("No transactions.")
    else:
        columns = ("transactional id", "state", "producer id", "coordinator")
        print_table(columns, [(e.transactional_id, e.state, e.producer_id, e.coordinator) for e in found])


@app.command("describe")
def transactions_describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Transactional ids.")] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="TOPIC:P", help="Show the producers of this partition."),
    ] = None,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> int:
    """Show the state of transactional ids, or the producers known to a partition.

    \b
    penstock transactions describe billing-1
    penstock transactions describe --partition orders:0
    """
    if (partition is None) == (not names):
        raise Refused("expected either transactional ids or --partition")
    if partition is not None:
        _describe_producers(server, client_config, parse_partition(partition), as_json=as_json)
        return 0
    worst = 0
    found = []
    with connected(server, client_config) as cluster:
        now_ms = cluster.clock.wall_ms()
        for name in dict.fromkeys(names or ()):
            try:
                found.append(client.describe_transaction(cluster, name))
            except BrokerRefused as error:
                complain(str(error))
                worst = EXIT_CANNOT
    if as_json:
        print_json({"transactions": [_as_json(each) for each in found]})
        return worst
    for index, each in enumerate(found):
        if index:
            print()
        _print(each, now_ms)
    return worst


@app.command("abort")
def transactions_abort(
    name: Annotated[str | None, typer.Argument(metavar="[ID]", help="A transactional id.")] = None,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="TOPIC:P", help="A partition with a hanging transaction."),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset", metavar="N", min=0, max=INT64_MAX, help="First offset of the transaction."
        ),
    ] = None,
    yes: Yes = False,
    server: Server = None,
    client_config: ClientConfigFile = None,
    as_json: Json = False,
) -> None:
    """Abort an open transaction, by its id or in a partition where it hangs. Asks first, on a terminal.

    By id: the coordinator fences the producer and aborts. By partition: an abort marker is written without the
    coordinator. Do that only for a transaction that `list --hanging` shows: a transaction that its coordinator still
    commits would be committed in part. If the end of a transaction was lost with a damaged or missing segment (the
    broker logs this at its start), aborting it in the partition accepts the loss: its records stay hidden, and readers
    of committed records continue.

    \b
    penstock transactions abort billing-1 --yes
    penstock transactions abort --partition orders:0 --start-offset 1042
    """
    if (name is None) == (partition is None):
        raise Refused("expected either a transactional id or --partition with --start-offset")
    if (partition is None) != (start_offset is None):
        raise Refused("--partition and --start-offset go together")
    if name is not None:
        _abort(server, client_config, name, yes=yes, as_json=as_json)
        return
    assert partition is not None
    assert start_offset is not None
    _abort_in_partition(
        server, client_config, parse_partition(partition), start_offset, yes=yes, as_json=as_json
    )


def _show_hanging(server: str | None, client_config: str | None, age_ms_min: int, *, as_json: bool) -> None:
    with connected(server, client_config) as cluster:
        topics = cluster.refresh(None).topics
        partitions = [
            TopicPartition(name, number) for name in sorted(topics) for number in topics[name].partitions
        ]
        found = client.find_hanging(
            cluster, partitions, age_ms_min, on_error=lambda error: complain(str(error))
        )
    if as_json:
        rows = [
            {
                **each.partition._asdict(),
                **_producer(each.producer),
                "transactionalId": each.transactional_id,
            }
            for each in found
        ]
        print_json({"hanging": rows})
        return
    if not found:
        print("No hanging transactions.")
        return
    columns = ("partition", "start offset", "producer id", "epoch", "last written", "transactional id")
    print_table(
        columns,
        [
            (
                _colon(each.partition),
                each.producer.start_offset,
                each.producer.producer_id,
                each.producer.epoch,
                show_time(each.producer.last_timestamp),
                each.transactional_id,
            )
            for each in found
        ],
    )
    print("\nEnd one with: penstock transactions abort --partition TOPIC:PARTITION --start-offset N")


def _colon(partition: TopicPartition) -> str:
    return f"{partition.topic}:{partition.partition}"


def _producer(producer: PartitionProducer) -> dict[str, Any]:
    return {
        "producerId": producer.producer_id,
        "producerEpoch": producer.epoch,
        "lastSequence": producer.last_sequence,
        "lastTimestamp": producer.last_timestamp,
        "coordinatorEpoch": producer.coordinator_epoch if producer.coordinator_epoch >= 0 else None,
        "startOffset": producer.start_offset if producer.start_offset >= 0 else None,
    }


# -- describe ---------------------------------------------------------------------------------------------


def _as_json(transaction: client.Transaction) -> dict[str, Any]:
    return {
        "transactionalId": transaction.transactional_id,
        "state": transaction.state,
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.producer_epoch,
        "timeoutMs": transaction.timeout_ms,
        "startTimeMs": transaction.started_ms,
        "coordinator": transaction.coordinator,
        "partitions": [each._asdict() for each in transaction.partitions],
    }


def _print(transaction: client.Transaction, now_ms: int) -> None:
    print(printable(f"{transaction.transactional_id}: {transaction.state}"))
    producer = f"producer {transaction.producer_id}, epoch {transaction.producer_epoch}"
    print(f"{producer}, timeout {transaction.timeout_ms / 1000:g} s, coordinator {transaction.coordinator}")
    if transaction.started_ms is not None:
        age_s = max(0, now_ms - transaction.started_ms) / 1000
        begun = "the last one began" if transaction.state in IDLE else "open since"
        print(f"{begun} {show_time(transaction.started_ms)}, {age_s:.1f} s ago")
    if transaction.partitions:
        print(f"partitions without a marker: {show_partitions(transaction.partitions)}")


def _describe_producers(
    server: str | None, client_config: str | None, partition: TopicPartition, *, as_json: bool
) -> None:
    with connected(server, client_config) as cluster:
        found = client.describe_producers(cluster, partition)
    if as_json:
        rows = [_producer(each) for each in found]
        print_json({**partition._asdict(), "producers": rows})
    elif not found:
        print(f"{_colon(partition)} remembers no producers.")
    else:
        columns = (
            "producer id",
            "epoch",
            "last sequence",
            "last written",
            "transaction from",
            "coordinator epoch",
        )
        rows_shown = [
            (
                each.producer_id,
                each.epoch,
                each.last_sequence,
                show_time(each.last_timestamp),
                each.start_offset if each.start_offset >= 0 else None,
                each.coordinator_epoch if each.coordinator_epoch >= 0 else None,
            )
            for each in found
        ]
        print_table(columns, rows_shown, title=_colon(partition))


# -- abort ------------------------------------------------------------------------------------------------


def _abort(server: str | None, client_config: str | None, name: str, *, yes: bool, as_json: bool) -> None:
    """Abort the open transaction of a transactional id; its producer is fenced."""
    with connected(server, client_config) as cluster:
        transaction = client.describe_transaction(cluster, name)
        if transaction.state not in OPEN:
            raise Refused(f"{name} has no transaction to abort, it is in state {transaction.state}")
        confirm(f"Abort the transaction of {name} and fence its producer?", "nothing was aborted", yes=yes)
        client.terminate(cluster, transaction)
    document = {"transactionalId": name, "aborted": True, "was": _as_json(transaction)}
    what = show_partitions(transaction.partitions) or "no partitions"
    print_result(document, f"aborted the transaction of {name} on {what}", as_json=as_json)


def _abort_in_partition(
    server: str | None,
    client_config: str | None,
    partition: TopicPartition,
    start_offset: int,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Write an abort marker for the transaction that began at an offset, without its coordinator."""
    with connected(server, client_config) as cluster:
        producer = _open_at(cluster, partition, start_offset)
        what = f"{_colon(partition)} for the transaction from offset {start_offset} on"
        confirm(f"Write an abort marker to {what}?", "nothing was aborted", yes=yes)
        client.write_abort(cluster, partition, producer)
    was = {**partition._asdict(), **_producer(producer)}
    sentence = f"aborted the transaction of producer {producer.producer_id} on {_colon(partition)}"
    print_result({"aborted": True, "was": was}, sentence, as_json=as_json)


def _open_at(cluster: Cluster, partition: TopicPartition, start_offset: int) -> PartitionProducer:
    found = [each for each in client.describe_producers(cluster, partition) if each.start_offset >= 0]
    for each in found:
        if each.start_offset == start_offset:
            return each
    offsets = ", ".join(str(each.start_offset) for each in found)
    others = f"they begin at {offsets}" if found else "none is open there"
    raise Refused(f"no open transaction begins at offset {start_offset} of {_colon(partition)}: {others}")
