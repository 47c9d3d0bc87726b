"""`penstock produce` and `penstock consume`: their options and help. What they run is imported when they run."""
# ruff: noqa: PLC0415  # that is the point

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.wire import SERVER_DEFAULT, Server

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]


class InputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class Isolation(StrEnum):
    COMMITTED = "committed"
    UNCOMMITTED = "uncommitted"


def produce(
    topic: Topic,
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="Files of lines; standard input where none is named."),
    ] = None,
    whole_files: Annotated[
        list[str] | None,
        typer.Option("--file", "-F", metavar="FILE", help="A whole file as one value; may be repeated."),
    ] = None,
    input_format: Annotated[
        InputFormat, typer.Option("--format", help="What a line is: the value as text, or a JSON object.")
    ] = InputFormat.TEXT,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Ends the key, with which a line then begins.")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be repeated."
        ),
    ] = None,
    header_separator: Annotated[
        str | None,
        typer.Option(
            "--header-separator",
            help="Ends the headers, NAME=VALUE,NAME=VALUE, with which a line then begins.",
        ),
    ] = None,
    null_value: Annotated[
        str | None, typer.Option("--null-value", "-Z", help="A value that is just this is null: a tombstone.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="The partition; else by key, or by chance.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp", metavar="MS|TIME", help="The time of every record; else when it is sent."
        ),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many.")] = None,
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Make records up, with values of so many bytes.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="So many records a second.")] = None,
    acks: Annotated[str, typer.Option("--acks", metavar="0|1|all", help="Who must have a record.")] = "all",
    compression: Annotated[
        str, typer.Option("--compression", "-z", metavar="none|gzip|snappy|lz4|zstd", help="The codec.")
    ] = "none",
    idempotent: Annotated[
        bool | None,
        typer.Option("--idempotent/--no-idempotent", help="No record twice; the default with --acks all."),
    ] = None,
    server: Server = SERVER_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Send records: a line each, a JSON object a line, whole files, or made up.

    A line is [headers SEPARATOR][key SEPARATOR]value. A JSON line has key, value, headers, partition and timestamp, as
    `consume --format json` writes them; keyBase64 and valueBase64 stand for bytes that are no text, and a value
    that is an object or a number is sent as JSON. Tells at the end how much was sent, how fast, and the offsets.

    \b
    penstock produce orders < orders.txt
    echo 'customer-7:paid' | penstock produce orders --key-separator : --header source=shop
    penstock produce images --file logo.png --key logo
    penstock produce load --count 100000 --size 512 --rate 5000 --compression lz4
    penstock consume orders --format json | penstock produce copy --format json
    """
    from penstock.cli.produce import Wanted, run

    wanted = Wanted(
        topic=topic,
        inputs=inputs or [],
        whole_files=whole_files or [],
        input_json=input_format is InputFormat.JSON,
        key=key,
        key_separator=key_separator,
        headers=header or [],
        header_separator=header_separator,
        null_value=null_value,
        partition=partition,
        timestamp=timestamp,
        count=count,
        size=size,
        rate=rate,
        acks=acks,
        compression=compression,
        idempotent=idempotent,
    )
    raise typer.Exit(run(server, wanted, as_json=as_json))


def consume(
    topic: Topic,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated."),
    ] = None,
    start: Annotated[str, typer.Option("--from", "-o", metavar="PLACE", help="Where to begin.")] = "earliest",
    until: Annotated[
        str | None, typer.Option("--until", metavar="PLACE", help="Where to stop, before what is there.")
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after so many.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is produced from now on.")
    ] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="NAME|TEMPLATE", help="How a record is written.")
    ] = "text",
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Write the key too, and this after it.")
    ] = None,
    header_separator: Annotated[
        str | None, typer.Option("--header-separator", help="Write the headers first, and this after them.")
    ] = None,
    null_value: Annotated[
        str | None, typer.Option("--null-value", "-Z", help="What is written for a value that is null.")
    ] = None,
    base64: Annotated[
        bool, typer.Option("--base64", help="In JSON: keys and values in base64, also where they are text.")
    ] = False,
    isolation: Annotated[
        Isolation,
        typer.Option("--isolation", help="Whether records of open and aborted transactions are read."),
    ] = Isolation.UNCOMMITTED,
    server: Server = SERVER_DEFAULT,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print records as JSON, as --format json does.")
    ] = False,
) -> None:
    """Read records, and write a line for each.

    Without --follow it stops at the end of each partition as it was at the start. A PLACE is earliest, latest,
    an offset (-5: five before the end), a time (2026-01-01T10:00:00Z, @1767225600000) or so long ago (-1h).

    Formats: text (the value, with key and headers where separators say so), value, raw (values with nothing in
    between), full, json, hex, or a template: %t topic, %p partition, %o offset, %T time in ms, %k key, %v value,
    %h headers, %K and %V lengths, %% itself, and \\n, \\t, \\x41.

    \b
    penstock consume orders
    penstock consume orders --from latest --follow --format full
    penstock consume orders --from -1h --until -30m --format json
    penstock consume orders -p 0 -o 100 -n 10 --format '%o %k=%v'
    """
    from penstock.cli.consume import Wanted, run
    from penstock.cli.formats import Form

    wanted = Wanted(
        topic=topic,
        partitions=partition or [],
        start=start,
        until=until,
        count=count,
        follow=follow,
        committed=isolation is Isolation.COMMITTED,
    )
    raise typer.Exit(
        run(
            server,
            wanted,
            Form("json" if as_json else form, key_separator, header_separator, null_value, base64),
        )
    )
