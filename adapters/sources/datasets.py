"""``MapSource``: any object with ``__len__`` and ``__getitem__`` whose items are samples."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.sources.source import Source

log = logging.getLogger("adapters")


class MapSource(Source):
    """List or map-style data set, as in Grain, PyTorch and Gluon.

    Args:
        data: Read by ``data[int]``, or, if it exists, once per batch by ``data.__getitems__(list of
            int)``, which returns a list of samples. Threads may read concurrently.
    """

    may_grow = True

    def __init__(self, data: Any) -> None:
        self.data = data
        self._size, self._has_warned = len(data), False
        self._fetch_many = getattr(data, "__getitems__", None)
        self.fetches_many = self._fetch_many is not None
        self.makes_samples = type(data) not in (list, tuple)

    def __len__(self) -> int:
        return len(self.data)

    def check_length(self) -> bool:
        """Warn of samples that were added, or raise ``ValueError`` if some are gone."""
        if (size := len(self.data)) == self._size:
            return False
        lengths = f"{type(self.data).__name__} had {self._size} samples and has {size}"
        remedy = "make a new SafeSequence for each length"
        if size < self._size:
            raise ValueError(f"source must not become shorter: {lengths}; {remedy}")
        if not self._has_warned:
            self._has_warned = True
            log.warning("samples added to source are not read: %s; %s", lengths, remedy)
        return False

    @property
    def users_code(self) -> tuple[Any, ...]:
        """The data set."""
        return (self.data,)

    def samples(self, numbers: NDArray[np.int64]) -> Sequence[Any] | None:
        """Samples of these numbers; None without ``__getitems__``."""
        if self._fetch_many is None:
            return None
        samples = self._fetch_many(numbers.tolist())
        if not hasattr(samples, "__len__") or hasattr(samples, "keys"):
            raise TypeError(
                f"__getitems__ of {type(self.data).__name__} must return a list of samples, got "
                f"{type(samples).__name__}"
            )
        if len(samples) != len(numbers):
            raise ValueError(
                f"__getitems__ of {type(self.data).__name__} must return one sample per number, "
                f"got {len(samples)} for {len(numbers)}"
            )
        return samples  # type: ignore[no-any-return]

    def labels_of(self, numbers: NDArray[np.int64]) -> NDArray[Any] | None:
        """Second members of the pairs in a list, if each is one number or string."""
        if type(self.data) not in (list, tuple):
            return None
        labels = []
        for number in numbers.tolist():
            sample = self.data[number]
            if not isinstance(sample, tuple) or len(sample) != 2 or np.ndim(sample[1]):
                return None
            labels.append(sample[1])
        array = np.array(labels)
        return array if array.dtype.kind in "biufU" else None

    def sample(self, number: int, rng: np.random.Generator | None = None) -> Any:
        """Return one sample."""
        return self.data[number]

    def way(self, transformed: bool) -> str:
        """Human-readable description of how samples are read."""
        if self.fetches_many:
            return "samples, fetched a batch at a time by __getitems__"
        return super().way(transformed)
