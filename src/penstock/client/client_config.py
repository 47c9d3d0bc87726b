"""The settings of a command or a Spark job that connects: a file of Kafka's client settings, and the environment.

Taken are `bootstrap.servers`, `client.id` and all of security (`security_settings.py`); others of Kafka's clients are
ignored, as their own tools do. A name that is nearly one of those taken raises BadSetting, since it is a typo.
"""

import difflib
from collections.abc import Mapping
from typing import Final

from penstock.base.settings import BadSetting

from .security import ClientSecurity
from .security_settings import SECURITY_SETTINGS, ClientProperties, parse_security

SERVERS: Final = "bootstrap.servers"
CLIENT_ID: Final = "client.id"

_TAKEN: Final = (SERVERS, CLIENT_ID, *sorted(SECURITY_SETTINGS))
_SIMILAR: Final = 0.9
"""From here on a name is taken for a typo. Kafka's own names are less alike: `client.id` and `client.rack`."""


class ClientConfig:
    def __init__(self, properties: ClientProperties) -> None:
        _refuse_typos(properties)
        self.properties = properties

    @classmethod
    def load(cls, path: str | None, environment: Mapping[str, str]) -> "ClientConfig":
        """A file, if there is one, overridden by the environment's PENSTOCK_CLIENT_... Raises BadSetting."""
        file = ClientProperties() if path is None else ClientProperties.from_file(path)
        return cls(file.with_environment(environment))

    @property
    def servers(self) -> str | None:
        return self.properties.text(SERVERS) or None

    @property
    def client_id(self) -> str | None:
        return self.properties.text(CLIENT_ID) or None

    def security(self) -> ClientSecurity:
        return parse_security(self.properties)


def _refuse_typos(properties: ClientProperties) -> None:
    for name in properties:
        if name in _TAKEN or name == "sasl.client.callback.handler.class":  # Kafka's; refused with the others
            continue
        near = difflib.get_close_matches(name.lower(), _TAKEN, n=1, cutoff=_SIMILAR)
        if near:
            raise BadSetting(f"{properties.shown(name)} is no setting of a client, did you mean {near[0]}")
