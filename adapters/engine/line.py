"""The trainer's end of the socket to a worker: nothing here ever waits.

What the system doesn't take at once is kept, and goes when the worker reads on: a worker that is at
a long job, or that waits for its own answer to be read, holds nobody up. A message is what
``multiprocessing``'s connection at the other end reads and writes: its length, then its bytes.
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
    """A message that isn't all sent yet.

    Ctrl-C may come between any two steps of Python's. So what was sent is counted in one of C's,
    and counted up anew when it is asked for.
    """

    def __init__(self, message: bytes) -> None:
        self._message = memoryview(message)
        self._counts: list[int] = []

    def send(self, descriptor: int) -> None:
        """Send what the system takes at once."""
        self._counts.extend(map(os.write, (descriptor,), (self._message[sum(self._counts) :],)))

    @property
    def over(self) -> bool:
        """Whether all of it was sent."""
        return sum(self._counts) == len(self._message)


class Line:
    """Messages out, messages in.

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
        """For a selector."""
        return self._descriptor

    @property
    def is_full(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent)

    def put(self, message: bytes) -> None:
        """Send a message, now or by ``flush``.

        Raises:
            OSError: Nobody is at the other end.
        """
        size = len(message)
        head = _SHORT.pack(size) if size <= _MOST_SHORT else _LONG.pack(-1, size)
        self._unsent.append(_Unsent(head + message))
        self.flush()

    def flush(self) -> None:
        """Send what the system takes now.

        Raises:
            OSError: Nobody is at the other end; all that wasn't sent is dropped.
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
        """The messages that are here whole; empty where there is none.

        Raises:
            EOFError: There is none, and there will be none.
            OSError: The other end broke.
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
        """Hang up."""
        self._connection.close()
