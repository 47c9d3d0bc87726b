"""Free ports lie below the ephemeral range, and a port that is held is given to its owner only."""

import socket
from pathlib import Path

import pytest

from penstock.server import ports
from penstock.server.ports import free_ports, hold_port


def test_free_ports_differ_and_lie_below_the_ephemeral_range(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ephemeral = tmp_path / "range"
    monkeypatch.setattr(ports, "EPHEMERAL_RANGE", ephemeral)
    for lowest, text in ((20_500, "20500\t60999\n"), (32_768, "nonsense"), (2_000, "2000 60999")):
        ephemeral.write_text(text)
        chosen = free_ports(50)
        assert len(set(chosen)) == 50
        assert all(1024 <= port < lowest for port in chosen)


def test_a_port_that_is_held_is_not_free_and_its_owner_can_listen_there() -> None:
    with hold_port() as held:
        port = held.getsockname()[1]
        assert not ports._is_free("127.0.0.1", port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match="in use"):
            hold_port(port)
        with hold_port(port):
            pass
