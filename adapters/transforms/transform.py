"""Base class of batch transforms: a callable ``(batch, rng)`` that finds its arrays in the batch.

    called by a user:    __call__ --> copies --> on_own_batch
    called by a loader:                          on_own_batch, in the batch's own memory

A loader has the only reference to a batch that it has just made, and calls ``on_own_batch``, which
may write into its arrays. Other callers get a new batch, and theirs stays unchanged. A transform
has no state that changes, so any thread may call it. Below are the checks of transforms' arguments,
the axes of images, and the native kernel for them.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from adapters.images.kernel import load
from adapters.structure import flatten, private

Place = int | str | tuple[int | str, ...] | None
"""Place of a member in a batch; None for the usual one."""

_IMAGES = ("image", "images", "pixel_values")
_LABELS = ("label", "labels")
LayoutName = Literal["auto", "NHWC", "NCHW"]
_CHANNELS = (1, 3, 4)


class BatchTransform(abc.ABC):
    """Transform of whole batches.

    A batch is ``(images, labels)`` or ``(images, labels, weights)``, or a dict with ``image`` and
    ``label`` (or ``images`` and ``labels``), or an array of images alone.

    Args:
        image: Place of the images, if it is another: a position, a key, or several of them for
            nested batches, such as ``(0, "picture")``.
        label: Place of the labels, likewise.
    """

    keeps_nothing = True
    """True if only the caller refers to the returned batch, as no other function is called."""
    draws = True
    """True if it needs a generator."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if not cls.__module__.startswith("adapters.") and "keeps_nothing" not in vars(cls):
            cls.keeps_nothing = False  # A user's class may return a buffer that it reuses.

    def __init__(self, image: Place = None, label: Place = None) -> None:
        for name, place in {"image": image, "label": label}.items():
            parts = place if isinstance(place, tuple) else (place,)
            if not parts or not all(isinstance(part, (int, str, type(None))) for part in parts):
                raise TypeError(
                    f"{name} must be a position, a key or a tuple of them, got {place!r}"
                )
        self._image = image
        self._label = label

    def __call__(self, batch: Any, rng: np.random.Generator) -> Any:
        """Return a new batch; the input batch and its arrays stay unchanged.

        Args:
            batch: Structure of arrays, whose first axis counts the samples.
            rng: Source of all random numbers.

        Raises:
            TypeError: An array has an unsupported dtype, or ``rng`` is no generator.
            ValueError: A member is missing, or an array has an unsupported shape.
        """
        if self.draws and not isinstance(rng, np.random.Generator):
            raise TypeError(
                f"rng must be a numpy.random.Generator, got {rng!r}: numpy.random.default_rng(0) "
                "is one, and a loader gives each batch its own"
            )
        return self.on_own_batch(private(batch), rng)

    @abc.abstractmethod
    def on_own_batch(self, batch: Any, rng: np.random.Generator) -> Any:
        """Transform a batch without other references; its arrays may be written to."""

    def __repr__(self) -> str:
        given = (
            f"{name.removeprefix('_')}={value!r}"
            for name, value in vars(self).items()
            if value is not None and not isinstance(value, (np.ndarray, list, dict))
        )
        return f"{type(self).__name__}({', '.join(given)})"

    # --- members ---

    def with_images(self, batch: Any, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
        """Replace the images by ``change(images)``, which may write to them."""
        path = _path(batch, self._image, 0, _IMAGES, "image")
        return _changed(batch, path, "image", lambda images: change(_own(images, batch)))

    def with_labels(self, batch: Any, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Any:
        """Replace the labels by ``change(labels)``, which returns new ones."""
        path = _path(batch, self._label, 1, _LABELS, "label")
        return _changed(batch, path, "label", lambda labels: change(np.asarray(labels)))


def _path(
    batch: Any, place: Place, position: int, names: tuple[str, ...], name: str
) -> tuple[int | str, ...]:
    if place is not None:
        return place if isinstance(place, tuple) else (place,)
    if isinstance(batch, dict):
        for key in names:
            if key in batch:
                return (key,)
        raise ValueError(
            f"batch must have a member called {' or '.join(names)}, got {list(batch)}: say which "
            f'one it is with {name}="..."'
        )
    if not isinstance(batch, (tuple, list)):
        if position:
            raise ValueError("batch must be (images, labels), got one array without labels")
        return ()
    if len(batch) <= position:
        raise ValueError(f"batch must be (images, labels), got {len(batch)} members")
    path: tuple[int | str, ...] = (position,)
    if isinstance(batch[position], dict):
        path += _path(batch[position], None, 0, names, name)
    return path


def _changed(
    batch: Any, path: tuple[int | str, ...], name: str, change: Callable[[Any], NDArray[Any]]
) -> Any:
    """Replace the member at a path by ``change(member)``."""
    if not path:
        if not hasattr(batch, "__array__"):
            raise ValueError(
                f"batch must have an array where its {name} is, got {type(batch).__name__}: say "
                f"where it is with {name}=..."
            )
        return change(batch)
    key, *rest = path
    try:
        member = batch[key]
    except (LookupError, TypeError):
        raise ValueError(
            f"batch must have a member {list(path)} for {name}=, got "
            f"{list(batch) if isinstance(batch, dict) else type(batch).__name__} at {key!r}"
        ) from None
    changed = _changed(member, tuple(rest), name, change)
    if isinstance(batch, dict):
        return {**batch, key: changed}
    assert isinstance(key, int)
    members = list(batch)
    members[key] = changed
    if isinstance(batch, list):
        return members
    return type(batch)(*members) if hasattr(batch, "_fields") else tuple(members)


def _own(images: Any, batch: Any) -> NDArray[Any]:
    """Return images that can be written to without changing another member."""
    array = np.asarray(images)
    sharing = sum(
        leaf is images or (isinstance(leaf, np.ndarray) and np.may_share_memory(leaf, array))
        for leaf in flatten(batch)[0]
    )
    if not array.flags.writeable or not array.flags.c_contiguous or sharing > 1:
        return np.array(array, order="C")
    return array


def number(name: str, value: Any, least: float, most: float = math.inf) -> float:
    """Check a finite number within bounds."""
    try:
        given = float(value)
    except (OverflowError, TypeError, ValueError):
        given = math.nan
    if isinstance(value, (bool, str)) or math.isnan(given):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if math.isinf(given) and most == math.inf:
        raise ValueError(f"{name} must be finite, got {value!r}")
    if not least <= given <= most:
        bound = f">= {least:g}" if most == math.inf else f"in [{least:g}, {most:g}]"
        raise ValueError(f"{name} must be {bound}, got {value!r}")
    return given


def interval(name: str, value: Any, least: float, most: float = math.inf) -> tuple[float, float]:
    """Check two numbers within bounds, the smaller one first."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(f"{name} must be (low, high), got {value!r}")
    low, high = (number(name, each, least, most) for each in value)
    if low > high:
        raise ValueError(f"{name} must be (low, high) with low <= high, got {value!r}")
    return low, high


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
    """Check that ``layout`` is one."""
    if layout not in ("auto", "NHWC", "NCHW"):
        raise ValueError(f'layout must be "auto", "NHWC" or "NCHW", got {layout!r}')


def axes_of(images: NDArray[Any], layout: LayoutName) -> Axes:
    """Find the axes of images; "auto" takes the last axis for the channels if it can be."""
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


def kernel_for(images: NDArray[Any]) -> Any:
    """Return the native kernel if it can read these images: uint8 or float32; else None."""
    known = images.dtype in (np.uint8, np.float32) and images.dtype.isnative
    return load() if known and images.size and images.flags.aligned else None
