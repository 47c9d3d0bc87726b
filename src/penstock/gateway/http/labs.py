"""/labs: runs of the simulator, for the page that replays a seed step by step."""

from typing import Any, Final

import msgspec

from penstock.base.steps import Steps
from penstock.gateway.http.protocol.messages import Query, Request, Response, Routes, json
from penstock.gateway.shared.access import DESCRIBE_CLUSTER, Rule

ROUTES = Routes("labs")

SECONDS_MAX: Final = 30
NODES_MAX: Final = 5
SEED_MAX: Final = 2**31 - 1

EXTRAS: Final = (
    "bad-sectors",
    "doors",
    "failing-disks",
    "full-disks",
    "holes",
    "lost-metadata",
    "renewals",
    "rollbacks",
    "security",
    "slow-disks",
    "voter-changes",
)
"""Of those of `penstock sim run --with`."""


class SimulationEvent(msgspec.Struct):
    us: int
    """Virtual time in microseconds, from the start."""
    text: str
    """What happened."""


class SimulationRun(msgspec.Struct):
    """A simulated cluster, from its first event to its last."""

    seed: int
    ok: bool
    """Whether every rule held."""
    failure: str | None
    """The rule that was broken."""
    command: str
    """Repeats the run in a terminal."""
    virtual_ms: int
    fingerprint: str | None
    """The same for each run of the same seed with the same code."""
    acked: int
    """Batches that were acknowledged."""
    read: int
    """Records in the end."""
    power_cuts: int
    events: list[SimulationEvent]
    is_cut: bool
    """Whether there were more events."""


@ROUTES.add(
    "GET",
    "/labs/simulation",
    "Run a simulated cluster in a process of its own, and return everything that happened. The same seed gives the "
    "same run. One at a time (429); it ends when the client disconnects.",
    query=(
        Query("seed", int, "Decides everything that is random.", default=1, min=0, max=SEED_MAX),
        Query("seconds", int, "Virtual seconds before clients finish.", default=15, min=1, max=SECONDS_MAX),
        Query("nodes", int, "Nodes of the cluster.", default=3, min=3, max=NODES_MAX),
        Query(
            "with", list[str], "Faults to add.", default=(), max=len(EXTRAS), one_of=EXTRAS, is_unique=True
        ),
    ),
    answer=SimulationRun,
    errors=(429,),
    rule=Rule((DESCRIBE_CLUSTER,)),
)
def _simulation(gateway: Any, request: Request) -> Steps[Response]:
    query = request.query
    seed, seconds, nodes, extras = query["seed"], query["seconds"], query["nodes"], query["with"]
    run = yield from gateway.simulations.run(seed, seconds, nodes, extras)
    flags = "".join(f" --with {each}" for each in extras)
    result = run.result
    return json(
        SimulationRun(
            seed,
            result["ok"],
            result.get("failure"),
            f"penstock sim run --seed {seed} --minutes {seconds / 60:g} --nodes {nodes}{flags} --trace",
            result.get("virtual_ms", run.events[-1].us // 1000 if run.events else 0),
            result.get("fingerprint"),
            result.get("acked", 0),
            result.get("read", 0),
            result.get("power_cuts", 0),
            [SimulationEvent(*each) for each in run.events],
            run.is_cut,
        )
    )
