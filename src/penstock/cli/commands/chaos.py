"""`penstock chaos`: injects faults into real brokers under load, and checks what clients saw."""

import shutil
import tempfile
from pathlib import Path
from random import SystemRandom
from typing import Annotated

import typer

from penstock.chaos.campaign import CampaignResult, Plan
from penstock.chaos.faults import KINDS
from penstock.chaos.namespaces import Network
from penstock.chaos.play import play
from penstock.cli.command_group import command_group
from penstock.cli.connecting import parse_pairs
from penstock.cli.main import EXIT_INTERRUPTED, EXIT_WRONG
from penstock.cli.output import Refused, complain, print_json, print_table

app = command_group(
    """Break real brokers and check what clients see.

    Starts brokers as processes, puts load on them, injects faults, and checks the history of every client.

    \b
    penstock chaos run                               inject every fault that this machine allows, for 15 minutes
    penstock chaos run --minutes 2 --seed 7          inject the faults of seed 7, for two minutes
    penstock chaos run --fault kill --fault pause    inject only these faults
    penstock chaos faults                            list the faults
    """
)


@app.command("faults")
def faults_command() -> None:
    """List the faults, and which of them this machine allows."""
    why = Network.refusal()
    rows = [
        (name, kind.what, f"no: {why}" if why is not None and kind.needs_network else "yes")
        for name, kind in KINDS.items()
    ]
    print_table(("FAULT", "WHAT HAPPENS", "ALLOWED HERE"), rows)


@app.command("run")
def run_command(
    minutes: Annotated[float, typer.Option("--minutes", metavar="M", min=0.01, help="Duration.")] = 15.0,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Decides the load and the faults.  [random]"),
    ] = None,
    brokers: Annotated[
        int, typer.Option("--brokers", metavar="N", min=3, max=9, help="Number of brokers.")
    ] = 3,
    faults: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="NAME", help="Inject only this fault; repeatable.  [all faults]"),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="New directory for data and logs.  [a temporary one]"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of every broker; repeatable."),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Use no network namespaces or mounts, even as root."),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep data and logs even if no rule was broken.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Inject faults into brokers under load, and check what their clients saw.

    The load is producers (idempotent, plain, transactional), workers that read, process and write in transactions,
    groups of both protocols, consumers of committed and of all records, HTTP and line clients. The rules are those of
    `penstock sim`: no acknowledged record is lost, repeated or out of order; no aborted record is read; transactional
    work counts once; groups keep their offsets; replicas are equal in the end. And after every fault, every client
    makes progress within a minute.

    The exit code is 1 if a rule was broken. The output names the rule, and the directory of data and logs. The same
    seed gives the same faults in the same order, but real processes are not deterministic: a violation may need
    several runs to appear again.

    \b
    penstock chaos run --minutes 60
    penstock chaos run --minutes 5 --seed 7 --fault disk-full --fault kill
    penstock chaos run --set broker.session.timeout.ms=3000 --keep --data /var/tmp/chaos
    """
    for name in faults or ():
        if name not in KINDS:
            raise Refused(f"--fault is {name!r}, expected one of {', '.join(KINDS)}")
    if data is not None and data.exists() and any(data.iterdir()):
        raise Refused(f"{data} is not empty: expected a new or empty directory")
    wanted = parse_pairs(settings or [], "setting")  # before a directory is made
    plan = Plan(
        seed=SystemRandom().randrange(1, 1_000_000) if seed is None else seed,
        seconds=60 * minutes,
        directory=data or Path(tempfile.mkdtemp(prefix="penstock-chaos-")),
        brokers=brokers,
        faults=tuple(dict.fromkeys(faults or ())),
        settings=wanted,
        allows_root=not plain,
    )
    outcome = play(plan, (lambda _: None) if as_json else _say)
    command = _command(plan)
    if not (outcome.violations or keep or data is not None):
        shutil.rmtree(plan.directory, ignore_errors=True)
    if as_json:
        print_json(outcome.as_dict() | {"ok": not outcome.violations, "replay": command})
    else:
        _show(outcome, command, is_kept=plan.directory.exists())
    if outcome.violations:
        raise typer.Exit(EXIT_WRONG)
    raise typer.Exit(EXIT_INTERRUPTED if outcome.is_interrupted else 0)


def _say(line: str) -> None:
    print(line, flush=True)


def _command(plan: Plan) -> str:
    words = [
        f"penstock chaos run --minutes {plan.seconds / 60:g} --seed {plan.seed} --brokers {plan.brokers}"
    ]
    words += [f"--fault {each}" for each in plan.faults]
    words += [f"--set {name}={value}" for name, value in plan.settings.items()]
    words += [] if plan.allows_root else ["--plain"]
    return " ".join(words)


def _show(outcome: CampaignResult, command: str, *, is_kept: bool) -> None:
    rows = []
    for name in dict.fromkeys(each.name for each in outcome.faults):
        of_kind = [each for each in outcome.faults if each.name == name]
        rows.append(
            (
                name,
                len(of_kind),
                f"{max(each.lasted_s for each in of_kind):.1f} s",
                f"{max(each.pause_s for each in of_kind):.1f} s",
                f"{max(each.recovered_s for each in of_kind):.1f} s",
            )
        )
    print_table(("FAULT", "TIMES", "LASTED AT MOST", "ACKS=ALL PAUSED AT MOST", "ALL GOT ON WITHIN"), rows)
    for name, why in outcome.left_out.items():
        print(f"left out: {name}: {why}")
    if outcome.gave_up:
        print(f"{outcome.gave_up} times a broker stopped because its disk failed, and was restarted")
    print(
        f"{len(outcome.faults)} faults in {outcome.seconds:.0f} s; {outcome.acked:,} records acknowledged,"
        f" {outcome.read:,} read in the end; seed {outcome.seed}"
    )
    if is_kept:
        print(f"data and logs are in {outcome.directory}; trace.log has what every client saw")
    if outcome.is_interrupted:
        print("interrupted: only what clients saw until then was checked")
    elif not outcome.violations:
        print("no rule was broken")
    for each in outcome.violations:
        complain(each)
    if outcome.violations:
        complain(f"to inject the same faults again (processes are not deterministic): {command}")
