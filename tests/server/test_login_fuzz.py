"""Log-ins and TLS handshakes that are damaged, cut, repeated and mixed: nobody gets in without a password, others are
served as before, and nothing stays behind.

Each case begins as a real exchange. The node is in memory (`StillNode`), so a run has thousands of them.
"""

import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.held_loop import Holds, MeasuredClient, MeasuredWorld
from tests.nodes import StillClient, StillNode
from tests.security.sasl.clients import ScramClient
from tests.security.tokens import claims, jwks, signed
from tests.server.test_sasl import SECURED, authenticate, handshake, is_served, logged_in, set_password
from tests.server.tls_nodes import client_context, issue, pem_of

from penstock.handlers.support.context import ANONYMOUS
from penstock.metadata.scram import ScramMechanism
from penstock.server.connections import Connections
from penstock.wire import Api, request_frame, request_module, write_request

PASSWORD = "planted-s3cret"
SCRAM = ScramMechanism.SCRAM_SHA_256
MECHANISMS = ("PLAIN", SCRAM.label, "OAUTHBEARER")

NextToken = Callable[[bytes], bytes]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> StillNode:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(jwks())
    made = StillNode(
        settings={
            **SECURED,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "connection.failed.authentication.delay.ms": "0",
            "connections.max.idle.ms": "1000000000000",
            "audit.log": "denied",
        }
    )
    made.world.advance(100)
    set_password(made, "carol", PASSWORD)
    return made


def exchange_of(made: StillNode, mechanism: str, password: str) -> list[NextToken]:
    """A client's tokens, each made from the answer to the one before."""
    if mechanism == "PLAIN":
        return [lambda _: f"\0alice\0{password}".encode()]
    if mechanism == "OAUTHBEARER":
        said = claims(made.world.now_ms() - (0 if password == PASSWORD else 10**9))
        return [lambda _: f"n,,\x01auth=Bearer {signed(said)}\x01\x01".encode(), lambda _: b"\x01"]
    client = ScramClient(SCRAM, "carol", password)

    def final(challenge: bytes) -> bytes:
        try:
            return client.final(challenge)
        except (ValueError, KeyError):
            return b"c=biws,r=none,p=AAAA"

    return [lambda _: client.first, final]


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """A change of some bytes: another byte, a piece left out, twice or moved, an end that is missing, a tail."""
    kind = draw(st.sampled_from(["flip", "cut", "drop", "double", "insert", "tail", "empty", "swap"]))
    where, size = draw(st.floats(0, 1)), draw(st.integers(1, 40))
    junk = draw(st.binary(min_size=1, max_size=40))

    def damage(data: bytes) -> bytes:
        at = int(where * max(len(data) - 1, 0))
        damaged = {
            "flip": data[:at] + bytes(each ^ (junk[0] or 1) for each in data[at : at + 1]) + data[at + 1 :],
            "cut": data[:at],
            "drop": data[:at] + data[at + size :],
            "double": data[: at + size] + data[at:],
            "insert": data[:at] + junk + data[at:],
            "tail": data + junk,
            "swap": data[at:] + data[:at],
            "empty": b"",
        }
        return damaged[kind]

    return damage


def closed(client: StillClient) -> None:
    client.connection.connection_lost(None)


def connections(made: StillNode) -> Connections:
    return made.node._connections


@pytest.fixture
def others(node: StillNode, caplog: pytest.LogCaptureFixture) -> Iterator[StillClient]:
    """A client that has logged in before; afterwards it is served, and nothing is left of the others."""
    caplog.set_level(logging.DEBUG)
    before = logged_in(node)
    yield before
    assert is_served(before)
    assert is_served(logged_in(node)), "a new one, too"
    assert connections(node).login_memory.total == 0
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert PASSWORD not in caplog.text


FUZZED = settings(max_examples=60, deadline=None)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_damage_makes_a_wrong_password_right(node: StillNode, others: StillClient, mechanism: str) -> None:
    @FUZZED
    @given(st.lists(st.one_of(st.none(), damages()), min_size=2, max_size=2), st.booleans())
    def attempt(changes: list[Callable[[bytes], bytes] | None], has_headers: bool) -> None:
        client = node.client("OUTSIDE")
        handshake(client, mechanism, int(has_headers))
        answer = b""
        for make, change in zip(exchange_of(node, mechanism, "wrong"), changes, strict=False):
            token = make(answer)
            token = token if change is None else change(token)
            if client.transport.is_closed:
                break
            if has_headers:
                client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=token)
                node.world.advance(2000)
                reply = client.reply()
                answer = reply.auth_bytes if reply is not None else b""
            else:
                client.feed(len(token).to_bytes(4, "big") + token)
                node.world.advance(2000)
                answer = bytes(client.transport.received)[4:]
                client.transport.received.clear()
        assert client.connection.session.principal == ANONYMOUS
        closed(client)

    attempt()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_damaged_log_in_harms_nobody_else(node: StillNode, others: StillClient, mechanism: str) -> None:
    """Frames are damaged, with their lengths and headers, at any point of a log-in with the right password."""
    expected = {"PLAIN": "User:alice", SCRAM.label: "User:carol", "OAUTHBEARER": "User:alice"}[mechanism]

    @FUZZED
    @given(st.integers(0, 3), damages(), st.booleans())
    def attempt(which: int, damage: Callable[[bytes], bytes], is_cut_off: bool) -> None:
        client = node.client("OUTSIDE")
        answer = b""
        for at, make in enumerate([None, *exchange_of(node, mechanism, PASSWORD)]):
            frame = _frame(make, mechanism, answer)
            client.feed(damage(frame) if at == which else frame)
            node.world.advance(2000)
            answer = _token_in(bytes(client.transport.received))
            client.transport.received.clear()
            if client.transport.is_closed:
                break
        assert client.connection.session.principal in (ANONYMOUS, expected)
        if not is_cut_off:
            node.world.advance(40_000)
            assert client.transport.is_closed or client.connection.session.principal == expected
        closed(client)

    attempt()


def _frame(make: NextToken | None, mechanism: str, answer: bytes) -> bytes:
    if make is None:
        api, version, fields = Api.SASL_HANDSHAKE, 1, {"mechanism": mechanism}
    else:
        api, version, fields = Api.SASL_AUTHENTICATE, 1, {"auth_bytes": make(answer)}
    request: Any = getattr(request_module(api, version), f"{api.label}Request")(**fields)
    return bytes(request_frame(api, version, 1, "fuzz", write_request(api, version, request)))


def _token_in(reply: bytes) -> bytes:
    """The token of a SaslAuthenticate 1 response without an error; whatever else comes is none."""
    body = reply[14:]  # size 4 | correlation id 4 | error 2 | message -1 as 2 | length of the token 4
    return body if reply[8:12] == b"\0\0\xff\xff" else b""


@FUZZED
@given(damages(), st.sampled_from(["\0alice\0", "\0bob\0"]))
def test_a_damaged_log_in_again_changes_no_principal(
    node: StillNode, damage: Callable[[bytes], bytes], who: str
) -> None:
    """KIP-368: the connection keeps its user, or is closed."""
    client = logged_in(node)
    handshake(client)
    client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=damage(f"{who}{PASSWORD}".encode()))
    node.world.advance(200)
    assert client.connection.session.principal == "User:alice"
    assert client.transport.is_closed or is_served(client)
    closed(client)


@FUZZED
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=6))
def test_any_bytes_before_the_log_in_end_a_connection_or_wait(node: StillNode, pieces: list[bytes]) -> None:
    client = node.client("OUTSIDE")
    for piece in pieces:
        if not client.transport.is_closed:
            client.feed(piece)
            node.world.advance(1)
    assert client.connection.session.principal == ANONYMOUS
    node.world.advance(40_000)
    assert client.transport.is_closed, "the time of a log-in is over"
    closed(client)
    assert connections(node).login_memory.total == 0


# -- TLS -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def tls_node(ca: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> StillNode:
    path: Path = tmp_path_factory.mktemp("tls")
    (path / "node.pem").write_bytes(pem_of(issue(ca)))
    return StillNode(
        settings={
            "listener.security.protocol.map": "PLAINTEXT:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(path / "node.pem"),
        }
    )


class TlsClient:
    """The client's side of TLS in memory; `passes` sees what it sends."""

    def __init__(self, made: StillNode, context: ssl.SSLContext) -> None:
        self.node, self.client = made, made.client()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def shake(self, passes: Callable[[int, bytes], bytes] = lambda _, data: data) -> bool:
        """Whether the handshake was completed on this side."""
        for flight in range(8):
            is_done = False
            with suppress(ssl.SSLWantReadError):
                try:
                    self.tls.do_handshake()
                    is_done = True
                except ssl.SSLError as error:
                    if not isinstance(error, ssl.SSLWantReadError):
                        return False
                    raise
            data = self._outgoing.read()
            if data and not self.client.transport.is_closed:
                self.feed(passes(flight, data))
            if is_done:
                return True
            came = self.came()
            if not came and not data:
                return False
            self._incoming.write(came)
        return False

    def feed(self, data: bytes) -> None:
        if data:
            self.client.feed(data)
        self.node.world.advance(1)

    def came(self) -> bytes:
        received = bytes(self.client.transport.received)
        self.client.transport.received.clear()
        return received

    def ask(self) -> bool:
        """Whether ApiVersions is answered."""
        self.tls.write(bytes(request_frame(Api.API_VERSIONS, 0, 7, "fuzz", b"")))
        self.feed(self._outgoing.read())
        self._incoming.write(self.came())
        with suppress(ssl.SSLError):
            return self.tls.read(8)[4:] == b"\0\0\0\7"
        return False

    def close(self) -> None:
        self.client.connection.connection_lost(None)


def context_of(ca: trustme.CA, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = client_context(ca)
    context.maximum_version = version
    return context


def is_well(made: StillNode, ca: trustme.CA) -> bool:
    client = TlsClient(made, client_context(ca))
    well = client.shake() and client.ask()
    client.close()
    return well


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: each.name)
def test_a_damaged_handshake_harms_nobody_else(
    tls_node: StillNode, ca: trustme.CA, caplog: pytest.LogCaptureFixture, version: ssl.TLSVersion
) -> None:
    caplog.set_level(logging.INFO)

    context = context_of(ca, version)

    @FUZZED
    @given(st.integers(0, 2), damages())
    def attempt(which: int, damage: Callable[[bytes], bytes]) -> None:
        client = TlsClient(tls_node, context)
        client.shake(lambda flight, data: damage(data) if flight == which else data)
        tls_node.world.advance(11_000)
        client.close()

    attempt()
    assert is_well(tls_node, ca)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda each: each.name)
def test_damaged_records_after_the_handshake_harm_nobody_else(
    tls_node: StillNode, ca: trustme.CA, version: ssl.TLSVersion
) -> None:
    context = context_of(ca, version)

    @FUZZED
    @given(damages(), st.integers(1, 4))
    def attempt(damage: Callable[[bytes], bytes], count: int) -> None:
        client = TlsClient(tls_node, context)
        assert client.shake()
        for _ in range(count):
            client.tls.write(bytes(request_frame(Api.API_VERSIONS, 0, 7, "fuzz", b"")))
        data = client._outgoing.read()
        client.feed(damage(data))
        tls_node.world.advance(10)
        client.close()

    attempt()
    assert is_well(tls_node, ca)


@pytest.mark.parametrize(
    ("what", "record"),
    [
        ("empty records", b"\x17\x03\x03\x00\x00"),
        ("changes of the cipher", b"\x14\x03\x03\x00\x01\x01"),
        ("warnings", b"\x15\x03\x03\x00\x02\x01\x00"),
        ("hellos", b"\x16\x03\x03\x00\x04\x00\x00\x00\x00"),
        ("handshakes that go on and on", b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" + bytes(16_380)),
    ],
)
@pytest.mark.parametrize("is_established", [False, True], ids=["before the handshake", "after it"])
def test_a_flood_of_records_ends_the_connection(
    tls_node: StillNode, ca: trustme.CA, what: str, record: bytes, is_established: bool
) -> None:
    """Also a renegotiation: in TLS 1.2 a hello on an established connection asks for one."""
    client = TlsClient(tls_node, context_of(ca, ssl.TLSVersion.TLSv1_2))
    if is_established:
        assert client.shake()
    for _ in range(200):
        if client.client.transport.is_closed:
            break
        client.feed(record * max(1, 4096 // len(record)))
    assert client.client.transport.is_closed, what
    client.close()
    assert is_well(tls_node, ca)


# -- crowds --------------------------------------------------------------------------------------------

CROWD = 2000


def test_a_crowd_that_does_not_log_in_costs_others_nothing() -> None:
    """Counted in function calls: the same for a client that has logged in, with thousands that have not."""
    holds = Holds()
    node = StillNode(world=MeasuredWorld(holds), settings=SECURED)

    def served(name: str) -> int:
        client = MeasuredClient(node, "OUTSIDE")
        handshake(client)
        authenticate(client, f"\0alice\0{PASSWORD}".encode())
        for _ in range(3):
            client.call(Api.METADATA, 1, topics=None)
        with holds.measuring(name):
            for _ in range(10):
                client.call(Api.METADATA, 1, topics=None)
        closed(client)
        return holds.total[name]

    alone = served("alone")
    hello = request_frame(Api.API_VERSIONS, 0, 1, "crowd", b"")
    crowd = [node.client("OUTSIDE") for _ in range(CROWD)]
    for number, each in enumerate(crowd):
        each.feed(hello if number % 2 else hello[: 4 + number % 7])
    beside = served("beside a crowd")
    assert beside <= alone * 1.2 + 50
    node.world.advance(31_000)
    assert all(each.transport.is_closed for each in crowd), "a log-in has 30 s"
    for each in crowd:
        closed(each)
    assert connections(node).login_memory.total == 0


@pytest.mark.long
def test_a_crowd_of_failing_log_ins_costs_others_nothing() -> None:
    """Thousands that try passwords: each costs its own work, and none that grows with their number."""
    holds = Holds()
    node = StillNode(world=MeasuredWorld(holds), settings={**SECURED, "audit.log": "denied"})
    costs = []
    for _ in range(3):
        with holds.measuring("one"):
            for number in range(1000):
                client = MeasuredClient(node, "OUTSIDE")
                handshake(client)
                client.ask(Api.SASL_AUTHENTICATE, 2, auth_bytes=f"\0user-{number}\0wrong".encode())
                node.world.advance(101)
                closed(client)
        costs.append(holds.total["one"])
    assert max(costs) <= min(costs) * 1.1
    assert is_served(logged_in(node))


def test_the_fuzzing_has_exchanges_that_succeed(node: StillNode) -> None:
    """Otherwise nothing above would be tested beyond the first refusal."""
    for mechanism in MECHANISMS:
        client = node.client("OUTSIDE")
        handshake(client, mechanism)
        answer = b""
        for make in exchange_of(node, mechanism, PASSWORD)[: 1 if mechanism == "OAUTHBEARER" else None]:
            answer = authenticate(client, make(answer)).auth_bytes
        assert client.connection.session.principal != ANONYMOUS
        closed(client)
