"""ARCHITECTURE.md names what exists: paths, packages, and the layers that import-linter checks."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/penstock"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
PACKAGES = {path.parent.name for path in SOURCE.glob("*/__init__.py")}


def test_every_path_on_the_page_exists() -> None:
    paths = set(re.findall(r"`((?:[a-z_0-9]+/)+(?:[a-z_0-9]+\.(?:py|md))?)`", PAGE))
    assert len(paths) > 60
    assert [
        path for path in sorted(paths) if not (SOURCE / path).exists() and not (ROOT / path).exists()
    ] == []


def test_every_package_has_a_line_of_its_own() -> None:
    assert {f"{each}/" for each in PACKAGES} == set(re.findall(r"^\| `([a-z]+/)` \|", PAGE, re.MULTILINE))


def test_the_map_has_the_layers_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = [PACKAGES.intersection(re.findall(r"\w+", layer)) for layer in contracts[0]["layers"]]
    lines = PAGE.split("```")[1].strip().splitlines()
    assert [PACKAGES.intersection(line[:29].split()) for line in lines] == checked
