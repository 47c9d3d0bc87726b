"""Parses HTTP/1.1 replies with a Content-Length, one at a time, as their bytes arrive."""

from typing import Any, NamedTuple

import msgspec


class Reply(NamedTuple):
    status: int
    body: bytes
    is_last: bool
    """Whether the server closes the connection after it."""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class ReplyReader:
    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> Reply | None:
        """Return the reply once it is complete."""
        self._data += data
        head, blank, rest = self._data.partition(b"\r\n\r\n")
        if not blank:
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(fields["content-length"])
        if len(rest) < length:
            return None
        return Reply(int(first.split(" ")[1]), rest[:length], fields.get("connection", "").lower() == "close")
