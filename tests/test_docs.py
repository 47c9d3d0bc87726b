"""Documentation is executed: what README shows runs as it stands."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.server.config import load
from penstock.testing import Broker

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


ADDRESS = "127.0.0.1:9092"
"""Where the examples find a broker."""


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def block(language: str, words: str) -> str:
    """The one example of README that has these words."""
    [found] = [each for each in blocks(language) if words in each]
    return str(found)


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_python_example_of_the_log_runs(tmp_path: Path) -> None:
    done = run("-c", block("python", "open_directory"), cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "[b'value']\n"
    assert (tmp_path / "penstock-data/logs/orders-0/00000000000000000000.log").stat().st_size > 0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def test_the_commands_for_a_broker_run(broker: Broker) -> None:
    commands = f'penstock() {{ {shlex.quote(sys.executable)} -m penstock "$@"; }}\n' + block(
        "sh", "topics create"
    )

    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        env={**os.environ, "PENSTOCK_SERVER": broker.bootstrap},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "customer-7 owes nothing: paid\n" in done.stdout
    assert "orders: 3 partitions" in done.stdout


def test_the_commands_without_a_kafka_client_run() -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with Broker(http=True) as broker:
        commands = block("sh", "idempotency_key").replace("127.0.0.1:8080", broker.http_url)
        done = subprocess.run(
            ["sh", "-e", "-c", commands.replace("curl ", "curl -sf ") + "\n" + commands.splitlines()[0]],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"offset":0}') == 2, "a try and another give the same"
    assert '"value":"paid"' in done.stdout
    assert '"status":"joined","assignments":{"orders":[0,1,2]}' in done.stdout
    assert "penstock_requests_total" in done.stdout


def test_the_example_with_a_kafka_client_runs(broker: Broker) -> None:
    broker.create_topic("orders", partitions=3)

    done = run("-c", block("python", "assign(").replace(ADDRESS, broker.bootstrap))

    assert done.returncode == 0, done.stderr
    assert done.stdout == "b'customer-8' b'paid'\n"


def test_the_example_of_a_test_passes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(block("python", "penstock_broker"))

    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py", cwd=tmp_path)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


def test_the_flags_that_the_pages_show_are_taken() -> None:
    [command] = [each for each in blocks("", (ROOT / "docs/wire.md").read_text()) if "penstock up" in each]
    words = shlex.split(command)
    flags = [value for flag, value in pairwise(words) if flag == "--set"]

    config = load(flags=flags, environment={})

    assert set(config.listeners) == {"PLAINTEXT", "OUTSIDE"}
    assert config.advertised["OUTSIDE"].host == "broker.example"
    assert "PLAINTEXT" not in config.advertised


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = README + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"\bmake ([a-z-]+)\b(?! (?:a|the|are)\b)", text)) - {"the", "are"}

    for target in named & {"run", "test", "test-long", "check", "bench", "setup"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize(
    "command",
    sorted(
        set(
            re.findall(
                r"^penstock ((?:(?:log|topics|configs|groups|transactions|pipeline) )?[a-z-]+)",
                README,
                re.MULTILINE,
            )
        )
    ),
)
def test_every_command_that_is_named_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*command.split(), "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for text, base in ((page.read_text(), page.parent), (README, ROOT)):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert (base / target).exists(), f"{page.name}: {target}"
