"""Gluon's image transforms on whole batches of images.

A ``Stage`` replaces one block. Its function transforms images of one shape as the block would each
of them. If it returns None, even for one image, the block itself is called. Deterministic blocks
give MXNet's values bit for bit, which the tests check. Random ones are given numbers that depend on
the loader's seed, the epoch and the number of the sample, and don't use the global generators as
MXNet's blocks do.
"""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet.gluon.data.vision import transforms
from mxnet.util import is_np_array
from numpy.typing import NDArray

from adapters.batch.permutation import GOLDEN, mix_64
from adapters.gluon.ndarrays import DTYPES, as_ndarray, copy_into
from adapters.images.kernel import load
from adapters.ownership import Allocate

Rows = NDArray[Any]
Drawn = NDArray[np.float64]
"""Random numbers in [0, 1), ``(batch, draws)``."""
_FLOAT32 = np.dtype(np.float32)
_building = threading.RLock()
_built: weakref.WeakSet[Any] = weakref.WeakSet()


def call(function: Any, *arguments: Any, **named: Any) -> Any:
    """Call a user's function or block. May be called from any thread.

    In its first call, a block builds its graph, with names from a scope that all threads share. Two
    threads that do so at once fail or get each other's names. So one block at a time is built.
    """
    if not isinstance(function, mx.gluon.Block) or function in _built:
        return function(*arguments, **named)
    with _building:
        result = function(*arguments, **named)
        _built.add(function)
    return result


class Stage(NamedTuple):
    """Batch version of one block."""

    block: Any
    function: Callable[[Any, Rows, Drawn, Allocate], Rows | None]
    """``function(block, rows, drawn, allocate)`` transforms ``rows``, images ``(batch, ...)``,
    which it doesn't change. The result is in memory from ``allocate``; None if that isn't possible.
    """
    draws: int
    """Number of uniform random numbers needed for each sample, in ``drawn``."""
    first: bool = False
    """True to transform the first member of a tuple only."""


def _to_tensor(block: Any, rows: Rows, drawn: Drawn, allocate: Allocate) -> Rows | None:
    if rows.ndim != 4 or rows.dtype not in (np.uint8, np.float32):
        return None
    turned = rows.transpose(0, 3, 1, 2)
    out = allocate(turned.shape, _FLOAT32)
    kernel = load() if rows.dtype == np.uint8 and rows.size else None
    if kernel is not None and rows.flags.c_contiguous and out.flags.carray:
        kernel.floats(rows, len(rows), rows.shape[3], out)
        return out
    # Two passes are faster: dividing integers uses NumPy's small buffer (1.4x for 32x32x3).
    np.copyto(out, turned)
    np.divide(out, np.float32(255), out=out)
    return out


def _normalize(block: Any, rows: Rows, drawn: Drawn, allocate: Allocate) -> Rows | None:
    if rows.ndim != 4 or rows.dtype != np.float32 or rows.shape[1] not in (1, 3):
        return None
    mean, std = (
        np.asarray(each, np.float32).reshape(-1, 1, 1) for each in (block._mean, block._std)
    )
    if not {len(mean), len(std)} <= {1, rows.shape[1]}:
        return None
    out = allocate(rows.shape, _FLOAT32)
    with np.errstate(all="ignore"):
        np.subtract(rows, mean, out=out)
        np.divide(out, std, out=out)
    return out


def _cast(block: Any, rows: Rows, drawn: Drawn, allocate: Allocate) -> Rows | None:
    try:
        dtype = np.dtype(block._dtype)
    except TypeError:
        return None
    if dtype.type not in DTYPES:
        return None
    out = allocate(rows.shape, dtype)
    with np.errstate(all="ignore"):
        if rows.dtype == np.float64 and dtype == np.float16:
            rows = rows.astype(np.float32)  # MXNet rounds twice.
        np.copyto(out, rows, casting="unsafe")
    return out


def _resize(block: Any, rows: Rows, drawn: Drawn, allocate: Allocate) -> Rows | None:
    """Have MXNet's block resize a batch, if OpenCV can.

    It throws otherwise, with several images in MXNet's threads, which ends the process.
    """
    if rows.ndim != 4 or rows.dtype not in (np.uint8, np.float32) or not rows.size:
        return None
    if block._interpolation not in range(5) or rows.shape[3] not in range(1, 5):
        return None
    resized = call(block, as_ndarray(rows, is_np_array()))
    out = allocate(resized.shape, np.dtype(resized.dtype))
    copy_into(out, resized)
    return out


def _center_crop(block: Any, rows: Rows, drawn: Drawn, allocate: Allocate) -> Rows | None:
    width, height = map(int, block._args[0])
    if rows.ndim != 4 or rows.shape[2] < width or rows.shape[1] < height:
        return None
    if tuple(block._args[0]) != (width, height):
        return None  # MXNet resizes the crop, or tries to.
    x, y = int((rows.shape[2] - width) / 2), int((rows.shape[1] - height) / 2)
    return _copied(rows[:, y : y + height, x : x + width], allocate)


def _crop_resize(block: Any, rows: Rows, drawn: Drawn, allocate: Allocate) -> Rows | None:
    x, y, width, height = block._x, block._y, block._width, block._height
    inside = rows.ndim == 4 and 0 <= x <= x + width <= rows.shape[2]
    if not (inside and 0 <= y <= y + height <= rows.shape[1]) or is_np_array():
        return None
    if block._size:
        return _resize(block, rows, drawn, allocate)
    return _copied(rows[:, y : y + height, x : x + width], allocate)


def _flip(axis: int, block: Any, rows: Rows, drawn: Drawn, allocate: Allocate) -> Rows | None:
    if rows.ndim != 4:
        return None
    out = _copied(rows, allocate)
    flipped = drawn[:, 0] < 0.5
    out[flipped] = np.flip(rows[flipped], axis)
    return out


def _random_resized_crop(block: Any, rows: Rows, drawn: Drawn, allocate: Allocate) -> Rows | None:
    if rows.ndim != 4:
        return None
    width, height = block._args[0]
    out = allocate((len(rows), height, width, rows.shape[3]), rows.dtype)
    for row, target, numbers in zip(rows, out, drawn):
        copy_into(target, _cropped(block, as_ndarray(row, is_np_array()), numbers))
    return out


def _cropped(block: Any, image: Any, drawn: Drawn) -> Any:
    size, area, ratio, interpolation = block._args
    if not isinstance(area, (tuple, list)):
        area = (area, 1.0)
    height, width = image.shape[:2]
    least, most = math.log(ratio[0]), math.log(ratio[1])
    for first, second in drawn[:20].reshape(10, 2):
        target = (area[0] + (area[1] - area[0]) * first) * height * width
        aspect = math.exp(least + (most - least) * second)
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            x = int((width - w + 1) * drawn[20])
            y = int((height - h + 1) * drawn[21])
            return mx.image.fixed_crop(image, x, y, w, h, size, interpolation)
    return mx.image.center_crop(image, size, interpolation)[0]


def _copied(rows: Rows, allocate: Allocate) -> Rows:
    out = allocate(rows.shape, rows.dtype)
    np.copyto(out, rows)
    return out


# --- random numbers ---


def uniforms(seed: int, epoch: int, numbers: NDArray[np.int64], stream: int, count: int) -> Drawn:
    """Draw ``count`` uniform numbers in [0, 1) for each sample, float64 ``(batch, count)``.

    Uses SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014)
    over a counter. ``stream`` is the number of the transform that draws.
    """
    start = np.random.SeedSequence((seed, epoch, stream)).generate_state(2, np.uint64)
    state = mix_64(np.asarray(numbers, np.uint64) * GOLDEN + start[0]) ^ start[1]
    steps = np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    drawn: Drawn = (mix_64(state[:, None] + steps) >> np.uint64(11)) * 2.0**-53
    return drawn


STAGES: dict[type, tuple[Callable[..., Rows | None], int]] = {
    transforms.ToTensor: (_to_tensor, 0),
    transforms.Normalize: (_normalize, 0),
    transforms.Cast: (_cast, 0),
    transforms.Resize: (_resize, 0),
    transforms.CenterCrop: (_center_crop, 0),
    transforms.CropResize: (_crop_resize, 0),
    transforms.RandomFlipLeftRight: (functools.partial(_flip, 2), 1),
    transforms.RandomFlipTopBottom: (functools.partial(_flip, 1), 1),
    transforms.RandomResizedCrop: (_random_resized_crop, 22),  # Ten areas and ratios, one position.
}
"""Function and draws of the ``Stage`` for each block class, but not for its subclasses. Users may
add entries."""

_CONTAINERS = (transforms.Compose, mx.gluon.nn.HybridSequential, mx.gluon.nn.Sequential)


def stages_of(function: Any) -> list[Stage | Any] | None:
    """Return the stages of a transform; blocks without a stage are included unchanged.

    None if no block has a stage, or ``function`` is no block, or has hooks or replaced methods.
    """
    kind = type(function)
    if not (kind in STAGES or kind in _CONTAINERS):
        return None
    replaced = {"forward", "hybrid_forward", "__call__"} & vars(function).keys()
    if function._forward_hooks or function._forward_pre_hooks or replaced:
        return None
    if kind in STAGES:
        return [Stage(function, *STAGES[kind])]
    found = [each for child in function._children.values() for each in stages_of(child) or [child]]
    return found if any(isinstance(each, Stage) for each in found) else None
