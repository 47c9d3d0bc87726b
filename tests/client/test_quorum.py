"""The quorum described and changed by a client, through a broker that passes it on to the controller."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.controlplane.quorum_bench import ALONE
from tests.controlplane.quorum_network import LISTENER, Quorums, directory_id, dispatched, voter

from penstock.base.errors import ErrorCode
from penstock.client.cluster import Cluster
from penstock.client.errors import BrokerRefused
from penstock.client.quorum import Listener, add_voter, describe_quorum, remove_voter
from penstock.client.settings import Address, ClientSettings
from penstock.wire.request import Request


class OneBroker:
    """As much of a client's cluster as is needed: one of its brokers is asked, once."""

    settings = ClientSettings()

    def __init__(self, quorums: Quorums, node_id: int) -> None:
        self._quorums = quorums
        self._node_id = node_id

    def ask_controller(self, request: Request[Any], code_of: Callable[[Any], int]) -> Any:
        answer = dispatched(self._quorums.brokers[self._node_id], request)
        self._quorums.settle()
        return answer.value


def through(quorums: Quorums, node_id: int) -> Cluster:
    return cast("Cluster", OneBroker(quorums, node_id))


def test_voters_come_and_go_and_are_described() -> None:
    quorums = Quorums((1,), ALONE)
    quorums.wait_for_leader()
    quorums.start(2, replace(ALONE, is_standalone=False, bootstrap=voter(1).endpoints))
    quorums.settle()
    cluster = through(quorums, 2)

    told = describe_quorum(cluster)
    assert (told.leader_id, [each.id for each in told.voters]) == (1, [1])
    assert [(each.id, each.directory_id) for each in told.observers] == [(2, directory_id(2))]
    assert told.high_watermark == told.voters[0].log_end_offset == told.observers[0].log_end_offset

    at = Listener(LISTENER, Address("n2", 9093))
    add_voter(cluster, 2, directory_id(2), [at])
    told = describe_quorum(cluster)
    assert [(each.id, each.listeners) for each in told.voters] == [
        (1, (Listener(LISTENER, Address("n1", 9093)),)),
        (2, (at,)),
    ]
    assert told.observers == ()

    remove_voter(cluster, 2, directory_id(2))
    assert [each.id for each in describe_quorum(cluster).voters] == [1]
    with pytest.raises(BrokerRefused, match=r"voter 2: .* is not a voter") as refusal:
        remove_voter(cluster, 2, directory_id(2))
    assert refusal.value.code is ErrorCode.VOTER_NOT_FOUND
