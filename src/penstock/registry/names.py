"""Names of subjects and contexts.

A context is a registry within the registry, with ids of its own. Its name begins with a dot; the default one is `.`.
`:.sales:orders-value` is the subject `orders-value` of the context `.sales`; a plain name is in the default context.
`:.sales:` alone stands for the whole context, in settings.
"""

from typing import Final, NamedTuple

from penstock.registry import errors

DEFAULT_CONTEXT: Final = "."
WILDCARD: Final = ":*:"
"""Prefix of the subjects of all contexts."""

SUBJECT_CHARACTERS_MAX: Final = 1000
"""A name is a part of the key of each of its records."""

_RESERVED: Final = ("__GLOBAL", "__EMPTY")


class SubjectName(NamedTuple):
    context: str
    name: str

    @property
    def qualified(self) -> str:
        """The form in records and answers."""
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def parse_subject(text: str, *, may_be_context: bool = False) -> SubjectName:
    """A subject's name in any of its forms. With `may_be_context`, also that of a whole context."""
    if not text or len(text) > SUBJECT_CHARACTERS_MAX or not text.isprintable():
        raise errors.invalid_subject(text)
    context, name = DEFAULT_CONTEXT, text
    if text.startswith(":."):
        context, colon, name = text[1:].partition(":")
        if not colon:
            raise errors.invalid_subject(text)
    if name in _RESERVED or (not name and not may_be_context):
        raise errors.invalid_subject(text)
    return SubjectName(context, name)


def context_of(qualified: str) -> str:
    """The context of a subject in the form of records."""
    return qualified[1:].partition(":")[0] if qualified.startswith(":.") else DEFAULT_CONTEXT


def parse_context(text: str) -> str:
    """A context's name: `.sales`, `:.sales:` or empty for the default."""
    name = text.strip(":")
    if not name:
        return DEFAULT_CONTEXT
    if (
        not name.startswith(".")
        or ":" in name
        or not name.isprintable()
        or len(name) > SUBJECT_CHARACTERS_MAX
    ):
        raise errors.invalid_subject(text)
    return name
