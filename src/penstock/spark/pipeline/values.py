"""Values that several parts of a file have: paths, brokers, triggers, watermarks, schemas, options."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from .checker import Notes, Table, shown
from .ddl import wrong_in_schema
from .spec import AVAILABLE_NOW, Watermark, is_interval, is_uri


class Values:
    def __init__(self, notes: Notes, base: Path) -> None:
        self._notes = notes
        self._base = base

    def _path(self, path: str) -> str:
        return path if is_uri(path) else str((self._base / Path(path).expanduser()).resolve())

    def _servers(self, table: Table) -> str | None:
        servers = table.text("bootstrap", "brokers as HOST:PORT[,...]")
        if servers is None:
            return None
        from penstock.client.settings import parse_servers  # noqa: PLC0415  # a file without one needs no client

        try:
            parse_servers(servers)
        except ValueError as error:
            table.bad("bootstrap", str(error))
        return servers

    def _trigger(self, table: Table) -> str | None:
        trigger = table.text("trigger", f"`{AVAILABLE_NOW}` or an interval such as `10 seconds`")
        if trigger is not None and trigger != AVAILABLE_NOW and not is_interval(trigger):
            table.bad(
                "trigger",
                f"{shown(trigger)} is no trigger, expected `{AVAILABLE_NOW}` or an interval such as `10 seconds`",
            )
        return trigger

    def _watermark(self, table: Table) -> Watermark | None:
        if not table.has("watermark"):
            return None
        inner = Table(self._notes, (*table.path, "watermark"), table.any("watermark"))
        column = inner.required("column", "a column of timestamps")
        delay = inner.required("delay", "how late a row may be, such as `10 minutes`")
        if delay and not is_interval(delay):
            inner.bad("delay", f"{shown(delay)} is no interval, expected one such as `10 minutes`")
        inner.end()
        return Watermark(column, delay)

    def _options(self, table: Table, ours: Mapping[str, str]) -> dict[str, str]:
        options = table.settings("options", "options")
        for name in options:
            key = ours.get(name.lower())
            if key is not None:
                table.bad("options", f"is set by {key}, expected it there", name)
        return options

    def _refused_options(self, table: Table, wrong: Iterable[tuple[str | None, str]]) -> None:
        """What the source or the sink has against options, unless something was said of them already."""
        if table.is_bad("options"):
            return
        for name, sentence in wrong:
            table.bad("options", sentence, *([name] if name else []))

    def _schema(self, table: Table, key: str) -> str | None:
        schema = table.text(key, "columns with types, such as `id BIGINT, name STRING`")
        wrong = None if schema is None else wrong_in_schema(schema)
        if wrong is not None:
            table.bad(key, wrong)
        return schema
