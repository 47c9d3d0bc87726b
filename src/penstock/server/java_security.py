"""Kafka's settings of security that choose something of Java.

Those that choose among implementations of the same thing have no effect here, and leave nothing unguarded: a node with
them starts, with a warning. Those that name a class decide who gets in or as whom: a node that ignored one might let
in more than Kafka would, so it does not start, unless the class is Kafka's default, whose rules are built in.
"""

from typing import Final

from penstock.base.settings import BadSetting
from penstock.server.config_sources import ConfigEntry

_JAVA_TLS: Final = "it chooses an implementation of TLS in Java; here it is OpenSSL's"
_KERBEROS: Final = "GSSAPI is not supported, and not enabled"
_LOGIN: Final = "it is about Java's log-in to other nodes"

WITHOUT_EFFECT: Final = {
    "ssl.keymanager.algorithm": _JAVA_TLS,
    "ssl.trustmanager.algorithm": _JAVA_TLS,
    "ssl.provider": _JAVA_TLS,
    "ssl.secure.random.implementation": _JAVA_TLS,
    "security.providers": "it names providers of cryptography in Java; here it is OpenSSL's",
    "ssl.allow.dn.changes": "new certificates may have other names",
    "ssl.allow.san.changes": "new certificates may have other names",
    "sasl.kerberos.kinit.cmd": _KERBEROS,
    "sasl.kerberos.min.time.before.relogin": _KERBEROS,
    "sasl.kerberos.principal.to.local.rules": _KERBEROS,
    "sasl.kerberos.service.name": _KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": _KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": _KERBEROS,
    "sasl.login.connect.timeout.ms": _LOGIN,
    "sasl.login.read.timeout.ms": _LOGIN,
    "sasl.login.refresh.buffer.seconds": _LOGIN,
    "sasl.login.refresh.min.period.seconds": _LOGIN,
    "sasl.login.refresh.window.factor": _LOGIN,
    "sasl.login.refresh.window.jitter": _LOGIN,
    "sasl.login.retry.backoff.max.ms": _LOGIN,
    "sasl.login.retry.backoff.ms": _LOGIN,
}

CLASSES: Final = {
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
    "sasl.oauthbearer.jwt.retriever.class": "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    "sasl.oauthbearer.jwt.validator.class": "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    "sasl.login.class": "",
    "sasl.login.callback.handler.class": "",
    "sasl.client.callback.handler.class": "",
    "sasl.server.callback.handler.class": "",
}
"""With Kafka's default, or an empty text if it has none."""


def warning_about(entry: ConfigEntry) -> str | None:
    """The warning about a setting that has no effect; None for a setting that is not of this kind. Raises `BadSetting`
    for a class that cannot be loaded."""
    name = _without_listener(entry.name)
    why = WITHOUT_EFFECT.get(name)
    if why is None and name in CLASSES and not _is_handled(entry.name):
        default = CLASSES[name]
        if entry.text.strip() != default:
            expected = f", expected {default}" if default else ""
            raise BadSetting(
                f"{entry.name} is {entry.text.strip()!r} ({entry.where}){expected}: it names a Java class, which "
                "Penstock cannot load, and without it the node might let in other clients than Kafka does"
            )
        why = "it is Kafka's default, which is built in"
    return None if why is None else f"{entry.name} ({entry.where}) has no effect: {why}"


def _without_listener(name: str) -> str:
    """`listener.name.clients.plain.sasl.login.class` is `sasl.login.class`."""
    if not name.startswith("listener.name."):
        return name
    for start in (".ssl.", ".sasl.", ".principal."):
        at = name.find(start, len("listener.name.") - 1)
        if at >= 0:
            return name[at + 1 :]
    return name


def _is_handled(name: str) -> bool:
    """Whether the class has a meaning here: Kafka's handler that accepts tokens without a signature, by its name."""
    return name.endswith(".oauthbearer.sasl.server.callback.handler.class")
