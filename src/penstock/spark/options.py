"""Parsing of the options of a reader or writer: checks names, converts values.

Names are case-insensitive. `kafka.*` are settings of Kafka's clients: those that apply are used, those without a
meaning here are ignored, those that would break a guarantee are errors. Unknown options are errors, because a
typo must not be silently ignored.
"""

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from penstock.client.settings import Address, ClientSettings, parse_servers
from penstock.spark.errors import BadOption

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
_KAFKA = "kafka."
_SECURITY = ("security.", "sasl.", "ssl.")
_PLAIN = ("kafka.security.protocol", "PLAINTEXT")
"""The only security setting that is accepted."""
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
    """The options that a reader or a writer knows."""

    own: Mapping[str, str]
    """Its options: lower-case name to name."""
    taken: Collection[str]
    """Settings of Kafka's client, without `kafka.`, that are used."""
    idle: Collection[str]
    """Settings that are accepted and ignored."""
    refused: Mapping[str, str]
    """Settings that are errors, with the reason."""
    unknown: str
    """Start of the error about an unknown option; its name follows."""

    def check(self, options: Mapping[str, str]) -> None:
        """Raise BadOption if an option is unknown or refused."""
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
                raise BadOption(
                    f"option {key} is not supported yet: connections are plaintext, without authentication"
                )
            known = [*self.own, *(_KAFKA + each for each in sorted(self.taken))]
            near = difflib.get_close_matches(key, known, n=1)
            hint = f", did you mean {self.own.get(near[0], near[0])}" if near else ""
            raise BadOption(f"{self.unknown} {name}{hint}")


class OptionValues:
    """Converts the values of options; names are case-insensitive. Raises BadOption for an invalid value."""

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

    def client(
        self, api_timeout: str, retry_backoff_ms: int = ClientSettings.retry_backoff_ms
    ) -> ClientSettings:
        """The settings of Kafka's clients that the source and the sink share; `api_timeout` names one option."""
        return ClientSettings(
            client_id=self.text("kafka.client.id") or "penstock-spark",
            connect_timeout_ms=self.size(
                "kafka.socket.connection.setup.timeout.ms", ClientSettings.connect_timeout_ms
            ),
            request_timeout_ms=self.size("kafka.request.timeout.ms", ClientSettings.request_timeout_ms),
            api_timeout_ms=self.size(api_timeout, ClientSettings.api_timeout_ms),
            retry_backoff_ms=self.size("kafka.retry.backoff.ms", retry_backoff_ms),
            retry_backoff_ms_max=self.size("kafka.retry.backoff.max.ms", ClientSettings.retry_backoff_ms_max),
            metadata_age_ms_max=self.size("kafka.metadata.max.age.ms", ClientSettings.metadata_age_ms_max),
        )

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
        """A number of bytes or milliseconds: a positive int in Kafka."""
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
        """A time in Spark's notation: 500ms, 10s, 15m, 1h; without a unit, milliseconds."""
        text = self.text(name)
        if text is None:
            return default
        found = re.fullmatch(r"([0-9]{1,15}) *([a-z]*)", text.strip().lower())
        if found is None or found[2] not in _UNITS_MS:
            raise BadOption(f"option {name} is {text!r}, expected a time such as 500ms, 10s or 15m")
        return int(found[1]) * _UNITS_MS[found[2]]
