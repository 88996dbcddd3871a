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

from adapters.signatures import check_unchanged, identity_of

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


class Stored:
    """Rows of one data set, by number; for h5py, pickled as the name of the file."""

    def __init__(self, data: Any) -> None:
        self._data = data
        self._place: tuple[str, str, tuple[str, int, int]] | None = None
        self.shape: tuple[int, ...] = tuple(data.shape)
        self.dtype = np.dtype(data.dtype)
        self._row_bytes = max(1, math.prod(self.shape[1:]) * self.dtype.itemsize)
        rows = data.chunks[0] if getattr(data, "chunks", None) else 1
        self._chunk_rows = rows if rows * self._row_bytes <= _CHUNK_BYTES else 1
        most = _READ_BYTES // self._row_bytes // self._chunk_rows
        self._most_rows = max(1, most) * self._chunk_rows

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def version(self) -> Any:
        """Place, form and, of local files, sizes and times, which change when the rows do."""
        data = self._opened()
        if hasattr(data, "file"):
            place, name = os.path.abspath(data.file.filename), data.name
            _check_opened(data.file, place)
        else:
            store, name = getattr(data, "store", None), getattr(data, "path", "")
            place = str(getattr(store, "root", getattr(store, "path", "")))
            place = os.path.abspath(place) if os.path.exists(place) else place
        walked = os.walk(os.path.join(place, name))
        found = sorted(os.path.join(inside, each) for inside, _, names in walked for each in names)
        files = [place] if os.path.isfile(place) else found
        known = [(each, os.stat(each)) for each in files]
        stamps = [(each, at.st_size, at.st_mtime_ns, at.st_ctime_ns) for each, at in known]
        return [place, name, self.shape, str(self.dtype), stamps]

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
            file, name, identity = self._place
            data = importlib.import_module("h5py").File(file, "r")[name]
            check_unchanged(file, identity)
            self._data = data
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
        path = os.path.abspath(file.filename)
        _check_opened(file, path)
        return {**self.__dict__, "_data": None, "_place": (path, data.name, identity_of(path))}


class SparseRows(Stored):
    """Rows of a SciPy sparse matrix, which become dense a batch at a time."""

    def __init__(self, matrix: Any) -> None:
        self._data = matrix.tocsr()
        self.shape = tuple(matrix.shape)
        self.dtype = np.dtype(matrix.dtype)

    @property
    def version(self) -> Any:
        """Content, which changes when the rows do."""
        return [self.shape, self._data.indptr, self._data.indices, self._data.data]

    def read(self, numbers: NDArray[np.int64], rows: NDArray[Any]) -> None:
        """Write these rows, in any order and possibly repeated, into ``rows``."""
        rows[...] = self._data[numbers].toarray()


def _check_opened(file: Any, path: str) -> None:
    """Raise ``FileChangedError`` if an open file of h5py isn't the one of that name any more."""
    if file.driver == "sec2":  # Other drivers have no descriptor.
        check_unchanged(path, identity_of(file.id.get_vfd_handle()))
