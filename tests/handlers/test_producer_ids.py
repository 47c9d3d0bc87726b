"""Producer ids: given once each, in order, from blocks that are asked for in time."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.handlers.cluster import Cluster

from penstock.base.errors import ErrorCode as Code
from penstock.base.errors import KafkaError
from penstock.base.promise import Promise
from penstock.handlers.producer_ids import ProducerIds
from penstock.metadata.acls import AclResourceType, Operation
from penstock.metadata.controller.requests import AllocateProducerIds, ProducerIdBlock
from penstock.wire import Api


class Blocks:
    """A controller that gives out blocks when it is told to."""

    def __init__(self, size: int = 10) -> None:
        self.size = size
        self.asked: list[AllocateProducerIds] = []
        self._next = 0
        self._waiting: list[Promise[Any]] = []

    def submit(self, request: Any) -> Promise[Any]:
        self.asked.append(request)
        self._waiting.append(Promise())
        return self._waiting[-1]

    def give(self) -> None:
        later, self._next = self._waiting.pop(0), self._next + self.size
        later.resolve(ProducerIdBlock(self._next - self.size, self.size))

    def refuse(self) -> None:
        self._waiting.pop(0).fail(KafkaError("no", Code.NOT_CONTROLLER))


def values(laters: list[Promise[Any]]) -> list[Any]:
    return [later.value if later.is_settled else None for later in laters]


def test_who_comes_first_is_served_first() -> None:
    blocks = Blocks(size=2)
    ids = ProducerIds(blocks, 1, lambda: 7)
    asked = [ids.take() for _ in range(5)]
    assert blocks.asked == [AllocateProducerIds(1, 7)]  # one question for all of them
    blocks.give()
    assert values(asked) == [0, 1, None, None, None]
    blocks.give()
    blocks.give()
    assert values(asked) == [0, 1, 2, 3, 4]


def test_the_next_block_is_there_before_the_last_one_is_used_up() -> None:
    """Kafka's RPCProducerIdManager asks when nine tenths are gone."""
    blocks = Blocks(size=10)
    ids = ProducerIds(blocks, 1, lambda: 7)
    first = ids.take()
    blocks.give()
    assert first.value == 0
    for expected in range(1, 9):
        assert ids.take().value == expected
        assert len(blocks.asked) == (2 if expected == 8 else 1)
    blocks.give()
    assert [ids.take().value for _ in range(5)] == [9, 10, 11, 12, 13]
    assert len(blocks.asked) == 2


def test_waiting_requests_fail_when_the_controller_refuses_and_the_next_one_asks_again() -> None:
    blocks = Blocks(size=10)
    ids = ProducerIds(blocks, 1, lambda: 7)
    waiting = [ids.take(), ids.take()]
    blocks.refuse()
    assert all(each.error is not None for each in waiting)
    later = ids.take()
    assert not later.is_settled
    blocks.give()
    assert later.value == 0


def test_a_refused_prefetch_has_no_effect() -> None:
    blocks = Blocks(size=10)
    ids = ProducerIds(blocks, 1, lambda: 7)
    ids.take()
    blocks.give()
    assert [ids.take().value for _ in range(8)] == list(range(1, 9))
    blocks.refuse()
    assert ids.take().value == 9
    blocks.give()
    assert ids.take().value == 10


def test_the_brokers_epoch_is_looked_up_with_each_question() -> None:
    blocks, epochs = Blocks(size=1), iter((3, 4, 5))
    ids = ProducerIds(blocks, 1, lambda: next(epochs))
    ids.take()
    blocks.give()
    ids.take()
    assert [each.broker_epoch for each in blocks.asked] == [3, 4]


def test_two_thousand_five_hundred_producers_get_as_many_ids(cluster: Cluster) -> None:
    given = [cluster.call(Api.INIT_PRODUCER_ID, 5, transactional_id=None) for _ in range(2500)]
    assert {each.error_code for each in given} == {ErrorCode.none}
    assert {each.producer_epoch for each in given} == {0}
    assert [each.producer_id for each in given] == list(range(2500))
    assert len(cluster.port.asked) == 3
    assert cluster.image.next_producer_id == 3000


def test_a_restarted_broker_gives_no_id_again(cluster: Cluster) -> None:
    first = cluster.producer_ids.take().value
    again = ProducerIds(cluster.port, 1, lambda: cluster.image.brokers[1].epoch)
    assert (first, again.take().value) == (0, 1000)


def test_a_producer_that_had_an_id_gets_a_new_one(cluster: Cluster) -> None:
    """TransactionCoordinator.handleInitProducerId: without a transactional id every request is taken blindly."""
    told = cluster.call(Api.INIT_PRODUCER_ID, 3, transactional_id=None, producer_id=55, producer_epoch=4)
    assert (told.error_code, told.producer_id, told.producer_epoch) == (ErrorCode.none, 0, 0)


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_id_and_epoch_come_together(producer_id: int, epoch: int, cluster: Cluster) -> None:
    told = cluster.call(
        Api.INIT_PRODUCER_ID, 4, transactional_id=None, producer_id=producer_id, producer_epoch=epoch
    )
    assert (told.error_code, told.producer_id) == (ErrorCode.invalid_request, -1)


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_producer_needs_a_name_and_may_be_refused(version: int, cluster: Cluster) -> None:
    """Those that have one, and may, are in `test_transactions`."""
    told = cluster.call(Api.INIT_PRODUCER_ID, version, transactional_id="")
    assert told.error_code is ErrorCode.invalid_request
    cluster.deny(Operation.WRITE, AclResourceType.TRANSACTIONAL_ID)
    told = cluster.call(Api.INIT_PRODUCER_ID, version, transactional_id="mine")
    assert told.error_code is ErrorCode.transactional_id_authorization_failed
    assert (told.producer_id, told.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5)])
def test_a_transactional_producer_names_both_too(producer_id: int, epoch: int, cluster: Cluster) -> None:
    told = cluster.call(
        Api.INIT_PRODUCER_ID, 4, transactional_id="mine", producer_id=producer_id, producer_epoch=epoch
    )
    assert (told.error_code, told.producer_id) == (ErrorCode.invalid_request, -1)


def test_writing_to_any_topic_is_enough_to_be_idempotent(cluster: Cluster) -> None:
    """KIP-679: IDEMPOTENT_WRITE on the cluster, or WRITE on some topic."""
    cluster.create("t")
    cluster.deny(Operation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER)
    assert cluster.call(Api.INIT_PRODUCER_ID, 5, transactional_id=None).error_code is ErrorCode.none
    cluster.deny(Operation.WRITE, AclResourceType.TOPIC)
    told = cluster.call(Api.INIT_PRODUCER_ID, 5, transactional_id=None)
    assert told.error_code is ErrorCode.cluster_authorization_failed
