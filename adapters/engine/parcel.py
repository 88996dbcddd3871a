"""A plan on its way to worker processes: pickled once, its arrays shared and not copied to each.

    | array | pad to 64 | array | pad to 64 | ... | pickle |

Pickle's protocol 5 hands out contiguous arrays as buffers; they go into one shared file, which each
worker maps privately: reading shares the pages, and a transform that writes into its data set
changes its own copy only. Memory-mapped arrays travel as the name of their file.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from adapters.assemble import ALIGNMENT_BYTES
from adapters.engine.memory import FileName, SharedFile, map_private


class Address(NamedTuple):
    """Where a parcel lies; small enough to travel with every job."""

    name: FileName
    pickle: tuple[int, int]
    buffers: tuple[tuple[int, int], ...]


class Parcel:
    """An object in shared memory, for as long as this is open.

    Raises:
        Exception: The object can't be pickled, not even by cloudpickle.
    """

    def __init__(self, content: Any) -> None:
        buffers: list[pickle.PickleBuffer] = []
        stream = io.BytesIO()
        _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(content)
        parts = [*(buffer.raw() for buffer in buffers), stream.getbuffer()]
        places, end = [], 0
        for part in parts:
            places.append((end, part.nbytes))
            end += -(-part.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self._file = SharedFile()
        self._file.grow(end)
        with self._file.map() as memory:
            for (start, length), part in zip(places, parts):
                memory[start : start + length] = part
        self.address = Address(self._file.name, places[-1], tuple(places[:-1]))

    def close(self) -> None:
        """Give the memory back, once no worker maps it."""
        self._file.close()


def open_parcel(address: Address) -> Any:
    """The object, in another process; its arrays lie in the shared memory."""
    memory = memoryview(map_private(address.name))
    start, length = address.pickle
    return pickle.loads(
        memory[start : start + length],
        buffers=[memory[start : start + length] for start, length in address.buffers],
    )


def pickles(content: Any) -> str | None:
    """None where ``content`` can be sent to a process, else what stands in the way."""
    try:
        _Pickler(io.BytesIO(), protocol=5, buffer_callback=lambda _: None).dump(content)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.memmap and (reduced := _reduce_memmap(value)) is not None:
            return reduced
        return super().reducer_override(value)


def _reduce_memmap(array: np.memmap[Any, Any]) -> Any:
    """Name, offset and shape of a mapped file; None where the array isn't one plain stretch."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base  # type: ignore[assignment]
    if not isinstance(base, np.memmap) or base.filename is None or base.mode == "c":
        return None
    if not array.flags.c_contiguous:
        return None
    # A slice keeps the offset attribute of the array that it was cut from; its address tells.
    ahead = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return _open_memmap, (str(base.filename), array.dtype, base.offset + ahead, array.shape)


def _open_memmap(filename: str, dtype: Any, offset: int, shape: tuple[int, ...]) -> Any:
    return np.memmap(filename, dtype, "c", offset, shape)
