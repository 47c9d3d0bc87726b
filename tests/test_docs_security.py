"""The page about security is executed: a secured node in five minutes, with a node in a process of its own."""

import os
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

from tests.test_docs import ROOT, blocks

from penstock.server.ports import free_ports

PAGE = (ROOT / "docs/security.md").read_text()
PENSTOCK = f'penstock() {{ {shlex.quote(sys.executable)} -m penstock "$@"; }}\nset -e\n'
SECONDS_MAX = 120


def five_minutes() -> list[str]:
    section = PAGE.partition("\n## A secured node in five minutes\n")[2].partition("\n## ")[0]
    return blocks("sh", section)


def shell(commands: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    unset = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return subprocess.run(
        ["sh", "-c", PENSTOCK + commands],
        cwd=directory,
        env=unset,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_a_secured_node_in_five_minutes(tmp_path: Path) -> None:
    start, of_admin, of_alice = five_minutes()
    make, up = start.splitlines()
    [port] = free_ports(1)
    made = shell(f"{make} --host localhost:{port}", tmp_path)
    assert (made.returncode, made.stderr) == (0, "")
    assert [line.strip() for line in made.stdout.splitlines()[-2:]] == [
        up,
        "penstock topics list --client-config secured/admin.properties",
    ]
    for file in (tmp_path / "secured").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    command = [sys.executable, "-m", "penstock", *shlex.split(up)[1:]]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            assert node.stdout.readline().startswith("penstock ready ")
            done = shell(of_admin, tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.endswith("ALLOW WRITE on TOPIC orders for User:alice from *\n")
            assert stat.S_IMODE((tmp_path / "alice.properties").stat().st_mode) == 0o600
            done = shell(of_alice, tmp_path)
            assert done.returncode == 0, done.stderr
            assert "an order\n" in done.stdout
            assert "orders" in done.stdout.splitlines()[-1]
            refused = shell("penstock topics delete orders --yes --client-config alice.properties", tmp_path)
            assert refused.returncode == 2
            assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
            nobody = shell(f"penstock topics list --server localhost:{port}", tmp_path)
            assert nobody.returncode == 2
            assert "asks for TLS" in nobody.stderr
        finally:
            node.send_signal(signal.SIGTERM)
            node.wait(SECONDS_MAX)
