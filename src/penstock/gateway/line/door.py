"""The line protocol's port."""

from penstock.gateway.line.conversation import LineConversation
from penstock.gateway.shared.gateway import Gateway
from penstock.gateway.shared.wire import Wire


class LineDoor:
    """A `Door`."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def converse(self, wire: Wire) -> LineConversation:
        return LineConversation(self._gateway, wire)
