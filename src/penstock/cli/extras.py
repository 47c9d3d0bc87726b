"""Checks that the packages of an optional extra are installed, before a command starts anything."""

from importlib.util import find_spec

from penstock.base.extras import install_hint
from penstock.cli.output import Refused


def require_extra(extra: str, command: str, *modules: str) -> None:
    for module in modules:
        if not _is_installed(module):
            raise Refused(f"{command} needs {module}, which is not installed: {install_hint(extra)}")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False
