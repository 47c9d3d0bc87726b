"""What stands in paths: names of topics, and numbers of partitions."""

from typing import Final

from penstock.gateway.http.protocol.messages import HttpError, Request
from penstock.gateway.peer_rpc.remote_partition import Place, find_place
from penstock.gateway.shared.controller_call import allow
from penstock.gateway.shared.topics import find_topic
from penstock.handlers.support.context import AclResourceType, Context, Operation
from penstock.metadata import Topic

GROUP_CHARS_MAX: Final = 4_096
"""Of a group's name in a target: encoded as it may be, all of it fits 64 KB."""

PARTITION_MAX: Final = 2**31 - 1
_DIGITS_MAX: Final = 10


def topic_in(context: Context, request: Request, operation: Operation) -> Topic:
    """The topic that the path names, for a client that may do that with it."""
    name = request.path["topic"]
    allow(context, request.session, operation, AclResourceType.TOPIC, name)
    return find_topic(context, name)


def place_in(context: Context, request: Request, operation: Operation) -> Place:
    """The same for a partition, wherever it is led."""
    topic = topic_in(context, request, operation)
    return find_place(context, topic.name, number_in(request))


def number_in(request: Request) -> int:
    text = request.path["partition"]
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text) <= PARTITION_MAX):
        raise HttpError(400, "bad_parameter", f"the partition is {text[:20]!r}, expected a number such as 0")
    return int(text)
