"""The page about clusters is executed: its commands, its example, and its files."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.test_docs import ROOT, blocks, run

from penstock.server.config import NodeConfig, load

PAGE = (ROOT / "docs/cluster.md").read_text()
PENSTOCK = f'penstock() {{ {shlex.quote(sys.executable)} -m penstock "$@"; }}\n'
SECONDS_MAX = 120


def commands(words: str) -> str:
    [found] = [each for each in blocks("sh", PAGE) if words in each]
    return str(found)


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """What the page starts, on free ports; its bootstrap servers."""
    line = commands("cluster start").partition("#")[0]
    arguments = [*shlex.split(line)[1:], "--base-port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments], cwd=directory, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        told = next(each for each in process.stdout if each.startswith("clients connect to "))
        yield told.removeprefix("clients connect to ").partition(";")[0]
    finally:
        process.terminate()
        process.communicate(timeout=SECONDS_MAX)


def test_the_commands_run_one_after_the_other(tmp_path: Path) -> None:
    """The cluster is stopped by the last of them; replicas are moved before."""
    *tour, last = commands("cluster kill 2").splitlines()
    assert last == "penstock cluster stop"
    shell = PENSTOCK + "\n".join([*tour, commands("reassign plan"), last])
    with cluster(tmp_path) as bootstrap:
        said = subprocess.run(
            ["sh", "-c", shell],
            cwd=tmp_path,
            env={**os.environ, "PENSTOCK_SERVER": bootstrap},
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert said.returncode == 0, said.stderr
    assert said.stderr == ""
    for words in (
        "created orders with 3 partitions, replication factor 3",
        "killed node 2",
        "min.insync.replicas=2",
        "customer-7 paid\n",
        "node 2 is up, process",
        "leads epoch",
        "stopped nodes 1, 2, 3",
    ):
        assert words in said.stdout, said.stdout
    assert (tmp_path / "plan.json").exists()
    assert "All moves are done." in said.stdout
    assert "Nothing moves." in said.stdout


def test_the_cluster_in_a_test_runs() -> None:
    [example] = blocks("python", PAGE)
    done = run("-c", example)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("127.0.0.1:") == 3


def files() -> list[str]:
    return blocks("toml", PAGE)


def loaded(text: str, directory: Path) -> NodeConfig:
    path = directory / "node.toml"
    path.write_text(text)
    return load(file=str(path), environment={})


def test_the_three_files_make_one_cluster(tmp_path: Path) -> None:
    [one] = [each for each in files() if "controller.quorum.voters" in each]
    two = one.replace("node.id = 1", "node.id = 2").replace("//one.example", "//two.example")
    found = [loaded(each, tmp_path) for each in (one, two)]
    assert {each.cluster.cluster_id for each in found} == {found[0].cluster.cluster_id} != {None}
    assert [len(each.cluster.voters) for each in found] == [3, 3]
    assert [dict(each.advertised)["PLAINTEXT"].host for each in found] == ["one.example", "two.example"]
    assert not any(each.warnings for each in found)


def test_a_node_without_a_name_for_others_does_not_start(tmp_path: Path) -> None:
    [one] = [each for each in files() if "controller.quorum.voters" in each]
    without = "\n".join(each for each in one.splitlines() if not each.startswith("advertised"))
    with pytest.raises(Exception, match=r"advertised\.listeners"):
        loaded(without, tmp_path)


def test_the_first_controller_is_a_quorum_and_the_next_one_asks_for_it(tmp_path: Path) -> None:
    first, second = (loaded(each, tmp_path) for each in files() if 'process.roles = "controller"' in each)
    assert first.cluster.is_standalone
    assert not second.cluster.is_standalone
    assert first.cluster.cluster_id == second.cluster.cluster_id == "s5qUyFm7T7uGmIa1834mZQ"
    assert [each.host for each in second.cluster.bootstrap] == ["c1.example", "c2.example", "c3.example"]


@pytest.mark.parametrize("command", re.findall(r"^penstock (quorum \S+)", PAGE, re.MULTILINE))
def test_every_command_about_the_quorum_has_help(command: str) -> None:
    done = run("-m", "penstock", *command.split(), "--help")
    assert done.returncode == 0, done.stderr


def test_an_id_for_a_cluster_is_made_as_the_page_says(tmp_path: Path) -> None:
    [program] = re.findall(r"python3 -c '([^']+)'", PAGE)
    made = run("-c", program).stdout.strip()
    assert loaded(f'cluster.id = "{made}"', tmp_path).cluster.cluster_id == made
