"""``Origin``: where a sample lies and what is drawn for it, to inspect a batch later."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from adapters.images.geometry import Crop


class Origin(NamedTuple):
    """Origin of one sample; None for what its source doesn't have.

    Args:
        file: Path, as it was given.
        record: Record number in that file.
        offset: Offset of the record's first byte in the file.
        encoded: Encoded image.
        crop: Box that is cut out of it, and whether that is flipped.
    """

    file: str | None = None
    record: int | None = None
    offset: int | None = None
    encoded: bytes | None = None
    crop: Crop | None = None

    @property
    def drawn(self) -> str:
        """Description of the crop; empty without one."""
        crop = self.crop
        if crop is None:
            return ""
        size = crop.resized or crop.image
        words = f"{crop.height}x{crop.width} at ({crop.top}, {crop.left}) of {size[0]}x{size[1]}"
        resized = f", resized from {crop.image[0]}x{crop.image[1]}" if crop.resized else ""
        return words + resized + (", flipped" if crop.flip else "")


class Located:
    """Base class of sources that can locate their samples."""

    def origin(self, number: int, rng: np.random.Generator) -> Origin:
        """Locate a sample and what is drawn for it; empty by default.

        Args:
            number: Sample number.
            rng: The sample's generator, as for ``sample``.
        """
        return Origin()
