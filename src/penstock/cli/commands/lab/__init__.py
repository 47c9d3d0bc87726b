"""`penstock lab`: experiments that show how a log works."""

from penstock.cli.command_group import LazyCommand, LazyGroup, command_group


class Lab(LazyGroup):
    table = {  # noqa: RUF012  # never changed
        "segments": LazyCommand(
            "lab.segments:segments_command", "See how segment.bytes splits a log into files"
        ),
        "indexes": LazyCommand(
            "lab.indexes:indexes_command", "Look up an offset step by step; damage and repair indexes"
        ),
        "isr": LazyCommand("lab.isr:isr_command", "See replicas fall out of sync and catch up"),
        "crash": LazyCommand(
            "lab.crash:crash_command", "Kill a writer with SIGKILL, recover, and look inside"
        ),
    }


app = command_group(
    """Run experiments that show how a log works.

    Each experiment runs on new data and explains what it shows.

    \b
    penstock lab segments
    penstock lab indexes --offset 12
    penstock lab isr
    penstock lab crash
    """,
    cls=Lab,
)
