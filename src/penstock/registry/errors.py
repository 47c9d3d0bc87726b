"""Errors of the registry, with the codes and sentences of Confluent's.

The first three digits of a code are the HTTP status.
"""

from typing import Any, Final

from penstock.base.errors import ErrorCode, KafkaError

SHOWN_MAX: Final = 200
"""Characters of a client's input that a message repeats."""


class RegistryError(KafkaError):
    """A refused request: `{"error_code": 40401, "message": "..."}`."""

    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message, ErrorCode.INVALID_REQUEST)
        self.error_code = error_code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.error_code, str(self))

    @property
    def status(self) -> int:
        return self.error_code if self.error_code < 1000 else self.error_code // 100


def shown(text: object) -> str:
    text = str(text)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{shown(subject)}' not found.")


def version_not_found(version: int) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def schema_not_found(what: int | str = "") -> RegistryError:
    return RegistryError(40403, f"Schema {shown(what)} not found" if what != "" else "Schema not found")


def subject_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40404, f"Subject '{shown(subject)}' was soft deleted. Set permanent=true to delete permanently"
    )


def subject_not_soft_deleted(subject: str) -> RegistryError:
    return RegistryError(
        40405, f"Subject '{shown(subject)}' was not deleted first before being permanently deleted"
    )


def version_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40406,
        f"Subject '{shown(subject)}' Version {version} was soft deleted. Set permanent=true to delete permanently",
    )


def version_not_soft_deleted(subject: str, version: int) -> RegistryError:
    return RegistryError(
        40407,
        f"Subject '{shown(subject)}' Version {version} was not deleted first before being permanently deleted",
    )


def no_config(subject: str) -> RegistryError:
    return RegistryError(
        40408, f"Subject '{shown(subject)}' does not have subject-level compatibility configured"
    )


def no_mode(subject: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{shown(subject)}' does not have subject-level mode configured")


def incompatible(messages: list[str]) -> RegistryError:
    return RegistryError(
        409,
        f"Schema being registered is incompatible with an earlier schema; details: [{', '.join(messages)}]",
    )


def invalid_schema(why: str) -> RegistryError:
    return RegistryError(42201, why)


def invalid_version(version: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{shown(version)}' is not a valid version id. Allowed values are between [1, 2^31-1] "
        'and the string "latest"',
    )


def invalid_level() -> RegistryError:
    return RegistryError(
        42203,
        "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
        "forward_transitive, and full_transitive",
    )


def invalid_mode() -> RegistryError:
    return RegistryError(
        42204, "Invalid mode. Valid values are READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, and FORWARD"
    )


def not_permitted(why: str) -> RegistryError:
    return RegistryError(42205, why)


def reference_exists(subject: str, version: int) -> RegistryError:
    return RegistryError(
        42206,
        "One or more references exist to the schema "
        f"{{magic=1,keytype=SCHEMA,subject={shown(subject)},version={version}}}.",
    )


def invalid_subject(subject: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{shown(subject)}' is not a valid subject.")


def too_large(what: str) -> RegistryError:
    return RegistryError(42209, what)
