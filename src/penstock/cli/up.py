"""`penstock up`: flags into a configuration, and from there into a running node."""
# ruff: noqa: PLC0415  # the collector is put off before the node is loaded

import gc
import os

from penstock.cli.output import Refused


def up(
    *,
    data: str | None,
    kafka: str | None,
    http: str | None,
    line: str | None,
    config: str | None,
    settings: list[str],
    verbose: bool,
) -> int:
    """Start a node and serve until a signal comes; return the exit code."""
    # What a start loads stays loaded: there is no garbage to look for meanwhile.
    gc.disable()
    from penstock.base.settings import BadSetting
    from penstock.server.config import load
    from penstock.server.up import run, start_logging

    try:
        start_logging(os.environ.get("PENSTOCK_LOG"), verbose=verbose)
        for flag, door, what in (("--http", http, "HTTP"), ("--line", line, "the line protocol")):
            if door not in (None, "off"):
                raise BadSetting(f"{flag} is {door!r}, expected off: {what} is not there yet")
        if kafka == "off":
            raise BadSetting("--kafka is 'off', expected HOST:PORT: nothing else is served yet")
        node = load(data=data, kafka=kafka, file=config, flags=settings)
    except BadSetting as error:
        raise Refused(str(error)) from error
    return run(node)
