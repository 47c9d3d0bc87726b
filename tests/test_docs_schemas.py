"""The page about schemas is executed: its example in Python, and its commands."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.test_docs import ADDRESS, ROOT, blocks, run

from penstock.server.ports import free_ports
from penstock.testing import Broker

PAGE = (ROOT / "docs/schemas.md").read_text()
REGISTRY = "127.0.0.1:8081"


def test_the_example_and_the_commands_run(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with Broker(http=True, settings={"schema.registry.listener": f"127.0.0.1:{port}"}) as broker:
        here = f"127.0.0.1:{port}"
        [example] = blocks("python", PAGE)
        done = run("-c", example.replace(ADDRESS, broker.bootstrap).replace(REGISTRY, here))
        assert done.returncode == 0, done.stderr

        start, *commands = blocks("sh", PAGE)
        assert "penstock up" in start
        shell = f'penstock() {{ {shlex.quote(sys.executable)} -m penstock "$@"; }}\n'
        shell += 'curl() { command curl --silent --show-error --fail "$@"; echo; }\n'
        shell += "".join(commands).replace(REGISTRY, here)
        said = subprocess.run(
            ["sh", "-e", "-c", shell],
            cwd=tmp_path,
            env={**os.environ, "PENSTOCK_SERVER": broker.bootstrap},
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.returncode == 0, said.stderr
        assert '["orders-value"]' in said.stdout
        assert '"compatibility":"FULL_TRANSITIVE"' in said.stdout
        assert '{"id":2}' in said.stdout
