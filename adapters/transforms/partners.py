"""Partners for mixing the images of a batch: neighbours on one random circle.

On a circle through several images, none is its own partner. Mixing can be done in place: in the
circle's order, each image changes before its partner, so only the first one has to be copied.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Circle(NamedTuple):
    """Random order of a batch's samples; the partner of each is the next one."""

    order: NDArray[np.int64]
    partners: NDArray[np.int64]
    """Partner of each sample."""


def circle(count: int, rng: np.random.Generator) -> Circle:
    """Draw a random circle through so many samples."""
    order = rng.permutation(count)
    partners = np.empty(count, np.int64)
    partners[order] = np.roll(order, -1)
    return Circle(order, partners)
