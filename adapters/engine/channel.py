"""Messages between the trainer and a worker process: their length in 8 bytes, then the bytes.

``send`` never waits: what the system doesn't accept at once is sent in ``receive``. So a worker
with a long job, or one that waits for its answer to be read, blocks no thread. One thread at a time
may send, and one may receive. Receiving ends when the other process does, even if a child of that
process still holds its end of the socket.
"""

from __future__ import annotations

import os
import select
import struct
import threading

_SIZE = struct.Struct("!Q")
_CHUNK_BYTES = 2**18


class Channel:
    """One end of a socket.

    Args:
        socket: Descriptor of the socket.
        sentinel: Descriptor that can be read when the other process has ended; None if that needs
            no notice.
    """

    def __init__(self, socket: int, sentinel: int | None = None) -> None:
        os.set_blocking(socket, False)
        self._socket = socket
        self._heard, self._unsent = bytearray(), bytearray()
        self._lock = threading.Lock()
        """Held while something is sent."""
        self._to_read, self._to_write = select.poll(), select.poll()
        self._to_read.register(socket, select.POLLIN)
        self._to_write.register(socket, select.POLLIN | select.POLLOUT)
        if sentinel is not None:
            self._to_read.register(sentinel, select.POLLIN)
            self._to_write.register(sentinel, select.POLLIN)

    def send(self, message: bytes) -> None:
        """Send a message, now or in ``receive``.

        Raises:
            OSError: The other end is gone.
        """
        with self._lock:
            self._unsent += _SIZE.pack(len(message)) + message
            self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: os.write(self._socket, self._unsent)]
        except BlockingIOError:
            pass

    def receive(self, timeout_seconds: float | None = None) -> bytes | None:
        """Return the next message; None if nothing happens in that time.

        Raises:
            EOFError: The other process has ended, or has closed its end.
            OSError: The connection broke.
        """
        timeout = None if timeout_seconds is None else 1000 * timeout_seconds
        while (message := self._take()) is None:
            ready = dict((self._to_write if self._unsent else self._to_read).poll(timeout))
            if not ready:
                return None
            events = ready.get(self._socket, 0)
            if events & select.POLLOUT:
                with self._lock:
                    self._flush()
            if events & ~select.POLLOUT:
                self._heard += self._read()
            elif not events:
                raise EOFError
        return message

    def _read(self) -> bytes:
        chunk = os.read(self._socket, _CHUNK_BYTES)
        if not chunk:
            raise EOFError
        return chunk

    def _take(self) -> bytes | None:
        heard, begin = self._heard, _SIZE.size
        if len(heard) < begin:
            return None
        end = begin + _SIZE.unpack_from(heard)[0]
        if len(heard) < end:
            return None
        message = bytes(memoryview(heard)[begin:end])
        del heard[:end]
        return message
