"""References in values of settings, so that a secret need not be in the file or the options themselves.

    ${env:NAME}          an environment variable
    ${file:PATH:KEY}     a property of a file
    ${dir:PATH:NAME}     the text of the file NAME in a directory, without the end of its last line

The syntax is that of Kafka's configuration providers (KIP-297), which need not be declared here. Errors name what is
missing, and contain no value.
"""

import os
import re
from collections.abc import Mapping
from typing import Final

from penstock.base.properties import parse_properties
from penstock.base.settings import BadSetting

FILE_BYTES_MAX: Final = 1 << 20
"""A larger file is not a configuration file."""

_REFERENCE: Final = re.compile(r"\$\{(env|file|dir):([^{}]+)\}")


def read_text(path: str, *, expected: str) -> str:
    """A small text file. Raises BadSetting."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadSetting(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise BadSetting(f"{path} is larger than {FILE_BYTES_MAX} bytes, expected {expected}")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadSetting(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def is_reference(text: str) -> bool:
    """Whether a value is one reference and nothing else."""
    return _REFERENCE.fullmatch(text.strip()) is not None


def resolve(text: str, setting: str, environment: Mapping[str, str] = os.environ) -> str:
    """A value with its references replaced. `setting` is its name and source, for errors. Raises BadSetting."""

    def value_of(found: re.Match[str]) -> str:
        kind, place = found[1], found[2]
        if kind == "env":
            if place not in environment:
                raise BadSetting(
                    f"{setting} needs the environment variable {place}, which is not set: set it, or change {found[0]}"
                )
            return environment[place]
        path, colon, name = place.rpartition(":")
        if not colon or not path or not name:
            raise BadSetting(f"{setting} has {found[0]}, expected ${{{kind}:PATH:{_PARTS[kind]}}}")
        try:
            return _property(path, name) if kind == "file" else _file(path, name)
        except BadSetting as error:
            raise BadSetting(f"{setting} needs {found[0]}: {error}") from error

    return _REFERENCE.sub(value_of, text)


_PARTS: Final = {"file": "KEY", "dir": "NAME"}


def _property(path: str, key: str) -> str:
    entries = parse_properties(read_text(path, expected="a properties file"))
    values = [value for _, name, value in entries if name == key]
    if not values:
        raise BadSetting(f"{path} has no property {key}")
    return values[-1]


def _file(directory: str, name: str) -> str:
    if "/" in name or name in (".", ".."):
        raise BadSetting(f"{name!r} is not the name of a file in {directory}")
    return read_text(os.path.join(directory, name), expected="a secret").removesuffix("\n").removesuffix("\r")
