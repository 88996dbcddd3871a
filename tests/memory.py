"""Arrays whose memory somebody else has, too, in every way that people hand them out.

A worker process imports this module, so it imports no framework before one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

SPOILT = 99


@dataclass(frozen=True)
class Kind:
    """What an array is like, and whose memory it lies in.

    Args:
        way: Of `WAYS`.
        dtype: Of its numbers.
        shape: Of a batch.
    """

    way: str
    dtype: str
    shape: tuple[int, ...]

    def content(self, number: int) -> Any:
        """What batch ``number`` holds: new memory."""
        size = int(np.prod(self.shape))
        return (np.arange(size) % 50 + number % 60).astype(self.dtype).reshape(self.shape)


@dataclass
class Giver:
    """Gives the batches of one kind, and keeps what it gave.

    Args:
        kind: Which.
    """

    kind: Kind
    calls: int = 0
    kept: dict[str, Any] = field(default_factory=dict)

    def give(self, number: int) -> Any:
        """Batch ``number``, in memory as the kind says."""
        self.calls += 1
        return WAYS[self.kind.way](self, self.kind.content(number))

    def spoil(self) -> None:
        """Write over all that is kept, as an author's ``on_epoch_end`` may."""
        for array in self.kept.values():
            if isinstance(array, np.ndarray):
                array[...] = SPOILT

    def buffer(self, name: str, shape: tuple[int, ...], order: Any = "C") -> Any:
        """The same array at every call."""
        if name not in self.kept:
            self.kept[name] = np.zeros(shape, self.kind.dtype, order)
        return self.kept[name]


def _filled(array: Any, new: Any) -> Any:
    array[...] = new
    return array


def _one_buffer(giver: Giver, new: Any) -> Any:
    return _filled(giver.buffer("one", new.shape), new)


def _a_ring(giver: Giver, new: Any) -> Any:
    return _filled(giver.buffer(f"ring {giver.calls % 3}", new.shape), new)


def _columns(giver: Giver, new: Any) -> Any:
    return _filled(giver.buffer("wide", (*new.shape[:-1], 2 * new.shape[-1]))[..., ::2], new)


def _fortran(giver: Giver, new: Any) -> Any:
    return _filled(giver.buffer("one", new.shape, "F"), new)


def _read_only(giver: Giver, new: Any) -> Any:
    view = _filled(giver.buffer("one", new.shape), new).view()
    view.flags.writeable = False
    return view


def _a_kept_new_one(giver: Giver, new: Any) -> Any:
    # Its author keeps it, and writes over it when the next one is asked for.
    giver.spoil()
    giver.kept["last"] = new
    return new


def _bytes_of_an_author(giver: Giver, new: Any) -> Any:
    memory = giver.kept.setdefault("bytes", bytearray(new.nbytes))
    memory[:] = new.tobytes()
    return np.frombuffer(memory, new.dtype).reshape(new.shape)


class Named(np.ndarray):
    """A class of an author's own."""


def _a_subclass(giver: Giver, new: Any) -> Any:
    return _one_buffer(giver, new).view(Named)


def _of_pytorch(giver: Giver, new: Any) -> Any:
    import torch

    tensor = giver.kept.setdefault("torch", torch.from_numpy(new.copy()))
    tensor.copy_(torch.from_numpy(new))
    return tensor


def _of_pytorch_as_an_array(giver: Giver, new: Any) -> Any:
    return _of_pytorch(giver, new).numpy()


def _of_jax(giver: Giver, new: Any) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(new)


def _of_tensorflow(giver: Giver, new: Any) -> Any:
    import tensorflow as tf

    return tf.constant(new)


def _a_variable_of_tensorflow(giver: Giver, new: Any) -> Any:
    import tensorflow as tf

    if "tensorflow" not in giver.kept:
        giver.kept["tensorflow"] = tf.Variable(new)
    giver.kept["tensorflow"].assign(new)
    return giver.kept["tensorflow"].value()


WAYS: dict[str, Callable[[Giver, Any], Any]] = {
    "new": lambda giver, new: new,
    "a kept new one": _a_kept_new_one,
    "one buffer": _one_buffer,
    "a ring": _a_ring,
    "columns": _columns,
    "Fortran": _fortran,
    "read-only": _read_only,
    "bytes": _bytes_of_an_author,
    "a subclass": _a_subclass,
}
FRAMEWORKS: dict[str, tuple[str, Callable[[Giver, Any], Any]]] = {
    "PyTorch": ("torch", _of_pytorch),
    "PyTorch, as an array": ("torch", _of_pytorch_as_an_array),
    "JAX": ("jax", _of_jax),
    "TensorFlow": ("tensorflow", _of_tensorflow),
    "a variable of TensorFlow": ("tensorflow", _a_variable_of_tensorflow),
}
WAYS |= {name: way for name, (_, way) in FRAMEWORKS.items()}
