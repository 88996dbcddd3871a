"""Messages between the trainer and a worker process: their length in 8 bytes, then the bytes.

Each end belongs to one thread at a time. A send waits until the system has accepted the message,
and a receipt until the message is whole; both end when the other process does, even if a child of
that process still holds its end of the socket.
"""

from __future__ import annotations

import os
import select
import struct

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
        self._heard = bytearray()
        self._to_read, self._to_write = select.poll(), select.poll()
        self._to_read.register(socket, select.POLLIN)
        self._to_write.register(socket, select.POLLIN | select.POLLOUT)
        if sentinel is not None:
            self._to_read.register(sentinel, select.POLLIN)
            self._to_write.register(sentinel, select.POLLIN)

    def send(self, message: bytes) -> None:
        """Send a message; reads meanwhile, as the other end may wait for that before it reads.

        Raises:
            EOFError: The other process has ended, or has closed its end.
            OSError: The connection broke.
        """
        left = memoryview(_SIZE.pack(len(message)) + message)
        while left:
            try:
                left = left[os.write(self._socket, left) :]
            except BlockingIOError:
                self._wait(self._to_write, None)

    def receive(self, timeout_seconds: float | None = None) -> bytes | None:
        """Return the next message; None if nothing of it comes in that time.

        Raises:
            EOFError: The other process has ended, or has closed its end.
            OSError: The connection broke.
        """
        while (message := self._take()) is None:
            if not self._wait(self._to_read, timeout_seconds):
                return None
        return message

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

    def _wait(self, poll: select.poll, timeout_seconds: float | None) -> bool:
        """Wait for the socket, and read what has come; False if nothing happened in time."""
        ready = dict(poll.poll(None if timeout_seconds is None else 1000 * timeout_seconds))
        if not ready:
            return False
        events = ready.get(self._socket, 0)
        if not events:
            raise EOFError
        if events & ~select.POLLOUT:
            chunk = os.read(self._socket, _CHUNK_BYTES)
            if not chunk:
                raise EOFError
            self._heard += chunk
        return True
