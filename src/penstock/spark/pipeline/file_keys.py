"""The keys of a pipeline file as pydantic models: the keys of each part, and the valid values of each key.

`validated` turns pydantic's errors into problems with the line of the key, all of them at once. `parse` checks rules
about several values, such as a schema that is only valid with JSON.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from penstock.client.settings import parse_servers

from .ddl import wrong_in_schema
from .errors import Problems, one_of, shown
from .spec import AVAILABLE_NOW, METADATA_ALL, is_interval, is_uri

TEXT_CHARS_MAX = 100_000
"""Maximum length of a value; enough for a query of a few thousand lines."""


# Kinds of values. A validator raises ValueError with a sentence about the value.


def _matches(pattern: str, what: str) -> AfterValidator:
    return _fits(re.compile(pattern).fullmatch, f"is not a {what}")


def _fits(is_valid: Callable[[str], object], complaint: str) -> AfterValidator:
    def check(value: Any) -> Any:
        for each in value if isinstance(value, tuple) else [value]:
            if not is_valid(each):
                raise ValueError(f"{shown(each)} {complaint}")
        return value

    return AfterValidator(check)


def _one_or_more(value: object) -> object:
    """One text, or a list of them without duplicates."""
    items = tuple(value) if isinstance(value, list | tuple) else (value,)
    if len(set(map(repr, items))) != len(items):
        raise ValueError(f"{shown(value)} has duplicates, expected each item once")
    return items


def _settings(value: object) -> object:
    """Names with plain values, converted to text for Spark."""
    if not isinstance(value, Mapping):
        return value
    return {
        name: str(item).lower()
        if isinstance(item, bool)
        else str(item)
        if isinstance(item, int | float)
        else item
        for name, item in value.items()
    }


def _servers(value: str) -> str:
    parse_servers(value)
    return value


def _pattern(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{shown(value)} is not a regular expression: {error}") from None
    return value


def _schema(value: str) -> str:
    wrong = wrong_in_schema(value)
    if wrong is not None:
        raise ValueError(wrong)
    return value


_INTERVAL = "an interval such as `10 seconds`"
_TOPIC = _matches(r"[A-Za-z0-9._-]{1,249}", "topic, expected letters, digits, '.', '_' and '-', at most 249")
_PIPELINE = _matches(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", "name, expected letters, digits, '.', '_' and '-', at most 100"
)
_METADATA = _fits(METADATA_ALL.__contains__, f"is not a column of a record, expected {one_of(METADATA_ALL)}")
_TRIGGER = _fits(
    lambda value: value == AVAILABLE_NOW or is_interval(value),
    f"is not a trigger, expected `{AVAILABLE_NOW}` or {_INTERVAL}",
)
_LOCAL = _fits(lambda value: not is_uri(value), "is not on this machine, expected a local directory")

Text = Annotated[str, Field(min_length=1, max_length=TEXT_CHARS_MAX)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_one_or_more)]
Columns = Annotated[Texts, Field(min_length=1, description="a column or a list of columns")]
Settings = Annotated[
    dict[str, str], BeforeValidator(_settings), Field(description="NAME: VALUE, each a plain value")
]
Servers = Annotated[Text, AfterValidator(_servers), Field(description="brokers as HOST:PORT[,...]")]
Schema = Annotated[
    Text, AfterValidator(_schema), Field(description="columns with types, such as `id BIGINT, name STRING`")
]
Trigger = Annotated[Text, _TRIGGER, Field(description=f"`{AVAILABLE_NOW}` or {_INTERVAL}")]
Directory = Annotated[Text, Field(description="a directory")]
Coding = Literal["json", "string", "raw"]


# Parts of a file.


class Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, data: Any) -> Any:
        """A key without a value counts as absent."""
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, Mapping) else data


class PipelineKeys(Keys):
    pipeline: Annotated[Text, _PIPELINE] = Field(description="the pipeline's name")
    bootstrap: Servers | None = None
    client_config: Annotated[Text, Field(description="a file of Kafka's client settings")] | None = None
    checkpoint: Directory | None = None
    state: Annotated[Directory, _LOCAL] | None = None
    conf: Settings = {}
    trigger: Trigger | None = None
    sources: Any = None
    views: Any = None
    flows: Any = None


class WatermarkKeys(Keys):
    column: Text = Field(description="a column of timestamps")
    delay: Annotated[Text, _fits(is_interval, "is not an interval, expected one such as `10 minutes`")] = (
        Field(description="how late a row may be, such as `10 minutes`")
    )


class SourceKeys(Keys):
    static: bool = False
    watermark: WatermarkKeys | None = None
    deduplicate: Columns = ()
    options: Settings = {}


class TopicSourceKeys(SourceKeys):
    topic: Annotated[Texts, _TOPIC] = Field((), min_length=1, description="a topic or a list of topics")
    pattern: Annotated[Text, AfterValidator(_pattern)] | None = Field(
        None, description="a regular expression that topics match"
    )
    bootstrap: Servers | None = None
    value: Coding = "raw"
    key: Coding | None = None
    columns: Schema | None = Field(None, alias="schema")
    key_schema: Schema | None = None
    bad_records: Literal["fail", "keep", "drop"] | None = None
    metadata: Annotated[Texts, _METADATA] | None = Field(
        None, description=f"a list of {one_of(METADATA_ALL)}"
    )


class FileSourceKeys(SourceKeys):
    files: Directory
    format: Literal["csv", "json", "orc", "parquet", "text"] = "json"
    columns: Schema | None = Field(None, alias="schema")


class RateSourceKeys(SourceKeys):
    rate: int = Field(1, ge=1, le=10_000_000, description="a whole number from 1 to 10000000")


class QueryKeys(Keys):
    sql: Text | None = Field(None, description="a query")
    reads: Text | None = Field(None, description="a source or a view")
    function: Callable[..., Any] | None = None


class ViewKeys(QueryKeys):
    watermark: WatermarkKeys | None = None
    deduplicate: Columns = ()


class FlowKeys(QueryKeys):
    mode: Literal["append", "update", "complete"] = "append"
    trigger: Trigger | None = None
    to: Any = Field(description="where the rows go: topic, parquet, delta or console")


class TopicSinkKeys(Keys):
    topic: Annotated[Text, _TOPIC] | None = Field(None, description="a topic")
    topics: Literal["by row"] | None = None
    bootstrap: Servers | None = None
    value: Coding = "json"
    key: Text | None = Field(None, description="the column that becomes the key")
    column: Text | None = Field(None, description="the column that becomes the value")
    options: Settings = {}


class ParquetSinkKeys(Keys):
    parquet: Directory
    partition_by: Columns = ()
    options: Settings = {}


class DeltaSinkKeys(Keys):
    delta: Directory
    partition_by: Columns = ()
    upsert: Texts = Field(
        (), description="a column or a list of columns by which a row replaces an older one"
    )


class ConsoleSinkKeys(Keys):
    console: Literal[True]
    rows: int = Field(20, ge=1, le=10_000, description="a whole number from 1 to 10000")


# From pydantic's errors to problems.

_EXPECTED = "Input should be "
"""Prefix of most pydantic messages."""
_Part = TypeVar("_Part", bound=Keys)


def validated(model: type[_Part], problems: Problems, path: tuple[str, ...], value: object) -> _Part | None:
    """Validate the part of a file at `path`; None if it is invalid, with the errors in `problems`."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            place = tuple(str(part) for part in each["loc"] if part != "[key]")
            keys, expected = _described(model, place)
            sentence, found = f"{shown(each['input'])} is not valid", each["msg"]
            if found.startswith(_EXPECTED):
                expected = expected or found.removeprefix(_EXPECTED)
            else:
                sentence += f": {found[0].lower()}{found[1:]}"
            if each["type"] == "missing":
                sentence = "is missing"
            elif each["type"] == "value_error":
                sentence, expected = str(each["ctx"]["error"]), ""
            elif each["type"] == "extra_forbidden":
                near = difflib.get_close_matches(place[-1], keys, 1)
                sentence, expected = "is not a valid key here", "" if near else one_of(keys)
                sentence += f"; did you mean {near[0]}?" if near else ""
            problems.add((*path, *place), sentence + (f", expected {expected}" if expected else ""))
        return None


def _described(model: type[Keys], place: tuple[str, ...]) -> tuple[list[str], str]:
    """The keys of the innermost part around a value, and the description of its field."""
    fields = {field.alias or key: field for key, field in model.model_fields.items()}
    field = fields.get(place[0]) if place else None
    if field is None:
        return sorted(fields), ""
    inside = get_args(field.annotation)
    for each in inside:
        if isinstance(each, type) and issubclass(each, Keys) and len(place) > 1:
            return _described(each, place[1:])
    described = (field, *(meta for each in inside for meta in getattr(each, "__metadata__", ())))
    texts = (each.description for each in described if isinstance(each, FieldInfo))
    return sorted(fields), next((each for each in texts if each), "")
