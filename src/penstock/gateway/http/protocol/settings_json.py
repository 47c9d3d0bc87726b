"""Settings as JSON: their names, their allowed values, and their text form in Kafka.

In Kafka every value is text. Here a number may be a JSON number and a flag a JSON boolean, or either as text. The
OpenAPI description lists every setting, from the table that the controller validates with, so that generated clients
reject mistyped names.

Two mistakes are rejected only here, since they would lock the client out: fewer connections, or smaller batches, than
any call needs (`LOWEST`); and a `min.insync.replicas` above the number of replicas.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeAlias

from msgspec import Meta

from penstock.base.ids import INT64_MAX
from penstock.base.settings import BadSetting
from penstock.gateway.http.protocol.messages import HttpError
from penstock.gateway.http.protocol.parameters import one_of, whole_numbers
from penstock.metadata.config_table import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    ConfigType,
    Mode,
    Setting,
)
from penstock.metadata.configs import check, validate
from penstock.metadata.image import ALL_BROKERS, Resource, ResourceType

SettingValue = str | int | float | bool

TEXT_MAX: Final = 4_096
"""Limit of a setting with any text; a metadata record has room for eight times that."""

NAME_CHARS_MAX: Final = 64
WRONG_MAX: Final = 20
"""Of a bad request, so many configs are explained, by so much of their names."""

LOWEST: Final = {
    "max.connections": 100,
    "max.connections.per.ip": 100,
    "message.max.bytes": 65_536,
    "max.message.bytes": 4_096,
    "log.message.timestamp.before.max.ms": 60_000,
    "log.message.timestamp.after.max.ms": 60_000,
}
"""Lowest values over HTTP; Kafka's tools may set lower ones. The brokers' defaults apply to internal topics too:
records of groups need some room, and some time passes between their timestamp and their append."""

RUNNING_BROKERS: Final = {
    name: each for name, each in BROKER_SETTINGS.items() if each.mode is Mode.CLUSTER_WIDE
}
"""Dynamic settings of all brokers."""

RUNNING_BROKER: Final = {
    name: each for name, each in BROKER_SETTINGS.items() if each.mode is not Mode.READ_ONLY
}
"""Dynamic settings of one broker."""

_DECIMAL: Final = "^-?[0-9]{1,20}([.][0-9]{1,20})?([eE][+-]?[0-9]{1,3})?$"
_SHARE: Final = "^(0([.][0-9]{1,20})?|1([.]0{1,20})?)$"
_TRUTH: Final = "^([tT][rR][uU][eE]|[fF][aA][lL][sS][eE])$"
_WHOLE: Final = (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG)


class Form(NamedTuple):
    """Types of a setting in JSON: number or boolean, or text."""

    numbers: tuple[range, ...] = ()
    """Ranges of integers."""
    decimals: tuple[float | None, float | None] | None = None
    """Limits of numbers with a fraction, if there are any."""
    is_flag: bool = False
    pattern: str = ""
    """Pattern of the text; empty for any text."""


def _form(setting: Setting) -> Form:
    low, high = setting.bounds
    match setting.type:
        case ConfigType.BOOLEAN:
            return Form(is_flag=True, pattern=_TRUTH)
        case ConfigType.DOUBLE:
            return Form(decimals=(low, high), pattern=_SHARE if (low, high) == (0, 1) else _DECIMAL)
        case ConfigType.STRING | ConfigType.LIST if setting.choices:
            choice = "|".join(setting.choices)
            several = f"(,({choice}))*" if setting.type is ConfigType.LIST else ""
            return Form(pattern=f"^(({choice}){several}){'?' if setting.may_be_empty else ''}$")
        case ConfigType.STRING | ConfigType.LIST:
            return Form(
                pattern="" if setting.pattern is None else one_of(setting.pattern.replace(r"\d", "[0-9]"))
            )
    least = max(-INT64_MAX - 1 if low is None else int(low), LOWEST.get(setting.name, -INT64_MAX - 1))
    most = INT64_MAX if high is None else int(high)
    if setting.name == "compression.gzip.level":  # 0 is no compression, which has its own name
        return Form((range(-1, 0), range(1, most + 1)), pattern=one_of("-1", whole_numbers(1, most)))
    return Form((range(least, most + 1),), pattern=whole_numbers(least, most))


_FORMS: Final = {
    **{name: _form(each) for name, each in TOPIC_SETTINGS.items()},
    **{name: _form(each) for name, each in RUNNING_BROKER.items()},
}


def _described(setting: Setting) -> dict[str, Any]:
    form = _FORMS[setting.name]
    kinds: list[dict[str, Any]] = []
    if form.is_flag:
        kinds.append({"type": "boolean"})
    kinds += [{"type": "integer", "minimum": each[0], "maximum": each[-1]} for each in form.numbers]
    if form.decimals is not None:
        bounds = zip(("minimum", "maximum"), form.decimals, strict=True)
        kinds.append({"type": "number", **{name: each for name, each in bounds if each is not None}})
    text: dict[str, Any] = {"type": "string", "maxLength": TEXT_MAX}
    if form.pattern:
        text["pattern"] = form.pattern
    return {"anyOf": [*kinds, text], "description": setting.documentation}


def _schema(table: Mapping[str, Setting], *, may_be_null: bool) -> dict[str, Any]:
    properties = {name: _described(each) for name, each in sorted(table.items())}
    if may_be_null:
        for each in properties.values():
            each["anyOf"].append({"type": "null"})
    return {"properties": properties, "additionalProperties": False}


# Values are of any type for msgspec: for a type that it knows, it would describe the values of all names by it.
TopicSettings: TypeAlias = Annotated[
    dict[str, Any], Meta(extra_json_schema=_schema(TOPIC_SETTINGS, may_be_null=False))
]
TopicSettingChanges: TypeAlias = Annotated[
    dict[str, Any],
    Meta(min_length=1, extra_json_schema=_schema(TOPIC_SETTINGS, may_be_null=True)),
]
BrokerSettingChanges: TypeAlias = Annotated[
    dict[str, Any],
    Meta(min_length=1, extra_json_schema=_schema(RUNNING_BROKERS, may_be_null=True)),
]
OneBrokerSettingChanges: TypeAlias = Annotated[
    dict[str, Any],
    Meta(min_length=1, extra_json_schema=_schema(RUNNING_BROKER, may_be_null=True)),
]


def new_texts(topic: str, values: Mapping[str, Any]) -> dict[str, str]:
    """The validated configs of a new topic, as Kafka's text."""
    found, wrong = _read(Resource(ResourceType.TOPIC, topic), values)
    for name, text in found.items():
        if text is None:
            wrong[name] = BadSetting(f"{name} is null, which a new topic does not allow")
    _refuse(wrong)
    return {name: text for name, text in found.items() if text is not None}


def texts(resource: Resource, values: Mapping[str, Any]) -> dict[str, str | None]:
    """The same for changes; None removes a config."""
    found, wrong = _read(resource, values)
    _refuse(wrong)
    return found


def _refuse(wrong: Mapping[str, BadSetting]) -> None:
    """Raise what is wrong with each config: the error's `settings` has a sentence for each."""
    for first in wrong.values():
        raise HttpError(
            400,
            first.code.name.lower(),
            "; ".join(str(each) for each in wrong.values()),
            settings={name: str(each) for name, each in wrong.items()},
        )


def _read(
    resource: Resource, values: Mapping[str, Any]
) -> tuple[dict[str, str | None], dict[str, BadSetting]]:
    """The text of each config, and what is wrong with others."""
    table = TOPIC_SETTINGS
    if resource.type == ResourceType.BROKER:
        table = RUNNING_BROKERS if resource == ALL_BROKERS else RUNNING_BROKER
    found: dict[str, str | None] = {}
    wrong: dict[str, BadSetting] = {}
    for name, value in values.items():
        if not isinstance(value, SettingValue | None):
            raise HttpError(
                400, "invalid_body", f"invalid body: {name[:64]!r} is neither a string nor a number"
            )
        try:
            setting = table.get(name)
            if setting is None:
                validate(resource, {name: ""})
                raise BadSetting(f"{name[:64]!r} cannot be set here")
            found[name] = None if value is None else _text(setting, value)
        except BadSetting as error:
            wrong[name[:NAME_CHARS_MAX]] = error
            if len(wrong) >= WRONG_MAX:
                break
    return found, wrong


def _text(setting: Setting, value: SettingValue) -> str:
    form = _FORMS[setting.name]
    if isinstance(value, float) and form.numbers and value.is_integer():
        value = int(value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    check(setting, text)
    if not _fits(form, value):
        raise BadSetting(f"{setting.name} is {text[:64]!r}, expected {_expected(setting, form)}")
    return text


def _fits(form: Form, value: SettingValue) -> bool:
    if isinstance(value, bool):
        return form.is_flag
    if isinstance(value, str):
        return len(value) <= TEXT_MAX and (not form.pattern or re.fullmatch(form.pattern, value) is not None)
    if form.decimals is not None:
        return True  # the setting's own bounds are checked
    return any(value in each for each in form.numbers)


def _expected(setting: Setting, form: Form) -> str:
    if form.numbers:
        return f"a number from {form.numbers[0][0]} to {form.numbers[-1][-1]}"
    return f"a {setting.type.name.lower()}"


def check_in_sync(what: str, values: Mapping[str, str | None], replicas: int) -> None:
    """Reject a min.insync.replicas above the number of replicas: no write could succeed."""
    wanted = int(values.get("min.insync.replicas") or 1)
    if wanted > replicas:
        raise HttpError(
            409,
            "not_enough_replicas",
            f"min.insync.replicas is {wanted}, and {what} has {replicas}: no write could succeed",
        )
