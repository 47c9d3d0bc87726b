"""Kafka's protocol as bytes, without a socket: frames, headers, and the messages in them.

A connection cuts its received bytes into frames, reads a header off each, and hands the body to a reader;
what the handler answers becomes the bytes of a reply. Produce and Fetch have codecs written by hand over
a view of the frame; everything else goes through kio. Whatever a peer sends, reading it raises `BadFrame`,
`MalformedRequest` or, for a client, `MalformedResponse`, and every length is held against what
is left before anything is made of it.

    errors       what may be wrong with bytes      produce     its requests and replies
    primitives   varints, strings, tags            fetch       its requests, and replies as buffers
    catalogue    the APIs, ApiVersions' reply      leaders     who leads now, told by both
    frames       lengths and headers               prefix      what a producer repeats, remembered
    outline      lengths checked before kio reads  messages    every other message, through kio
    produce_client, fetch_client                   the same two from a client's side
"""

from .catalogue import (
    BROKER_APIS,
    CONTROLLER_APIS,
    KAFKA_RANGES,
    Api,
    Served,
    VersionRange,
    api_name,
    api_versions_error,
    api_versions_reply,
    is_flexible,
)
from .errors import BadFrame, MalformedRequest, MalformedResponse, UnsupportedVersion
from .fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResult,
    FetchTopic,
    ForgottenTopic,
    SnapshotId,
    fetch_reply,
    parse_fetch,
)
from .frames import (
    Cut,
    RequestHeader,
    cut_frames,
    parse_header,
    parse_response_header,
    request_frame,
    response_frame,
    response_header_version,
)
from .leaders import CurrentLeader, NodeEndpoint
from .messages import (
    read_request,
    read_response,
    request_module,
    request_type,
    response_module,
    response_type,
    write_frequent_response,
    write_request,
    write_response,
)
from .prefix import ProducePrefix, Repeated
from .primitives import Buffer, Piece, TopicKey, Unread, UnreadReply
from .produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    RecordError,
    parse_produce,
    produce_reply,
    produce_reply_one,
)

__all__ = [
    "BROKER_APIS",
    "CONTROLLER_APIS",
    "KAFKA_RANGES",
    "AbortedTransaction",
    "Api",
    "BadFrame",
    "Buffer",
    "CurrentLeader",
    "Cut",
    "EpochEndOffset",
    "FetchPartition",
    "FetchRequest",
    "FetchResult",
    "FetchTopic",
    "ForgottenTopic",
    "MalformedRequest",
    "MalformedResponse",
    "NodeEndpoint",
    "Piece",
    "ProducePartition",
    "ProducePrefix",
    "ProduceRequest",
    "ProduceResult",
    "ProduceTopic",
    "RecordError",
    "Repeated",
    "RequestHeader",
    "Served",
    "SnapshotId",
    "TopicKey",
    "Unread",
    "UnreadReply",
    "UnsupportedVersion",
    "VersionRange",
    "api_name",
    "api_versions_error",
    "api_versions_reply",
    "cut_frames",
    "fetch_reply",
    "is_flexible",
    "parse_fetch",
    "parse_header",
    "parse_produce",
    "parse_response_header",
    "produce_reply",
    "produce_reply_one",
    "read_request",
    "read_response",
    "request_frame",
    "request_module",
    "request_type",
    "response_frame",
    "response_header_version",
    "response_module",
    "response_type",
    "write_frequent_response",
    "write_request",
    "write_response",
]
