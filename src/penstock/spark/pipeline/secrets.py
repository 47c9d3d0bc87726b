"""Keeps secrets out of what a run reports: passwords and tokens that an error or a path may quote.

Removed are the values of a pipeline's settings whose name says that they are secret, those that are references
(`${env:NAME}`), passwords in JAAS strings, user and password of URLs, and what stands after `password=` and the like.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from penstock.base.settings import BadSetting
from penstock.client.referenced_values import resolve
from penstock.client.security_settings import ClientProperties
from penstock.spark.options import CLIENT_CONFIG

from .options import Brokers
from .spec import FileSource, PipelineSpec, RateSource, TopicSink, TopicSource

HIDDEN: Final = "***"
SECRET_CHARS_MIN: Final = 4
"""A shorter text is part of many words."""

_SECRET_NAME = re.compile(
    r"password|passwd|secret|token|credential|jaas|access\.key|account\.key|private", re.IGNORECASE
)
_REFERENCE = re.compile(r"\$\{(?:env|file|dir):")
_QUOTED = re.compile(r"""=\s*["']([^"']+)["']""")
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_NAMED = re.compile(
    r"""((?:password|passwd|secret|token|access[._]?key)[\w.]*\s*[=:]\s*)("[^"]*"|'[^']*'|[^\s;,&"']+)""",
    re.IGNORECASE,
)


class Redactor:
    def __init__(self, secrets: Iterable[str]) -> None:
        known = sorted({each for each in secrets if len(each) >= SECRET_CHARS_MIN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        text = _USER_OF_URL.sub(HIDDEN, text)
        return _NAMED.sub(rf"\1{HIDDEN}", text)


def redactor(spec: PipelineSpec, brokers: Brokers) -> Redactor:
    return Redactor(_secrets(spec, brokers))


def _secrets(spec: PipelineSpec, brokers: Brokers) -> Iterator[str]:
    yield from _of_settings(spec.conf)
    yield from _of_settings(brokers.client)
    for source in spec.sources:
        assert isinstance(source.reads, TopicSource | FileSource | RateSource)
        yield from _of_settings(source.reads.options)
    for flow in spec.flows:
        if isinstance(flow.sink, TopicSink):
            yield from _of_settings(flow.sink.options)


def _of_settings(settings: Mapping[str, str]) -> Iterator[str]:
    for name, value in settings.items():
        if name.lower() == CLIENT_CONFIG.lower():
            yield from _of_file(value)
        elif _SECRET_NAME.search(name) is not None or _REFERENCE.search(value) is not None:
            yield from _of_value(name, value)


def _of_file(path: str) -> Iterator[str]:
    try:
        properties = ClientProperties.from_file(path)
        for name in properties:
            if _SECRET_NAME.search(name) is not None:
                yield from _of_value(name, properties.text(name) or "")
    except BadSetting:
        return  # the run cannot connect with it either


def _of_value(name: str, value: str) -> Iterator[str]:
    try:
        known = resolve(value, name)
    except BadSetting:
        return  # nothing that could be quoted
    yield known
    yield from _QUOTED.findall(known)
