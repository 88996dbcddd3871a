"""Sequential reading of a remote file."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from adapters.records.storage import Storage

# Fetched at once, and again as read-ahead: 8 requests of 4 MiB each.
_STREAM_BYTES = 32 << 20


class _Fetched(Storage, Protocol):
    def covering(self, offset: int, size: int) -> memoryview: ...

    def expect(self, begins: NDArray[np.int64], sizes: NDArray[np.int64]) -> None: ...


class Streamed:
    """Remote file for sequential reading: fetches many pieces at once and as many ahead.

    Args:
        file: The file.
    """

    def __init__(self, file: _Fetched) -> None:
        self._file = file
        self.name = file.name
        self.size = file.size
        self._until = 0

    def read(self, offset: int, size: int) -> memoryview:
        """Return these bytes; fewer if the object ends before."""
        if offset + size > self._until:
            end = offset + max(size, _STREAM_BYTES)
            self._file.covering(offset, end - offset)
            self._file.expect(np.array([end]), np.array([_STREAM_BYTES]))
            self._until = end
        return self._file.read(offset, size)

    def close(self) -> None:
        """Do nothing: the file has another owner."""
