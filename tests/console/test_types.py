"""The console's modules pass the type checker: TypeScript's, on their JSDoc."""

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
INSTALLED = HERE.parents[1] / ".cache/node/node_modules/.bin/tsc"
"""Where `.ci/run` installs it."""


def test_types() -> None:
    tsc = str(INSTALLED) if INSTALLED.exists() else shutil.which("tsc")
    if tsc is None or shutil.which("node") is None:
        pytest.skip("there is no TypeScript: npm install --prefix .cache/node --no-save typescript@5.9.3")
    found = subprocess.run(
        [tsc, "-p", str(HERE / "tsconfig.json")], capture_output=True, text=True, timeout=300, check=False
    )
    assert found.returncode == 0, found.stdout
