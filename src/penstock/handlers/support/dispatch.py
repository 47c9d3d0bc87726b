"""From a frame to its reply: which API it is, who handles it, and what goes back.

Produce and Fetch have their own way in, by hand, and so have commits that say what the one before said; all else is
read by kio, handled, and written by kio. What is no sound request raises `MalformedRequest`, whereupon the
connection ends: so does Kafka, since a client that sends such a thing would not understand an answer either. Only
ApiVersions answers a version that it does not know.

Brokers and controllers answer different APIs, at different listeners: each has a dispatcher of its own.
"""

import logging
import re
from collections.abc import Callable, Generator
from importlib import import_module
from types import ModuleType
from typing import Any, TypeAlias

from penstock.base.errors import ErrorCode
from penstock.base.metrics import Asked, Meter
from penstock.base.promise import HoldingPromise, Promise
from penstock.handlers.fetch import fetch
from penstock.handlers.produce import produce, produce_again
from penstock.handlers.raft import fetch_metadata
from penstock.handlers.support.api_table import SERVED, SERVED_BY_CONTROLLERS, Handler, Table
from penstock.handlers.support.commit_fast_path import CommitFastPath
from penstock.handlers.support.context import Call, Context, Session
from penstock.handlers.support.error_counts import count_errors
from penstock.handlers.support.produce_fast_path import FastPathWrite
from penstock.handlers.support.refusal_log import Refusals
from penstock.handlers.support.replies import NO_REPLY, Reply
from penstock.handlers.support.request_slices import answer_in_slices, slices_of
from penstock.handlers.support.response_builder import response_builder
from penstock.handlers.support.time_slices import in_turns
from penstock.metadata.versions import FEATURES, UNSERVED
from penstock.wire import (
    KAFKA_RANGES,
    Api,
    Piece,
    RequestHeader,
    Served,
    UnsupportedVersion,
    VersionRange,
    api_name,
    api_versions_error,
    api_versions_reply,
    parse_header,
    read_request,
    response_frame,
    write_frequent_response,
    write_response,
)

logger = logging.getLogger(__name__)


RANGES: Served = {
    **{api: KAFKA_RANGES[api] for api in (Api.PRODUCE, Api.FETCH, Api.API_VERSIONS)},
    **{api: versions for api, (versions, _) in SERVED.items()},
}
"""What brokers advertise: all that is served, and nothing else."""

CONTROLLER_RANGES: Served = {
    **{api: KAFKA_RANGES[api] for api in (Api.FETCH, Api.API_VERSIONS)},
    **{api: versions for api, (versions, _) in SERVED_BY_CONTROLLERS.items()},
}
"""The same for controllers."""

FetchHandler: TypeAlias = Callable[[Context, Session, memoryview, RequestHeader], Reply]

_SUPPORTED_FEATURES = {
    name: VersionRange(feature.min_level, feature.max_level)
    for name, feature in FEATURES.items()
    if name not in UNSERVED
}
_PRODUCE, _FETCH, _API_VERSIONS = int(Api.PRODUCE), int(Api.FETCH), int(Api.API_VERSIONS)
_FREQUENT = frozenset((Api.OFFSET_COMMIT, Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT))
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What a client may call itself, by KIP-511."""


def sliced() -> ModuleType:
    """Loaded when a response is written: kio's writers come with it."""
    return import_module("penstock.wire.sliced")


class Dispatcher:
    """One for all listeners of a kind."""

    def __init__(
        self,
        context: Context,
        served: Table = SERVED,
        ranges: Served = RANGES,
        answer_fetch: FetchHandler = fetch,
    ) -> None:
        """A broker's, unless it is made `for_controllers`."""
        self.context = context
        self._served = served
        self._ranges = ranges
        self._answer_fetch = answer_fetch
        self._takes_batches = Api.PRODUCE in ranges
        self._metrics = context.metrics
        self._clock_ns = context.world.clock_ns
        self._produce = context.metrics.produce
        self._fetch = context.metrics.fetch
        self._refusals = Refusals(context.world)

    @classmethod
    def for_controllers(cls, context: Context) -> "Dispatcher":
        return cls(context, SERVED_BY_CONTROLLERS, CONTROLLER_RANGES, fetch_metadata)

    def dispatch(self, session: Session, frame: memoryview) -> Reply:
        """Answer a request. The frame is good until the end of the turn."""
        route = session.route
        if route is not None:
            told = route.take(frame)
            if told is not None:
                meter = self._produce
                if isinstance(told, FastPathWrite):
                    told.asked = Asked(meter, self._metrics.tick_began_ns)
                elif meter.in_tick:
                    meter.in_tick += 1
                else:
                    meter.in_tick = 1
                    self._metrics.busy.append(meter)
                return told
        prefix = session.prefix
        if prefix is not None and len(frame) > 2 and not frame[1]:  # Produce is API 0
            repeated = prefix.match(frame)
            if repeated is not None:
                return self._counted(
                    self._produce, produce_again(self.context, session, prefix, repeated) or NO_REPLY
                )
        commits = session.commits
        if commits is not None and (committing := commits.take(frame)) is not None:
            return committing
        began_ns = self._clock_ns()
        header = parse_header(frame)
        try:
            return self._take(session, frame, header)
        finally:
            self._metrics.handled(api_name(header.api_key), began_ns, self._clock_ns())

    def _take(self, session: Session, frame: memoryview, header: RequestHeader) -> Reply:
        key = header.api_key
        reply: Reply
        if key == _PRODUCE and self._takes_batches:
            meter, reply = self._produce, produce(self.context, session, frame, header) or NO_REPLY
        elif key == _FETCH:
            meter, reply = self._fetch, self._answer_fetch(self.context, session, frame, header)
        elif key == _API_VERSIONS:
            meter, reply = self._metrics.api(key), [self._api_versions(frame, header)]
        else:
            return self._handle(session, frame, header)
        return self._counted(meter, reply)

    def _counted(self, meter: Meter, reply: Reply) -> Reply:
        if isinstance(reply, Promise) and not reply.is_settled:
            reply.asked = Asked(meter, self._metrics.tick_began_ns)
        else:
            self._metrics.answered(meter)
        return reply

    def closed(self, session: Session) -> None:
        """The client is gone: nothing of it waits any more."""
        if session.fetch is not None:
            session.fetch.cancel()
        if session.gone is not None:
            session.gone()

    def _handle(self, session: Session, frame: memoryview, header: RequestHeader) -> Reply:
        api, handler = self._find(header)
        version, correlation_id = header.api_version, header.correlation_id
        message = read_request(api, version, frame[header.body_at :])
        call = Call(session, version, message, response_builder(api, version), header.client_id)
        slices = slices_of(api, message)
        if slices is None:
            answer = handler(self.context, call)
        else:
            answer = answer_in_slices(self.context, call, handler, slices, api)
        if api is Api.OFFSET_COMMIT and slices is None:
            if session.commits is None:
                session.commits = CommitFastPath(self.context)
            session.commits.learn(frame, header, call)
        meter = self._metrics.api(api)
        write = write_frequent_response if api in _FREQUENT else write_response

        def frame_of(response: Any) -> list[Piece]:
            count_errors(meter, response)
            self._refusals.look_at(api, call, response)
            return [response_frame(api, version, correlation_id, write(api, version, response))]

        def framed(response: Any) -> list[Piece] | Promise[list[Piece]]:
            if (api in _FREQUENT and slices is None) or not sliced().is_large(response):
                return frame_of(response)
            return in_turns(self.context.world, slices_of_frame(response))

        def slices_of_frame(response: Any) -> Generator[None, None, list[Piece]]:
            count_errors(meter, response)
            yield
            body = yield from sliced().write_response_in_slices(api, version, response)
            return [response_frame(api, version, correlation_id, body)]

        if not isinstance(answer, Promise):
            return self._counted(meter, framed(answer))
        later: Promise[list[Piece]] = HoldingPromise() if answer.holds else Promise()

        def finish(response: Any) -> None:
            reply = framed(response)
            if isinstance(reply, Promise):
                reply.then(later.resolve)
            else:
                later.resolve(reply)

        answer.then(finish)
        return self._counted(meter, later)

    def _api_versions(self, frame: memoryview, header: RequestHeader) -> bytes:
        """ApiVersions 0 to 4; an unknown version is answered with error 35, in the form of version 0."""
        version = header.api_version
        known = version in self._ranges[Api.API_VERSIONS]
        if known and not self._has_good_name(frame, header):
            self._metrics.api(_API_VERSIONS).fail(ErrorCode.INVALID_REQUEST)
            body = api_versions_error(self._ranges, version, ErrorCode.INVALID_REQUEST)
        else:
            if not known:
                self._metrics.api(_API_VERSIONS).fail(ErrorCode.UNSUPPORTED_VERSION)
            image = self.context.image
            finalized = {name: image.features[name] for name in image.features if name in _SUPPORTED_FEATURES}
            body = api_versions_reply(
                self._ranges, _SUPPORTED_FEATURES, finalized, version, finalized_epoch=image.offset
            )
        return response_frame(Api.API_VERSIONS, version if known else 0, header.correlation_id, body)

    @staticmethod
    def _has_good_name(frame: memoryview, header: RequestHeader) -> bool:
        """Whether what the client says that it is, is a name."""
        message = read_request(Api.API_VERSIONS, header.api_version, frame[header.body_at :])
        if header.api_version < 3:
            return True
        name, version = str(message.client_software_name), str(message.client_software_version)
        return bool(_SOFTWARE_NAME.fullmatch(name) and _SOFTWARE_NAME.fullmatch(version))

    def _find(self, header: RequestHeader) -> tuple[Api, Handler]:
        try:
            api = Api(header.api_key)
            versions, handler = self._served[api]
        except (ValueError, KeyError) as error:
            raise UnsupportedVersion(f"{api_name(header.api_key)} is not served") from error
        if header.api_version not in versions:
            raise UnsupportedVersion(
                f"{api.label} {header.api_version} is not served, expected {versions.min} to {versions.max}"
            )
        return api, handler
