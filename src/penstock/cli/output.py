"""Output of commands: tables or JSON on standard output, errors and progress on standard error."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

PIPE_COLUMNS = 100_000
"""Table width in a pipe: nothing is wrapped or cut."""

Cell = str | int | None


class Refused(Exception):
    """The command cannot run; the message is one sentence for the user. Exit code 2."""


def complain(sentence: str) -> None:
    print(f"penstock: {sentence}", file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")


def print_result(document: Any, sentence: str, *, as_json: bool) -> None:
    """Print the result of a command: a document for programs, or a sentence."""
    if as_json:
        print_json(document)
    else:
        print(sentence)


def counted(number: int, what: str) -> str:
    """`1 node`, or `3 nodes`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def camel_case(name: str) -> str:
    """`log_start` as `logStart`."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, title: str = "") -> None:
    """Print a table: numbers right-aligned, None as a dash."""
    from rich.console import Console  # noqa: PLC0415  # loaded only to print a table
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_COLUMNS)
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    for index, column in enumerate(columns):
        is_number = all(isinstance(row[index], int | None) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_show(cell)) for cell in row))
    if title:
        console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)


def _show(cell: Cell) -> str:
    if cell is None:
        return "-"
    return printable(cell) if isinstance(cell, str) else str(cell)


def printable(text: str) -> str:
    """Escape characters that a terminal would interpret."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def show_time(timestamp_ms: int) -> str | None:
    """A timestamp as text; None if there is none (-1)."""
    if timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03d}Z"


@contextmanager
def progress(what: str, total: Callable[[], int]) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yield a function that adds bytes. `total` is called only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    done, whole = 0, total()
    with progress_of(what) as show:

        def advance(count: int) -> None:
            nonlocal done
            done += count
            show(done, whole)

        yield advance


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal; yield a function that takes bytes done and bytes in total."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
