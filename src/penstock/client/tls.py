"""TLS of a client's connections, with Python's `ssl`. Only clients that use TLS import this module.

What OpenSSL reports as a code becomes a sentence that names the host, what is wrong, and the setting that changes it.
"""

import socket
import ssl
from typing import Any, Final

from .errors import AuthenticationFailed
from .key_stores import authorities, key_material, load_authorities, load_key, new_context
from .security import ClientTls
from .settings import Address

_EXPIRED, _NOT_YET_VALID = 10, 9
_UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21, 24})
"""The issuer is not found, or is self-signed, or may not sign."""
_WRONG_HOST: Final = frozenset({62, 64})
"""OpenSSL's codes (X509_V_ERR_...)."""

_NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL"}
)
"""Reasons for which the other side may not use TLS at all."""


class TlsSocket(ssl.SSLSocket):
    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Raises BlockingIOError if only messages of TLS arrived, and the socket does not block."""
        try:
            return super().recv_into(buffer, nbytes, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """Read keys and certificates. Raises BadSetting."""
    context = new_context(ssl.PROTOCOL_TLS_CLIENT, tls.versions, tls.suites, tls.suites_setting)
    context.sslsocket_class = TlsSocket
    context.check_hostname = tls.checks_host
    if tls.trust_store is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        load_authorities(context, authorities(tls.trust_store), tls.trust_store)
    if tls.key_store is not None:
        load_key(context, key_material(tls.key_store), tls.key_store)
    return context


def shake_hands(
    context: ssl.SSLContext, dialled: socket.socket, address: Address, timeout_ms: float
) -> ssl.SSLSocket:
    """Begin TLS on a connection. Raises OSError, of which `ssl.SSLError` is one."""
    dialled.settimeout(timeout_ms / 1000)
    return context.wrap_socket(dialled, server_hostname=address.host)


def explain(error: object, peer: str, tls: ClientTls) -> AuthenticationFailed | None:
    """Why the two sides do not trust each other; None for an error of another kind."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return AuthenticationFailed(f"the certificate of {peer} {_what_is_wrong(error, tls)}")
    if not isinstance(error, ssl.SSLError) or error.reason is None:
        return None
    reason = error.reason
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        if "REQUIRED" in reason or (tls.key_store is None and "BAD_CERTIFICATE" in reason):
            why = "asks for a certificate, and this client has none; set ssl.keystore.location"
        else:
            why = f"refuses this client's certificate: {_words(reason)}"
        return AuthenticationFailed(f"{peer} {why}")
    if "PROTOCOL_VERSION" in reason or reason == "UNSUPPORTED_PROTOCOL":
        return AuthenticationFailed(
            f"{peer} has no version of TLS in common with this client, which has "
            f"{', '.join(sorted(tls.versions))} (ssl.enabled.protocols)"
        )
    if "HANDSHAKE_FAILURE" in reason:
        return AuthenticationFailed(
            f"{peer} refuses the TLS handshake: it has no cipher suite in common with this client, or asks for a "
            "certificate"
        )
    return None


def is_no_tls(error: OSError) -> bool:
    """Whether an error during the handshake may mean that the other side does not use TLS."""
    if isinstance(error, ssl.SSLError):
        return error.reason is None or error.reason in _NO_TLS
    return isinstance(error, ConnectionError)


def speaks_tls(dialled: socket.socket, address: Address, timeout_ms: float) -> bool:
    """Whether the other side answers with TLS, even if it rejects the handshake. Verifies nothing, and sends no
    data."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        shake_hands(context, dialled, address, timeout_ms).close()
    except ssl.SSLError as error:
        return error.reason is not None and "ALERT" in error.reason
    except OSError:
        return False
    return True


def _what_is_wrong(error: ssl.SSLCertVerificationError, tls: ClientTls) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "has expired"
    if code == _NOT_YET_VALID:
        return "is not valid yet; look at the clocks of both machines"
    if code in _WRONG_HOST:
        return (
            "is of another host; connect by a name in the certificate, or set "
            "ssl.endpoint.identification.algorithm to nothing"
        )
    if code in _UNKNOWN_AUTHORITY:
        trusted = "the system trusts" if tls.trust_store is None else "the trust store has"
        return (
            f"is signed by none of the authorities that {trusted} ({error.verify_message}); set "
            "ssl.truststore.location to the certificate of its authority"
        )
    return f"is refused: {error.verify_message}"


def _words(reason: str) -> str:
    """TLSV1_ALERT_UNKNOWN_CA as words: unknown ca."""
    return reason.partition("ALERT_")[2].replace("_", " ").lower()
