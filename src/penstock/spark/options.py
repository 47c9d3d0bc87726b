"""Options as a user gave them: names that are known, values read as what they are to be.

Names are taken in any case. `kafka.*` are settings of Kafka's own clients: those that mean something here are taken,
those that cannot matter are accepted, those that would break a promise are refused, and so is what nobody knows: a
mistyped option must not silently do nothing.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from penstock.client.settings import Address, parse_servers
from penstock.spark.errors import BadOption

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_KAFKA = "kafka."
_SECURITY = ("security.", "sasl.", "ssl.")
_PLAIN = ("kafka.security.protocol", "PLAINTEXT")
"""The one setting of security that asks for what is there."""
_UNITS_MS = {
    "": 1,
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class KnownOptions(NamedTuple):
    """What a reader or a writer knows."""

    own: Mapping[str, str]
    """Its own options, by their names in lower case."""
    taken: Collection[str]
    """Settings of Kafka's client, without `kafka.`, that do something."""
    idle: Collection[str]
    """The same, that cannot matter."""
    refused: Mapping[str, str]
    """The same, and why they cannot be had."""
    unknown: str
    """How to say that there is no such option: up to its name."""

    def check(self, options: Mapping[str, str]) -> None:
        """Every option is known and can be had."""
        for name, value in options.items():
            key = name.lower()
            if (key, value.strip().upper()) == _PLAIN:
                continue
            setting = key.removeprefix(_KAFKA)
            if key in self.own or (
                key.startswith(_KAFKA) and (setting in self.taken or setting in self.idle)
            ):
                continue
            if key.startswith(_KAFKA) and setting in self.refused:
                raise BadOption(f"option {key} is not supported: {self.refused[setting]}")
            if key.startswith(_KAFKA) and setting.startswith(_SECURITY):
                raise BadOption(f"option {key} is not supported yet: connections are plain, without security")
            known = [*self.own, *(_KAFKA + each for each in sorted(self.taken))]
            near = difflib.get_close_matches(key, known, n=1)
            hint = f", did you mean {self.own.get(near[0], near[0])}" if near else ""
            raise BadOption(f"{self.unknown} {name}{hint}")


class OptionValues:
    """Options by their names in lower case, read as what they are to be."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    def servers(self) -> tuple[Address, ...]:
        text = self.text("kafka.bootstrap.servers")
        if text is None:
            raise BadOption("option kafka.bootstrap.servers is missing, expected HOST:PORT[,HOST:PORT]")
        try:
            return tuple(parse_servers(text))
        except ValueError as error:
            raise BadOption(f"option kafka.bootstrap.servers: {error}") from None

    def number(self, name: str, low: int, high: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        digits = text.strip()
        if not re.fullmatch(r"-?[0-9]{1,20}", digits) or not low <= int(digits) <= high:
            raise BadOption(f"option {name} is {text!r}, expected a whole number from {low} to {high}")
        return int(digits)

    def time_ms(self, name: str) -> int | None:
        try:
            return self.number(name, 0, INT64_MAX)
        except BadOption:
            raise BadOption(
                f"option {name} is {self.text(name)!r}, expected a time in milliseconds since 1970"
            ) from None

    def count(self, name: str, high: int = INT64_MAX) -> int | None:
        return self.number(name, 1, high)

    def size(self, name: str, default: int) -> int:
        """Of bytes, or of milliseconds: what Kafka has as a positive int."""
        found = self.number(name, 1, INT32_MAX)
        return default if found is None else found

    def flag(self, name: str, default: bool) -> bool:
        word = self.choice(name, ["true", "false"])
        return default if word is None else word == "true"

    def choice(self, name: str, words: Collection[str]) -> str | None:
        text = self.text(name)
        if text is None:
            return None
        word = text.strip().lower()
        if word not in words:
            raise BadOption(f"option {name} is {text!r}, expected {' or '.join(words)}")
        return word

    def duration_ms(self, name: str, default: int) -> int:
        """As Spark writes times: 500ms, 10s, 15m, 1h; without a unit, milliseconds."""
        text = self.text(name)
        if text is None:
            return default
        found = re.fullmatch(r"([0-9]{1,15}) *([a-z]*)", text.strip().lower())
        if found is None or found[2] not in _UNITS_MS:
            raise BadOption(f"option {name} is {text!r}, expected a time such as 500ms, 10s or 15m")
        return int(found[1]) * _UNITS_MS[found[2]]
