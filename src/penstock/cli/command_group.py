"""Groups of commands: help without cut-off summaries, and commands whose modules load on use.

A group such as `penstock topics` is one module, made with `command_group`. The root, `penstock log` and `penstock lab`
are lazy: a table names the module of each command and a summary. Their help shows the table; a module is imported only
when its command runs or shows its own help. So `penstock --help` loads no client, no storage and no Spark.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group


class LazyCommand(NamedTuple):
    """A command of a lazy group."""

    target: str
    """`module:attribute`, below penstock.cli.commands: a function with options, or a group of commands."""
    summary: str
    """The first sentence of the command's own help, without its full stop."""


class Group(TyperGroup):
    """Shows the whole first sentence of each command's help, over several lines where it is long."""

    def summary_of(self, ctx: Any, name: str) -> str:
        command = self.get_command(ctx, name)
        text = (command.help if command is not None else None) or ""
        return " ".join(text.partition("\n\n")[0].partition(". ")[0].split()).removesuffix(".")

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.summary_of(ctx, name)) for name in self.list_commands(ctx)])


class LazyGroup(Group):
    table: ClassVar[Mapping[str, LazyCommand]] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.table)

    def summary_of(self, ctx: Any, name: str) -> str:
        return self.table[name].summary

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and cmd_name in self.table:
            self.commands[cmd_name] = load(cmd_name, self.table[cmd_name])
        return self.commands.get(cmd_name)


def load(name: str, entry: LazyCommand) -> Any:
    """Import a command's module and return the parser of the command."""
    module, _, attribute = entry.target.partition(":")
    target = getattr(import_module(f"penstock.cli.commands.{module}"), attribute)
    if isinstance(target, typer.Typer):
        return get_group(target)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(target)
    return get_command(alone)


def command_group(help_text: str, *, cls: type[Group] = Group, epilog: str | None = None) -> typer.Typer:
    return typer.Typer(
        cls=cls,
        help=help_text,
        epilog=epilog,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
