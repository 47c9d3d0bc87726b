"""Something that happens between the requests of a reader: a proxy that does it before it passes each of them on."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType


class Between:
    """In front of a node, on a port of its own."""

    def __init__(self, url: str, happens: Callable[[], None]) -> None:
        host, port = url.removeprefix("http://").split(":")
        self._node = (host, int(port))
        self._happens = happens
        self._turn = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self.requests: list[str] = []
        """Method and range of each that was passed on."""
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> "Between":
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._server)
        self._threads[0].join()
        for each in self._sockets:
            self._end(each)
        for thread in self._threads[1:]:
            thread.join()

    def _end(self, each: socket.socket) -> None:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                node = socket.create_connection(self._node)
                self._sockets += [client, node]
                for ends in ((client, node, True), (node, client, False)):
                    self._threads.append(threading.Thread(target=self._pass, args=ends))
                    self._threads[-1].start()

    def _pass(self, source: socket.socket, target: socket.socket, is_asking: bool) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if is_asking:  # readers send a head at once, and nothing else
                    with self._turn:
                        self._note(data.decode("latin-1"))
                        self._happens()
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def _note(self, head: str) -> None:
        parts = [line for line in head.split("\r\n") if line.lower().startswith("range:")]
        self.requests.append(" ".join([head.partition(" ")[0], *(each.split("=")[1] for each in parts)]))
