"""Batches on the trainer's GPU when the trainer asks for them.

    fetched --> gathered in host memory --> one transfer of all of them --> handed out, sliced there

On JAX, a transfer costs the interpreter about as much for ten small batches as for one, so small
batches of equal shapes share one. Batches are gathered only if they come at once; those of a slow
source go to the GPU one by one. What is ahead has not been handed out: no count of batches knows of
it, an error waits for its place, and it is part of ``max_queue_size``. On PyTorch, each batch is
copied from pinned memory, which the trainer doesn't wait for.

This is on when the trainer computes on a GPU and no ``keras.distribution`` places the batches.
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
from adapters.engine import Engine, Reading
from adapters.errors import ClosedError
from adapters.keras.batches import for_jax
from adapters.keras.internals import torch_device
from adapters.structure import map_leaves

MOST_BATCHES = 16
"""Batches that share a transfer."""
LEAST_BATCHES = 256
"""Batches of a call from which on the function that slices groups is worth its compilation."""
_GROUP_BYTES = 8 << 20
# What the quickest of the latest batches may take to fetch if another is to be fetched before it is
# needed; a busy machine makes single ones slow.
_QUICK_SECONDS = 0.002
_LOOKED_AT = 4
_FETCHED_AT_ONCE = 2
_GPUS = ("gpu", "cuda", "rocm")


class Transfer:
    """Copies batches to JAX's device, several of equal shapes at once.

    Args:
        most: Batches that may share a transfer.
    """

    def __init__(self, most: int) -> None:
        self._most = most

    def kind(self, batch: Any) -> tuple[Any, int]:
        """What batches that share a transfer have in common, and how many may do so."""
        import jax

        leaves, structure = jax.tree_util.tree_flatten(batch)
        if not all(type(leaf) is np.ndarray and leaf.dtype.kind in "biufc" for leaf in leaves):
            return None, 1
        size = max(1, sum(leaf.nbytes for leaf in leaves))
        kind = structure, [(leaf.shape, leaf.dtype) for leaf in leaves]
        return kind, max(1, min(self._most, _GROUP_BYTES // size))

    def start(self, batches: list[Any]) -> Iterator[Any]:
        """Start the transfer of batches of one kind, or of a single one; returns them there."""
        import jax

        if len(batches) == 1:
            # What is no array, Keras converts; memory is the batch's own, so JAX may alias it.
            return iter((keras.tree.map_structure(jax.device_put, for_jax(batches[0])),))
        flat = [jax.tree_util.tree_flatten(batch) for batch in batches]
        columns = [_stacked(column) for column in zip(*(leaves for leaves, _ in flat))]
        *group, number = jax.device_put([*columns, np.int32(0)])
        return _slices(group, number, [structure for _, structure in flat])


def _slices(group: list[Any], number: Any, structures: list[Any]) -> Iterator[Any]:
    pick = _picker()
    for structure in structures:
        leaves, number = pick(group, number)
        yield structure.unflatten(leaves)


@functools.cache
def _picker() -> Callable[[list[Any], Any], tuple[list[Any], Any]]:
    """What takes a batch out of a group, compiled once for all groups of the same shapes."""
    import jax

    def pick(group: list[Any], number: Any) -> tuple[list[Any], Any]:
        slices = [jax.lax.dynamic_index_in_dim(array, number, 0, keepdims=False) for array in group]
        return slices, number + 1

    picker: Callable[[list[Any], Any], tuple[list[Any], Any]] = jax.jit(pick)
    return picker


def _stacked(arrays: tuple[Any, ...]) -> Any:
    """In memory of its own, which JAX may alias."""
    out = aligned_empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    return np.stack(arrays, out=out)


class Staged:
    """The batches of one pass, ahead of the trainer.

    Args:
        transfer: How they come to the device.
    """

    def __init__(self, transfer: Any) -> None:
        self._transfer = transfer
        self._kind: tuple[Any, int] = None, 1
        self._there: Iterator[Any] = iter(())
        self._left = 0  # Of those.
        self._gathered: collections.deque[Any] = collections.deque()
        self._uneven = self._begun = False
        self._took: collections.deque[float] = collections.deque(maxlen=_LOOKED_AT)
        self._error: BaseException | None = None
        self.fetching = self._gathering = False
        """Whether a batch is being fetched, which may fail and end the pass."""

    @property
    def ahead(self) -> int:
        """Batches that have been fetched and not been handed out, or are being fetched ahead."""
        return self._left + len(self._gathered) + self._gathering

    def next(self, fetch: Callable[[], Any], at_once: Callable[[], bool]) -> Any:
        """The next batch.

        Args:
            fetch: Gives the next one that isn't ahead.
            at_once: Whether there is one that needn't be waited for.

        Raises:
            Exception: What ``fetch`` raised in this batch's place.
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
        if self._begun:  # Who builds a model takes one batch, and nothing may be read behind it.
            self._gather(fetch, at_once)
        self._begun = True
        return batch

    def drop(self) -> None:
        """Drop what is ahead."""
        self._there, self._left, self._error = iter(()), 0, None
        self._gathered.clear()

    def _send(self) -> None:
        """Send all that was gathered; one by one if shapes have changed, or it isn't a group."""
        whole = not self._uneven and len(self._gathered) == self._kind[1]
        batches = [self._gathered.popleft() for _ in range(len(self._gathered) if whole else 1)]
        self._there, self._left = self._transfer.start(batches), len(batches)

    def _taken_error(self) -> BaseException:
        # No frame that raises it may name it, as its traceback leads back to that frame.
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


class ReadingAhead(Reading):
    """One walk through batches, ahead on the device if there is a ``transfer``."""

    def __init__(self, engine: Engine, transfer: Transfer | None) -> None:
        super().__init__(engine)
        self._staged = Staged(transfer) if transfer is not None else None

    def _fetch_ahead(self) -> Any:
        """The next batch, as ``_fetch`` gives it."""
        staged = self._staged
        if staged is None:
            return self._fetch()
        if self._engine.closed and not self._over:
            staged.drop()
        try:
            return staged.next(self._fetch_counted, self._at_once)
        finally:
            self._engine.staged = staged.ahead

    def _fetch_counted(self) -> Any:
        """The next batch; the engine makes no more than fit beside those that are ahead."""
        if self._staged is not None:
            self._engine.staged = self._staged.ahead
        return self._fetch()

    def _at_once(self) -> bool:
        stream = self._stream
        return bool(self._left) and stream is not None and stream.ready and not self._engine.closed

    def close(self) -> None:
        """Let go of what is under way, and of what is ahead of the trainer."""
        if self._staged is not None and not self._staged.fetching:
            self._staged.drop()
            self._engine.staged = 0
        super().close()


def jax_transfer(batches: float, queue: int) -> Transfer | None:
    """How batches come to JAX's GPU; None if Keras does that.

    Args:
        batches: That the call will read, as far as known.
        queue: ``max_queue_size``.
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

# Those that PyTorch has under the same names; Keras converts the others.
_OF_PYTORCH = frozenset(
    ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
)


def for_torch(batch: Any) -> Any:
    """The batch as tensors on Keras's device, copied to a GPU from pinned memory."""
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
    # PyTorch keeps pinned memory until the copy out of it is over.
    return host.to(torch_device(), non_blocking=True)


def pinned(shape: tuple[int, ...], dtype: Any) -> Any:
    """An uninitialised tensor in pinned memory."""
    import torch

    return torch.empty(shape, dtype=dtype, pin_memory=True)
