"""`penstock search`: finds records of a topic, through a node's HTTP API or in a directory without a broker."""

import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.errors import KafkaError
from penstock.cli.connecting import ClientConfigFile, Isolation, Topic, target_of
from penstock.cli.formats import RecordFormat, Writer, writer_of
from penstock.cli.main import EXIT_WRONG
from penstock.cli.output import Refused, complain, counted, printable, progress_of
from penstock.cli.positions import LogPosition, parse_position
from penstock.cli.search_sources import Ended, Events, Found, SearchRequest, search_directory, search_node
from penstock.search.query import FIELDS, LIMIT, LIMIT_MAX, SearchQuery, check_query

HTTP_DEFAULT = "127.0.0.1:8080"


def search(
    topic: Topic,
    contains: Annotated[
        str | None, typer.Option("--contains", "-c", help="Text that a record contains.")
    ] = None,
    contains_hex: Annotated[
        str | None, typer.Option("--contains-hex", metavar="HEX", help="The same for any bytes, in hex.")
    ] = None,
    regex: Annotated[
        str | None, typer.Option("--regex", "-r", help="A regular expression (RE2) that a record matches.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", "-w", help="A CEL expression over the record and its decoded JSON."),
    ] = None,
    field: Annotated[
        str, typer.Option("--in", metavar="|".join(FIELDS), help="Where --contains and --regex look.")
    ] = "any",
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this partition.")
    ] = None,
    start: Annotated[
        str, typer.Option("--from", "-o", metavar="POSITION", help="Only records from there on.")
    ] = "earliest",
    until: Annotated[
        str | None, typer.Option("--to", metavar="POSITION", help="Only records before it.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=LIMIT_MAX, help="Stop after N results.")
    ] = LIMIT,
    isolation: Annotated[
        Isolation,
        typer.Option("--isolation", help="With committed, skip records of open and aborted transactions."),
    ] = Isolation.COMMITTED,
    form: Annotated[
        str, typer.Option("--format", metavar="NAME|TEMPLATE", help="How a record is printed, as in consume.")
    ] = "full",
    path: Annotated[
        Path | None, typer.Option("--path", metavar="DIR", help="Search this directory, without a broker.")
    ] = None,
    http: Annotated[
        str,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            envvar="PENSTOCK_HTTP",
            help="The HTTP port of a node; https:// before it for TLS.",
        ),
    ] = HTTP_DEFAULT,
    client_config: ClientConfigFile = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print results as JSON, one object a line.")
    ] = False,
) -> int:
    """Find records of a topic.

    Prints the newest matches first, as they are found; on a terminal, shows how much of the topic is searched. Of
    several conditions all must hold. A POSITION is earliest, an offset, a time (2026-01-01T10:00:00Z,
    @1767225600000) or a time ago (-1h).

    An expression in CEL has the variables key, value (the JSON that it is), headers, partition, offset and timestamp.
    Records for which it fails, because a field is missing, say, do not match.

    Asks a node over HTTP, which searches in processes of its own; --client-config has the log-in and the trusted
    certificates. With --path, reads a data, log or partition
    directory instead, whether or not a broker uses it. The exit code is 1 if a part could not be searched.

    \b
    penstock search orders --contains timeout
    penstock search orders --regex 'user-[0-9]+' --in key --from -1h
    penstock search orders --where 'value.amount > 100.0 && value.country == "DE"' --limit 10 --json
    penstock search orders --contains timeout --path ./penstock-data
    """
    if field not in FIELDS:
        raise Refused(f"--in is {field!r}, expected one of {', '.join(FIELDS)}")
    now_ms = int(time.time() * 1000)
    first = _position("--from", start, now_ms)
    last = LogPosition() if until is None else _position("--to", until, now_ms)
    query = SearchQuery(_bytes(contains, contains_hex), regex, where, field, first.time_ms, last.time_ms)
    asked = SearchRequest(
        topic, query, partition, first.offset, last.offset, limit, isolation is Isolation.COMMITTED
    )
    write = writer_of(RecordFormat("json" if as_json else form, is_terminal=sys.stdout.isatty()))
    try:
        check_query(query)
        if path is None:
            events = search_node(http, target_of(None, client_config).config, asked)
        else:
            events = search_directory(str(path), asked)
        with closing(events):
            return _print(events, topic, write)
    except KafkaError as error:
        raise Refused(str(error)) from error


def _print(events: Events, topic: str, write: Writer) -> int:
    out = sys.stdout.buffer
    with progress_of("searched") as show:
        for event in events:
            if isinstance(event, Found):
                out.write(write(topic, event.partition, event.record))
                out.flush()
            elif isinstance(event, Ended):
                return _report(event)
            else:
                show(event.searched, event.total)
    complain("the node ended the search early; its log says why")
    return EXIT_WRONG


def _report(ended: Ended) -> int:
    """Say on standard error what a user should know about the results; return the exit code."""
    if ended.error:
        complain(printable(ended.error))
    for partition, why in ended.unsearched:
        complain(printable(f"partition {partition} was not searched completely: {why}"))
    if ended.failed_count:
        complain(
            printable(
                f"--where had no result for {counted(ended.failed_count, 'record')}: {ended.failed_why}"
            )
        )
    if ended.is_limited:
        complain(f"stopped after {counted(ended.match_count, 'result')}; --limit allows more")
    return EXIT_WRONG if ended.error or ended.unsearched else 0


def _position(option: str, text: str, now_ms: int) -> LogPosition:
    position = parse_position(text, now_ms, "earliest")
    if position.edge == "earliest" and option == "--from":
        return LogPosition()
    if position.edge is not None or (position.offset is not None and position.offset < 0):
        raise Refused(f"{option} is {text!r}, expected an offset from 0 on, a time or a time ago (-1h)")
    return position


def _bytes(text: str | None, in_hex: str | None) -> bytes | None:
    if text is not None and in_hex is not None:
        raise Refused("--contains and --contains-hex are both given, expected one of them")
    if in_hex is None:
        return None if text is None else text.encode("utf-8", "surrogateescape")
    try:
        return bytes.fromhex(in_hex)
    except ValueError:
        raise Refused(f"--contains-hex is {in_hex[:64]!r}, expected pairs of hexadecimal digits") from None
