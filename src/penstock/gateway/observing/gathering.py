"""Asks all brokers of the cluster for the same thing. One that does not answer is named; the others' answers count."""

from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.handlers.support.context import Context

T = TypeVar("T")

ANSWER_MS_MAX: Final = 3_000
"""For a broker that is busy or stopped; a person waits for the answer."""


class MissingBroker(msgspec.Struct):
    """A broker whose part is missing in the answer."""

    broker: int
    reason: str


class Gathered(NamedTuple, Generic[T]):
    replies: dict[int, T]
    """By broker, in order of ids."""
    missing: list[MissingBroker]


def gather(context: Context, request: Any, here: Steps[T]) -> Steps[Gathered[T]]:
    """Send a request to all other brokers; `here` is the answer of this one. Fenced brokers are not asked."""
    asked = {}
    missing = []
    for each, broker in sorted(context.image.brokers.items()):
        if each == context.node_id:
            continue
        if broker.fenced:
            missing.append(MissingBroker(each, "it is fenced: stopped, unreachable or starting"))
        else:
            # With `wait_ms` the call has a connection of its own: produces and reads of others do not wait for it.
            asked[each] = peer_rpc_of(context).send(each, request, wait_ms=1, timeout_ms=ANSWER_MS_MAX)
    replies = {context.node_id: (yield from here)}
    for each, reply in asked.items():
        try:
            replies[each] = yield reply
        except KafkaError as error:
            missing.append(MissingBroker(each, str(error)))
    return Gathered(dict(sorted(replies.items())), sorted(missing, key=lambda each: each.broker))
