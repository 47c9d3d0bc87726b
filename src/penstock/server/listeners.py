"""Parses addresses and binds the sockets of listeners.

Sockets are bound and listen before anything else is loaded: a port in use is reported at once, and early clients wait
in the kernel's queue until the node is ready.

A name may resolve to several addresses (`localhost` to 127.0.0.1 and ::1), and an empty host means all interfaces.
Each address gets its own socket on the same port: with one socket for both families, a client that connects to
127.0.0.1 would appear to have connected to ::ffff:127.0.0.1.
"""

import errno
import re
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.settings import BadSetting
from penstock.handlers.support.context import Endpoint

EVERYWHERE = frozenset({"", "0.0.0.0", "::"})
"""Hosts that mean all interfaces."""

LISTENERS_MAX = 64
"""Each listener may have several sockets."""

ANY_PORT_TRIES_MAX = 20
"""Attempts to find a port that is free on every address of a host."""

PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"

PROTOCOL_NUMBERS = {PLAINTEXT: 0, SSL: 1, SASL_PLAINTEXT: 2, SASL_SSL: 3}
"""Security protocols by their numbers in metadata records."""

DEFAULT_PROTOCOLS = {each: each for each in PROTOCOL_NUMBERS}
"""Without listener.security.protocol.map, a listener has the name of its protocol."""


class CannotListen(KafkaError):
    code = ErrorCode.NETWORK_EXCEPTION


# -- text ----------------------------------------------------------------------------------------------


def parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_address(text: str, what: str, example: int = 9092, more: str = "") -> Endpoint:
    """Parse `HOST:PORT`, `[IPV6]:PORT`, or `:PORT` for all interfaces; `more` completes the error message."""
    matched = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^\[\]:/\s]*)):(\d{1,5})", text.strip())
    if matched is None or int(matched[3]) > 65535:
        raise BadSetting(
            f"{what} is {text!r}, expected HOST:PORT, such as 127.0.0.1:{example} or :{example}{more}"
        )
    return Endpoint(matched[1] or matched[2] or "", int(matched[3]))


def parse_listeners(text: str, what: str) -> dict[str, Endpoint]:
    """Parse `NAME://HOST:PORT`, separated by commas."""
    found: dict[str, Endpoint] = {}
    words = parts(text)
    if not words or len(words) > LISTENERS_MAX:
        raise BadSetting(f"{what} is {text!r}, expected 1 to {LISTENERS_MAX} entries NAME://HOST:PORT")
    for word in words:
        name, sign, address = word.partition("://")
        if not sign or not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise BadSetting(f"{what} has {word!r}, expected NAME://HOST:PORT, such as PLAINTEXT://:9092")
        name, endpoint = name.upper(), parse_address(address, f"{name} of {what}")
        if name in found:
            raise BadSetting(f"{what} has {name} twice")
        if endpoint.port and endpoint in found.values():
            raise BadSetting(f"{what} has {address_text(endpoint)} twice")
        found[name] = endpoint
    return found


def address_text(endpoint: Endpoint) -> str:
    return (
        f"[{endpoint.host}]:{endpoint.port}" if ":" in endpoint.host else f"{endpoint.host}:{endpoint.port}"
    )


def listeners_text(listeners: Mapping[str, Endpoint]) -> str:
    return ",".join(f"{name}://{address_text(endpoint)}" for name, endpoint in listeners.items())


def protocols_of(
    listeners: Iterable[str], protocol_map: str | None, where: str, plain: Collection[str]
) -> dict[str, str]:
    """The security protocol of each listener. Those in `plain` are PLAINTEXT unless the map has them. Rejects unknown
    protocols."""
    protocols = dict(DEFAULT_PROTOCOLS)
    if protocol_map is not None:
        protocols = {}
        for part in parts(protocol_map):
            name, _, protocol = part.partition(":")
            if protocol.strip().upper() not in DEFAULT_PROTOCOLS:
                raise BadSetting(
                    f"listener.security.protocol.map has {part!r} ({where}), expected NAME:PROTOCOL with one of "
                    f"{', '.join(DEFAULT_PROTOCOLS)}"
                )
            protocols[name.strip().upper()] = protocol.strip().upper()
    found: dict[str, str] = {}
    for name in listeners:
        if name not in protocols and name not in plain:
            raise BadSetting(
                f"listener {name} has no protocol ({where}), expected an entry in listener.security.protocol.map"
            )
        found[name] = protocols.get(name, PLAINTEXT)
    return found


# -- sockets -------------------------------------------------------------------------------------------


def listen(
    endpoint: Endpoint, backlog: int, *, send_bytes: int = -1, receive_bytes: int = -1, flag: str = "--kafka"
) -> "Listening":
    """Bind every address of an endpoint. Port 0 means any port that is free on all of them. `flag` appears in the
    error message as the way to choose another port."""
    hosts = _addresses(endpoint)
    for tries_left in range(ANY_PORT_TRIES_MAX, 0, -1):
        try:
            return _listen(endpoint, hosts, backlog, send_bytes, receive_bytes)
        except OSError as error:
            if endpoint.port == 0 and error.errno == errno.EADDRINUSE and tries_left > 1:
                continue
            raise CannotListen(f"cannot listen on {_shown(endpoint)}: {_reason(error, flag)}") from error
    raise AssertionError("the last try returns or raises")


class Listening:
    """The sockets of one listener."""

    def __init__(self, endpoint: Endpoint, sockets: Sequence[socket.socket]) -> None:
        self.endpoint = endpoint
        """As configured, with the bound port."""
        self.sockets = tuple(sockets)

    @property
    def shown(self) -> str:
        return _shown(self.endpoint)

    def close(self) -> None:
        for each in self.sockets:
            each.close()


Address = tuple[socket.AddressFamily, str]


def _addresses(endpoint: Endpoint) -> list[Address]:
    if not endpoint.host:
        return [(socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")]
    try:
        found = socket.getaddrinfo(endpoint.host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, socket.gaierror) else error
        raise CannotListen(f"cannot listen on {_shown(endpoint)}: {why}") from error
    addresses = [(family, str(address[0])) for family, _, _, _, address in found]
    # IPv4 first: its address is displayed.
    return sorted(dict.fromkeys(addresses), key=lambda each: each[0] != socket.AF_INET)


def _listen(
    endpoint: Endpoint, addresses: Sequence[Address], backlog: int, send_bytes: int, receive_bytes: int
) -> Listening:
    sockets: list[socket.socket] = []
    port = endpoint.port
    failed: OSError | None = None
    try:
        for family, host in addresses:
            try:
                bound = _bind(family, host, port, backlog, send_bytes, receive_bytes)
            except OSError as error:
                # A name may resolve to an address family that the machine does not support.
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                failed = failed or error
                continue
            sockets.append(bound)
            port = bound.getsockname()[1]
        if not sockets:
            raise failed or OSError(errno.EADDRNOTAVAIL, "no address")
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return Listening(Endpoint(endpoint.host, port), sockets)


def _bind(
    family: socket.AddressFamily, host: str, port: int, backlog: int, send_bytes: int, receive_bytes: int
) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            with suppress(OSError):
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Accepted connections inherit the buffer sizes; the receive buffer must be set before the handshake.
        if send_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        if receive_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        bound.setblocking(False)
        bound.bind((host, port))
        # With SO_REUSEADDR, bind may succeed on a port in use; listen then fails.
        bound.listen(backlog)
    except BaseException:
        bound.close()
        raise
    return bound


def _shown(endpoint: Endpoint) -> str:
    return address_text(endpoint if endpoint.host else Endpoint("0.0.0.0", endpoint.port))


def _reason(error: OSError, flag: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"the port is in use by another process; choose another port with {flag}"
    if error.errno == errno.EADDRNOTAVAIL:
        return "no interface of this machine has this address"
    if error.errno == errno.EACCES:
        return "ports below 1024 need a privilege that this process does not have"
    return error.strerror or str(error)
