"""From a request frame to its reply.

A Produce or OffsetCommit that repeats the connection's last one is taken by that API's fast path (`take`). Produce and
Fetch have hand-written parsers; kio reads and writes all other messages. A malformed request raises
`MalformedRequest`, and the connection is closed, as in Kafka. Only ApiVersions answers an unknown version.

Broker and controller listeners serve different APIs, each with its own dispatcher.
"""

from __future__ import annotations  # those of nested functions would be evaluated in each call

import logging
import re
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.base.errors import ErrorCode, KafkaError
from penstock.base.metrics import TICK_NS_MAX, Meter, RequestStart
from penstock.base.promise import HoldingPromise, Promise
from penstock.base.steps import Steps, next_tick
from penstock.handlers.fetch import fetch
from penstock.handlers.produce import produce
from penstock.handlers.raft import fetch_metadata
from penstock.handlers.support.api_table import SERVED, SERVED_BY_CONTROLLERS, Table
from penstock.handlers.support.commit_fast_path import CommitFastPath
from penstock.handlers.support.context import Call, ConnectionState, Context, Handler, Session
from penstock.handlers.support.error_counts import count_errors
from penstock.handlers.support.refusal_log import Refusals
from penstock.handlers.support.replies import NO_REPLY, Reply
from penstock.handlers.support.request_slices import answer_in_slices, slices_of
from penstock.handlers.support.waiting import run
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
from penstock.wire.messages import response_builder

if TYPE_CHECKING:
    from penstock.security.client_quotas import ClientQuotas

logger = logging.getLogger(__name__)


RANGES: Served = {
    **{api: KAFKA_RANGES[api] for api in (Api.PRODUCE, Api.FETCH, Api.API_VERSIONS)},
    **{api: versions for api, (versions, _) in SERVED.items()},
}
"""The versions that brokers advertise."""

CONTROLLER_RANGES: Served = {
    **{api: KAFKA_RANGES[api] for api in (Api.FETCH, Api.API_VERSIONS)},
    **{api: versions for api, (versions, _) in SERVED_BY_CONTROLLERS.items()},
}
"""The versions that controllers advertise."""

FetchHandler: TypeAlias = Callable[[Context, Session, memoryview, RequestHeader], Reply]

_SUPPORTED_FEATURES = {
    name: VersionRange(feature.min_level, feature.max_level)
    for name, feature in FEATURES.items()
    if name not in UNSERVED
}
_PRODUCE, _FETCH, _API_VERSIONS = int(Api.PRODUCE), int(Api.FETCH), int(Api.API_VERSIONS)
_FREQUENT = frozenset((Api.OFFSET_COMMIT, Api.HEARTBEAT, Api.CONSUMER_GROUP_HEARTBEAT))
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Valid names and versions of client software (KIP-511)."""


def sliced() -> ModuleType:
    """Imported when a response is first written, since it imports kio's writers."""
    return import_module("penstock.wire.sliced")


def within_quotas() -> ModuleType:
    """Imported when the cluster has quotas."""
    return import_module("penstock.handlers.support.quota_gate")


class Dispatcher:
    """Serves all listeners of one kind."""

    def __init__(
        self,
        context: Context,
        served: Table = SERVED,
        ranges: Served = RANGES,
        answer_fetch: FetchHandler = fetch,
    ) -> None:
        """A broker's dispatcher; `for_controllers` makes a controller's."""
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
    def for_controllers(cls, context: Context) -> Dispatcher:
        return cls(context, SERVED_BY_CONTROLLERS, CONTROLLER_RANGES, fetch_metadata)

    def dispatch(self, session: Session, frame: memoryview, is_counted: bool = False) -> Reply:
        """Answer a request. The frame is valid until the end of this tick of the event loop. `is_counted` if the
        client's quotas are seen to."""
        state = session.state
        if not is_counted and (quotas := self.context.quotas) is not None:
            return self._dispatch_within(quotas, session, state, frame)
        produce_path = state.produce
        if produce_path is not None and (reply := produce_path.take(frame)) is not None:
            meter = self._produce
            if isinstance(reply, Promise) and not reply.is_settled:
                reply.request_start = RequestStart(meter, self._metrics.tick_began_ns)
            elif meter.in_tick:
                meter.in_tick += 1
            else:
                meter.in_tick = 1
                self._metrics.busy.append(meter)
            return reply
        commit_path = state.commit
        if commit_path is not None and (committing := commit_path.take(frame)) is not None:
            return committing
        began_ns = self._clock_ns()
        header = parse_header(frame)
        try:
            return self._take(session, frame, header)
        finally:
            now_ns = self._clock_ns()
            if is_counted:
                state.took_ns = now_ns - began_ns
            if now_ns - self._metrics.tick_began_ns > TICK_NS_MAX:
                self._metrics.handled(api_name(header.api_key), began_ns, now_ns)

    def _dispatch_within(
        self, quotas: ClientQuotas, session: Session, state: ConnectionState, frame: memoryview
    ) -> Reply:
        """Answer a request of a client with quotas: by the connection's credit if it has some."""
        share = state.share
        if (
            share is None
            or share.version != quotas.version
            or self._metrics.tick_began_ns >= share.until_ns
            or share.principal != session.principal
        ):
            return self._ask_first(quotas, session, frame)
        size = len(frame)
        produce_path = state.produce
        if (
            produce_path is not None
            and size < share.credit
            and (reply := produce_path.take(frame)) is not None
        ):
            share.credit -= size
            share.requests += 1
            return self._counted(self._produce, reply)
        if size < 2 or not (frame[1] or frame[0]) or frame[share.client_id_at] != share.client_id_bytes:
            return self._ask_first(quotas, session, frame)
        state.is_exempt = False
        reply = self.dispatch(session, frame, True)
        if quotas.measures_time and not state.is_exempt:
            share.requests += 1
            share.measured_ns += state.took_ns
            if share.work_delay_ms or share.measured_ns > quotas.measured_ns_max:
                delay_ms = share.worked(0, quotas.now_ns())
                if delay_ms:
                    reply = within_quotas().throttled(quotas, session, frame, reply, delay_ms)
        return reply

    def _ask_first(self, quotas: ClientQuotas, session: Session, frame: memoryview) -> Reply:
        reply: Reply = within_quotas().dispatch_within_quotas(self, quotas, session, frame)
        return reply

    def _take(self, session: Session, frame: memoryview, header: RequestHeader) -> Reply:
        key = header.api_key
        if self.context.audit is not None:
            session.client_id = header.client_id
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
            reply.request_start = RequestStart(meter, self._metrics.tick_began_ns)
        else:
            self._metrics.answered(meter)
        return reply

    def closed(self, session: Session) -> None:
        """The connection is closed: cancel what waits for it."""
        if session.state.fetch is not None:
            session.state.fetch.cancel()
        state = session.state
        state.produce = None  # refers to its session
        if state.share is not None:
            state.share.leave()
            state.share = None
        if state.on_close is not None:
            state.on_close()

    def _handle(self, session: Session, frame: memoryview, header: RequestHeader) -> Reply:
        api, handler = self._find(header)
        version, correlation_id = header.api_version, header.correlation_id
        message = read_request(api, version, frame[header.body_at :])
        audited = session
        if self.context.audit is not None:
            audited = session.within(api.label, header.client_id)
        call = Call(audited, version, message, response_builder(api, version), header.client_id)
        slices = slices_of(api, message)
        if slices is None:
            answer = handler(self.context, call)
        else:
            answer = answer_in_slices(self.context, call, handler, slices, api)
        if api is Api.OFFSET_COMMIT and slices is None:
            if session.state.commit is None:
                session.state.commit = CommitFastPath(self.context)
            session.state.commit.learn(frame, header, call)
        meter = self._metrics.api(api)
        write = write_frequent_response if api in _FREQUENT else write_response

        def frame_of(response: Any) -> list[Piece]:
            count_errors(meter, response)
            self._refusals.look_at(api, call, response)
            return [response_frame(api, version, correlation_id, write(api, version, response))]

        def framed(response: Any) -> list[Piece] | Promise[list[Piece]]:
            if (api in _FREQUENT and slices is None) or not sliced().is_large(response):
                return frame_of(response)
            return run(frame_in_slices(response))

        def frame_in_slices(response: Any) -> Steps[list[Piece]]:
            world = self.context.world
            count_errors(meter, response)
            yield next_tick(world)
            pause = partial(next_tick, world)
            body = yield from sliced().write_response_in_slices(api, version, response, pause)
            return [response_frame(api, version, correlation_id, body)]

        if not isinstance(answer, Promise):
            return self._counted(meter, framed(answer))
        later: Promise[list[Piece]] = HoldingPromise() if answer.holds else Promise()

        def failed(error: KafkaError) -> None:
            session.end(str(error))

        def finish(response: Any) -> None:
            reply = framed(response)
            if isinstance(reply, Promise):
                reply.then(later.resolve, failed)
            else:
                later.resolve(reply)

        answer.then(finish, failed)
        return self._counted(meter, later)

    def _api_versions(self, frame: memoryview, header: RequestHeader) -> bytes:
        """ApiVersions 0 to 4. An unknown version gets UNSUPPORTED_VERSION in the format of version 0."""
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
        """Whether the client's software name and version are valid."""
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
            raise UnsupportedVersion(f"{api_name(header.api_key)} is not supported") from error
        if header.api_version not in versions:
            raise UnsupportedVersion(
                f"{api.label} version {header.api_version} is not supported, expected {versions.min} to {versions.max}"
            )
        return api, handler
