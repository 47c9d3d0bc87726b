"""Requests of clients with quotas: counts them, and mutes connections that exceed a quota.

`Dispatcher.dispatch` comes here while the cluster has quotas of users or client ids. The request is handled as any
other; then its connection is muted for the time in the response. Bytes of Fetch are counted by its handler, changes of
topics by theirs.

Requests between brokers are never throttled. Their handlers say so (`ConnectionState.is_exempt`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.base.promise import HoldingPromise, Promise
from penstock.handlers.support.context import Session
from penstock.handlers.support.replies import Reply
from penstock.security.client_quotas import ClientQuotas, ClientShare
from penstock.wire import Api, Piece, parse_header
from penstock.wire.primitives import INT16
from penstock.wire.throttle_time import with_throttle_time

if TYPE_CHECKING:
    from penstock.handlers.support.dispatch import Dispatcher

_CLIENT_ID_AT: Final = 8
"""Where the header of a request has the client id, with its length."""


def dispatch_within_quotas(
    dispatcher: "Dispatcher", quotas: ClientQuotas, session: Session, frame: memoryview
) -> Reply:
    """Answer a request of a connection that asks for its quotas first."""
    share = _share_of(quotas, session, frame)
    now_ns = dispatcher.context.metrics.tick_began_ns or quotas.now_ns()
    delay_ms = 0
    if not frame[1] and not frame[0]:  # Produce is API 0
        delay_ms = share.produced(len(frame), now_ns)
    elif now_ns >= share.until_ns:
        share.ask(now_ns)
    state = session.state
    state.is_exempt = False
    reply = dispatcher.dispatch(session, frame, True)
    if quotas.measures_time and not state.is_exempt:
        delay_ms = max(delay_ms, share.worked(state.took_ns, now_ns))
    return throttled(quotas, session, frame, reply, delay_ms) if delay_ms else reply


def _share_of(quotas: ClientQuotas, session: Session, frame: memoryview) -> ClientShare:
    state = session.state
    client_id = parse_header(frame).client_id
    share = quotas.share_of(state.share, session, client_id)
    end = _CLIENT_ID_AT + INT16.size + max(0, INT16.unpack_from(frame, _CLIENT_ID_AT)[0])
    share.client_id_bytes = bytes(frame[_CLIENT_ID_AT:end])
    share.client_id_at = slice(_CLIENT_ID_AT, end)
    if state.share is not None and state.share.client_id != share.client_id:
        # Their requests are counted without reading the client id.
        state.produce = state.commit = None
    state.share = share
    return share


def throttled(
    quotas: ClientQuotas, session: Session, frame: memoryview, reply: Reply, delay_ms: int
) -> Reply:
    """Mute the connection, and say so in the response."""
    api = Api(frame[0] << 8 | frame[1])
    version = frame[2] << 8 | frame[3]
    if api is not Api.API_VERSIONS:
        # Other brokers begin with it, too.
        session.mute(delay_ms)
    until_ns = quotas.now_ns() + delay_ms * 1_000_000

    def changed(pieces: list[Piece]) -> list[Piece]:
        left_ms = (until_ns - quotas.now_ns()) // 1_000_000
        first = pieces[0] if pieces else None
        if left_ms > 0 and isinstance(first, bytes | bytearray):
            pieces[0] = with_throttle_time(api, version, first, left_ms)
        return pieces

    if isinstance(reply, list):
        return changed(reply)
    return _later(reply, changed) if isinstance(reply, Promise) else reply


def _later(
    reply: Promise[list[Piece]], changed: Callable[[list[Piece]], list[Piece]]
) -> Promise[list[Piece]]:
    later: Promise[list[Piece]] = HoldingPromise() if reply.holds else Promise()
    if isinstance(reply, HoldingPromise) and isinstance(later, HoldingPromise):
        if reply.is_let_go:
            later.let_go()
        else:
            reply.when_let_go(later.let_go)
    later.request_start = reply.request_start
    reply.then(lambda pieces: later.resolve(changed(pieces)), later.fail)
    return later
