"""Axes of height, width and channels in a batch of images."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from numpy.typing import NDArray

LayoutName = Literal["auto", "NHWC", "NCHW"]
_CHANNELS = (1, 3, 4)


class Axes(NamedTuple):
    """Layout and sizes of a batch of images."""

    channels_first: bool
    height: int
    width: int
    channels: int

    def box(self, top: int, left: int, height: int, width: int) -> tuple[Any, ...]:
        """Return the index of a box in one image."""
        rows, columns = slice(top, top + height), slice(left, left + width)
        return (slice(None), rows, columns) if self.channels_first else (rows, columns)


def check_layout(layout: Any) -> None:
    """Check ``layout``.

    Raises:
        ValueError: It is no layout.
    """
    if layout not in ("auto", "NHWC", "NCHW"):
        raise ValueError(f'layout must be "auto", "NHWC" or "NCHW", got {layout!r}')


def axes_of(images: NDArray[Any], layout: LayoutName) -> Axes:
    """Find the axes of images.

    Args:
        images: ``(batch, height, width)``, or with an axis of 1, 3 or 4 channels.
        layout: "auto" takes the last axis for the channels if it can be, else the second.

    Raises:
        ValueError: The shape isn't that of images.
    """
    shape = images.shape
    if len(shape) == 3:
        return Axes(False, shape[1], shape[2], 1)
    if len(shape) == 4:
        if layout == "NHWC" or (layout == "auto" and shape[3] in _CHANNELS):
            return Axes(False, *shape[1:])
        if layout == "NCHW" or shape[1] in _CHANNELS:
            return Axes(True, shape[2], shape[3], shape[1])
    raise ValueError(
        "images must be (batch, height, width), or have an axis of channels more, "
        f'got the shape {shape}; layout="NHWC" or "NCHW" says which axis that is'
    )
