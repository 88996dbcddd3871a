"""Contact sheets: images of any dtype and layout as tiles of one PNG, drawn without any library.

Captions take OpenCV; without it, tiles have none. Nothing is kept, nothing is written to.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adapters.replaying.sheet import png

TILE_PIXELS = 128
_GAP_PIXELS = 4
_CAPTION_PIXELS = 16
# The shortest side of what is taken for an image.
_LEAST_SIDE = 4


def images_in(array: Any) -> NDArray[Any] | None:
    """A batch of images with the channels last, ``(batch, height, width, channels)``.

    Args:
        array: What may be one: with 1, 3 or 4 channels in the last or second axis, or without that
            axis.

    Returns:
        A view; None for what isn't images.
    """
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf" or not len(array):
        return None
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4:
        return None
    if array.shape[3] not in (1, 3, 4):
        if array.shape[1] not in (1, 3, 4):
            return None
        array = array.transpose(0, 2, 3, 1)
    return array if min(array.shape[1:3]) >= _LEAST_SIDE else None


def contact_sheet(rows: Sequence[Sequence[tuple[NDArray[Any], str]]]) -> bytes:
    """A PNG of images in rows.

    Args:
        rows: Of each image ``(height, width, channels)`` and what is written below it. Values of
            floats within [0, 1] or [0, 255] are taken as such, others are spread over the whole
            range: one rule for all images.

    Raises:
        ValueError: Not a single image.
    """
    images = [image for row in rows for image, _ in row]
    if not images:
        raise ValueError("rows must hold at least one image, got none")
    low, high = _range(images)
    writer = _writer()
    below = (
        _CAPTION_PIXELS
        if writer is not None and any(text for row in rows for _, text in row)
        else 0
    )
    height, width = TILE_PIXELS + below + _GAP_PIXELS, TILE_PIXELS + _GAP_PIXELS
    sheet = np.full((len(rows) * height, max(map(len, rows)) * width, 3), 255, np.uint8)
    for down, row in enumerate(rows):
        for across, (image, text) in enumerate(row):
            tile = _tile(image, low, high)
            top, left = down * height, across * width
            sheet[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
            if below and writer is not None:
                place = (left, top + TILE_PIXELS + _CAPTION_PIXELS - _GAP_PIXELS)
                writer.putText(
                    sheet, text[:20], place, writer.FONT_HERSHEY_SIMPLEX, 0.38, (0, 0, 0), 1
                )
    return png(sheet)


def _range(images: Sequence[NDArray[Any]]) -> tuple[float, float]:
    if all(image.dtype == np.uint8 for image in images):
        return 0.0, 255.0
    finite = [image[np.isfinite(image)] for image in images]
    low = min((float(values.min()) for values in finite if values.size), default=0.0)
    high = max((float(values.max()) for values in finite if values.size), default=1.0)
    for most in (1.0, 255.0):
        if low >= 0 and high <= most:
            return 0.0, most
    return low, high if high > low else low + 1


def _tile(image: NDArray[Any], low: float, high: float) -> NDArray[np.uint8]:
    """An image as RGB, the longer side as long as a tile's; the nearest pixels."""
    height, width = image.shape[:2]
    scale = TILE_PIXELS / max(height, width)
    size = [max(1, min(TILE_PIXELS, round(side * scale))) for side in (height, width)]
    rows = (np.arange(size[0]) + 0.5) * height / size[0]
    columns = (np.arange(size[1]) + 0.5) * width / size[1]
    picked = image[rows.astype(int)[:, None], columns.astype(int), : min(3, image.shape[2])]
    values = (picked.astype(np.float64) - low) / (high - low)
    tile = np.clip(np.rint(np.nan_to_num(values) * 255), 0, 255).astype(np.uint8)
    return tile if tile.shape[2] == 3 else np.repeat(tile[..., :1], 3, axis=2)


def _writer() -> Any:
    try:
        return importlib.import_module("cv2")
    except ImportError:
        return None
