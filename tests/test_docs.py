"""Documentation is executed: what README shows runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def run(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, check=False
    )


def test_the_python_example_of_the_readme_runs(tmp_path: Path) -> None:
    [example] = blocks("python")

    done = run("-c", example, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "[b'value']\n"
    assert (tmp_path / "penstock-data/logs/orders-0/00000000000000000000.log").stat().st_size > 0


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    text = README + (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"\bmake ([a-z-]+)\b(?! (?:a|the|are)\b)", text)) - {"the", "are"}

    for target in named & {"run", "test", "test-long", "check", "bench", "setup"}:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^penstock (log [a-z]+)", README, re.MULTILINE))))
def test_every_command_that_is_named_has_help(command: str) -> None:
    done = run("-m", "penstock", *command.split(), "--help")

    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/**/*.md")), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for text, base in ((page.read_text(), page.parent), (README, ROOT)):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
            assert (base / target).exists(), f"{page.name}: {target}"
