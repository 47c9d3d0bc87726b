"""Errors of the Raft core."""

from penstock.base.errors import ErrorCode, KafkaError


class NotLeader(KafkaError):
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class LostCommit(KafkaError):
    """A committed entry would be lost, because a replica lost its disk or was restored from an old copy. The node must
    stop."""


class Misuse(KafkaError):
    """The driver broke the contract of `Node`."""
