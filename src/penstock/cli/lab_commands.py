"""`penstock lab segments`, `indexes` and `isr`: their options and help. What they run is imported when they run."""
# ruff: noqa: PLC0415  # that is the point

from pathlib import Path
from typing import Annotated

import typer

OFFSET_MAX = 999
"""The last of the records that the lab writes."""

Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of the story.")]
Keep = Annotated[
    Path | None,
    typer.Option(
        "--keep", metavar="DIR", help="Leave the data in this directory, which must be new or empty."
    ),
]


def segments_command(keep: Keep = None, as_json: Json = False) -> None:
    """See how segment.bytes cuts a log into files: 10,000 against the default, with the same 100 messages.

    A node is started, written to and stopped; what is shown is read from the files that it left. The exit code is 1
    if they do not show what the lab says of them.

    \b
    penstock lab segments
    penstock lab segments --keep ./lab
    """
    from penstock.cli.lab_segments import run_lab

    raise typer.Exit(run_lab(keep, as_json=as_json))


def indexes_command(
    offset: Annotated[
        int, typer.Option("--offset", metavar="N", min=0, max=OFFSET_MAX, help="Which one is looked up.")
    ] = 777,
    keep: Keep = None,
    as_json: Json = False,
) -> None:
    """Look an offset up step by step through a sparse index; then spoil indexes, find it out, and mend them.

    A node is started, written to and stopped; what is shown is read from the files that it left. The exit code is 1
    if they do not show what the lab says of them.

    \b
    penstock lab indexes
    penstock lab indexes --offset 12 --keep ./lab
    """
    from penstock.cli.lab_indexes import run_lab

    raise typer.Exit(run_lab(keep, offset, as_json=as_json))


def isr_command(keep: Keep = None, as_json: Json = False) -> None:
    """See replicas fall out of sync and catch up: three brokers, one of which stops while the others are written to.

    The brokers are processes on free ports. At each step the cluster is asked who leads, who is in sync and how far
    each replica is. The exit code is 1 if that does not show what the lab says of it.

    \b
    penstock lab isr
    penstock lab isr --keep ./lab
    """
    from penstock.cli.lab_isr import run_lab

    raise typer.Exit(run_lab(keep, as_json=as_json))
