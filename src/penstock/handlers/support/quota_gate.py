"""Requests of clients with quotas: counts them, and mutes connections that exceed a quota.

`Dispatcher.dispatch` comes here while the cluster has quotas of users or client ids. The request is handled as any
other; then its connection is muted for the time in the response. Bytes of Fetch are counted by its handler, changes of
topics by theirs.

Requests between brokers are never throttled: fetches of followers, and `BETWEEN_BROKERS`.
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

_PRODUCE: Final = int(Api.PRODUCE)
_CLIENT_ID_AT: Final = 8
"""Where the header of a request has the client id, with its length."""

BETWEEN_BROKERS: Final = frozenset((int(Api.ENVELOPE), int(Api.WRITE_TXN_MARKERS)))

_BATCHED_VERIFICATION: Final = 4
"""The version of AddPartitionsToTxn from which only brokers send it."""


def dispatch_within_quotas(
    dispatcher: "Dispatcher", quotas: ClientQuotas, session: Session, frame: memoryview
) -> Reply:
    state = session.state
    share = state.share
    if (
        share is None
        or share.version != quotas.version
        or share.principal != session.principal
        or frame[_CLIENT_ID_AT : share.client_id_end] != share.client_id_bytes
    ):
        share = _share_of(quotas, session, frame)
    now_ns = quotas.now_ns()
    key = frame[0] << 8 | frame[1]
    delay_ms = share.produced(len(frame), now_ns) if key == _PRODUCE else 0
    state.is_exempt = False
    reply = dispatcher.dispatch(session, frame, True)
    if quotas.measures_time:
        took_ns = quotas.now_ns() - now_ns
        if state.is_exempt or _is_between_brokers(key, frame):
            quotas.handled(1, took_ns, now_ns)
        else:
            delay_ms = max(delay_ms, share.worked(took_ns, now_ns))
    return _throttled(quotas, session, frame, reply, delay_ms) if delay_ms else reply


def _share_of(quotas: ClientQuotas, session: Session, frame: memoryview) -> ClientShare:
    state = session.state
    client_id = parse_header(frame).client_id
    share = quotas.share_of(state.share, session, client_id)
    end = _CLIENT_ID_AT + INT16.size + max(0, INT16.unpack_from(frame, _CLIENT_ID_AT)[0])
    share.client_id_bytes, share.client_id_end = bytes(frame[_CLIENT_ID_AT:end]), end
    if state.share is not None and state.share.client_id != share.client_id:
        # Their requests are counted without reading the client id.
        state.produce = state.commit = None
    state.share = share
    return share


def _is_between_brokers(key: int, frame: memoryview) -> bool:
    return key in BETWEEN_BROKERS or (key == Api.ADD_PARTITIONS_TO_TXN and frame[3] >= _BATCHED_VERIFICATION)


def _throttled(
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
