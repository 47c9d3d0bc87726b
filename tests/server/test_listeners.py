"""Sockets that are bound to what people write."""

import socket
from contextlib import closing

import pytest

from penstock.handlers.support.context import Endpoint
from penstock.server.listeners import CannotListen, Listening, listen


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def dialled(listening: Listening) -> socket.socket:
    return socket.create_connection(("127.0.0.1", listening.endpoint.port), timeout=30)


def hosts(listening: Listening) -> list[str]:
    return [each.getsockname()[0] for each in listening.sockets]


def test_port_zero_is_any_free_port() -> None:
    with (
        closing(listen(Endpoint("127.0.0.1", 0), 10)) as one,
        closing(listen(Endpoint("127.0.0.1", 0), 10)) as two,
    ):
        assert 0 != one.endpoint.port != two.endpoint.port != 0
        assert one.shown == f"127.0.0.1:{one.endpoint.port}"
        assert hosts(one) == ["127.0.0.1"]


def test_a_client_that_comes_early_waits() -> None:
    with closing(listen(Endpoint("127.0.0.1", 0), 10)) as listening, dialled(listening) as client:
        client.send(b"hello")
        taken, _ = listening.sockets[0].accept()
        with taken:
            assert taken.recv(5) == b"hello"


def test_no_host_is_every_interface_on_one_port() -> None:
    with closing(listen(Endpoint("", 0), 10)) as listening:
        assert hosts(listening) == ["0.0.0.0", "::"][: 1 + has_ipv6()]
        assert len({each.getsockname()[1] for each in listening.sockets}) == 1
        assert listening.shown == f"0.0.0.0:{listening.endpoint.port}"
        # A client that dials an IPv4 address has dialled an IPv4 address.
        with dialled(listening):
            taken, _ = listening.sockets[0].accept()
            with taken:
                assert taken.getsockname()[0] == "127.0.0.1"


def test_a_name_is_all_of_its_addresses() -> None:
    with closing(listen(Endpoint("localhost", 0), 10)) as listening:
        assert hosts(listening)[0] == "127.0.0.1"
        assert listening.shown == f"localhost:{listening.endpoint.port}"


def test_a_port_that_is_taken_is_reported_with_the_way_out() -> None:
    with closing(listen(Endpoint("127.0.0.1", 0), 10)) as first:
        with pytest.raises(CannotListen) as caught:
            listen(first.endpoint, 10)
        assert str(caught.value) == (
            f"cannot listen on 127.0.0.1:{first.endpoint.port}: the port is in use by another process; choose another "
            "port with --kafka"
        )


def test_a_port_that_was_let_go_can_be_had_again_at_once() -> None:
    with closing(listen(Endpoint("127.0.0.1", 0), 10)) as listening, dialled(listening) as client:
        taken, _ = listening.sockets[0].accept()
        taken.close()  # first, so that the port lingers on our side
        assert client.recv(1) == b""
    listen(listening.endpoint, 10).close()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("192.0.2.1", "no interface of this machine has this address"),
        ("a" * 70, f"cannot listen on {'a' * 70}:9: "),
    ],
)
def test_an_address_that_is_not_ours_is_reported(host: str, reason: str) -> None:
    """192.0.2.0/24 is set aside for such things (RFC 5737); a part of a name has 63 letters at most."""
    with pytest.raises(CannotListen) as caught:
        listen(Endpoint(host, 9), 10)
    assert reason in str(caught.value)


def test_an_unknown_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    with pytest.raises(CannotListen) as caught:
        listen(Endpoint("nowhere", 9), 10)
    assert str(caught.value) == "cannot listen on nowhere:9: Name or service not known"


def test_buffers_have_the_sizes_that_were_set() -> None:
    with closing(listen(Endpoint("127.0.0.1", 0), 10, send_bytes=65536, receive_bytes=32768)) as listening:
        [bound] = listening.sockets
        # Linux doubles them, for its own books.
        assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (65536, 131072)
        assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (32768, 65536)
