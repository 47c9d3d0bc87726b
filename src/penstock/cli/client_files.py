"""Writes the client.properties of another user: the brokers and TLS settings of a command, with another log-in.

The private key of the command's user is left out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.base.properties import property_line
from penstock.cli.connecting import Target
from penstock.cli.new_file import write_new
from penstock.security.sasl.jaas import SCRAM_MODULE, jaas_text

OWN_KEY: Final = ("ssl.keystore.", "ssl.key.")
"""Settings of the private key with which the command's own user connects. They are not for other users."""


def write_client_file(path: Path, target: Target, mechanism: str, login: Mapping[str, str]) -> None:
    """`login` are the options of SCRAM's login module. Raises Refused if the file exists."""
    own: Mapping[str, str] = {} if target.config is None else target.config.properties
    kept = {name: own[name] for name in own if name.startswith("ssl.") and not name.startswith(OWN_KEY)}
    encryption = own.get("security.protocol", "SASL_PLAINTEXT").upper().removeprefix("SASL_")
    settings = {
        "bootstrap.servers": target.server,
        "security.protocol": f"SASL_{encryption}",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas_text(SCRAM_MODULE, login),
        **kept,
    }
    write_new(path, "".join(property_line(name, value) for name, value in settings.items()))
