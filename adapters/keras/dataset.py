"""Conversion of a ``SafeSequence`` into a ``tf.data.Dataset``.

    generator --groups--> unbatch --> prefetch(1) --> trainer

TensorFlow takes about 0.25 ms to fetch an element from Python. Small batches are grouped to share
most of that cost.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from adapters.alignment import aligned_empty
from adapters.keras.internals import tensorflow
from adapters.structure import flatten, unflatten

# Batch size up to which grouping saves more than its two copies cost.
_SMALL_BYTES = 256 * 1024
# Splitting groups costs 6 ms at the start and saves 60 us a batch.
_LEAST_BATCHES = 100
# Time limit for collecting a group.
_GROUP_SECONDS = 0.001
_MOST_BATCHES = 8


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
    """Make the data set.

    Args:
        batches: Called for every iterator that TensorFlow makes.
        signature: Nested ``tf.TensorSpec`` of a batch.
        grouped: True if ``batches`` returns ``Groups``.
        ahead: True if one batch may be prefetched.
    """
    tf = tensorflow()
    if grouped:
        specs, skeleton = flatten(signature)
        specs = [tf.TensorSpec([None, *spec.shape], spec.dtype) for spec in specs]
        groups = unflatten(skeleton, specs)
        dataset = tf.data.Dataset.from_generator(batches, output_signature=groups).unbatch()
    else:
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    if ahead:
        dataset = dataset.prefetch(1)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


class Groups:
    """Iterator that stacks batches along a new first axis, as many as are ready in time.

    Args:
        batches: The batches.
        most: Called before each group, returns the largest number of batches in it.
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
        group, shapes = [leaves], [leaf.shape for leaf in leaves]
        while len(group) < most and time.perf_counter() - began < _GROUP_SECONDS:
            batch = next(self._batches, None)
            if batch is None:
                break
            leaves = flatten(batch)[0]
            if [leaf.shape for leaf in leaves] != shapes:
                self._odd = [batch]
                break
            group.append(leaves)
        return unflatten(skeleton, [_stacked(column) for column in zip(*group)])


def _stacked(arrays: tuple[Any, ...]) -> Any:
    if len(arrays) == 1:
        return arrays[0][None]
    out = aligned_empty((len(arrays), *arrays[0].shape), arrays[0].dtype)
    return np.stack(arrays, out=out)
