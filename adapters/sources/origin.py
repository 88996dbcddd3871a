"""Where a sample lies, and what is drawn for it: for people who look at a batch again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adapters.images.geometry import Crop


class Origin(NamedTuple):
    """Of one sample; None where a source has no such thing.

    Args:
        file: Its path, as it was given.
        record: Its number in that file.
        offset: Of the record's first byte in the file.
        encoded: Its image, as it is stored.
        crop: The box that is cut out of it, and whether that is flipped.
    """

    file: str | None = None
    record: int | None = None
    offset: int | None = None
    encoded: bytes | None = None
    crop: Crop | None = None

    @property
    def drawn(self) -> str:
        """The crop, in words; empty if there is none."""
        crop = self.crop
        if crop is None:
            return ""
        size = crop.resized or crop.image
        words = f"{crop.height}x{crop.width} at ({crop.top}, {crop.left}) of {size[0]}x{size[1]}"
        resized = f", resized from {crop.image[0]}x{crop.image[1]}" if crop.resized else ""
        return words + resized + (", flipped" if crop.flip else "")


class Located:
    """What a source has for it."""

    def origin(self, number: int, rng: np.random.Generator) -> Origin:
        """Where a sample lies, and what is drawn for it; empty where there is nothing to say.

        Args:
            number: Of the sample.
            rng: Its own generator, as ``sample`` is given.
        """
        return Origin()
