"""Which image of a batch another one is mixed with: its neighbour on one random circle.

On a circle through all images nobody is his own partner, and the mixing can be done in place: in
its order, each image is changed before the one that needs it as it was, but for the first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Circle(NamedTuple):
    """A random order of the samples of a batch; the partner of each is the one behind it."""

    order: NDArray[np.int64]
    partners: NDArray[np.int64]
    """For each sample, its partner."""


def circle(count: int, rng: np.random.Generator) -> Circle:
    """A random circle through so many samples."""
    order = rng.permutation(count)
    partners = np.empty(count, np.int64)
    partners[order] = np.roll(order, -1)
    return Circle(order, partners)
