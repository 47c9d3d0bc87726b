"""Loads a pipeline file: YAML with the line of each key, or Python that declares a `Pipeline`.

A YAML file is only data (the safe loader). A Python file is executed with the rights
of the user who starts the pipeline.
"""

import importlib.util
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.base.extras import install_hint

from .declare import Pipeline
from .errors import BadPipeline, Problem, one_sentence, shown
from .spec import MODULE_PREFIX, PipelineSpec

FILE_BYTES_MAX = 1_000_000
EXTRAS = {"deltalake": "delta", "pyspark": "spark", "pyarrow": "spark", "grpc": "connect"}
"""Packages that a file may import, and the extra of each."""
KEYS_MAX = 10_000
"""Nested anchors can make a small file large."""


def load(path: str | Path) -> PipelineSpec:
    """The model of a file; raises BadPipeline, or OSError if it cannot be read."""
    file = Path(path)
    if file.suffix in (".yaml", ".yml"):
        data, lines = _yaml(file)
        return _parse(data, file, lines)
    if file.suffix == ".py":
        return _python(file)
    raise _bad(file, "is not a pipeline file, expected .yaml, .yml or .py")


def _bad(where: object, sentence: str, key: str = "") -> BadPipeline:
    return BadPipeline([Problem(str(where), key, sentence)])


def _parse(data: object, file: Path, lines: Mapping[tuple[str, ...], int]) -> PipelineSpec:
    """Imports pydantic, which executors and most commands do not need."""
    try:
        from .parse import parse  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "pydantic":
            raise
        raise _bad(file, f"needs pydantic: {install_hint('spark')}") from error
    return parse(data, file, lines)


def _read(file: Path) -> str:
    size = file.stat().st_size
    if size > FILE_BYTES_MAX:
        raise _bad(file, f"has {size:,} bytes, expected at most {FILE_BYTES_MAX:,}")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _bad(file, f"is not UTF-8 at byte {error.start}") from error


# YAML.


def _yaml(file: Path) -> tuple[Any, dict[tuple[str, ...], int]]:
    try:
        import yaml  # type: ignore[import-untyped]  # noqa: PLC0415  # comes with the extra
    except ImportError as error:
        raise _bad(file, f"is YAML, which needs PyYAML: {install_hint('spark')}") from error
    text = _read(file)
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            lines: dict[tuple[str, ...], int] = {}
            _mark(node, (), lines, file)
            data = loader.construct_document(node) if node is not None else None
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + 1}" if mark is not None else str(file)
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise _bad(where, f"is not YAML: {said}") from error
    except yaml.YAMLError as error:
        raise _bad(file, f"is not YAML: {one_sentence(error)}") from error
    except RecursionError as error:
        raise _bad(file, "is nested too deeply, expected a few levels") from error
    return data, lines


def _mark(node: Any, path: tuple[str, ...], lines: dict[tuple[str, ...], int], file: Path) -> None:
    """Record the line of every key, and reject duplicate keys: YAML would silently use the last."""
    if node is None or node.id != "mapping":
        return
    for key, value in node.value:
        if len(lines) >= KEYS_MAX:
            raise _bad(file, f"has more than {KEYS_MAX:,} keys, counting anchors at every use")
        inner = (*path, str(key.value))
        if inner in lines:
            where, what = f"{file}:{key.start_mark.line + 1}", ".".join(inner)
            raise _bad(where, f"is a duplicate key, first in line {lines[inner]}", what)
        lines[inner] = key.start_mark.line + 1
        _mark(value, inner, lines, file)


# Python.


def _python(file: Path) -> PipelineSpec:
    module = _run(file)
    found = list({id(each): each for each in vars(module).values() if isinstance(each, Pipeline)}.values())
    if len(found) != 1:
        raise _bad(
            file, f'has {len(found)} pipelines at its top level, expected one: pipeline = Pipeline("name")'
        )
    data, lines = found[0].declared()
    return _parse(data, file, lines)


def _run(file: Path) -> ModuleType:
    text = _read(file)
    name = f"{MODULE_PREFIX}{file.stem}"
    spec = importlib.util.spec_from_loader(name, loader=None, origin=str(file))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(file)
    sys.modules[name] = module
    sys.path.insert(0, str(file.resolve().parent))  # as for a Python script: files beside it can be imported
    try:
        exec(compile(text, str(file), "exec"), module.__dict__)
    except BadPipeline:
        raise
    except SyntaxError as error:
        raise _bad(f"{file}:{error.lineno}", f"is not Python: {error.msg}") from error
    except Exception as error:
        said = f"raised {type(error).__name__}: {one_sentence(error)}{_remedy(error)}"
        raise _bad(_line_of(error, file), said) from error
    except SystemExit as error:
        raise _bad(_line_of(error, file), f"ended with exit code {shown(error.code)}") from error
    finally:
        sys.path.remove(str(file.resolve().parent))
    return module


def _remedy(error: Exception) -> str:
    """How to install a missing package, if it is in one of Penstock's extras."""
    extra = EXTRAS.get(str(error.name).partition(".")[0]) if isinstance(error, ModuleNotFoundError) else None
    return "" if extra is None else f": {install_hint(extra)}"


def _line_of(error: BaseException, file: Path) -> str:
    """The last line of the file in the stack of an exception."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename == str(file)]
    return f"{file}:{frames[-1].lineno}" if frames else str(file)
