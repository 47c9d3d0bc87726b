"""The same for groups that another node coordinates: what is asked is passed on to that node.

A member has its seat where its group is coordinated. So it may come through any node, and through another one each
time: a load balancer need not know about it.
"""

from collections.abc import Sequence

from penstock.base.ids import Offset
from penstock.base.steps import Steps
from penstock.gateway.membership.members import Consumed, Members
from penstock.gateway.peer_rpc import messages as letters
from penstock.gateway.peer_rpc.coordinators import at_coordinator
from penstock.gateway.shared.conflicts import Assignments
from penstock.handlers.support.context import Context, Session
from penstock.records import Record


class MembersAnywhere:
    def __init__(self, context: Context, here: Members) -> None:
        self._context = context
        self._here = here

    def join(
        self, session: Session, group: str, consumer: str, topics: Sequence[str], session_ms: int
    ) -> Steps[Assignments]:
        return at_coordinator(
            self._context,
            session,
            group,
            letters.Join(group, consumer, tuple(topics), session_ms),
            lambda: self._here.join(session, group, consumer, topics, session_ms),
        )

    def leave(self, session: Session, group: str, consumer: str) -> Steps[None]:
        return at_coordinator(
            self._context,
            session,
            group,
            letters.Leave(group, consumer),
            lambda: self._here.leave(session, group, consumer),
        )

    def consume(
        self,
        session: Session,
        group: str,
        consumer: str | None,
        topic: str,
        number: int,
        records_max: int,
        wait_ms: int,
    ) -> Steps[Consumed]:
        found: Consumed | letters.ConsumedRecords = yield from at_coordinator(
            self._context,
            session,
            group,
            letters.Consume(group, consumer, topic, number, records_max, wait_ms),
            lambda: self._here.consume(session, group, consumer, topic, number, records_max, wait_ms),
            wait_ms,
        )
        if isinstance(found, Consumed):
            return found
        return Consumed([_record(each) for each in found.records], found.next_offset)

    def commit(
        self, session: Session, group: str, consumer: str | None, topic: str, number: int, offset: Offset
    ) -> Steps[None]:
        return at_coordinator(
            self._context,
            session,
            group,
            letters.Commit(group, consumer, topic, number, offset),
            lambda: self._here.commit(session, group, consumer, topic, number, offset),
        )


def _record(told: letters.ConsumedRecord) -> Record:
    headers = tuple((name.decode(errors="surrogateescape"), value) for name, value in told.headers)
    return Record(told.offset, told.timestamp, told.key, told.value, headers)
