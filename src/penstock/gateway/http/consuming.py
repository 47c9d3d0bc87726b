"""`/join`, `/leave`, `/consume` and `/commit`: a group's members without a connection of their own."""

from base64 import b64encode
from typing import Any

import msgspec

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps
from penstock.gateway.http.protocol.errors import topic_error
from penstock.gateway.http.protocol.messages import Query, Request, Response, Routes, json
from penstock.gateway.http.protocol.parameters import PARTITION_MAX, TOPIC_NAME
from penstock.gateway.membership import consume_anywhere
from penstock.gateway.membership.http_members import SESSION_MS
from penstock.gateway.peer_rpc.coordinators import at_coordinator
from penstock.gateway.peer_rpc.messages import Commit, Consume, Join, Leave
from penstock.gateway.shared.access import GROUP, TOPIC, Need, Rule
from penstock.metadata.acls import Operation
from penstock.metadata.controller.topics import NAME_LENGTH_MAX
from penstock.records import Record

NAME_CHARS_MAX = 249
"""As long as the name of a topic may be; Kafka has no such bound for groups and members, only one on bytes."""
TOPICS_MAX = 100
MESSAGES_MAX = 10_000
WAIT_MS_MAX = 60_000
"""Proxies and clients give up on an answer that takes longer."""
SESSION_MS_MIN = 1_000
SESSION_MS_MAX = 86_400_000
OFFSET_MAX = 2**63 - 1
"""What the protocol has room for."""


ROUTES = Routes("groups")


def _name(name: str, what: str, *, is_required: bool = True) -> Query:
    return Query(name, str, what, is_required=is_required, min=1, max=NAME_CHARS_MAX)


_GROUP = _name("group", "Id of the consumer group.")
_CONSUMER = _name("consumer", "Name of the consumer. Calls with the same name come from the same member.")
_TOPIC = _name("topic", "Name of the topic.")._replace(max=NAME_LENGTH_MAX, pattern=TOPIC_NAME)
_PARTITION = Query("partition", int, "Number of the partition.", is_required=True, min=0, max=PARTITION_MAX)


_READ_GROUP = Need(Operation.READ, GROUP, "group")
_READ_TOPIC = Need(Operation.READ, TOPIC, "topic")


class JoinResponse(msgspec.Struct):
    assignments: dict[str, list[int]]
    """The assigned partitions, by topic."""
    status: str = "joined"


class LeaveResponse(msgspec.Struct):
    status: str = "left"


class ConsumedHeader(msgspec.Struct):
    key: str
    value: str | None
    """As base64."""


class ConsumedRecord(msgspec.Struct, omit_defaults=True):
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: str | None
    """As base64, like the value; null if there is none."""
    value: str | None
    headers: list[ConsumedHeader] = msgspec.field(default_factory=list)
    """Left out if it has none."""


class ConsumeResponse(msgspec.Struct):
    messages: list[ConsumedRecord]
    next_offset: int
    """The offset to commit once the messages are processed."""


class CommitResponse(msgspec.Struct):
    status: str = "committed"


@ROUTES.add(
    "POST",
    "/join",
    "Join a group, and get the partitions to read.",
    query=(
        _GROUP,
        _CONSUMER,
        Query(
            "topic",
            list[str],
            f"The topics to subscribe to, at most {TOPICS_MAX}, separated by commas. They replace an earlier "
            "subscription. A topic that does not exist is created.",
            is_required=True,
            max=TOPICS_MAX,
            pattern=TOPIC_NAME,
            each_max=NAME_LENGTH_MAX,
        ),
        Query(
            "session_timeout_ms",
            int,
            "The consumer is removed from the group after this time without a call.",
            default=SESSION_MS,
            min=SESSION_MS_MIN,
            max=SESSION_MS_MAX,
        ),
    ),
    answer=JoinResponse,
    errors=(404, 409),
    rule=Rule((_READ_GROUP, _READ_TOPIC), creates=True),
)
def _join(gateway: Any, request: Request) -> Steps[Response]:
    query = request.query
    topics = list(dict.fromkeys(query["topic"]))
    asked = Join(query["group"], query["consumer"], tuple(topics), query["session_timeout_ms"])
    try:
        assignments = yield from at_coordinator(gateway.context, request.session, asked, gateway.members.join)
    except KafkaError as error:
        raise topic_error(error, topics[0]) from error
    return json({"status": "joined", "assignments": assignments})


@ROUTES.add(
    "POST",
    "/leave",
    "Leave a group. Its partitions are assigned to other members.",
    query=(_GROUP, _CONSUMER),
    answer=LeaveResponse,
    errors=(404, 409),
    rule=Rule((_READ_GROUP,)),
)
def _leave(gateway: Any, request: Request) -> Steps[Response]:
    asked = Leave(request.query["group"], request.query["consumer"])
    yield from at_coordinator(gateway.context, request.session, asked, gateway.members.leave)
    return json(LeaveResponse())


@ROUTES.add(
    "GET",
    "/consume",
    "Read a partition from the group's committed offset, or from the earliest record.",
    query=(
        _GROUP,
        _name(
            "consumer",
            "Name of the consumer. While a group has members, only they may read, each its assigned partitions.",
            is_required=False,
        ),
        _TOPIC,
        _PARTITION,
        Query("max_messages", int, "Maximum number of messages.", default=100, min=1, max=MESSAGES_MAX),
        Query(
            "wait_ms",
            int,
            "How long to wait for a message if there is none yet.",
            default=0,
            min=0,
            max=WAIT_MS_MAX,
        ),
    ),
    answer=ConsumeResponse,
    errors=(404, 409),
    rule=Rule((_READ_GROUP, _READ_TOPIC)),
)
def _consume(gateway: Any, request: Request) -> Steps[Response]:
    query = request.query
    asked = Consume(
        query["group"],
        query["consumer"],
        query["topic"],
        query["partition"],
        query["max_messages"],
        query["wait_ms"],
    )
    consumed = yield from consume_anywhere(gateway.context, gateway.members, request.session, asked)
    return json(ConsumeResponse([_message(each) for each in consumed.records], consumed.next_offset))


def _message(record: Record) -> ConsumedRecord:
    message = ConsumedRecord(record.offset, record.timestamp, _base64(record.key), _base64(record.value))
    if record.headers:
        message.headers = [ConsumedHeader(_text(key), _base64(value)) for key, value in record.headers]
    return message


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _text(key: str) -> str:
    """JSON has no room for bytes that are no UTF-8."""
    return key.encode(errors="surrogateescape").decode(errors="replace")


@ROUTES.add(
    "POST",
    "/commit",
    "Commit the offset of the next message to read.",
    query=(
        _GROUP,
        _TOPIC,
        _PARTITION,
        Query("offset", int, "The next offset to read.", is_required=True, min=0, max=OFFSET_MAX),
        _name(
            "consumer",
            "Name of the consumer. The commit fails if the partition is no longer assigned to it. By default the "
            "member that joined over HTTP and is assigned the partition.",
            is_required=False,
        ),
    ),
    answer=CommitResponse,
    errors=(404, 409),
    rule=Rule((_READ_GROUP, _READ_TOPIC)),
)
def _commit(gateway: Any, request: Request) -> Steps[Response]:
    query = request.query
    asked = Commit(query["group"], query["consumer"], query["topic"], query["partition"], query["offset"])
    moved = f"the coordinator of group {asked.group!r} moved before it answered"
    in_doubt = f"{moved}: offset {asked.offset} may have been committed"
    yield from at_coordinator(
        gateway.context, request.session, asked, gateway.members.commit, in_doubt=in_doubt
    )
    return json(CommitResponse())
