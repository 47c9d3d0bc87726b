"""Sends a client the messages of its stream (`+MSG`), that there are none now (`+EMPTY`), and that it ends (`+END`).

One message is sent at a time, and the next after its ACK. `+EMPTY` is sent at most once a second. If records have to
be fetched, or offsets looked up or committed, before the stream can go on, the conversation runs these steps.
"""

from collections.abc import Callable
from contextlib import suppress

from penstock.base.errors import KafkaError
from penstock.base.steps import Steps
from penstock.base.world import Timer
from penstock.gateway.line.replies import EMPTY, error, in_bytes
from penstock.gateway.line.stream import Message, NoMessage, Stream
from penstock.gateway.shared.door_quotas import DoorQuota
from penstock.gateway.shared.wire import Wire
from penstock.handlers.support.context import Context

EMPTY_INTERVAL_MS = 1000


class StreamSender:
    __slots__ = ("_context", "_go_on", "_quiet", "_quota", "_wire", "is_looking", "stream")

    def __init__(self, context: Context, wire: Wire, go_on: Callable[[], None], quota: DoorQuota) -> None:
        """`go_on` is called when there may be more to send."""
        self._quota = quota
        self._context = context
        self._wire = wire
        self._go_on = go_on
        self.stream: Stream | None = None
        """The stream of the client's last request for messages."""
        self._quiet: Timer | None = None
        """Runs for a second after `+EMPTY`, during which no other is sent."""
        self.is_looking = False
        """The stream reads on in the next tick."""

    def stop(self) -> None:
        """End the stream."""
        stream, self.stream = self.stream, None
        if stream is not None:
            stream.unwatch()

    def end(self) -> None:
        """The connection is closed."""
        self.stop()
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

    def send_more(self) -> Steps[bytes] | None:
        """Send the next message, `+EMPTY` or `+END`, if it is time for one; or return the steps that must run
        first."""
        stream = self.stream
        if (
            stream is None
            or stream.sent is not None
            or stream.is_watching
            or self.is_looking
            or self._wire.is_full
        ):
            return None
        delay_ms = self._quota.read_delay_ms()
        if delay_ms:
            self.is_looking = True
            self._context.world.call_later(delay_ms, self._look_on)
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
            data = in_bytes(found)
            self._quota.read(len(data))
            self._wire.send(data)
        elif found is NoMessage.NOT_FETCHED:
            first = self._or_stop(stream.fetch())
        elif found is NoMessage.NOT_FOUND_YET:
            self.is_looking = True
            self._context.world.call_soon(self._look_on)
        elif stream.is_stale:
            first = _optional(stream.refresh())
        elif stream.has_passed_offsets:
            first = _optional(stream.commit_passed())
        elif found is NoMessage.REQUEST_DONE:
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
        """Run steps that the stream needs: if they fail, it ends."""
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


def _optional(steps: Steps[None]) -> Steps[bytes]:
    """Run steps that the client has not requested: if they fail, the stream only has no more messages for now."""
    with suppress(KafkaError):
        yield from steps
    return b""
