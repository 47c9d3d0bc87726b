"""The active controller, as the rest of a node asks it."""

from typing import Any, Protocol

from penstock.base.promise import Promise


class ControllerPort(Protocol):
    def submit(self, request: Any) -> Promise[Any]:
        """Have the active controller decide. Answered when the decision is committed, and this node's image has it:
        with the reply, or with the KafkaError that refuses it."""
