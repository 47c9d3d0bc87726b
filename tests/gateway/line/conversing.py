"""A client of the line protocol without a socket, at a whole node in a world that stands still.

line = StillLine(node)
line.say(b"TOPIC orders - 5\nhello")
line.heard(10)        what the node said within 10 ms
"""

from typing import Any

from tests.nodes import StillNode

from penstock.gateway.line.conversation import LineServer
from penstock.gateway.shared.gateway import Gateway
from penstock.handlers.support.context import Session


def gateway_of(node: StillNode) -> Gateway:
    return Gateway(node.node.context, node.node.directory, node.disk)


class StillWire:
    peer = "10.0.0.1:4711"
    is_local = True

    def __init__(self) -> None:
        self.session = Session("", 0, self.peer, "LINE")
        self.held_before_login = 0
        self.sent = bytearray()
        self.is_full = False
        self.is_closed = False
        self.is_reading = True

    def send(self, data: bytes) -> None:
        assert not self.is_closed, "nothing is sent after the end"
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def holds_before_login(self, count: int) -> None:
        self.held_before_login = count

    def stop_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def go_on_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True


class StillLine:
    def __init__(self, node: StillNode, gateway: Gateway | None = None) -> None:
        self.node = node
        self.wire = StillWire()
        self.conversation = LineServer(gateway or gateway_of(node)).converse(self.wire)

    def say(self, *portions: bytes) -> None:
        """Bytes arrive, each of them by itself, as views that are good for nothing afterwards."""
        for each in portions:
            buffer = bytearray(each)
            view = memoryview(buffer)
            self.conversation.received(view)
            view.release()
            buffer[:] = b"\xee" * len(buffer)

    def heard(self, ms: float = 100) -> bytes:
        self.node.world.advance(ms)
        sent = bytes(self.wire.sent)
        self.wire.sent.clear()
        return sent

    def ask(self, *portions: bytes, ms: float = 100) -> bytes:
        self.say(*portions)
        return self.heard(ms)


def topic(node: StillNode, name: str = "orders", partitions: int = 1, **configs: Any) -> str:
    node.create_topic(name, partitions, **configs)
    return name
