"""What a request is answered with: buffers to send one after the other, nothing, or something later."""

from enum import Enum

from penstock.base.promise import Promise
from penstock.wire import Piece


class NoReply(Enum):
    """For a request that wants no answer: Produce with acks=0."""

    NO_REPLY = 0


NO_REPLY = NoReply.NO_REPLY

Reply = list[Piece] | NoReply | Promise[list[Piece]]
