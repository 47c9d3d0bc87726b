"""A secured broker for tests: its settings, and those of its clients.

    with Broker(security=True) as broker:                # SASL_SSL, SCRAM-SHA-512, ACLs; the user admin may do all
        Producer(broker.client().confluent_kafka)

The certificate authority, the certificates and the users exist for this broker only. Users of SCRAM are in the
metadata log once the broker has started.
"""

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.base.properties import property_line
from penstock.client.settings import ClientSettings
from penstock.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE, USER_PREFIX, jaas_text

if TYPE_CHECKING:
    from penstock.metadata.controller.requests import AlterScramUsers

PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
HOSTS: Final = ("localhost", "127.0.0.1")
ADMIN: Final = "admin"
NODE: Final = "penstock-node"
"""The principal of nodes, and the common name of their certificate."""
_DAYS: Final = 30

_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True)
class Security:
    """How the clients of a broker connect, who they are, and whether ACLs decide what they may do."""

    protocol: str = "SASL_SSL"
    """SSL, SASL_PLAINTEXT or SASL_SSL. With SSL users log in with certificates."""
    mechanism: str = "SCRAM-SHA-512"
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    users: Mapping[str, str] = field(default_factory=lambda: {ADMIN: "admin-secret"}, repr=False)
    """Users with their passwords."""
    acls: bool = True
    """Whether ACLs are on: a user that is no super user may do only what they allow."""
    super_users: tuple[str, ...] = (ADMIN,)

    def __post_init__(self) -> None:
        for name, value, known in (
            ("protocol", self.protocol, PROTOCOLS),
            ("mechanism", self.mechanism, MECHANISMS),
        ):
            if value not in known:
                raise ValueError(f"the {name} is {value!r}, expected one of {', '.join(known)}")
        if not self.users:
            raise ValueError("a secured broker has no user, expected at least one")

    @classmethod
    def of(cls, given: "Security | str | bool") -> "Security | None":
        """`True` for the default, or the name of a protocol."""
        if isinstance(given, Security):
            return given
        if isinstance(given, str):
            return cls(protocol=given)
        return cls() if given else None

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_logins(self) -> bool:
        return self.protocol.startswith("SASL")


class SecurityFiles:
    """The certificates of a broker or a cluster and its clients, in a directory."""

    def __init__(self, security: Security, directory: str, *, is_cluster: bool = False) -> None:
        """Creates the files. Raises KafkaError if `cryptography` is missing."""
        self.security = security
        self.directory = directory
        self._is_cluster = is_cluster
        """Nodes of a cluster use TLS among themselves, and know each other by their certificate."""
        os.makedirs(directory, exist_ok=True)
        if not security.has_tls and not is_cluster:
            return
        from penstock.server.certificate_authority import CertificateAuthority  # noqa: PLC0415  # needs a package

        authority = CertificateAuthority.create("Penstock test authority", days=_DAYS)
        self._write("ca.pem", authority.certificate)
        self._write("node.pem", authority.issue(NODE, HOSTS, days=_DAYS).pem)
        if not security.has_logins:
            for user in security.users:
                certified = authority.issue(user, days=_DAYS)
                self._write(f"{user}.pem", certified.pem)
                self._write(f"{user}.key", certified.key)
                self._write(f"{user}.crt", certified.chain)

    def _write(self, name: str, data: bytes) -> None:
        descriptor = os.open(self.path(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def node_settings(self, listener: str | None, inner: Sequence[str] = ()) -> dict[str, str]:
        """Settings of a node with a listener for clients, and listeners for other nodes: INTERNAL, CONTROLLER."""
        security = self.security
        protocols = {"PLAINTEXT": "PLAINTEXT"}
        if self._is_cluster:
            protocols |= {"INTERNAL": "SSL", "CONTROLLER": "SSL"}
        if listener is not None:
            protocols[listener] = security.protocol
        found = {
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items())
        }
        if security.has_tls or inner:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.path("node.pem")}
        asking = list(inner)
        if listener is not None and security.has_logins:
            found["sasl.enabled.mechanisms"] = security.mechanism
            if security.mechanism == "PLAIN":
                users = {f"{USER_PREFIX}{name}": password for name, password in security.users.items()}
                prefix = f"listener.name.{listener.lower()}.plain"
                found[f"{prefix}.sasl.jaas.config"] = jaas_text(PLAIN_MODULE, users)
        elif listener is not None:
            asking.append(listener)
        if asking:
            found |= {f"listener.name.{each.lower()}.ssl.client.auth": "required" for each in asking}
            found |= {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.path("ca.pem"),
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            }
        if security.acls:
            everyone = [*security.super_users, *([NODE] if inner else [])]
            found["authorizer.class.name"] = _AUTHORIZER
            found["super.users"] = ";".join(f"User:{each}" for each in everyone)
        return found

    def scram_users(self) -> "AlterScramUsers | None":
        """The change of metadata that creates the users, if they are of SCRAM."""
        if not self.security.has_logins or not self.security.mechanism.startswith("SCRAM"):
            return None
        from penstock.metadata.controller.requests import AlterScramUsers, ScramUpsertion  # noqa: PLC0415
        from penstock.metadata.scram import ITERATIONS_MIN, ScramMechanism, salted_password  # noqa: PLC0415

        mechanism = next(each for each in ScramMechanism if each.label == self.security.mechanism)
        made = []
        for name, password in self.security.users.items():
            salt = os.urandom(16)
            salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
            made.append(ScramUpsertion(name, mechanism, ITERATIONS_MIN, salt, salted))
        return AlterScramUsers(upsertions=tuple(made))


class BrokerSecurity:
    """The security of one broker, and the certificates that it made or shares with other nodes."""

    def __init__(
        self, security: Security | None, files: SecurityFiles | None = None, inner_port: int = 0
    ) -> None:
        self._security = security
        self.files = files
        """None until they are made, or without security."""
        self._own: str | None = None
        self.inner_port = inner_port
        """Of the listener for other nodes of a secured cluster; 0 for a broker alone."""

    @property
    def protocol(self) -> str:
        return "PLAINTEXT" if self._security is None else self._security.protocol

    def settings(self, port: int, doors: Collection[str]) -> dict[str, str]:
        """Of a broker with a port for clients, and other doors: http, line, controller."""
        if self._security is None:
            return {}
        if self.files is None:
            self._own = tempfile.mkdtemp(prefix="penstock-security-")
            self.files = SecurityFiles(self._security, self._own)
        outer = [each for each in ("http", "line") if each in doors]
        found = {f"{each}.security.protocol": self._security.protocol for each in outer}
        if not self._security.has_logins:
            found |= {f"listener.name.{each}.ssl.client.auth": "required" for each in outer}
        if not self.inner_port:
            return found | self.files.node_settings("PLAINTEXT")
        inner = ["INTERNAL", *(["CONTROLLER"] if "controller" in doors else [])]
        return found | {
            "listeners": f"CLIENTS://127.0.0.1:{port},INTERNAL://127.0.0.1:{self.inner_port}",
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            **self.files.node_settings("CLIENTS", inner),
        }

    def close(self) -> None:
        """Remove the files, if this broker made them."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            self.files = self._own = None


class ClientAccess:
    """The settings with which one user connects, as each library takes them."""

    def __init__(self, bootstrap: str, files: SecurityFiles | None = None, user: str | None = None) -> None:
        self.bootstrap = bootstrap
        self._files = files
        self._security = None if files is None else files.security
        self.user = user
        self.password = ""
        """With which the user logs in, for HTTP and the line protocol too."""
        if self._security is not None:
            self.user = user or next(iter(self._security.users))
            if self.user not in self._security.users:
                known = ", ".join(self._security.users)
                raise ValueError(f"the broker has no user {self.user}, expected one of {known}")
            self.password = self._security.users[self.user]

    @property
    def ca_file(self) -> str | None:
        """The certificate of the authority that signed the broker's; None without TLS."""
        if self._files is None or not self._files.security.has_tls:
            return None
        return self._files.path("ca.pem")

    def __repr__(self) -> str:
        return f"<ClientAccess {self.user or 'of everyone'} at {self.bootstrap}>"

    @property
    def properties(self) -> dict[str, str]:
        """The settings of Kafka's own clients and tools, of the `penstock` commands, and with `kafka.` of Spark."""
        found = {"bootstrap.servers": self.bootstrap}
        if self._security is None or self._files is None:
            return found
        found["security.protocol"] = self._security.protocol
        if self._security.has_tls:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self._files.path("ca.pem")}
        if self._security.has_logins:
            module = PLAIN_MODULE if self._security.mechanism == "PLAIN" else SCRAM_MODULE
            found["sasl.mechanism"] = self._security.mechanism
            found["sasl.jaas.config"] = jaas_text(
                module, {"username": str(self.user), "password": self.password}
            )
        else:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self._files.path(f"{self.user}.pem"),
            }
        return found

    def write(self, path: "str | os.PathLike[str]") -> str:
        """Write a client.properties, for `--client-config` and for Kafka's tools. Returns the path."""
        lines = [property_line(name, value) for name, value in self.properties.items()]
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(lines)
        return os.fspath(path)

    @property
    def settings(self) -> ClientSettings:
        """For Penstock's own client."""
        if self._security is None:
            return ClientSettings()
        from penstock.client.security_settings import parse_security  # noqa: PLC0415  # loads what log-ins need

        return ClientSettings(security=parse_security(self.properties))

    @property
    def confluent_kafka(self) -> dict[str, Any]:
        """For `Producer(...)`, `Consumer(...)` and `AdminClient(...)`; add `group.id` and so on."""
        found: dict[str, Any] = {"bootstrap.servers": self.bootstrap}
        if self._security is None or self._files is None:
            return found
        found["security.protocol"] = self._security.protocol
        if self._security.has_tls:
            found["ssl.ca.location"] = self._files.path("ca.pem")
        if self._security.has_logins:
            found |= {
                "sasl.mechanism": self._security.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        else:
            found |= {
                "ssl.key.location": self._files.path(f"{self.user}.key"),
                "ssl.certificate.location": self._files.path(f"{self.user}.crt"),
            }
        return found

    @property
    def kafka_python(self) -> dict[str, Any]:
        """For `KafkaProducer(**...)`, `KafkaConsumer(**...)` and `KafkaAdminClient(**...)`."""
        return self._of_python()

    @property
    def aiokafka(self) -> dict[str, Any]:
        """For `AIOKafkaProducer(**...)` and `AIOKafkaConsumer(**...)`."""
        return self._of_python()

    def _of_python(self) -> dict[str, Any]:
        found: dict[str, Any] = {"bootstrap_servers": self.bootstrap}
        if self._security is None or self._files is None:
            return found
        found["security_protocol"] = self._security.protocol
        if self._security.has_tls:
            import ssl  # noqa: PLC0415  # loads OpenSSL

            context = ssl.create_default_context(cafile=self._files.path("ca.pem"))
            if not self._security.has_logins:
                context.load_cert_chain(self._files.path(f"{self.user}.pem"))
            found["ssl_context"] = context
        if self._security.has_logins:
            found |= {
                "sasl_mechanism": self._security.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        return found
