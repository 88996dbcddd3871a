"""A ``batchify_fn`` of the user's own gets and gives what it does in MXNet's DataLoader."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, SimpleDataset
from mxnet.gluon.data.vision import CIFAR10

from tests.gluon.data_sets import (
    Pair,
    Triples,
    assert_same,
    downloaded,
    labels,
    nd,
    numpy_semantics,
    pixels,
    theirs,
)
from tests.gluon.test_parity import INLINE, PROCESSES, SEMANTICS, WORKERS, ours


def stack(samples: Any) -> Any:
    """A tuple, as MXNet keeps it."""
    images, numbers = zip(*samples)
    return nd(np.stack([image.asnumpy() for image in images])), nd(np.array(numbers))


def pad(samples: Any) -> Any:
    """A dict, of arrays of MXNet's and NumPy's and of neither."""
    longest = max(int(label) % 4 for _, label in samples)
    rows = np.zeros((len(samples), longest + 1), np.float32)
    for row, (_, label) in zip(rows, samples):
        row[: int(label) % 4] = label
    return {"rows": nd(rows), "lengths": rows.any(1), "pair": Pair(len(samples), None)}


def chosen(samples: Any, member: int) -> Any:
    return [sample[member] for sample in samples]


BATCHIFIES = {
    "stack to a tuple": stack,
    "pad to a dict": pad,
    "lambda to a number": lambda samples: len(samples),
    "lambda to the samples": lambda samples: samples,
    "partial": functools.partial(chosen, member=0),
    "nested": lambda samples: ((stack(samples), [pad(samples)]), samples[0][1]),
}


@SEMANTICS
@WORKERS
@pytest.mark.parametrize("name", BATCHIFIES)
def test_a_batchify_of_the_users_own_gives_the_same_batches(name, workers, semantics):
    with numpy_semantics(semantics):
        arguments = {"batch_size": 4, "batchify_fn": BATCHIFIES[name]}
        data = ArrayDataset(nd(pixels()), labels())
        assert_same(ours(data, **arguments, **workers), theirs(data, **arguments))


def test_a_batchify_in_worker_processes_gives_the_same_batches():
    def batchify(samples: Any) -> Any:
        return stack(samples), pad(samples), samples, Pair(samples[0], "text")

    arguments = {"batch_size": 4, "batchify_fn": lambda samples: batchify(samples)}
    data = downloaded(CIFAR10)
    assert_same(ours(data, **arguments, **PROCESSES), theirs(data, **arguments))


@pytest.mark.parametrize(
    "samples",
    [
        [Pair(i, i / 2) for i in range(5)],
        [tuple(range(i)) for i in range(5)],
        [(1, 2), None, 3, (4,)],
        [{"a": i} for i in range(5)],
        ["a", b"b", {1}],
        [np.zeros(i) for i in range(4)],
    ],
    ids=["named tuples", "tuples of any length", "mixed", "dicts", "objects", "ragged"],
)
@pytest.mark.parametrize("transformed", [False, True])
def test_a_batchify_gets_the_samples_as_they_are(samples, transformed):
    data = SimpleDataset([(sample,) for sample in samples]) if transformed else samples
    data = data.transform(lambda sample: sample) if transformed else data
    arguments = {"batch_size": 3, "batchify_fn": lambda samples: list(samples)}
    assert_same(ours(data, **arguments, **INLINE), theirs(data, **arguments))


def test_a_batchify_gets_an_empty_batch_as_it_is():
    arguments = {"batch_sampler": [[0], [], [1, 2]], "batchify_fn": len}
    assert ours(labels(), **arguments, **INLINE) == theirs(labels(), **arguments) == [1, 0, 2]
    assert ours(Triples(), **arguments, **INLINE) == theirs(Triples(), **arguments)
