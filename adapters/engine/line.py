"""Channel: the trainer's end of the socket to a worker. It never waits.

Data that the system doesn't accept at once is kept and sent when the worker reads on. So a worker
with a long job, or one that waits for its answer to be read, blocks no thread. Messages have the
format of ``multiprocessing``'s connection at the other end: the length, then the bytes.
"""

from __future__ import annotations

import collections
import os
import struct
from multiprocessing.connection import Connection

_SHORT, _LONG = struct.Struct("!i"), struct.Struct("!iQ")
_MOST_SHORT = 2**31 - 1
_CHUNK_BYTES = 2**18


class _Unsent:
    """A message that isn't completely sent yet.

    Ctrl-C may interrupt between any two Python steps. So ``send`` records what was sent within one
    C call, and the total is summed up when it is needed.
    """

    def __init__(self, message: bytes) -> None:
        self._message = memoryview(message)
        self._counts: list[int] = []

    def send(self, descriptor: int) -> None:
        """Send as much as the system accepts at once."""
        self._counts.extend(map(os.write, (descriptor,), (self._message[sum(self._counts) :],)))

    @property
    def over(self) -> bool:
        """True if all of it was sent."""
        return sum(self._counts) == len(self._message)


class Line:
    """Channel of messages to and from a worker.

    Args:
        connection: A socket; the other end may block.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._descriptor = connection.fileno()
        os.set_blocking(self._descriptor, False)
        self._unsent: collections.deque[_Unsent] = collections.deque()
        self._heard = bytearray()

    def fileno(self) -> int:
        """Descriptor, for a selector."""
        return self._descriptor

    @property
    def is_full(self) -> bool:
        """True if there is unsent data."""
        return bool(self._unsent)

    def put(self, message: bytes) -> None:
        """Send a message, now or in ``flush``.

        Raises:
            OSError: The other end is gone.
        """
        size = len(message)
        head = _SHORT.pack(size) if size <= _MOST_SHORT else _LONG.pack(-1, size)
        self._unsent.append(_Unsent(head + message))
        self.flush()

    def flush(self) -> None:
        """Send as much as the system accepts now.

        Raises:
            OSError: The other end is gone; unsent data is dropped.
        """
        try:
            while self._unsent:
                if self._unsent[0].over:
                    self._unsent.popleft()
                else:
                    self._unsent[0].send(self._descriptor)
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()
            raise

    def take(self) -> list[bytes]:
        """Return the complete messages received so far; empty if there is none.

        Raises:
            EOFError: There is none, and the other end has closed.
            OSError: The connection broke.
        """
        ended = False
        try:
            while chunk := os.read(self._descriptor, _CHUNK_BYTES):
                self._heard += chunk
            ended = True
        except BlockingIOError:
            pass
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        if ended and not messages:
            raise EOFError
        return messages

    def _next(self) -> bytes | None:
        if len(self._heard) < _SHORT.size:
            return None
        (size,), begin = _SHORT.unpack_from(self._heard), _SHORT.size
        if size < 0:
            if len(self._heard) < _LONG.size:
                return None
            (_, size), begin = _LONG.unpack_from(self._heard), _LONG.size
        if len(self._heard) < begin + size:
            return None
        message = bytes(memoryview(self._heard)[begin : begin + size])
        del self._heard[: begin + size]
        return message

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
