"""The active controller, as the rest of a node uses it."""

from typing import Any, Protocol

from penstock.base.promise import Promise


class ControllerPort(Protocol):
    def submit(self, request: Any) -> Promise[Any]:
        """Send a request to the active controller. The promise resolves with the reply when the decision is committed
        and in this node's image, and fails with the KafkaError of a rejected request."""
