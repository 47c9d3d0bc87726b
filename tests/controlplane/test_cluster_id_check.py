"""Who is of another cluster, this node or those that refuse it."""

from penstock.base.errors import ErrorCode
from penstock.controlplane.cluster_id_check import ClusterIdCheck
from penstock.raft.messages import BeginQuorumEpoch, FetchReply, LeaderHint
from penstock.raft.voters import ReplicaKey
from penstock.wire.peers import Address

HINT = LeaderHint(3, 2)
A, B, C = (Address("127.0.0.1", port) for port in (1, 2, 3))


def cluster_id_check(named: int = 3) -> tuple[ClusterIdCheck, list[str]]:
    failures: list[str] = []
    return ClusterIdCheck(named, "ours", failures.append), failures


def test_a_majority_that_refuses_ends_the_start_and_is_named_once() -> None:
    node, failures = cluster_id_check()
    node.refused(A)
    node.refused(A)
    assert failures == [], "one may itself be wrong, however often it says so"
    node.refused(B)
    node.refused(C)
    [reason] = failures
    assert reason.startswith(
        "the data directory belongs to cluster ours, but the controllers at 127.0.0.1:1, 127.0.0.1:2 belong "
    )


def test_half_is_no_majority() -> None:
    node, failures = cluster_id_check(2)
    node.refused(A)
    assert failures == []


def test_the_only_one_that_is_known_is_trusted() -> None:
    node, failures = cluster_id_check(1)
    node.refused(A)
    assert len(failures) == 1


def test_one_that_follows_or_leads_is_not_misled_any_more() -> None:
    node, failures = cluster_id_check()
    node.accepted(FetchReply(1, ErrorCode.FENCED_LEADER_EPOCH, HINT))
    node.refused(A)
    node.accepted(FetchReply(2, ErrorCode.NONE, HINT))
    node.refused(B)
    node.refused(C)
    leader, others = cluster_id_check()
    leader.sent(BeginQuorumEpoch(1, HINT, ReplicaKey(3)))
    leader.refused(A)
    leader.refused(B)
    assert failures == others == []
