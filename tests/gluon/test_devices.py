"""NDArrays over the memory of batches, and batches on their way to a device."""

from __future__ import annotations

import gc
import itertools
import os
from collections import OrderedDict
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import DataLoader, SimpleDataset
from mxnet.gluon.data.vision import transforms

from adapters import gluon_loader
from adapters.engine import usable_cpus
from adapters.gluon import ndarrays
from adapters.gluon.ndarrays import as_ndarray, as_numpy
from tests.engine.executors import wait_until
from tests.engine.test_sending import own_megabytes
from tests.engine.workloads import Numbers
from tests.gluon.data_sets import Computed, assert_same, numpy_semantics
from tests.gluon.executors import PROCESSES, THREADS, every_kind, every_quick_executor, opened

pytestmark = pytest.mark.usefixtures("small_blocks")


# --- the same memory ---


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 0, 3), (1,)])
def test_shapes_that_only_numpy_semantics_has_are_kept(shape):
    rows = np.full(shape, 7, np.int32)
    with numpy_semantics():
        array = as_ndarray(rows, True)
        assert (array.shape, array.asnumpy().tolist()) == (shape, rows.tolist())
        assert (as_numpy(array).shape, as_numpy(array).tolist()) == (shape, rows.tolist())


def test_ndarray_and_its_view_keep_the_memory_for_each_other():
    view = as_numpy(as_ndarray(np.arange(1000.0), False) * 2)
    others = [mx.nd.zeros(1000, dtype="float64") for _ in range(50)]
    mx.nd.waitall()
    assert (view.tolist(), len(others)) == ([2.0 * i for i in range(1000)], 50)


@every_quick_executor
def test_held_batch_is_unchanged(executor):
    rows = np.arange(800, dtype=np.float32)[:, None] + np.zeros((1, 64), np.float32)
    with opened(SimpleDataset(list(rows)), executor) as loader:
        iterator = iter(loader)
        held = [next(iterator) for _ in range(3)]
        sliced = next(iterator)[1:3]
        summed = next(iterator).sum(axis=1)
        list(iterator)
        list(loader)
    assert [batch.asnumpy().tolist() for batch in held] == rows[:12].reshape(3, 4, 64).tolist()
    assert sliced.asnumpy().tolist() == rows[13:15].tolist()
    assert summed.asnumpy().tolist() == (rows[16:20, 0] * 64).tolist()


def test_memory_of_batches_is_freed_by_a_full_collection():
    with opened(SimpleDataset(list(np.zeros((600, 5000), np.float32))), "inline", 1) as loader:
        held = list(loader)
        mx.nd.waitall()
        del held
        gc.collect()
    assert len(ndarrays._lent) < 100


# --- a device ---


def noted(asked: list[int], fails: set[int] = frozenset()) -> Computed:
    """A data set that notes which samples are asked for."""

    def sample(number: int) -> Any:
        asked.append(number)
        if number in fails:
            raise KeyError(number)
        return np.float32(number), {"a": 1}

    return Computed(sample, 12)


def batchify(samples: list[Any]) -> Any:
    array = mx.nd.array([sample[0] for sample in samples])
    return array, {"a": [array + 1], "b": "text"}


@every_kind
def test_all_arrays_of_a_batch_arrive_on_the_device(executor):
    with opened(noted([]), executor, batchify_fn=batchify, ctx=mx.cpu(1)) as loader:
        batches = list(loader)
    assert len(batches) == 3
    for number, batch in enumerate(batches):
        assert type(batch) is tuple
        array, rest = batch
        assert (array.context, rest["a"][0].context) == (mx.cpu(1), mx.cpu(1))
        assert array.asnumpy().tolist() == list(range(4 * number, 4 * number + 4))
        assert rest["a"][0].asnumpy().tolist() == (array.asnumpy() + 1).tolist()
        assert rest["b"] == "text"


class Frozen(dict):  # type: ignore[type-arg]
    def update(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError("frozen")


@pytest.mark.parametrize(
    ("kind", "executor"), [(Frozen, THREADS), (OrderedDict, "inline"), (Frozen, "processes-1")]
)
def test_batches_of_other_classes_are_kept_and_moved(kind, executor):
    def batchify(samples: list[Any]) -> Any:
        return kind({0: mx.nd.array(samples)})

    for ctx in (None, mx.cpu(1)):
        with opened(Numbers(8), executor, batchify_fn=batchify, ctx=ctx) as loader:
            for batch in loader:
                assert type(batch) is kind
                assert batch[0].context == (ctx or mx.cpu(0))


@pytest.mark.parametrize(("ctx", "ahead"), [(mx.cpu(1), 8), (mx.cpu(0), 4), (None, 4)])
def test_one_batch_is_on_its_way_while_another_is_used(ctx, ahead):
    asked: list[int] = []
    with opened(noted(asked), "inline", batchify_fn=batchify, ctx=ctx) as loader:
        iterator = iter(loader)
        assert asked == []
        next(iterator)
        assert len(asked) == ahead
        assert len(list(iterator)) == 2
        assert sorted(asked) == list(range(12))


@every_quick_executor
def test_error_in_the_batch_ahead_arrives_with_that_batch(executor):
    fails = {5}
    with opened(noted([], fails), executor, batchify_fn=batchify, ctx=mx.cpu(1)) as loader:
        iterator = iter(loader)
        assert next(iterator)[0].asnumpy().tolist() == [0, 1, 2, 3]
        with pytest.raises(KeyError):
            next(iterator)
        with pytest.raises(StopIteration):
            next(iterator)
        fails.clear()
        assert [int(batch[0].asnumpy()[0]) for batch in loader] == [0, 4, 8]


def test_pinned_batches_are_as_mxnets_own():
    def lists(samples: list[Any]) -> Any:
        array = mx.nd.array([sample[0] for sample in samples])
        return array, ((array + 1,), "text")

    expected = list(DataLoader(noted([]), 4, batchify_fn=lists, pin_memory=True))
    with opened(noted([]), THREADS, batchify_fn=lists, pin_memory=True) as loader:
        found = list(loader)
    assert_same(found, expected)
    arrays = [array for one, ((other,), _) in found + expected for array in (one, other)]
    assert {str(array.context) for array in arrays} == {"cpu_pinned(0)"}


@pytest.mark.parametrize("ctx", [None, mx.cpu(0), mx.cpu(1)])
def test_without_a_gpu_nothing_is_pinned(ctx):
    with opened(np.arange(4), "inline", ctx=ctx, pin_memory="auto") as loader:
        assert [str(batch.context) for batch in loader] == [str(ctx or mx.cpu(0))]


# --- what worker processes are sent ---


def test_used_arrays_and_blocks_are_sent():
    """Also a Compose and a block that have compiled what is in them."""
    images = mx.nd.arange(5 * 8 * 8 * 3).reshape((5, 8, 8, 3)).astype("uint8")
    numpy_images = mx.np.ones((5, 3))
    compose = transforms.Compose([transforms.Resize(4), transforms.ToTensor()])
    for child in compose._children.values():
        child.hybridize()
    dense = mx.gluon.nn.Dense(3, in_units=12)
    dense.initialize(mx.init.One())
    dense.hybridize()

    def sample(number: int) -> Any:
        small = compose(images[number])
        out = dense(small[:, :, 0].reshape((1, -1)))[0]
        return small, out, numpy_images[number].asnumpy(), os.getpid()

    sample(0)
    with opened(Computed(sample, 5), "inline", 5) as loader:
        (expected,) = loader
    with opened(Computed(sample, 5), "processes-1", 5) as loader:
        (batch,) = loader
    assert int(batch[-1].asnumpy()[0]) != os.getpid()
    for mine, its in zip(batch[:-1], expected[:-1], strict=True):
        assert mine.asnumpy().tolist() == its.asnumpy().tolist()


def worker_megabytes(rows: Any) -> float:
    """What each of two workers has for itself, after both have read all of an array."""

    def sample(number: int) -> int:
        assert as_numpy(rows)[:, ::1024].sum() > 0  # Each page of it.
        return os.getpid()

    with opened(Computed(sample, 400), PROCESSES) as loader:
        iterator, pids = itertools.chain.from_iterable(itertools.repeat(loader)), set()
        wait_until(lambda: pids.update(next(iterator).asnumpy().tolist()) or len(pids) == 2)
        return max(own_megabytes(pid) for pid in pids)


@pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has one process that computes")
def test_ndarrays_are_shared_not_copied():
    alone = worker_megabytes(mx.nd.ones((1, 1)))
    assert worker_megabytes(mx.nd.ones((50, 2**20))) < alone + 50  # 200 MiB as float32.


def test_gpu_that_is_not_there_is_refused_at_once():
    with pytest.raises(ValueError, match=r"ctx must be a device of this machine.* got gpu\(99\)"):
        gluon_loader(np.zeros((4, 2)), 2, ctx=mx.gpu(99))
    with pytest.raises(TypeError, match="pin_device_id must be an integer >= 0, got 'gpu'"):
        gluon_loader(np.zeros((4, 2)), 2, pin_device_id="gpu")
