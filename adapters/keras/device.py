"""Copies of batches to the trainer's GPU, on JAX several small ones at once.

Batches are copied ahead if the trainer computes on a GPU and no ``keras.distribution`` places them.
``ADAPTERS_STAGING=0`` turns it off, ``1`` on. On PyTorch, each batch is copied asynchronously from
pinned memory.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from adapters.alignment import aligned_empty
from adapters.keras.internals import get_jax_iterator
from adapters.structure import flatten, map_leaves

MOST_BATCHES = 16
"""Most batches in one transfer."""
LEAST_BATCHES = 256
"""Least number of batches in a call for which compiling the slicing function pays off."""
_GROUP_BYTES = 8 << 20


def for_jax(batch: Any) -> Any:
    """Return the batch, with leaves that are no NumPy arrays converted for JAX."""
    for leaf in flatten(batch)[0]:
        if not isinstance(leaf, np.ndarray) and get_jax_iterator is not None:
            return next(get_jax_iterator((batch,)))
    return batch


def most_in_a_transfer(batches: float, queue: int) -> int | None:
    """Most batches in a transfer to JAX's GPU, of ``batches`` in the call; None if Keras copies."""
    import jax

    wanted = os.environ.get("ADAPTERS_STAGING", "")
    if wanted == "0" or keras.distribution.distribution() is not None:
        return None
    on_a_gpu = jax.default_backend() in ("gpu", "cuda", "rocm")
    if wanted != "1" and not (on_a_gpu and getattr(jax.config, "jax_default_device", 0) is None):
        return None
    return min(MOST_BATCHES, queue) if batches >= LEAST_BATCHES else 1


def kind_of(batch: Any, most: int) -> tuple[Any, int]:
    """Structure, shapes and dtypes that a transfer must share, and the most batches in it."""
    import jax

    leaves, structure = jax.tree_util.tree_flatten(batch)
    if not all(type(leaf) is np.ndarray and leaf.dtype.kind in "biufc" for leaf in leaves):
        return None, 1
    size = max(1, sum(leaf.nbytes for leaf in leaves))
    kind = structure, [(leaf.shape, leaf.dtype) for leaf in leaves]
    return kind, max(1, min(most, _GROUP_BYTES // size))


def transferred(batches: list[Any]) -> Iterator[Any]:
    """Start the transfer of batches of one kind to JAX's device, and iterate over them there."""
    import jax

    if len(batches) == 1:
        # Keras converts leaves that are no arrays. JAX may alias the batch's own memory.
        return iter((keras.tree.map_structure(jax.device_put, for_jax(batches[0])),))

    def stacked(*arrays: NDArray[Any]) -> NDArray[Any]:
        return np.stack(arrays, out=aligned_empty((len(arrays), *arrays[0].shape), arrays[0].dtype))

    group, number = jax.device_put((jax.tree_util.tree_map(stacked, *batches), np.int32(0)))
    return _slices(group, number, len(batches))


def _slices(group: Any, number: Any, count: int) -> Iterator[Any]:
    for _ in range(count):
        batch, number = _picker()(group, number)
        yield batch


@functools.cache
def _picker() -> Callable[[Any, Any], tuple[Any, Any]]:
    """Function that slices a batch out of a group, compiled once per shape of group."""
    import jax

    def pick(group: Any, number: Any) -> tuple[Any, Any]:
        index = functools.partial(jax.lax.dynamic_index_in_dim, index=number, keepdims=False)
        return jax.tree_util.tree_map(index, group), number + 1

    return jax.jit(pick)  # type: ignore[no-any-return]


# --- PyTorch ---

# Dtypes that PyTorch has under the same names. Keras converts the others.
_OF_PYTORCH = frozenset(
    ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)


def for_torch() -> Callable[[Any], Any]:
    """Function of a batch: its tensors on Keras's device, through pinned memory for a GPU."""
    device = keras.ops.empty(()).device
    if device.type != "cuda" or os.environ.get("ADAPTERS_STAGING", "") == "0":
        return functools.partial(map_leaves, keras.ops.convert_to_tensor)
    return functools.partial(map_leaves, functools.partial(_pinned_copy, device))


def _pinned_copy(device: Any, leaf: Any) -> Any:
    import torch

    if type(leaf) is not np.ndarray or leaf.dtype.name not in _OF_PYTORCH or not leaf.size:
        return keras.ops.convert_to_tensor(leaf)
    host = torch.empty(leaf.shape, dtype=getattr(torch, leaf.dtype.name), pin_memory=True)
    host.numpy()[...] = leaf
    # PyTorch keeps the pinned memory until the copy is over.
    return host.to(device, non_blocking=True)
