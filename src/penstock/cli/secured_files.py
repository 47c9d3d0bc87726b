"""The files of a secured trial: a certificate authority, nodes with their configuration, and a first user.

    ca.pem, ca.key           the authority; clients and nodes trust it
    node.pem                 a node's private key and certificate (node-1.pem, ... in a cluster)
    node.properties          its configuration, for `penstock up --config`
    admin.properties         the client config of the first user

Files with keys or passwords are readable by their owner alone. All are made in a directory beside, which then gets its
name, so that there are all of them or none.
"""

import os
import re
import secrets
import shutil
import socket
import tempfile
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from penstock.base.properties import property_line
from penstock.cli.new_file import write_new
from penstock.cli.output import Refused
from penstock.cli.passwords import drawn_password
from penstock.client.settings import Address, parse_address
from penstock.metadata.scram import ScramMechanism, salted_password
from penstock.security.sasl.jaas import SCRAM_MODULE, jaas_text
from penstock.server.certificate_authority import CertificateAuthority

MECHANISM: Final = ScramMechanism.SCRAM_SHA_512
ITERATIONS: Final = 8192
SALT_BYTES: Final = 20
PORT_MAX: Final = 65533
"""A node uses the two ports after its own too."""
HTTPS: Final = """
# JSON over HTTPS, with the same users and ACLs, instead of http.listener=off:
# http.listener=127.0.0.1:8443
# http.security.protocol=SASL_SSL
"""
LOOPBACK: Final = ("localhost", "127.0.0.1")

_STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


class WrittenFiles(NamedTuple):
    nodes: list[str]
    """Configurations of nodes."""
    client: str
    servers: str


class _Node(NamedTuple):
    number: int
    name: str
    """Of its files, and the common name of its certificate."""
    address: Address


class SecuredFiles:
    def __init__(self, hosts: Sequence[str], user: str, days: int) -> None:
        """Raises ValueError if a host or the user is not one."""
        addresses = [parse_address(each) for each in hosts]
        if len(set(addresses)) != len(addresses):
            raise ValueError("a node is named twice with --host, expected each node once")
        for address in addresses:
            if address.port > PORT_MAX:
                raise ValueError(f"--host has the port {address.port}, expected at most {PORT_MAX}")
        if re.fullmatch(r"[A-Za-z0-9._-]{1,100}", user) is None:
            raise ValueError(f"--user is {user!r}, expected letters, digits, '.', '_' and '-', at most 100")
        self._is_local = not addresses
        self._user = user
        self._days = days
        self._nodes = [
            _Node(number, "node" if len(addresses) < 2 else f"node-{number}", address)
            for number, address in enumerate(addresses or [Address("localhost", 9092)], 1)
        ]
        if user in {each.name for each in self._nodes}:
            raise ValueError(f"--user is {user!r}, the name of a node, expected another")

    def write(self, directory: Path, password: str | None) -> WrittenFiles:
        """Make all files. Without a password, one is drawn. Raises Refused if the directory has files."""
        if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
            raise Refused(
                f"{directory} exists and is not empty, expected a new directory: nothing was written"
            )
        place = directory.absolute()
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))  # with mode 0700
        try:
            written = self._write(beside, place, password or drawn_password())
            os.rename(beside, place)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        return written

    def _write(self, beside: Path, place: Path, password: str) -> WrittenFiles:
        authority = CertificateAuthority.create(
            f"Penstock trial authority {secrets.token_hex(4)}", days=self._days
        )
        write_new(beside / "ca.pem", authority.certificate)
        write_new(beside / "ca.key", authority.key)
        first_user = self._first_user(password)
        configs = []
        for node in self._nodes:
            names = [node.address.host, *LOOPBACK]
            if self._is_local:
                names.append(socket.gethostname())
            write_new(beside / f"{node.name}.pem", authority.issue(node.name, names, days=self._days).pem)
            configs.append(f"{node.name}.properties")
            settings = self._settings(node, place) | {"bootstrap.scram.users": first_user}
            text = _text(f"penstock up --config {place / configs[-1]}", settings) + HTTPS
            write_new(beside / configs[-1], text)
        client = f"{self._user}.properties"
        servers = ",".join(str(each.address) for each in self._nodes)
        login = jaas_text(SCRAM_MODULE, {"username": self._user, "password": password})
        properties = {
            "bootstrap.servers": servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM.label,
            "sasl.jaas.config": login,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(place / "ca.pem"),
        }
        write_new(
            beside / client, _text(f"penstock topics list --client-config {place / client}", properties)
        )
        return WrittenFiles(configs, client, servers)

    def _first_user(self, password: str) -> str:
        """As `bootstrap.scram.users` has it, without the password itself."""
        salt = os.urandom(SALT_BYTES)
        salted = salted_password(MECHANISM, password, salt, ITERATIONS)
        parts = f'salt="{b64encode(salt).decode()}",saltedpassword="{b64encode(salted).decode()}"'
        return f"{MECHANISM.label}=[name={self._user},iterations={ITERATIONS},{parts}]"

    def _settings(self, node: _Node, place: Path) -> dict[str, str]:
        host, port = node.address
        at = "127.0.0.1" if self._is_local else ""
        settings = {
            "node.id": str(node.number),
            "log.dirs": str(place / ("data" if len(self._nodes) == 1 else f"data-{node.number}")),
            "listeners": f"CLIENTS://{at}:{port}",
            "advertised.listeners": f"CLIENTS://{Address(host, port)}",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(place / f"{node.name}.pem"),
            "sasl.enabled.mechanisms": MECHANISM.label,
            "authorizer.class.name": _STANDARD_AUTHORIZER,
            "super.users": f"User:{self._user}",
            "http.listener": "off",
            "line.listener": "off",
        }
        return settings if len(self._nodes) == 1 else settings | self._between_nodes(node, place)

    def _between_nodes(self, node: _Node, place: Path) -> dict[str, str]:
        """Nodes know each other by their certificates, at listeners of their own."""
        host, port = node.address
        voters = ",".join(
            f"{each.number}@{each.address.host}:{each.address.port + 2}" for each in self._nodes
        )
        inner, outer = f"INTERNAL://{Address(host, port + 1)}", f"CLIENTS://{Address(host, port)}"
        return {
            "process.roles": "broker,controller",
            "listeners": f"CLIENTS://:{port},INTERNAL://:{port + 1},CONTROLLER://:{port + 2}",
            "advertised.listeners": f"{outer},{inner}",
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(place / "ca.pem"),
            "listener.name.internal.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
            "super.users": ";".join(
                f"User:{each}" for each in (self._user, *(node.name for node in self._nodes))
            ),
        }


def _text(use: str, settings: dict[str, str]) -> str:
    return f"# {use}\n" + "".join(property_line(name, value) for name, value in settings.items())
