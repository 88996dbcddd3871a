"""Batches of a ``SafeSequence`` for TensorFlow, which wants one signature for all of them.

Keras's own step gets them from a Python iterator, see ``Elements``. If the batches must come from a
``tf.data.Dataset``, for example under a strategy, ``tf_dataset`` makes one. Arrays are passed on
unchanged, but for a cast to the dtypes of the first ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from adapters.alignment import aligned
from adapters.batch.plan import Assembled
from adapters.keras.internals import get_tensor_spec, trace_type
from adapters.keras.progress import Cursor
from adapters.structure import flatten, map_leaves, unflatten

# Kinds of dtypes that TensorFlow takes as strings.
_TEXT = "OSU"
# Characters of NumPy's dtypes that it takes as numbers.
_NUMBERS = "?bBhHiIlLqQefdFD"


def tf_dataset(batches: Callable[[], Iterator[Any]], signature: Any, ahead: bool) -> Any:
    """Make the data set of batches with a signature, nested ``tf.TensorSpec``.

    ``batches`` is called for every iterator that TensorFlow makes. One batch may be prefetched if
    that reads ``ahead``.
    """
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    if ahead:
        dataset = dataset.prefetch(1)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


# --- batches for a step that reads in Python ---


class Elements:
    """Iterable over the batches, as tensors that a step of Keras takes one by one.

    Through ``tf.data``, a batch costs 0.7 ms of CPU time more (two cores). ``batches`` and
    ``eager`` are called for every iterator: eager steps get plain tuples. To others, a tuple or
    dict says that it has the shapes of the signature. Else a ``tf.function`` would be traced again
    for batches of other shapes, such as the last one of an epoch.
    """

    def __init__(
        self, batches: Callable[[], Iterator[Any]], signature: Any, eager: Callable[[], bool]
    ) -> None:
        self._batches = batches
        self._eager = eager
        specs, self._structure = flatten(signature)
        self._dtypes = [spec.dtype.as_numpy_dtype for spec in specs]
        self._traced, kind = trace_type(signature), type(signature)
        # Keras may rebuild an element, so its class has the type. A tuple may be a named one.
        self._class: Any = (
            type(kind.__name__, (kind,), {"__tf_tracing_type__": lambda *_: self._traced})
            if kind is dict or issubclass(kind, tuple)
            else None
        )

    def __iter__(self) -> Iterator[Any]:
        eager = self._eager() or self._class is None
        return _ElementIterator(self._batches(), self.tensors if eager else self._element)

    def tensors(self, batch: Any) -> Any:
        """Return a batch as tensors, in the memory of its arrays."""
        leaves = [
            leaf if tf.is_tensor(leaf) else _as_tensor(np.asarray(leaf, dtype))
            for leaf, dtype in zip(flatten(batch)[0], self._dtypes)
        ]
        return unflatten(self._structure, leaves)

    def _element(self, batch: Any) -> Any:
        tensors = self.tensors(batch)
        if isinstance(tensors, tuple):
            return tuple.__new__(self._class, tensors)
        return self._class(tensors)


class _ElementIterator:
    """Iterator with the methods of one of ``tf.data``, which ends in the same way."""

    def __init__(self, batches: Iterator[Any], made: Callable[[Any], Any]) -> None:
        self._batches = batches
        self._made = made

    def __iter__(self) -> _ElementIterator:
        return self

    def __next__(self) -> Any:
        try:
            return self._made(next(self._batches))
        except StopIteration:
            raise tf.errors.OutOfRangeError(None, None, "end of the batches") from None

    get_next = __next__


def convert_ahead(assembled: Assembled) -> Assembled:
    """Convert a batch into tensors over its memory, if it is a plain tuple of arrays.

    TensorFlow copies memory that isn't aligned. Such an array is replaced by an aligned copy, so
    that the batch isn't in memory twice.
    """
    batch = assembled.batch
    if type(batch) is not tuple or not all(map(_is_plain, batch)):
        return assembled
    batch = tuple(map(aligned, batch))
    return assembled._replace(batch=batch, converted=tuple(map(_as_tensor, batch)))


def _is_plain(leaf: Any) -> bool:
    return type(leaf) is np.ndarray and leaf.dtype.char in _NUMBERS


def _as_tensor(array: NDArray[Any]) -> Any:
    return tf.convert_to_tensor(_SharedArray(array))


class _SharedArray:
    """Array that TensorFlow doesn't copy, as it does an ``ndarray``, unless it isn't aligned.

    The tensor keeps it alive.
    """

    __slots__ = ("_array",)

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._array


# --- the signature ---


def for_tensorflow(batch: Any) -> Any:
    """Return the batch with text as TensorFlow's string tensors, and without a None at its end."""

    def converted(leaf: Any) -> Any:
        is_text = isinstance(leaf, np.ndarray) and leaf.dtype.kind in _TEXT
        return tf.constant(leaf) if is_text else leaf

    if type(batch) is tuple:
        while batch and batch[-1] is None:
            batch = batch[:-1]
        # The usual batch: looking at it is faster than mapping it.
        if all(type(leaf) is np.ndarray and leaf.dtype.kind not in _TEXT for leaf in batch):
            return batch
    return map_leaves(converted, batch)


class Signature:
    """Structure, shapes and dtypes that TensorFlow expects of all batches, from some of them.

    ``remedy`` says how to make all of them alike.
    """

    def __init__(self, batches: list[Any], remedy: str) -> None:
        self._remedy = remedy
        for batch in batches:
            if None in keras.tree.flatten(structure := flatten(batch)[1]):
                raise ValueError(
                    f"batches must not hold None on TensorFlow, got one made like {structure}: "
                    "leave it out, or give an array in its place"
                )
        self.specs = get_tensor_spec(batches)
        self._flat, self._skeleton = flatten(self.specs)
        self._dtypes = [np.dtype(spec.dtype.as_numpy_dtype) for spec in self._flat]
        # Shapes of the latest batch that matched: comparing with a spec of TensorFlow is slow.
        self._shapes: list[Any] | None = None

    def checked(self, batch: Any, cursor: Cursor) -> Any:
        """Return the next batch of a pass, with its arrays cast to the dtypes of the first ones.

        Raises:
            ValueError: The batch doesn't match. TensorFlow's own error would say less, or it would
                change the values silently.
        """
        leaves, structure = flatten(batch)
        if structure != self._skeleton:
            found = f"is made like {structure}, the first ones {self._skeleton}"
            raise _unlike(cursor, found, "give all of them the same structure")
        # A TensorShape for TensorFlow's tensors.
        shapes: list[Any] = [getattr(leaf, "shape", None) for leaf in leaves]
        if shapes != self._shapes:
            for shape, spec in zip(shapes, self._flat):
                if not spec.shape.is_compatible_with(shape):
                    found = f"has an array of shape {tuple(shape)}, the first ones had {spec.shape}"
                    raise _unlike(cursor, found, self._remedy)
            self._shapes = shapes
        for place, (leaf, dtype) in enumerate(zip(leaves, self._dtypes)):
            if isinstance(leaf, np.ndarray) and leaf.dtype != dtype:
                if dtype.hasobject or not np.can_cast(leaf.dtype, dtype, "same_kind"):
                    spec = self._flat[place]
                    found = f"has an array of {leaf.dtype}, the first ones had {spec.dtype.name}"
                    raise _unlike(cursor, found, "give all of them the same dtype")
                leaves[place] = leaf.astype(dtype)
                batch = None
        return unflatten(structure, leaves) if batch is None else batch


def remedy_of(plan: Any) -> str:
    """Advice for error messages: how to make all batches of a ``SourcePlan`` alike."""
    if hasattr(plan.collate, "remedy"):
        return f"{plan.collate.remedy} between batches"
    return (
        "pad, crop or resize there in the source, transform, collate (collate=adapters.pad()) or "
        "batch_transform; or let one of the first two batches differ there as later ones do"
    )


def _unlike(cursor: Cursor, found: str, remedy: str) -> ValueError:
    return ValueError(
        "batches must have one structure, equal shapes and equal dtypes on TensorFlow: number "
        f"{cursor.step + cursor.taken} of epoch {cursor.epoch} {found}; {remedy}"
    )
