"""Options that many commands share."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
AddScram = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        metavar="USER",
        help="A SCRAM user of a new cluster, as SCRAM-SHA-256=[name=admin,password=secret]; repeatable.",
    ),
]
"""The form is that of Kafka's `kafka-storage format` (KIP-900)."""
