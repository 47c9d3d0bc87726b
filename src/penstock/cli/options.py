"""Options that many commands share."""

from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="One JSON document instead of a table.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
