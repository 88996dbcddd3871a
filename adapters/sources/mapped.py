"""Any object with ``__len__`` and ``__getitem__`` whose items are single samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


class MapSource:
    """A list, or a map-style data set as Grain, PyTorch and Gluon have them.

    Args:
        data: Asked by ``data[int]``, or once per batch by ``data.__getitems__(list of int)``, which
            returns a list of samples, where that exists. Several threads may ask at once.
    """

    def __init__(self, data: Any) -> None:
        self._data = data
        self._fetch_many = getattr(data, "__getitems__", None)

    def __len__(self) -> int:
        return len(self._data)

    def samples(self, numbers: NDArray[np.int64]) -> Sequence[Any]:
        """The samples of these numbers; a long fetch one at a time stays lazy."""
        if self._fetch_many is None:
            return _Lazy(self, numbers)
        samples = self._fetch_many(numbers.tolist())
        if len(samples) != len(numbers):
            raise ValueError(
                f"__getitems__ of {type(self._data).__name__} must return one sample per number, "
                f"got {len(samples)} for {len(numbers)}"
            )
        return samples  # type: ignore[no-any-return]

    def sample(self, number: int) -> Any:
        """The sample of this number."""
        return self._data[number]


class _Lazy(Sequence[Any]):
    """Fetches sample i when it is asked for, so that one sample is in memory at a time."""

    def __init__(self, source: MapSource, numbers: NDArray[np.int64]) -> None:
        self._source = source
        self._numbers = numbers.tolist()

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return self._source.sample(self._numbers[index])
