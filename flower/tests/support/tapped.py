"""A TCP port between a client and the SuperLink, which counts all bytes and records the bytes that the client sends."""

import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

REQUEST, ANSWER = re.compile(rb"POST (\S+) HTTP/1\.1\r\n"), re.compile(rb"HTTP/1\.1 \d{3} ")


@dataclass
class Connection:
    """The bytes of one connection. With TLS, the bytes are encrypted."""

    up: bytearray = field(default_factory=bytearray)
    down: bytearray = field(default_factory=bytearray)


class Tap:
    """A port of this machine that forwards connections to another port.

    Attributes:
        port: the number of the port.
        connections: all connections so far.
    """

    def __init__(self, to: int) -> None:
        """Listen, and forward to the port `to`."""
        self._to, self._server = to, socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self.connections: list[Connection] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self) -> None:
        """Forget all bytes so far."""
        for connection in self.connections:
            connection.up.clear()
            connection.down.clear()

    def sent(self) -> list[bytes]:
        """Return the bytes that the client sent, by connection."""
        return [bytes(connection.up) for connection in self.connections]

    def nbytes(self) -> int:
        """Return the number of bytes in both directions."""
        return sum(len(each.up) + len(each.down) for each in self.connections)

    def asking(self) -> int:
        """Return the number of bytes in requests for messages and in heartbeats of the client; only without TLS."""
        return sum(size for path, size in self._exchanges() if path.endswith((b"-messages", b"-heartbeat")))

    def _exchanges(self) -> Iterator[tuple[bytes, int]]:
        """Yield the path of each request that is smaller than all of our messages, and its bytes in both directions."""
        for each in self.connections:
            up, down = _parts(REQUEST, bytes(each.up)), _parts(ANSWER, bytes(each.down))
            for request, answer in zip(up, down, strict=False):
                found = REQUEST.match(request)
                if found is not None:
                    yield found[1], len(request) + len(answer)

    def _accept(self) -> None:
        while True:
            near, _ = self._server.accept()
            far = socket.create_connection(("127.0.0.1", self._to))
            self.connections.append(connection := Connection())
            for source, sink, heard in ((near, far, connection.up), (far, near, connection.down)):
                threading.Thread(target=_carry, args=(source, sink, heard), daemon=True).start()


def _carry(source: socket.socket, sink: socket.socket, heard: bytearray) -> None:
    """Forward bytes until the source ends."""
    try:
        while data := source.recv(65536):
            heard += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # either end was killed


def _parts(begin: "re.Pattern[bytes]", said: bytes) -> list[bytes]:
    """Return the parts of `said`, each from one match of `begin` to the next."""
    places = [found.start() for found in begin.finditer(said)]
    return [said[start:end] for start, end in zip(places, [*places, len(said)][1:], strict=True)]
