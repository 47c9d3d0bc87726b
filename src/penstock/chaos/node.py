"""`python -m penstock.chaos.node`: a broker process of a campaign.

It is the node of `penstock up`, with the same configuration and exit codes. There are two differences: the campaign's
`Switches` control its disk and its clock, and it ends with the campaign.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.base.settings import BadSetting
from penstock.base.world import World
from penstock.chaos.lifeline import die_with_parent
from penstock.chaos.switches import Switch, SwitchedDisk, Switches
from penstock.server.config import NodeConfig, load
from penstock.server.host import new_node
from penstock.server.up import refuse, run, start_logging
from penstock.vfs import Vfs

if TYPE_CHECKING:
    from penstock.server.node import Node


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m penstock.chaos.node", description=__doc__)
    parser.add_argument("--parent", type=int, required=True, help="Process that this one ends with.")
    parser.add_argument("--switches", type=Path, help="File of the faults; without it, there are none.")
    for name in ("data", "kafka", "controller", "http", "line"):
        parser.add_argument(f"--{name}", required=True, help=f"As in `penstock up --{name}`.")
    parser.add_argument("--set", action="append", default=[], help="As in `penstock up --set`.")
    given = parser.parse_args(arguments)
    die_with_parent(given.parent)
    # A write beyond RLIMIT_FSIZE is to fail, not to end the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    start_logging(os.environ.get("PENSTOCK_LOG"))
    try:
        config = load(
            data=given.data,
            kafka=given.kafka,
            controller=given.controller,
            http=given.http,
            line=given.line,
            flags=given.set,
        )
    except BadSetting as error:
        return refuse(str(error))
    if given.switches is None:
        return run(config)
    switches = Switches(given.switches)

    def make_node(world: World, _: Vfs, config: NodeConfig) -> "Node":
        true_now_ms = world.now_ms
        # A node takes the time from its world only.
        setattr(world, "now_ms", lambda: true_now_ms() + switches.get(Switch.CLOCK_AHEAD_MS))  # noqa: B010
        return new_node(world, SwitchedDisk(str(given.switches)), config)

    return run(config, make_node)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
