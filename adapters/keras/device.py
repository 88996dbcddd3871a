"""Transfer of batches to the trainer's GPU before the trainer asks for them.

    fetch --> gather in host memory --> transfer together --> slice on the device, hand out

On JAX, a transfer of ten small batches costs the interpreter about as much as one of a single
batch, so small batches of equal shapes share a transfer. Only batches that are ready are gathered;
those of a slow source go to the GPU one by one. Staged batches don't count as handed out, errors
are raised at the place of their batch, and ``max_queue_size`` includes staged batches. On PyTorch,
each batch is copied asynchronously from pinned memory.

Staging is on if the trainer computes on a GPU and no ``keras.distribution`` places the batches.
``ADAPTERS_STAGING=0`` turns it off, ``1`` on.
"""

from __future__ import annotations

import collections
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from adapters.alignment import aligned_empty
from adapters.errors import ClosedError
from adapters.keras.internals import get_jax_iterator, torch_device
from adapters.structure import flatten, map_leaves

MOST_BATCHES = 16
"""Most batches in one transfer."""
LEAST_BATCHES = 256
"""Least number of batches in a call for which compiling the slicing function pays off."""
_GROUP_BYTES = 8 << 20
# Batches are gathered while the quickest of the latest fetches stays below this. The minimum counts
# because single fetches are slow on a busy machine.
_QUICK_SECONDS = 0.002
_LOOKED_AT = 4
_FETCHED_AT_ONCE = 2
_GPUS = ("gpu", "cuda", "rocm")


def for_jax(batch: Any) -> Any:
    """Return the batch, with leaves that are no NumPy arrays converted for JAX."""
    for leaf in flatten(batch)[0]:
        if not isinstance(leaf, np.ndarray) and get_jax_iterator is not None:
            return next(get_jax_iterator((batch,)))
    return batch


class Transfer:
    """Copies batches to JAX's device, several of equal shapes at once.

    Args:
        most: Most batches in one transfer.
    """

    def __init__(self, most: int) -> None:
        self._most = most

    def kind(self, batch: Any) -> tuple[Any, int]:
        """Structure, shapes and dtypes that a transfer must share, and the most batches in it."""
        import jax

        leaves, structure = jax.tree_util.tree_flatten(batch)
        if not all(type(leaf) is np.ndarray and leaf.dtype.kind in "biufc" for leaf in leaves):
            return None, 1
        size = max(1, sum(leaf.nbytes for leaf in leaves))
        kind = structure, [(leaf.shape, leaf.dtype) for leaf in leaves]
        return kind, max(1, min(self._most, _GROUP_BYTES // size))

    def start(self, batches: list[Any]) -> Iterator[Any]:
        """Start the transfer of batches of one kind, and iterate over them on the device."""
        import jax

        if len(batches) == 1:
            # Keras converts leaves that are no arrays. JAX may alias the batch's own memory.
            return iter((keras.tree.map_structure(jax.device_put, for_jax(batches[0])),))
        flat = [jax.tree_util.tree_flatten(batch) for batch in batches]
        columns = [stacked(column) for column in zip(*(leaves for leaves, _ in flat))]
        *group, number = jax.device_put([*columns, np.int32(0)])
        return _slices(group, number, [structure for _, structure in flat])


def _slices(group: list[Any], number: Any, structures: list[Any]) -> Iterator[Any]:
    pick = _picker()
    for structure in structures:
        leaves, number = pick(group, number)
        yield structure.unflatten(leaves)


@functools.cache
def _picker() -> Callable[[list[Any], Any], tuple[list[Any], Any]]:
    """Function that slices a batch out of a group, compiled once per shape of group."""
    import jax

    def pick(group: list[Any], number: Any) -> tuple[list[Any], Any]:
        slices = [jax.lax.dynamic_index_in_dim(array, number, 0, keepdims=False) for array in group]
        return slices, number + 1

    picker: Callable[[list[Any], Any], tuple[list[Any], Any]] = jax.jit(pick)
    return picker


def stacked(arrays: tuple[Any, ...]) -> Any:
    """Stack arrays along a new first axis, in aligned memory that a framework may alias."""
    out = aligned_empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    return np.stack(arrays, out=out)


class Staged:
    """Batches of one pass that are staged ahead of the trainer.

    Args:
        transfer: Copies the batches to the device, as ``Transfer`` does.
    """

    def __init__(self, transfer: Any) -> None:
        self._transfer = transfer
        self._kind: tuple[Any, int] = None, 1  # Result of ``transfer.kind``.
        self._there: Iterator[Any] = iter(())
        self._left = 0  # Batches left in ``_there``.
        self._gathered: collections.deque[Any] = collections.deque()
        self._uneven = False  # True while gathered batches differ, so that each is sent alone.
        self._returned_one = False
        self._took: collections.deque[float] = collections.deque(maxlen=_LOOKED_AT)
        self._error: BaseException | None = None
        self.fetching = self._gathering = False
        """True while a batch is being fetched, which may fail and end the pass."""

    @property
    def ahead(self) -> int:
        """Number of batches that are fetched ahead: staged ones, and one being fetched."""
        return self._left + len(self._gathered) + self._gathering

    def next(self, fetch: Callable[[], Any], at_once: Callable[[], bool]) -> Any:
        """Return the next batch.

        Args:
            fetch: Returns the next batch that isn't staged.
            at_once: Returns True if ``fetch`` would not wait.

        Raises:
            Exception: The error that ``fetch`` raised for this batch.
        """
        if not self._left and not self._gathered:
            if self._error is not None:
                raise self._taken_error()
            batch = self._fetched(fetch)
            self._kind = self._transfer.kind(batch)
            self._gathered.append(batch)
        if not self._left:
            self._send()
        self._left -= 1
        batch = next(self._there)
        self._uneven = self._uneven and bool(self._gathered)
        # Building a model takes one batch, and nothing may be read after it.
        if self._returned_one:
            self._gather(fetch, at_once)
        self._returned_one = True
        return batch

    def drop(self) -> None:
        """Drop the staged batches."""
        self._there, self._left, self._error = iter(()), 0, None
        self._gathered.clear()

    def _send(self) -> None:
        """Transfer a full group together, or the first gathered batch alone."""
        whole = not self._uneven and len(self._gathered) == self._kind[1]
        batches = [self._gathered.popleft() for _ in range(len(self._gathered) if whole else 1)]
        self._there, self._left = self._transfer.start(batches), len(batches)

    def _taken_error(self) -> BaseException:
        # The raising frame must not name the error: its traceback refers to that frame.
        error, self._error = self._error, None
        assert error is not None
        return error

    def _fetched(self, fetch: Callable[[], Any]) -> Any:
        self.fetching, began = True, time.perf_counter()
        try:
            return fetch()
        finally:
            self.fetching = False
            self._took.append(time.perf_counter() - began)

    def _gather(self, fetch: Callable[[], Any], at_once: Callable[[], bool]) -> None:
        for _ in range(_FETCHED_AT_ONCE):
            if not (self._may_gather() and at_once()):
                return
            self._gathering = True
            try:
                batch = self._fetched(fetch)
            except ClosedError:
                self.drop()
                raise
            except Exception as error:
                self._error = error
                return
            finally:
                self._gathering = False
            kind = self._transfer.kind(batch)
            self._gathered.append(batch)
            if kind != self._kind:
                self._kind, self._uneven = kind, True

    def _may_gather(self) -> bool:
        most = self._kind[1]
        if most == 1 or self._uneven or self._error is not None:
            return False
        return min(self._took) <= _QUICK_SECONDS and self.ahead < most


def jax_transfer(batches: float, queue: int) -> Transfer | None:
    """Transfer of batches to JAX's GPU; None if Keras copies them.

    Args:
        batches: Number of batches that the call will read; infinite if unknown.
        queue: Most batches in a group, from ``max_queue_size``.
    """
    import jax

    wanted = os.environ.get("ADAPTERS_STAGING", "")
    if wanted == "0" or keras.distribution.distribution() is not None:
        return None
    on_a_gpu = jax.default_backend() in _GPUS
    if wanted != "1" and not (on_a_gpu and getattr(jax.config, "jax_default_device", 0) is None):
        return None
    return Transfer(min(MOST_BATCHES, queue) if batches >= LEAST_BATCHES else 1)


# --- PyTorch ---

# Dtypes that PyTorch has under the same names. Keras converts the others.
_OF_PYTORCH = frozenset(
    ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)


def for_torch(batch: Any) -> Any:
    """Convert a batch to tensors on Keras's device, through pinned memory for a GPU."""
    staging = os.environ.get("ADAPTERS_STAGING", "") != "0"
    if not staging or not str(torch_device()).startswith("cuda"):
        return map_leaves(keras.ops.convert_to_tensor, batch)
    return map_leaves(_pinned_copy, batch)


def _pinned_copy(leaf: Any) -> Any:
    import torch

    if type(leaf) is not np.ndarray or leaf.dtype.name not in _OF_PYTORCH or not leaf.size:
        return keras.ops.convert_to_tensor(leaf)
    host = pinned(leaf.shape, getattr(torch, leaf.dtype.name))
    host.numpy()[...] = leaf
    # PyTorch keeps the pinned memory until the copy is over.
    return host.to(torch_device(), non_blocking=True)


def pinned(shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an uninitialised tensor in pinned memory."""
    import torch

    return torch.empty(shape, dtype=dtype, pin_memory=True)
