"""Entry point of the `penstock` command, its fast paths and exit codes.

A failure is one sentence on standard error and an exit code, never a traceback: 1 if the data has errors, 2 if
the command could not run, 130 after Ctrl-C, 141 if the reader of a pipe ended.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

EXIT_WRONG = 1
EXIT_CANNOT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command line; return the exit code."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # file names need not be text
    try:
        code = _dispatch(list(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # Discard buffered output: Python would fail to flush it at exit.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code


def _open_closed_streams() -> None:
    """Connect standard streams that the caller closed (`>&-`) to /dev/null.

    A free descriptor below 3 would be given to the next file or socket, and output would go into it.
    """
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            with suppress(OSError):
                os.fstat(number)
                continue
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is `number`
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _dispatch(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        from penstock import __version__  # noqa: PLC0415  # `--version` loads nothing else

        print(f"penstock {__version__}")
        return 0
    if arguments[:1] == ["up"]:
        from penstock.cli.up import plain_flags, up  # noqa: PLC0415  # `up` must start quickly

        flags = plain_flags(arguments[1:])
        if flags is not None:
            return up(flags)
    from penstock.cli.app import invoke  # noqa: PLC0415

    return invoke(arguments)
