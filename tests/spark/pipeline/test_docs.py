"""The page about pipelines shows files that are sound, and names every key that there is."""

import re
from pathlib import Path

import pytest

from penstock.spark.pipeline import file_keys, load

PAGE = (Path(__file__).parents[3] / "docs" / "pipelines.md").read_text()
WHOLE = {
    "yaml": [
        each for each in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if each.startswith("pipeline:")
    ],
    "py": re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL),
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in WHOLE.items() for text in texts])
def test_the_files_that_the_page_shows_are_sound(tmp_path: Path, kind: str, text: str) -> None:
    file = tmp_path / f"shown.{kind}"
    file.write_text(text)

    assert load(file).name == "orders"


def test_the_page_names_every_key() -> None:
    models = [
        each
        for each in vars(file_keys).values()
        if isinstance(each, type) and issubclass(each, file_keys.Keys)
    ]
    keys = {field.alias or name for model in models for name, field in model.model_fields.items()}
    keys.remove("function")  # of the decorators of a Python file

    assert {"pipeline", "bad_records", "partition_by", "upsert", "static"} <= keys
    assert [key for key in sorted(keys) if f"`{key}" not in PAGE and f"{key}:" not in PAGE] == []


def test_the_examples_that_the_page_names_are_there() -> None:
    names = re.findall(r"\]\(\.\./(examples/[^)]+)\)", PAGE)

    assert len(names) >= 4
    assert [name for name in names if not (Path(__file__).parents[3] / name).exists()] == []
