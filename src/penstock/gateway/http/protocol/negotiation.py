"""Which of the forms that an answer can have a client wants: its `Accept` header (RFC 9110, 12.5.1)."""

from collections.abc import Sequence
from functools import lru_cache

RANGES_MAX = 64
"""A browser sends eight; who sends more is answered by the first of them."""


@lru_cache(maxsize=256)
def preferred(accept: str, content_types: Sequence[str]) -> str | None:
    """The one of the content types that the client likes best, the first among equals; None if it takes none.

    `content_types` must be a tuple. An empty header takes everything.
    """
    if not accept.strip():
        return content_types[0]
    wanted = [_range(each) for each in accept.split(",")[:RANGES_MAX]]
    best: str | None = None
    best_quality = 0.0
    for content_type in content_types:
        quality = _quality(content_type.partition(";")[0], wanted)
        if quality > best_quality:
            best, best_quality = content_type, quality
    return best


def _range(text: str) -> tuple[str, float]:
    """A media range and how much it is wanted; parameters besides q are left out."""
    name, *parameters = text.split(";")
    quality = 1.0
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip().lower() == "q":
            try:
                quality = float(value)
            except ValueError:
                quality = 0.0
    return name.strip().lower(), quality if 0.0 <= quality <= 1.0 else 0.0


def _quality(content_type: str, wanted: Sequence[tuple[str, float]]) -> float:
    """By the most specific range that fits: text/html before text/* before */*."""
    whole = content_type.partition("/")[0] + "/*"
    for name in (content_type, whole, "*/*"):
        for each, quality in wanted:
            if each == name:
                return quality
    return 0.0
