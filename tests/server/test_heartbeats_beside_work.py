"""A controller beside a broker: what that has to do for a new image keeps no other broker's heartbeat waiting."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.nodes import StillNode

from penstock.metadata.controller import requests as r


def test_heartbeats_are_answered_while_the_broker_beside_makes_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    still = StillNode()
    context, controller = still.node.context, still.node.context.controller
    working: list[Callable[[], None]] = []
    monkeypatch.setattr(
        context.replicas, "apply", lambda _image, _changed, done, _deleted: working.append(done)
    )

    created = controller.submit(r.CreateTopics((r.NewTopic("many", 5000),)))
    still.world.advance(100)
    assert working, "it is committed, and the broker has begun"
    me = context.image.brokers[context.node_id]
    heartbeat: Any = controller.submit(r.BrokerHeartbeat(me.id, me.epoch, context.image.offset))
    still.world.advance(10)
    assert heartbeat.is_settled
    assert "many" not in context.image.topics
    assert not created.is_settled
    for done in working:
        done()
    still.world.advance(10)
    assert created.is_settled
    assert "many" in context.image.topics
