"""What a client is told without asking again: messages of its stream (`+MSG`), that there are none now (`+EMPTY`), and
that there is nothing more to come (`+END`).

One message is out at a time, until it is acknowledged. `+EMPTY` comes at most once a second. Where something has to be
fetched, looked up or committed before the stream can go on, that is given to whoever carries out commands.
"""

from collections.abc import Callable
from contextlib import suppress

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps
from penstock.base.world import Timer
from penstock.gateway.line.replies import EMPTY, error, in_bytes
from penstock.gateway.line.stream import Message, Nothing, Stream
from penstock.gateway.shared.wire import Wire
from penstock.handlers.support.context import Context

EMPTY_INTERVAL_MS = 1000


class StreamSender:
    __slots__ = ("_context", "_go_on", "_quiet", "_wire", "is_looking", "stream")

    def __init__(self, context: Context, wire: Wire, go_on: Callable[[], None]) -> None:
        """`go_on` is called when there may be more to say."""
        self._context = context
        self._wire = wire
        self._go_on = go_on
        self.stream: Stream | None = None
        """The request for messages that came last."""
        self._quiet: Timer | None = None
        """Runs for a second after `+EMPTY`, during which there is no other."""
        self.is_looking = False
        """The stream reads on when others have had their turn."""

    def stop(self) -> None:
        """The stream is over."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.unwatch()

    def end(self) -> None:
        """The client is gone."""
        self.stop()
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

    def say_more(self) -> Steps[bytes] | None:
        """Send the next message, if it is time for one, or say that there is none; or give what must happen first."""
        stream = self.stream
        if (
            stream is None
            or stream.sent is not None
            or stream.is_watching
            or self.is_looking
            or self._wire.is_full
        ):
            return None
        if stream.is_outgrown:
            return self._or_stop(stream.widen())
        try:
            found = stream.next()
        except KafkaError as wrong:
            self.stop()
            self._wire.send(error(str(wrong)))
            return None
        first: Steps[bytes] | None = None
        if isinstance(found, Message):
            self._wire.send(in_bytes(found))
        elif found is Nothing.HERE:
            first = self._or_stop(stream.fetch())
        elif found is Nothing.YET:
            self.is_looking = True
            self._context.world.call_soon(self._look_on)
        elif stream.is_stale:
            first = _unasked(stream.refresh())
        elif stream.is_past_more:
            first = _unasked(stream.commit_passed())
        elif found is Nothing.EVER:
            end_offset = stream.end_offset
            self.stop()
            self._wire.send(b"+END %d\n" % end_offset)
        else:
            stream.watch(self._go_on)
            if self._quiet is None:
                self._wire.send(EMPTY)
                self._quiet = self._context.world.call_later(EMPTY_INTERVAL_MS, self._quiet_is_over)
        return first

    def _or_stop(self, steps: Steps[None]) -> Steps[bytes]:
        """Without these the stream cannot go on."""
        try:
            yield from steps
        except KafkaError:
            self.stop()
            raise
        return b""

    def _look_on(self) -> None:
        self.is_looking = False
        self._go_on()

    def _quiet_is_over(self) -> None:
        self._quiet = None
        if self.stream is not None:
            self.stream.unwatch()
            self._go_on()


def _unasked(steps: Steps[None]) -> Steps[bytes]:
    """Nobody asked for these: where they fail, it is as if there were nothing more."""
    with suppress(KafkaError):
        yield from steps
    return b""
