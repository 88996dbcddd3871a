"""Batches on a socket of their own: as they lie in memory, and straight into that of the reader.

    | count (uint64) | sizes of the parts (uint64 each) | pickle | array | array | ...

Little endian; the pickle is the first part, and says which arrays belong to which batch. Both ends
block, without holding the interpreter lock: batches of 9.6 MB took 0.6 s of all CPUs a GB over
loopback, where an event loop that moves them took 0.9, and results of Dask tasks 3.5. A socket is
written by one thread and read by one, as TLS demands.
"""

from __future__ import annotations

import contextlib
import pickle
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from adapters.batch.plan import Allocate
from adapters.engine.shipment import Made
from adapters.failure import Failure

_NUMBER = struct.Struct("<Q")
# Arrays up to there are sent together, in one packet.
_SMALL_BYTES = 16 << 10


def can_be_taken_over(comm: Any) -> bool:
    """Whether a connection of Dask's has a socket of Tornado's beneath, as TCP and TLS have."""
    stream = getattr(comm, "stream", None)
    return isinstance(getattr(stream, "socket", None), socket.socket) and hasattr(stream, "io_loop")


def taken_over(comm: Any) -> socket.socket:
    """The socket of a connection of Dask's, from here on the caller's.

    The event loop no longer looks at it; ``comm.abort()`` still closes it. To be called on that
    loop, while the other end waits and says nothing.
    """
    owned: socket.socket = comm.stream.socket
    comm.stream.io_loop.remove_handler(owned)
    owned.setblocking(True)
    return owned


def hang_up(owned: socket.socket) -> None:
    """Have whoever reads or writes at either end see that it is over; from any thread."""
    with contextlib.suppress(OSError):
        # Not TLS's own, which isn't for other threads.
        socket.socket.shutdown(owned, socket.SHUT_RDWR)


def send(owned: socket.socket, number: int, answers: list[Made | Failure]) -> None:
    """Send what was asked for under a number.

    Raises:
        OSError: The other end is gone.
    """
    arrays: list[memoryview] = []
    told: list[Any] = []
    for answer in answers:
        if isinstance(answer, Made):
            described, own = answer.apart()
            told.append((described, len(own)))
            arrays += own
        else:
            told.append(answer)
    content = pickle.dumps((number, told), protocol=5)
    sizes = [len(content), *(array.nbytes for array in arrays)]
    small = [struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes), content]
    for array in arrays:
        if array.nbytes < _SMALL_BYTES:
            small.append(array.tobytes())
        else:
            owned.sendall(b"".join(small))
            owned.sendall(array)
            small.clear()
    owned.sendall(b"".join(small))


def receive(
    owned: socket.socket, allocate: Allocate, begun: Callable[[], None]
) -> tuple[int, list[Made | Failure]]:
    """Read what was sent, into memory of the caller's.

    Args:
        owned: The socket.
        allocate: Gives the memory of an array.
        begun: Called once something comes.

    Raises:
        OSError: The connection broke.
        EOFError: The other end hung up.
    """
    count = bytearray(_NUMBER.size)
    _fill(owned, memoryview(count))
    begun()
    table = bytearray(_NUMBER.size * _NUMBER.unpack(count)[0])
    _fill(owned, memoryview(table))
    size, *sizes = (number for (number,) in _NUMBER.iter_unpack(table))
    content = bytearray(size)
    _fill(owned, memoryview(content))
    arrays = []
    for size in sizes:
        array = allocate((size,), np.dtype(np.uint8))
        _fill(owned, array.data)
        arrays.append(array)
    number, told = pickle.loads(content)
    answers: list[Made | Failure] = []
    for each in told:
        if isinstance(each, Failure):
            answers.append(each)
        else:
            described, length = each
            own, arrays = arrays[:length], arrays[length:]
            answers.append(Made.joined(described, own))
    return number, answers


def _fill(owned: socket.socket, memory: memoryview) -> None:
    flags = 0 if isinstance(owned, ssl.SSLSocket) else socket.MSG_WAITALL
    while memory.nbytes:
        came = owned.recv_into(memory, memory.nbytes, flags)
        if not came:
            raise EOFError("the other end hung up")
        memory = memory[came:]
