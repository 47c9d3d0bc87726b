"""Kafka's protocol as bytes, without sockets: frames, headers and messages.

A connection cuts received bytes into frames, parses a header from each, and passes the body to a reader. Produce and
Fetch have hand-written codecs over a view of the frame; kio reads and writes all other messages. Reading raises
`BadFrame`, `MalformedRequest` or, on the client's side, `MalformedResponse`, and nothing else. Every length is checked
against the remaining bytes before anything is allocated for it.

    errors       errors of malformed bytes         produce     Produce requests and replies
    primitives   varints, strings, tags            fetch       Fetch requests, and replies as buffers
    catalogue    the APIs, ApiVersions' reply      leaders     current leaders in replies of both
    frames       lengths and headers               prefix      repeated Produce requests
    outline      lengths checked before kio reads  messages    all other messages, through kio
    request      requests in any of several versions           commits     repeated OffsetCommits
    sliced       large responses in slices         peers       requests to other nodes
    produce_client, fetch_client                   the client's side of both
"""

from .catalogue import (
    CONTROLLER_APIS,
    KAFKA_RANGES,
    Api,
    Served,
    VersionRange,
    api_name,
    api_versions_error,
    api_versions_reply,
)
from .errors import MalformedRequest, MalformedResponse, RequestRejected, UnsupportedVersion
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
    RequestHeader,
    cut_frames,
    parse_header,
    parse_response_header,
    request_frame,
    response_frame,
)
from .leaders import CurrentLeader, NodeEndpoint
from .messages import (
    read_request,
    read_response,
    request_module,
    write_frequent_response,
    write_request,
    write_response,
)
from .prefix import ProducePrefix
from .primitives import Buffer, Piece, TopicKey, UnreadReply
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
    "CONTROLLER_APIS",
    "KAFKA_RANGES",
    "AbortedTransaction",
    "Api",
    "Buffer",
    "CurrentLeader",
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
    "RequestHeader",
    "RequestRejected",
    "Served",
    "SnapshotId",
    "TopicKey",
    "UnreadReply",
    "UnsupportedVersion",
    "VersionRange",
    "api_name",
    "api_versions_error",
    "api_versions_reply",
    "cut_frames",
    "fetch_reply",
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
    "response_frame",
    "write_frequent_response",
    "write_request",
    "write_response",
]
