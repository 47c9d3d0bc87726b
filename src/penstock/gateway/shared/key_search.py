"""Searches other brokers for idempotency keys that are new to this one.

The leader of a partition decides about the keys of its records. A key that is new to it may be known to another
broker: the key came with another record key, or before partitions were added, or a previous leader still has a key
whose record retention has deleted. So before a leader accepts a key as new, it asks all brokers that have partitions
of the topic.

A broker that does not answer is not waited for: a retry of the same record goes to the same partition, whose leader
knows the key.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps, sleep
from penstock.gateway.idempotency import IdempotencyKeys, still_loading
from penstock.gateway.peer_rpc.client import peer_rpc_of
from penstock.gateway.peer_rpc.messages import FindKeys, KeyPlaces
from penstock.gateway.peer_rpc.retry import RETRIABLE, RETRY_MS, RETRY_MS_MAX
from penstock.gateway.shared.new_records import RecordPosition
from penstock.handlers.support.context import Context
from penstock.metadata.image import Topic
from penstock.wire.peers import PeerFailed

logger = logging.getLogger(__name__)

ANSWER_MS_MAX: Final = 1_000
"""Timeout of the search at another broker."""


def known_to_others(
    context: Context, keys: IdempotencyKeys, topic: Topic, digests: Iterable[bytes]
) -> Steps[dict[bytes, RecordPosition]]:
    """Positions of records whose keys are new to this broker, but known to another."""
    found: dict[bytes, RecordPosition] = {}
    here = keys.of(topic)
    unknown = tuple(each for each in digests if here is None or not here.knows(each))
    to_ask = _others(context, topic) if unknown else []
    asked = FindKeys(topic.id, unknown)
    until_ms = context.world.now_ms() + RETRY_MS_MAX
    while to_ask:
        answers = [
            (each, peer_rpc_of(context).send(each, asked, timeout_ms=ANSWER_MS_MAX)) for each in to_ask
        ]
        to_ask = []
        for broker_id, answer in answers:
            try:
                places: KeyPlaces = yield answer
            except PeerFailed as error:
                logger.debug("broker %d did not answer a search for idempotency keys: %s", broker_id, error)
                continue
            except KafkaError as error:
                if error.code not in RETRIABLE or context.world.now_ms() >= until_ms:
                    raise
                to_ask.append(broker_id)
                continue
            found |= {
                digest: RecordPosition(*place)
                for digest, place in zip(unknown, places, strict=True)
                if place is not None
            }
        if to_ask:
            yield sleep(context.world, RETRY_MS)
    return found


def _others(context: Context, topic: Topic) -> list[int]:
    """Unfenced brokers that have partitions of the topic."""
    brokers = context.image.brokers
    replicas = {each for placed in topic.partitions.values() for each in placed.replicas}
    return sorted(
        each for each in replicas if each != context.node_id and each in brokers and not brokers[each].fenced
    )


def known_here(
    context: Context, keys: IdempotencyKeys, topic: Topic, digests: Sequence[bytes]
) -> Steps[KeyPlaces]:
    """Positions of records with these keys, for another broker, once they are durable."""
    known = keys.of(topic)
    if known is None:
        if not keys.may_have(topic):
            return [None] * len(digests)
        keys.begin(topic)
        known = keys.of(topic)
        if known is None:
            raise still_loading(topic.name)
    now_ms = context.world.now_ms()
    waiting = [known.find(each, now_ms) for each in digests]
    places: KeyPlaces = []
    for each in waiting:
        places.append(None if each is None else (yield each))
    return places
