"""The reply to a request: buffers to send, none, or a promise of buffers."""

from enum import Enum

from penstock.base.promise import Promise
from penstock.wire import Piece


class NoReply(Enum):
    """The reply to Produce with acks=0."""

    NO_REPLY = 0


NO_REPLY = NoReply.NO_REPLY

Reply = list[Piece] | NoReply | Promise[list[Piece]]
