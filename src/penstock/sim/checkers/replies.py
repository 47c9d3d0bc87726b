"""Rules for replies: each request is answered once, in order, and without unexplained errors."""

from typing import ClassVar

from penstock.base.errors import ErrorCode
from penstock.sim.checkers.history import Event, Overdue, Refused, Replied, RequestRefused, TopicDescribed
from penstock.sim.checkers.records import Checker


class RepliesInOrder(Checker):
    """A connection's replies arrive in the order of its requests, one each."""

    def see(self, event: Event) -> None:
        if isinstance(event, Replied) and event.expected != event.found:
            raise self.violation(
                f"{event.client} on link {event.link} got reply {event.found}, expected {event.expected}"
            )


class EveryRequestAnswered(Checker):
    """A node that runs answers every request or closes its connection."""

    def see(self, event: Event) -> None:
        if isinstance(event, Overdue) and event.is_node_there:
            raise self.violation(f"{event.client} got no reply to its {event.what}")


class NoStrangeError(Checker):
    """A valid request is rejected with a temporary error only."""

    PASSING: ClassVar = frozenset(
        {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.UNKNOWN_PRODUCER_ID,
        }
    )
    PASSING_IN_CLUSTERS: ClassVar = frozenset(
        {
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        }
    )

    def see(self, event: Event) -> None:
        match event:
            case Refused(batch, code, _, _) if code not in self.PASSING:
                if code == ErrorCode.KAFKA_STORAGE_ERROR and self.rules.has_disk_faults:
                    return
                if code in self.PASSING_IN_CLUSTERS and self.rules.is_replicated:
                    return
                raise self.violation(f"{batch} was rejected with {ErrorCode(code).name}")
            case RequestRefused(client, what, code, is_due) if not is_due:
                raise self.violation(f"{what} of {client} was rejected with {ErrorCode(code).name}")


class TopicsKept(Checker):
    """A topic keeps its id and its partitions."""

    def begin(self) -> None:
        self._met: dict[str, TopicDescribed] = {}

    def see(self, event: Event) -> None:
        if isinstance(event, TopicDescribed):
            known = self._met.setdefault(event.name, event)
            if known != event:
                raise self.violation(f"{known} became {event}")
