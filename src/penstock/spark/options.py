"""Parsing of the options of a reader or writer: checks names, converts values.

Names are case-insensitive. `kafka.*` are settings of Kafka's clients: those that apply are used, those without a
meaning here are ignored, those that would break a guarantee are errors. Unknown options are errors, because a
typo must not be silently ignored.

Security is that of Kafka's clients (`kafka.security.protocol`, `kafka.sasl.*`, `kafka.ssl.*`), and may stand in a file
that the option `clientConfig` names. Both are read where the query is planned. Tasks get the result pickled, so an
environment variable or a file with a password is needed on the driver only; files of keys and certificates are read
where connections are made, on executors too.
"""

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final, NamedTuple, TypeVar

from penstock.base.ids import INT64_MAX
from penstock.base.settings import BadSetting
from penstock.client.client_config import ClientConfig
from penstock.client.cluster import Cluster
from penstock.client.security import ClientSecurity
from penstock.client.security_settings import ClientProperties
from penstock.client.settings import Address, ClientSettings, parse_servers
from penstock.spark.errors import BadOption

T = TypeVar("T")

INT32_MAX: Final = 2**31 - 1
_KAFKA = "kafka."
_SECURITY_OPTIONS: Final = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
CLIENT_CONFIG: Final = "clientConfig"
"""Option that names a file of Kafka's client settings."""
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

    @property
    def _names(self) -> dict[str, str]:
        """Names as documented, by lower-case name."""
        return {**self.own, CLIENT_CONFIG.lower(): CLIENT_CONFIG}

    def check(self, options: Mapping[str, str]) -> None:
        """Raise BadOption if an option is unknown or refused."""
        for name in options:
            if is_security(name):
                continue  # checked together, by `OptionValues.security`
            key = name.lower()
            setting = key.removeprefix(_KAFKA)
            if key in self.own or (
                key.startswith(_KAFKA) and (setting in self.taken or setting in self.idle)
            ):
                continue
            if key.startswith(_KAFKA) and setting in self.refused:
                raise BadOption(f"option {key} is not supported: {self.refused[setting]}")
            known = [*self._names, *(_KAFKA + each for each in sorted(self.taken))]
            near = difflib.get_close_matches(key, known, n=1)
            hint = f", did you mean {self._names.get(near[0], near[0])}" if near else ""
            raise BadOption(f"{self.unknown} {name}{hint}")


def is_security(name: str) -> bool:
    """Whether an option is about the security of connections."""
    key = name.lower()
    return key == CLIENT_CONFIG.lower() or key.startswith(_SECURITY_OPTIONS)


def connect(servers: str, options: Mapping[str, str], settings: ClientSettings | None = None) -> Cluster:
    """A connection with the security that options ask for; other options have no effect. Raises BadOption."""
    secured = {name: value for name, value in options.items() if is_security(name)}
    made = replace(settings or ClientSettings(), security=OptionValues(secured).security())
    return Cluster(parse_servers(servers), made)


class OptionValues:
    """Converts the values of options; names are case-insensitive. Raises BadOption for an invalid value."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._options.get(name.lower())

    @property
    def bootstrap(self) -> str | None:
        return self.text("kafka.bootstrap.servers") or self._of_config(lambda config: config.servers)

    def servers(self) -> tuple[Address, ...]:
        text = self.bootstrap
        if text is None:
            raise BadOption("option kafka.bootstrap.servers is missing, expected HOST:PORT[,HOST:PORT]")
        try:
            return tuple(parse_servers(text))
        except ValueError as error:
            raise BadOption(f"option kafka.bootstrap.servers: {error}") from None

    @cached_property
    def _config(self) -> ClientConfig:
        """The file of the option clientConfig, overridden by options. Raises BadSetting."""
        path = self.text(CLIENT_CONFIG)
        own = {
            name.removeprefix(_KAFKA): value
            for name, value in self._options.items()
            if name.startswith(_SECURITY_OPTIONS)
        }
        file = ClientProperties() if path is None else ClientProperties.from_file(path)
        return ClientConfig(file.overlaid(ClientProperties(own, lambda name: f"option {_KAFKA}{name}")))

    def _of_config(self, read: Callable[[ClientConfig], T]) -> T:
        try:
            return read(self._config)
        except BadSetting as error:
            raise BadOption(str(error)) from None

    def security(self) -> ClientSecurity:
        return self._of_config(ClientConfig.security)

    def client(
        self, api_timeout: str, retry_backoff_ms: int = ClientSettings.retry_backoff_ms
    ) -> ClientSettings:
        """The settings of Kafka's clients that the source and the sink share; `api_timeout` names one option."""
        return ClientSettings(
            client_id=self.text("kafka.client.id")
            or self._of_config(lambda config: config.client_id)
            or "penstock-spark",
            connect_timeout_ms=self.size(
                "kafka.socket.connection.setup.timeout.ms", ClientSettings.connect_timeout_ms
            ),
            request_timeout_ms=self.size("kafka.request.timeout.ms", ClientSettings.request_timeout_ms),
            api_timeout_ms=self.size(api_timeout, ClientSettings.api_timeout_ms),
            retry_backoff_ms=self.size("kafka.retry.backoff.ms", retry_backoff_ms),
            retry_backoff_ms_max=self.size("kafka.retry.backoff.max.ms", ClientSettings.retry_backoff_ms_max),
            metadata_age_ms_max=self.size("kafka.metadata.max.age.ms", ClientSettings.metadata_age_ms_max),
            security=self.security(),
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
