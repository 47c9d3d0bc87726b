"""Declares a pipeline in Python: the same keys as in YAML, and functions instead of SQL.

    pipeline = Pipeline("orders", checkpoint="state")
    pipeline.source("orders", topic="orders", value="json", schema="id BIGINT, amount DOUBLE")

    @pipeline.view
    def big(orders):
        return orders.where("amount > 100")

    pipeline.flow("alerts", reads="big", to={"topic": "alerts", "key": "id"})

A function's parameters are the names of the sources and views that it reads, and `spark` for the session. Almost
nothing is checked here: the whole file is checked after it has run, with the line of each call.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar, overload

from .errors import BadPipeline, Problem

Function = TypeVar("Function", bound=Callable[..., Any])

Lines = dict[tuple[str, ...], int]


class CallSite(NamedTuple):
    file: str
    line: int


class Pipeline:
    def __init__(
        self,
        name: str,
        *,
        bootstrap: str | None = None,
        client_config: str | None = None,
        checkpoint: str | None = None,
        state: str | None = None,
        conf: Mapping[str, Any] | None = None,
        trigger: str | None = None,
    ) -> None:
        self._data: dict[str, Any] = {
            "pipeline": name,
            "bootstrap": bootstrap,
            "client_config": client_config,
            "checkpoint": checkpoint,
            "state": state,
            "conf": None if conf is None else dict(conf),
            "trigger": trigger,
        }
        self._parts: dict[str, dict[str, Any]] = {"sources": {}, "views": {}, "flows": {}}
        self._lines: Lines = {}
        site = _caller()
        for key in self._data:
            self._lines[key,] = site.line

    def source(self, name: str, **keys: Any) -> None:
        """Declare a source: `topic=`, `pattern=`, `files=` or `rate=`, and the other keys of a source."""
        self._add("sources", name, keys, _caller())

    @overload
    def view(self, name: Function) -> Function: ...
    @overload
    def view(self, name: str, *, sql: str, **keys: Any) -> None: ...
    @overload
    def view(self, name: str | None = None, **keys: Any) -> Callable[[Function], Function]: ...

    def view(self, name: Any = None, **keys: Any) -> Any:
        """Declare a view: `view("big", sql="SELECT ...")`, or as a decorator of a function that returns the rows."""
        site = _caller()
        if callable(name):
            return self._decorated("views", None, keys, site)(name)
        if "sql" in keys or "reads" in keys:
            self._add("views", name, keys, site)
            return None
        return self._decorated("views", name, keys, site)

    def flow(self, name: str | None = None, **keys: Any) -> Any:
        """Declare a flow: `flow("alerts", reads="big", to={...})`, or as a decorator of a function."""
        site = _caller()
        if "sql" in keys or "reads" in keys:
            self._add("flows", name, keys, site)
            return None
        return self._decorated("flows", name, keys, site)

    def each_batch(self, name: str | None = None, **keys: Any) -> Callable[[Function], Function]:
        """Decorate a function that gets each micro-batch and its number: `def upsert(batch, batch_id)`."""
        site = _caller()

        def decorate(function: Function) -> Function:
            self._add("flows", name or function.__name__, {**keys, "to": function}, site)
            return function

        return decorate

    def declared(self) -> tuple[dict[str, Any], Lines]:
        """The declarations as the data of a YAML file, and their lines."""
        whole = {key: value for key, value in self._data.items() if value is not None}
        return whole | {key: value for key, value in self._parts.items() if value}, self._lines

    def _decorated(
        self, part: str, name: str | None, keys: dict[str, Any], site: CallSite
    ) -> Callable[[Function], Function]:
        def decorate(function: Function) -> Function:
            self._add(part, name or function.__name__, {**keys, "function": function}, site)
            return function

        return decorate

    def _add(self, part: str, name: Any, keys: dict[str, Any], site: CallSite) -> None:
        if name in self._parts[part]:
            raise BadPipeline(
                [
                    Problem(
                        f"{site.file}:{site.line}",
                        f"{part}.{name}",
                        "is declared twice, expected another name",
                    )
                ]
            )
        self._parts[part][name] = keys
        self._lines[part, str(name)] = site.line


def _caller() -> CallSite:
    """The line of the file that calls a method of its pipeline."""
    frame = sys._getframe(2)
    return CallSite(frame.f_code.co_filename, frame.f_lineno)
