"""Reads a node's settings from their sources, weakest first: a file, the environment, flags.

    penstock.toml        log.retention.ms = 1000       tables, dotted and quoted keys all give Kafka's name
    server.properties    log.retention.ms=1000         as Apache Kafka reads it
    environment          PENSTOCK_LOG_RETENTION_MS=1000
    --set                log.retention.ms=1000

`config` checks the values. Each entry keeps its source, for error messages.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from penstock.base.properties import parse_properties
from penstock.base.settings import BadSetting
from penstock.metadata.config_table import BROKER_SETTINGS

FILE_BYTES_MAX = 1 << 20
"""A larger file is not a configuration file."""

PREFIX = "PENSTOCK_"

NOT_SETTINGS = frozenset({"PENSTOCK_LOG", "PENSTOCK_SERVER"})
"""Variables that are not broker settings: the log level, and the server of client commands."""

OF_CLIENTS = PREFIX + "CLIENT_"
"""Of variables that are settings of client commands."""

_SERVICE_LINK = re.compile(r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_.+)?)")
"""Variables that Kubernetes sets for a service named penstock."""


class ConfigEntry(NamedTuple):
    """A setting as text, with its source."""

    name: str
    text: str
    where: str
    rank: int
    """Of the source; the higher rank wins."""

    def __repr__(self) -> str:
        return f"{self.name} ({self.where})"  # the text may be a password


FILE, ENVIRONMENT, FLAG = 1, 2, 3


def from_file(path: str) -> Iterator[ConfigEntry]:
    """Read a TOML file, or a Java properties file if the name ends in .properties."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadSetting(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise BadSetting(f"{path} is larger than {FILE_BYTES_MAX} bytes, expected a configuration file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadSetting(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    if path.endswith(".properties"):
        return _from_properties(text, path)
    return _from_toml(text, path)


def _from_toml(text: str, path: str) -> Iterator[ConfigEntry]:
    import tomllib  # noqa: PLC0415  # only for starts with a file

    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSetting(f"{path} is not TOML: {error}") from error
    seen: set[str] = set()
    for name, value in _flat(tables, ()):
        if name in seen:
            raise BadSetting(f"{path} sets {name} twice")
        seen.add(name)
        yield ConfigEntry(name, _text_of(name, value, path), path, FILE)


def _flat(table: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, (*above, key))
        else:
            yield ".".join((*above, key)), value


def _text_of(name: str, value: Any, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str | int) for each in value):
        return ",".join(str(each) for each in value)
    found = "" if is_secret(name) else f" is {value!r}"
    raise BadSetting(f"{name} in {path}{found}, expected text, a number, true, false or a list of these")


def _from_properties(text: str, path: str) -> Iterator[ConfigEntry]:
    """As java.util.Properties reads it: the last line of a name wins."""
    found: dict[str, ConfigEntry] = {}
    for number, name, value in parse_properties(text):
        found[name] = ConfigEntry(name, value, f"{path} line {number}", FILE)
    yield from found.values()


def variable_of(name: str) -> str:
    """The environment variable of a setting. Kafka's names have no underscores, so no two share one."""
    return PREFIX + name.upper().replace(".", "_")


def from_environment(environment: Mapping[str, str], names: Iterable[str]) -> Iterator[ConfigEntry]:
    by_variable = {variable_of(name): name for name in names}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS:
            continue
        name = by_variable.get(variable)
        if name is not None:
            yield ConfigEntry(name, environment[variable], f"the environment's {variable}", ENVIRONMENT)
        elif not variable.startswith(OF_CLIENTS) and not _SERVICE_LINK.fullmatch(
            variable.removeprefix(PREFIX)
        ):
            near = nearest(variable, by_variable)
            hint = f"; did you mean {near}?" if near else ""
            raise BadSetting(f"the environment's {variable} is not a broker setting{hint}")


def from_flags(words: Iterable[str], flag: str = "--set") -> Iterator[ConfigEntry]:
    """Parse `name=value` words. Two different values of one name are an error."""
    seen: dict[str, str] = {}
    for word in words:
        name, sign, text = word.partition("=")
        if not sign or not name.strip():
            raise BadSetting(f"{flag} is {word!r}, expected name=value")
        name = name.strip()
        if seen.setdefault(name, text) != text:
            values = "" if is_secret(name) else f", to {seen[name]!r} and to {text!r}"
            raise BadSetting(f"{flag} sets {name} twice{values}")
        yield ConfigEntry(name, text, flag, FLAG)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The most similar known name, if any is close."""
    from difflib import get_close_matches  # noqa: PLC0415  # imported only on errors

    return next(iter(get_close_matches(word, list(known), 1, 0.75)), None)


def is_secret(name: str) -> bool:
    """Whether a setting, also one of a single listener, is never shown."""
    parts = name.split(".")
    setting = BROKER_SETTINGS.get(".".join(parts[3:]) if parts[:2] == ["listener", "name"] else name)
    return setting is not None and setting.is_secret


def environment_now() -> Mapping[str, str]:
    return os.environ
