"""Samples in memory that user code fills again: copied before the next one is asked for.

A batch is made of a list of samples. A data set that fills one buffer for each would leave the last
one in all places of it. The first samples are copied and looked at; the others are copied if an
address came back with other contents.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from adapters.gluon.ndarrays import as_numpy, map_arrays
from adapters.ownership import detached
from adapters.structure import flatten, to_array

# Samples that are looked at, and how many bytes of them are kept meanwhile, so that nothing else
# gets their addresses.
_MOST_SAMPLES, _MOST_BYTES = 64, 32 << 20


class ReusedMemory:
    """Whether a data set or a transform fills its memory again."""

    def __init__(self) -> None:
        self._found = False
        self._left = _MOST_SAMPLES
        self._bytes = 0
        self._seen: dict[int, tuple[Any, int]] = {}

    def __reduce__(self) -> Any:
        return ReusedMemory, ()

    def taken(self, sample: Any) -> Any:
        """The sample, or a copy if the next one may lie in the same memory."""
        if not (self._found or self._left):
            return sample
        if not self._found:
            self._look(sample)
        copied = detached(sample)
        map_arrays(lambda array: array.wait_to_read(), copied, lists=True)
        return copied

    def _look(self, sample: Any) -> None:
        for leaf in flatten(map_arrays(as_numpy, sample, lists=True))[0]:
            if isinstance(leaf, np.generic) or not hasattr(leaf, "__array__"):
                continue
            array = to_array(leaf)
            if not array.nbytes or array.dtype.hasobject:
                continue
            address, check = array.__array_interface__["data"][0], zlib.crc32(array.tobytes())
            if self._seen.setdefault(address, (leaf, check))[1] != check:
                self._found = True
            self._bytes += array.nbytes
        self._left = max(0, self._left - 1)
        several = self._left < _MOST_SAMPLES - 1
        if self._found or not self._left or (several and self._bytes > _MOST_BYTES):
            self._left, self._seen = 0, {}
