"""How this node connects to other nodes: TLS, log-in or both, by the listeners that it connects to.

    inter.broker.listener.name, or security.inter.broker.protocol    the listener of other brokers
    controller.listener.names                                        the listener of controllers, the first of them
    listener.security.protocol.map                                   their protocols, the same on all nodes

TLS takes the listener's own `ssl.` settings: the key store is this node's certificate at both ends. A log-in takes the
mechanism of `sasl.mechanism.inter.broker.protocol` or `sasl.mechanism.controller.protocol`, and `username` and
`password` of the listener's login module, beside which PLAIN has the users of others:

    listener.name.internal.plain.sasl.jaas.config=...PlainLoginModule required \\
        username="broker" password="..." user_broker="...";

`sasl.jaas.config` without a listener serves all listeners that have none. In Kafka it has no effect.
"""

from collections.abc import Mapping
from typing import Final

from penstock.base.settings import BadSetting
from penstock.client.security import PLAINTEXT as NO_SECURITY
from penstock.client.security import ClientSecurity, client_tls
from penstock.metadata.config_table import BROKER_SETTINGS
from penstock.metadata.scram import ITERATIONS_MAX
from penstock.security.sasl.client import PLAIN, SCRAMS, ClientLogin, PlainLogin, ScramLogin
from penstock.server.cluster_config import ClusterConfig
from penstock.server.config_sources import ConfigEntry
from penstock.server.listener_config import ListenerSettings
from penstock.server.sasl_config import JAAS_CONFIG, LISTENER_PREFIX, SaslConfig, login_module

BROKERS_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
CONTROLLERS_MECHANISM: Final = "sasl.mechanism.controller.protocol"

_MECHANISMS: Final = (PLAIN, *SCRAMS)
"""OAUTHBEARER is not among them: tokens are fetched with calls that wait."""

Overrides = Mapping[str, Mapping[str, ConfigEntry]]


class PeersSettings:
    """Settings of all listeners, from which those between nodes are read."""

    def __init__(
        self,
        entries: Mapping[str, ConfigEntry],
        of_tls: Overrides,
        of_sasl: Overrides,
        protocols: Mapping[str, str],
        cluster: ClusterConfig,
        sasl: Mapping[str, SaslConfig],
    ) -> None:
        """`protocols` has all listeners, `sasl` those of this node with log-ins."""
        self._entries = entries
        self._of_tls = of_tls
        self._of_sasl = of_sasl
        self._protocols = protocols
        self._cluster = cluster
        self._sasl = sasl
        self._is_jaas_used = False

    def to_brokers(self) -> ClientSecurity:
        cluster = self._cluster
        if cluster.is_alone or not cluster.is_broker:
            return NO_SECURITY
        return self._security(cluster.listener, BROKERS_MECHANISM)

    def to_controllers(self) -> ClientSecurity:
        cluster = self._cluster
        if cluster.is_alone:
            return NO_SECURITY
        found = self._security(cluster.controller_listener, CONTROLLERS_MECHANISM)
        if found.login is not None and found.login.mechanism in SCRAMS and cluster.is_controller:
            raise BadSetting(
                f"{self._mechanism(CONTROLLERS_MECHANISM)[1]} is {found.login.mechanism} and this node is a "
                "controller, expected PLAIN, or the protocol SSL with certificates: users of SCRAM are in the "
                "metadata, which controllers have only after they have talked to each other"
            )
        return found

    def warnings(self) -> list[str]:
        """Call it last."""
        entry = self._entries.get(JAAS_CONFIG)
        if entry is None or self._is_jaas_used or not self._cluster.is_broker:
            return []  # brokers and controllers may share one file
        return [
            f"{JAAS_CONFIG} ({entry.where}) has no effect: no listener between nodes needs it; users of a listener "
            f"are in {LISTENER_PREFIX}NAME.MECHANISM.{JAAS_CONFIG}"
        ]

    def _security(self, listener: str, mechanism_setting: str) -> ClientSecurity:
        protocol = self._protocols.get(listener, "PLAINTEXT")
        if protocol == "PLAINTEXT":
            return NO_SECURITY
        tls = None
        if protocol.endswith("SSL"):
            tls = client_tls(ListenerSettings(listener, self._entries, self._of_tls.get(listener, {})))
        login = self._login(listener, mechanism_setting) if protocol.startswith("SASL") else None
        return ClientSecurity(tls, login)

    def _mechanism(self, setting: str) -> tuple[str, str]:
        """The mechanism, and its setting for errors."""
        entry = self._entries.get(setting)
        if entry is None:
            return BROKER_SETTINGS[setting].default or "", setting
        return entry.text.strip(), f"{setting} ({entry.where})"

    def _login(self, listener: str, setting: str) -> ClientLogin:
        mechanism, shown = self._mechanism(setting)
        if mechanism not in _MECHANISMS:
            raise BadSetting(
                f"{shown} is {mechanism!r}{'' if setting in self._entries else ', its default,'} and nodes log in at "
                f"the listener {listener}, expected one of {', '.join(_MECHANISMS)}"
            )
        served = self._sasl.get(listener)
        if served is not None and mechanism not in served.mechanisms:
            raise BadSetting(
                f"{shown} is {mechanism}, which the listener {listener} does not have, expected it in "
                "sasl.enabled.mechanisms"
            )
        own = self._of_sasl.get(listener, {}).get(f"{mechanism.lower()}.{JAAS_CONFIG}")
        for entry in (own, self._entries.get(JAAS_CONFIG)):
            if entry is None:
                continue
            options = login_module(mechanism, entry)[0].options
            user, password = options.get("username", ""), options.get("password", "")
            if not user and not password:
                continue
            self._is_jaas_used = self._is_jaas_used or entry is not own
            if not user or not password or "\0" in user + password:
                raise BadSetting(
                    f"{entry.name} ({entry.where}) has a username or password that is empty or has a NUL character, "
                    "expected both"
                )
            return _login_of(mechanism, user, password)
        raise BadSetting(
            f"this node has nothing to log in with at the listener {listener} of other nodes, expected username and "
            f"password in {LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"
        )


def _login_of(mechanism: str, user: str, password: str) -> ClientLogin:
    if mechanism == PLAIN:
        return PlainLogin(user, password)
    from penstock.client.security_settings import random_nonce  # noqa: PLC0415  # only with SCRAM

    # A log-in runs on the loop. Nodes have no users with more iterations; an impostor could ask for them.
    return ScramLogin(mechanism, user, password, random_nonce, iterations_max=ITERATIONS_MAX)
