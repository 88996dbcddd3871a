"""Conversion of a ``SafeSequence`` into a ``tf.data.Dataset`` of one signature.

    generator --groups--> slices --> prefetch(1) --> trainer

TensorFlow takes about 0.25 ms to fetch an element from Python. Small batches are grouped to share
most of that cost. Arrays are passed on unchanged, but for a cast to the dtypes of the first ones.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adapters.alignment import aligned_empty
from adapters.keras.internals import get_tensor_spec, tensorflow
from adapters.keras.progress import Cursor
from adapters.structure import flatten, map_leaves, unflatten

# Batch size up to which grouping saves more than its two copies cost.
_SMALL_BYTES = 256 * 1024
# Splitting groups costs 6 ms at the start and saves 60 us a batch.
_LEAST_BATCHES = 100
# Time limit for collecting a group.
_GROUP_SECONDS = 0.001
_MOST_BATCHES = 8
# Kinds of dtypes that TensorFlow takes as strings.
_TEXT = "OSU"


def worth_grouping(batches: list[Any], number: float) -> bool:
    """True if a number of batches like these are many and small enough to be worth grouping."""
    if number < _LEAST_BATCHES:
        return False
    leaves = [leaf for batch in batches for leaf in flatten(batch)[0]]
    return all(isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biuf" for leaf in leaves) and (
        sum(leaf.nbytes for leaf in leaves) <= _SMALL_BYTES * len(batches)
    )


def tf_dataset(
    batches: Callable[[], Iterator[Any]], signature: Any, grouped: bool, ahead: bool
) -> Any:
    """Make the data set of batches with a signature, nested ``tf.TensorSpec``.

    ``batches`` is called for every iterator that TensorFlow makes; it returns ``Groups`` if they
    are ``grouped``. One batch may be prefetched if that reads ``ahead``.
    """
    tf = tensorflow()
    made = signature
    if grouped:
        specs, skeleton = flatten(signature)
        specs = [tf.TensorSpec([None, *spec.shape], spec.dtype) for spec in specs]
        made = unflatten(skeleton, specs)
    dataset = tf.data.Dataset.from_generator(batches, output_signature=made)
    if grouped:
        # TensorFlow's unbatch takes longer, and ends the process with an array without elements.
        slices = tf.data.Dataset.from_tensor_slices
        # A tuple is passed as several arguments.
        is_tuple = type(signature) is tuple
        dataset = dataset.flat_map((lambda *members: slices(members)) if is_tuple else slices)
    if ahead:
        dataset = dataset.prefetch(1)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


class Groups:
    """Iterator that copies batches into one array along a new first axis, as many as come in time.

    Each is copied as it comes, when it is still in the processor's cache. ``most`` returns the
    largest number of batches in the next group.
    """

    def __init__(self, batches: Iterator[Any], most: Callable[[], int]) -> None:
        self._batches = batches
        self._most = most
        self._odd: list[Any] = []

    def __iter__(self) -> Groups:
        return self

    def __next__(self) -> Any:
        began, most = time.perf_counter(), min(_MOST_BATCHES, self._most())
        leaves, skeleton = flatten(next(itertools.chain(self._odd, self._batches)))
        self._odd = []
        shapes = [leaf.shape for leaf in leaves]
        columns, count = [leaf[None] for leaf in leaves], 1
        while count < most and time.perf_counter() - began < _GROUP_SECONDS:
            batch = next(self._batches, None)
            if batch is None:
                break
            leaves = flatten(batch)[0]
            if [leaf.shape for leaf in leaves] != shapes:
                self._odd = [batch]
                break
            if count == 1:
                columns = [_with_room(column, most) for column in columns]
            for column, leaf in zip(columns, leaves):
                column[count] = leaf
            count += 1
            del batch, leaves, leaf
        return unflatten(skeleton, [column[:count] for column in columns])


def _with_room(column: Any, most: int) -> Any:
    """Copy a batch into an array, aligned so that TensorFlow may alias it, with room for others."""
    wider = aligned_empty((most, *column.shape[1:]), column.dtype)
    wider[0] = column[0]
    return wider


# --- the signature ---


def for_tensorflow(batch: Any) -> Any:
    """Return the batch with text as TensorFlow's string tensors, and without a None at its end."""

    def converted(leaf: Any) -> Any:
        is_text = isinstance(leaf, np.ndarray) and leaf.dtype.kind in _TEXT
        return tensorflow().constant(leaf) if is_text else leaf

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
            if (place := _place_of_none(batch)) is not None:
                raise ValueError(
                    f"batches must not hold None on TensorFlow, got None as batch{place}: leave "
                    "it out, or give an array in its place"
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
        other = False
        # A TensorShape for TensorFlow's tensors.
        shapes: list[Any] = [getattr(leaf, "shape", None) for leaf in leaves]
        match = shapes == self._shapes
        for leaf, shape, spec, dtype in zip(leaves, shapes, self._flat, self._dtypes):
            if not (match or spec.shape.is_compatible_with(shape)):
                found = f"has an array of shape {tuple(shape)}, the first ones had {spec.shape}"
                raise _unlike(cursor, found, self._remedy)
            if not isinstance(leaf, np.ndarray) or leaf.dtype == dtype:
                continue
            if dtype.hasobject or not np.can_cast(leaf.dtype, dtype, "same_kind"):
                found = f"has an array of {leaf.dtype}, the first ones had {spec.dtype.name}"
                raise _unlike(cursor, found, "give all of them the same dtype")
            other = True
        self._shapes = shapes
        if not other:
            return batch
        cast = [
            leaf.astype(dtype, copy=False) if isinstance(leaf, np.ndarray) else leaf
            for leaf, dtype in zip(leaves, self._dtypes)
        ]
        return unflatten(structure, cast)


def remedy_of(plan: Any) -> str:
    """Advice for error messages: how to make all batches of a ``SourcePlan`` alike."""
    if plan.batch_transform is not None:
        made = "have batch_transform give all of them equal shapes there"
    elif hasattr(plan.collate, "remedy"):
        return f"{plan.collate.remedy} between batches"
    elif plan.collate is not None:
        made = "have collate give all of them equal shapes there, or use collate=adapters.pad()"
    elif plan.source.whole_batches:
        made = "have the source give all of them equal shapes there"
    else:
        made = "pad, crop or resize in transform, or use collate=adapters.pad()"
    return f"{made}; or let one of the first two batches differ there as later ones do"


def _unlike(cursor: Cursor, found: str, remedy: str) -> ValueError:
    return ValueError(
        "batches must have one structure, equal shapes and equal dtypes on TensorFlow: number "
        f"{cursor.step + cursor.taken} of epoch {cursor.epoch} {found}; {remedy}"
    )


def _place_of_none(tree: Any) -> str | None:
    """Path to a None in a nested structure, as ``[0]['a']``; None if it holds none."""
    if tree is None:
        return ""
    inside: Any = tree.items() if isinstance(tree, dict) else ()
    if isinstance(tree, (tuple, list)):
        inside = enumerate(tree)
    places = ((name, _place_of_none(member)) for name, member in inside)
    return next((f"[{name!r}]{place}" for name, place in places if place is not None), None)
