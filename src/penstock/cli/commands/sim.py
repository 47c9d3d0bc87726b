"""`penstock sim`: runs seeds of the simulator, and replays one."""

from typing import Annotated

import typer

from penstock.cli.command_group import command_group
from penstock.cli.main import EXIT_WRONG
from penstock.cli.output import Refused, complain, print_json_line
from penstock.sim.cluster_extras import ALONE, Extra
from penstock.sim.play import play, play_cluster

app = command_group(
    """Run simulated clusters and check what clients see.

    Time, network and disks are simulated; the code of the nodes is the one that `penstock up` runs.

    \b
    penstock sim run --seeds 1..100                  run a hundred seeds: three nodes, a minute each
    penstock sim run --seed 7 --minutes 10           run ten minutes of one seed
    penstock sim run --seed 7 --trace                print every event
    """
)


@app.command("run")
def run_command(
    seed: Annotated[int | None, typer.Option("--seed", metavar="N", help="Run this seed.")] = None,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", metavar="A..B", help="Run these seeds, both included.  [1..20]"),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes",
            metavar="M",
            min=0.01,
            help="Virtual minutes before clients finish.  [1]",
        ),
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", min=1, max=9, help="Nodes of the cluster.  [3]"),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", metavar="N", min=1, help="For one node: events before clients finish."),
    ] = None,
    extras: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="EXTRA",
            help="Add a fault or a kind of client to what the seed decides: renewals (topics are deleted and created"
            " again while clients write), bad-sectors (bits on disks of running nodes change), apart"
            " (controllers are dedicated nodes), full-disks (disks are full for a while), failing-disks (disks"
            " fail writes, syncs or reads for a while), slow-disks (syncs take seconds for a while),"
            " costly-batches (thousands of records in a batch that have to be decoded),"
            " lost-metadata (voters restart without the end of their metadata log), holes (disks lose"
            " transaction markers, segments and indexes; for one node copies of its disk do), voter-changes"
            " (controllers are added to the voters and removed from them), rollbacks (files of stopped nodes are"
            " removed or restored to an older state, at the end all metadata), doors (clients of HTTP, with"
            " idempotency keys and as members, and of the line protocol), pipelined (idempotent producers have several"
            " batches in flight, by the rules of librdkafka and of the Java client), slow-readers"
            " (consumers do not read their responses for seconds), security (nodes and clients log in; users,"
            " ACLs and quotas change), unnamed (the settings have no cluster id: the"
            " first leader generates it); repeatable.",
        ),
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print everything that happens.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines: an object for each seed.")] = False,
) -> None:
    """Run seeds: clients produce and consume while nodes crash and restart, and the network is cut.

    The seed and the number of nodes determine everything: settings, topics, clients, crashes, delays. The exit code is
    1 if a run breaks a rule; the output names the rule, and the command that repeats the run.

    \b
    penstock sim run --seeds 1..500
    penstock sim run --seed 42 --minutes 10 --nodes 5
    penstock sim run --seed 42 --steps 2000 --trace
    penstock sim run --seeds 1..20 --with renewals --with bad-sectors
    """
    chosen = _seeds(seed, seeds)
    is_alone = _is_alone(steps, minutes, nodes)
    beside = _extras(extras or [], is_alone)
    failed = 0
    for each in chosen:
        result = (
            play(each, steps, beside) if is_alone else play_cluster(each, minutes or 1.0, nodes or 3, beside)
        )
        if trace:
            print("\n".join(result.trace))
        if as_json:
            print_json_line(result.as_dict())
        elif result.failure is None:
            print(result.summary)
        else:
            complain(f"seed {each}: {result.failure}\nto repeat the run: {result.command}")
        failed += result.failure is not None
    if len(chosen) > 1 and not as_json:
        print(f"{len(chosen) - failed} of {len(chosen)} seeds passed")
    raise typer.Exit(EXIT_WRONG if failed else 0)


def _is_alone(steps: int | None, minutes: float | None, nodes: int | None) -> bool:
    """Whether the run is of one node, not of a cluster."""
    if steps is not None and (minutes is not None or nodes not in (None, 1)):
        raise Refused("--steps is for one node: it cannot be used with --minutes or --nodes")
    if nodes == 1 and minutes is not None:
        raise Refused("--minutes is for clusters: use --steps with --nodes 1")
    return steps is not None or nodes == 1


def _extras(names: list[str], is_alone: bool) -> list[Extra]:
    others = [name for name in names if name not in [each.value for each in ALONE]]
    if others and is_alone:
        raise Refused(f"--with {others[0]} is for clusters: it cannot be used with --steps or --nodes 1")
    known = [each.value for each in Extra]
    for name in names:
        if name not in known:
            raise Refused(f"--with is {name!r}, expected one of {', '.join(known)}")
    return [Extra(name) for name in names]


def _seeds(seed: int | None, text: str | None) -> range:
    if seed is not None and text is not None:
        raise Refused("--seed and --seeds exclude each other: give one of them")
    if seed is not None:
        return range(seed, seed + 1)
    low, dots, high = (text or "1..20").partition("..")
    if not (dots and low.isdecimal() and high.isdecimal() and int(low) <= int(high)):
        raise Refused(f"--seeds is {text!r}, expected two numbers as in 1..20")
    return range(int(low), int(high) + 1)
