"""How to install an optional dependency. Every error about a missing package ends with this text."""


def install_hint(extra: str) -> str:
    """For example: install Penstock with its extra `spark` (see Install in README.md)."""
    return f"install Penstock with its extra `{extra}` (see Install in README.md)"
