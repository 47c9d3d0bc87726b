"""Schemas as values: equal ones have the same id within a context, and the same guid everywhere."""

from functools import cached_property
from typing import Any, Final

import msgspec

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
TYPES: Final = (JSON, PROTOBUF, AVRO)
"""In the order of Confluent's answer."""


class Reference(msgspec.Struct, frozen=True):
    """Another schema that this one uses, by the name it is used under."""

    name: str
    subject: str
    version: int


class Schema(msgspec.Struct, frozen=True, dict=True):
    """A schema with its references. `metadata` and `rule_set` are JSON that the registry keeps and does not read."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str | None = None
    rule_set: str | None = None

    @cached_property
    def guid(self) -> str:
        from hashlib import md5  # noqa: PLC0415  # a node without schemas does not load them
        from uuid import UUID  # noqa: PLC0415

        parts = [self.type, self.text, self.metadata or "", self.rule_set or ""]
        parts += [f"{each.name}\0{each.subject}\0{each.version}" for each in self.references]
        return str(UUID(bytes=md5("\0\0".join(parts).encode(), usedforsecurity=False).digest()))


class ResolvedSchema(msgspec.Struct, frozen=True):
    """A schema with the texts of all that it refers to, directly or not: the input of `formats`."""

    type: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text, each after those that it uses itself."""


def json_text(value: Any) -> str | None:
    """The JSON text of an optional object of a request."""
    return None if value is None else msgspec.json.encode(value, order="sorted").decode()
