"""The fast path of `penstock up`: parses plain flags without typer, and runs the node.

Loading typer takes half as long as starting a node. Anything else (`--help`, `--brokers`, a mistake) goes to
`penstock.cli.commands.up`.
"""
# ruff: noqa: PLC0415  # the garbage collector is disabled before the node is imported

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Flags:
    data: str | None = None
    kafka: str | None = None
    controller: str | None = None
    http: str | None = None
    line: str | None = None
    config: str | None = None
    settings: list[str] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    """SCRAM users of a new cluster."""
    verbose: bool = False


VALUED = {
    "--data": "data",
    "--kafka": "kafka",
    "--controller": "controller",
    "--http": "http",
    "--line": "line",
    "--config": "config",
}


LISTED = {"--set": "settings", "--add-scram": "users"}
"""Repeatable ones."""


def plain_flags(arguments: Sequence[str]) -> Flags | None:
    """Parse the arguments of `penstock up`; None if they need the full parser."""
    flags = Flags()
    rest = iter(arguments)
    for argument in rest:
        name, sign, value = argument.partition("=")
        if argument == "--verbose":
            flags.verbose = True
            continue
        if name not in LISTED and name not in VALUED:
            return None
        word = value if sign else next(rest, None)
        if word is None:
            return None
        if name in LISTED:
            getattr(flags, LISTED[name]).append(word)
        else:
            setattr(flags, VALUED[name], word)
    return flags


def first_users(users: Sequence[str]) -> list[str]:
    """Users of --add-scram as a setting."""
    return [f"bootstrap.scram.users={','.join(users)}"] if users else []


def up(flags: Flags) -> int:
    """Run a node until a signal stops it; return the exit code."""
    # Start-up creates no garbage to collect.
    gc.disable()
    from penstock.base.settings import BadSetting
    from penstock.server.config import load
    from penstock.server.up import refuse, run, start_logging

    try:
        start_logging(os.environ.get("PENSTOCK_LOG"), verbose=flags.verbose)
        if flags.kafka == "off":
            raise BadSetting("--kafka is 'off', expected HOST:PORT: every node serves Kafka clients")
        node = load(
            data=flags.data,
            kafka=flags.kafka,
            controller=flags.controller,
            http=flags.http,
            line=flags.line,
            file=flags.config,
            flags=[*flags.settings, *first_users(flags.users)],
        )
    except BadSetting as error:
        return refuse(str(error))
    return run(node)
