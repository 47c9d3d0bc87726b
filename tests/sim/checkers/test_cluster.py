"""The rules of clusters on histories made by hand: what each lets pass, and what it does not."""

import pytest

from penstock.base.ids import TopicPartition
from penstock.metadata.image import EMPTY
from penstock.metadata.records import FeatureLevelRecord
from penstock.sim.checkers.all_checkers import AllCheckers
from penstock.sim.checkers.history import (
    Event,
    HighWatermark,
    ImageLoaded,
    LeaderFound,
    MetadataCommitted,
    QuorumLeaderFound,
    ReplicaRead,
)
from penstock.sim.checkers.records import Rules, Violation

AT = TopicPartition("orders", 0)
ID = b"0123456789abcdef"
ONE = (FeatureLevelRecord(name="metadata.version", feature_level=20),)
OTHER = (FeatureLevelRecord(name="metadata.version", feature_level=21),)


def tell(*events: Event, rules: Rules | None = None) -> None:
    checkers = AllCheckers(rules or Rules(is_replicated=True))
    for event in events:
        checkers.see(event)


def test_one_node_leads_in_an_epoch() -> None:
    tell(QuorumLeaderFound(1, 1), QuorumLeaderFound(1, 1), QuorumLeaderFound(2, 2))
    tell(LeaderFound(1, AT, ID, 3), LeaderFound(2, AT, ID, 4), LeaderFound(2, AT, b"another's id 0123", 3))
    with pytest.raises(Violation, match="OneLeaderPerEpoch: nodes 1 and 2 both led the quorum in epoch 1"):
        tell(QuorumLeaderFound(1, 1), QuorumLeaderFound(2, 1))
    with pytest.raises(Violation, match="OneLeaderPerEpoch: nodes 1 and 2 both led orders-0 in epoch 3"):
        tell(LeaderFound(1, AT, ID, 3), LeaderFound(2, AT, ID, 3))


def test_what_is_committed_is_the_same_everywhere() -> None:
    first, second = MetadataCommitted(1, ONE, 5, 1), MetadataCommitted(2, ONE, 5, 1)
    tell(first, MetadataCommitted(1, OTHER, 6, 1), second, MetadataCommitted(2, OTHER, 6, 1))
    with pytest.raises(Violation, match="MetadataIdentical: node 2 has"):
        tell(first, MetadataCommitted(2, OTHER, 5, 1))
    with pytest.raises(Violation, match="MetadataIdentical: node 2 has"):
        tell(first, MetadataCommitted(2, ONE, 5, 2))
    with pytest.raises(Violation, match="MetadataIdentical: node 2 has a batch that ends at 4"):
        tell(first, MetadataCommitted(2, ONE, 4, 1))


def test_an_image_from_a_snapshot_is_what_the_log_makes() -> None:
    committed = MetadataCommitted(1, ONE, 5, 1)
    tell(committed, ImageLoaded(2, EMPTY.replay(ONE, 5, 1)))
    with pytest.raises(Violation, match="MetadataIdentical: node 2 has a different cluster image at 5"):
        tell(committed, ImageLoaded(2, EMPTY.replay(OTHER, 5, 1)))


def test_the_high_watermark_of_a_replica_stays() -> None:
    tell(HighWatermark(1, AT, 7), HighWatermark(1, AT, 9), HighWatermark(2, AT, 3))
    back = HighWatermark(1, AT, 7), HighWatermark(1, AT, 5)
    with pytest.raises(Violation, match="HighWatermarkHeld: a replica of orders-0 moved back from 7 to 5"):
        tell(*back)
    tell(*back, rules=Rules(is_replicated=True, is_shaken=True))


def test_replicas_have_the_same_records() -> None:
    one = ReplicaRead(1, AT, {0: (1, b"a"), 1: (1, b"b")})
    tell(one, ReplicaRead(2, AT, {0: (1, b"a"), 1: (1, b"b")}))
    with pytest.raises(Violation, match="ReplicasAgree: orders-0 at 1 is"):
        tell(one, ReplicaRead(2, AT, {0: (1, b"a"), 1: (1, b"c")}))
    with pytest.raises(Violation, match="ReplicasAgree: orders-0 at 1 is"):
        tell(one, ReplicaRead(2, AT, {0: (1, b"a"), 1: (2, b"b")}))
    shorter = ReplicaRead(2, AT, {0: (1, b"a")})
    with pytest.raises(Violation, match="ReplicasAgree: orders-0 at 1 is on only one of the nodes 1 and 2"):
        tell(one, shorter)
    tell(one, shorter, rules=Rules(is_replicated=True, shortened=frozenset({"orders"})))
