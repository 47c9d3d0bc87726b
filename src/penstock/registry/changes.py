"""Requests that change the registry, as they are sent to the broker that writes `_schemas`.

Subjects are qualified names. Fields are only added at the end, with a default.
"""

from typing import Any, TypeAlias

import msgspec

from penstock.registry.schema import Schema


class Register(msgspec.Struct, frozen=True, array_like=True, tag="register"):
    subject: str
    schema: Schema
    """As the client sent it."""
    is_normalized: bool = False
    id: int = -1
    """The id that it must get, in mode IMPORT; -1 for the next one."""
    version: int = 0
    """The same for the version; 0 for the next one."""


class DeleteSubject(msgspec.Struct, frozen=True, array_like=True, tag="delete_subject"):
    subject: str
    is_permanent: bool = False


class DeleteVersion(msgspec.Struct, frozen=True, array_like=True, tag="delete_version"):
    subject: str
    version: int
    is_permanent: bool = False


class SetConfig(msgspec.Struct, frozen=True, array_like=True, tag="set_config"):
    subject: str | None
    fields: dict[str, Any]
    """Those of the request, except that `compatibility` is `compatibilityLevel`."""


class DeleteConfig(msgspec.Struct, frozen=True, array_like=True, tag="delete_config"):
    subject: str | None


class SetMode(msgspec.Struct, frozen=True, array_like=True, tag="set_mode"):
    subject: str | None
    mode: str
    is_forced: bool = False


class DeleteMode(msgspec.Struct, frozen=True, array_like=True, tag="delete_mode"):
    subject: str | None


Change: TypeAlias = Register | DeleteSubject | DeleteVersion | SetConfig | DeleteConfig | SetMode | DeleteMode
