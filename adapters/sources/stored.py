"""Data sets of h5py and zarr, which stay on disk: a batch takes as few reads as pay off.

Rows of one chunk are read at once, as it has to be decoded whole; without chunks, rows that lie
near each other. Any thread may read: h5py has its own lock, zarr needs none. Another process opens
the file again.
"""

from __future__ import annotations

import importlib
import itertools
import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LIBRARIES = ("h5py", "zarr")
# Bytes that h5py reads in the time of one more call, 40 microseconds; zarr's calls take longer.
_GAP_BYTES = 128 << 10
# Memory for a read besides the batch, unless one chunk is larger.
_READ_BYTES = 8 << 20
# Larger chunks hold columns of many rows; only the requested rows of them are read.
_CHUNK_BYTES = 64 << 20
# h5py's drivers for files that another process can open by name.
_DRIVERS = ("sec2", "stdio")


def is_stored(data: Any) -> bool:
    """True if ``data`` is a data set of h5py or an array of zarr."""
    if not any(base.__module__.partition(".")[0] in _LIBRARIES for base in type(data).__mro__):
        return False
    return getattr(data, "shape", None) is not None and hasattr(data, "dtype")


def is_sparse(data: Any) -> bool:
    """True if ``data`` is a SciPy matrix with a row for each sample."""
    return hasattr(data, "tocsr") and len(getattr(data, "shape", ())) == 2


def holds_stored(data: Any) -> bool:
    """True if ``data`` is an array on disk, a sparse matrix, or a tuple with one in it."""
    members = data if type(data) is tuple else (data,)
    return any(is_stored(member) or is_sparse(member) for member in members)


class Stored:
    """Rows of one data set, by number; for h5py, pickled as the name of the file."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._place: tuple[str, str] | None = None
        self.shape: tuple[int, ...] = tuple(data.shape)
        self.dtype = np.dtype(data.dtype)
        self._row_bytes = max(1, math.prod(self.shape[1:]) * self.dtype.itemsize)
        rows = data.chunks[0] if getattr(data, "chunks", None) else 1
        self._chunk_rows = rows if rows * self._row_bytes <= _CHUNK_BYTES else 1
        most = _READ_BYTES // self._row_bytes // self._chunk_rows
        self._most_rows = max(1, most) * self._chunk_rows

    def __len__(self) -> int:
        return self.shape[0]

    def read(self, numbers: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Write these rows, in any order and possibly repeated, into ``rows``."""
        order = numbers.argsort(kind="stable")
        inorder = numbers[order]
        for begin, end in self._stretches(inorder):
            first, last = int(inorder[begin]), int(inorder[end - 1])
            block = self._opened()[first : last + 1]
            rows[order[begin:end]] = block[inorder[begin:end] - first]

    def _stretches(self, inorder: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Split sorted numbers into reads: places where each begins and ends."""
        behind, before = inorder[1:], inorder[:-1]
        is_far = (behind - before - 1) * self._row_bytes > _GAP_BYTES
        is_far &= behind // self._chunk_rows != before // self._chunk_rows
        cuts = np.flatnonzero(is_far | (behind // self._most_rows != before // self._most_rows)) + 1
        places = [0, *cuts.tolist(), len(inorder)]
        return list(itertools.pairwise(places))

    def _opened(self) -> Any:
        if self._data is None:
            assert self._place is not None
            file, name = self._place
            self._data = importlib.import_module("h5py").File(file, "r")[name]
        return self._data

    def __getstate__(self) -> dict[str, Any]:
        data = self._data
        if data is None or not hasattr(data, "file"):
            return self.__dict__
        file = data.file
        if file.mode != "r" or file.driver not in _DRIVERS:
            raise TypeError(
                f"the data set {data.name!r} of {file.filename} is in a file that another process "
                f"can't open, with mode={file.mode!r} and driver={file.driver!r}: open it as "
                'h5py.File(path, "r")'
            )
        return {
            **self.__dict__,
            "_data": None,
            "_place": (os.path.abspath(file.filename), data.name),
        }


class SparseRows(Stored):
    """Rows of a SciPy sparse matrix, which become dense a batch at a time."""

    def __init__(self, matrix: Any) -> None:
        self._data = matrix.tocsr()
        self.shape = tuple(matrix.shape)
        self.dtype = np.dtype(matrix.dtype)

    def read(self, numbers: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Write these rows, in any order and possibly repeated, into ``rows``."""
        rows[...] = self._data[numbers].toarray()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__
