"""What runs from seeds have in common, whether of one node or of a cluster."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


def kept_in(name: str) -> list[tuple[int, str]]:
    """Seeds that once failed, each with how long its run was."""
    lines = (Path(__file__).parent / name).read_text().splitlines()
    found = [line.split() for line in lines if line and not line.startswith("#")]
    return [(int(seed), length) for seed, length, *_ in found]


class KeptSeed(NamedTuple):
    """A seed of a cluster that once failed, with what it was run with."""

    seed: int
    minutes: float
    nodes: int
    extras: tuple[str, ...]
    found: str

    def __str__(self) -> str:
        return f"{self.seed}-{'-'.join(self.extras)}"


def kept_with_extras(name: str) -> list[KeptSeed]:
    lines = (Path(__file__).parent / name).read_text().splitlines()
    found = [line.split(None, 4) for line in lines if line and not line.startswith("#")]
    return [
        KeptSeed(
            int(seed), float(minutes), int(nodes), () if extras == "-" else tuple(extras.split(",")), what
        )
        for seed, minutes, nodes, extras, what in found
    ]


def fingerprint_elsewhere(call: str) -> str:
    """The fingerprint of a run of `penstock.sim.play` in another process, where strings have other hashes."""
    program = f"from penstock.sim.play import *; print({call}.outcome.fingerprint)"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.strip()
