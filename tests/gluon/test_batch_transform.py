"""``batch_transform``: a function of the batch that the loop would get."""

from __future__ import annotations

import random
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.contrib.estimator import Estimator
from mxnet.gluon.data import ArrayDataset
from mxnet.gluon.data.vision.transforms import Cast, ToTensor

from adapters import gluon_loader
from adapters.batch.key import BatchKey
from adapters.gluon.diagnosed import FRONT_END
from tests.gluon.data_sets import IN_MEMORY, nd, numpy_semantics, outline, pixels, values
from tests.gluon.executors import EXECUTORS, THREADS, every_executor, opened
from tests.plans import notes_of

SIZE = 24
NUMBERS = np.arange(SIZE, dtype=np.float32)


def images() -> Any:
    data = ArrayDataset(nd(pixels(SIZE)), NUMBERS)
    return data.transform_first(ToTensor())


def same(batch: Any) -> Any:
    return batch


def mixed(batch: Any, rng: np.random.Generator) -> Any:
    """Mixup."""
    image, label = batch
    share = float(rng.beta(0.4, 0.4))
    order = rng.permutation(len(label))
    return [image * share + image[order] * (1 - share), label, share]


def drawn(batch: Any) -> Any:
    image, label = batch
    return [image + random.random(), label, np.random.rand(2)]


def passes(transform: Any, executor: str, data: Any = None, **arguments: Any) -> list[Any]:
    arguments = {"shuffle": True, "seed": 3, "batch_transform": transform, **arguments}
    with opened(images() if data is None else data, executor, **arguments) as loader:
        return [[outline(batch) for batch in loader] for _ in range(2)]


@pytest.mark.parametrize("semantics", [False, True])
def test_it_is_given_what_the_loop_would_get(semantics):
    with numpy_semantics(semantics):
        for name, make in IN_MEMORY.items():
            seen: list[Any] = []

            def noting(batch: Any, seen: list[Any] = seen) -> Any:
                seen.append(outline(batch))
                return batch

            with opened(make(), "inline") as loader:
                expected = [outline(batch) for batch in loader]
            with opened(make(), "inline", batch_transform=noting) as loader:
                assert [outline(batch) for batch in loader] == expected == seen, name


@every_executor
@pytest.mark.parametrize("semantics", [False, True])
def test_every_executor_gives_the_same_bits(executor, semantics):
    with numpy_semantics(semantics):
        for transform in (same, mixed, drawn):
            expected = passes(transform, "inline")
            assert passes(transform, executor) == expected
            assert expected[0] != expected[1]


def test_rng_depends_on_the_epoch_and_the_index_of_the_batch_alone():
    def number(batch: Any, rng: np.random.Generator) -> Any:
        return float(rng.random())

    with opened(NUMBERS, "inline", 4, seed=1, batch_transform=number) as loader:
        small = [list(loader) for _ in range(2)]
    with opened(NUMBERS, THREADS, 8, seed=1, batch_transform=number) as loader:
        assert [list(loader) for _ in range(2)] == [epoch[:3] for epoch in small]
    assert len({*small[0], *small[1]}) == 12


def test_without_a_seed_numpys_decides():
    drawn = []
    for _ in range(2):
        np.random.seed(6)
        drawn += passes(mixed, THREADS, seed=None)
    assert drawn[:2] == drawn[2:]
    assert drawn[0] != drawn[1]


def test_what_it_draws_is_put_back():
    before = random.getstate(), np.random.get_state()
    passes(drawn, "inline")
    assert random.getstate() == before[0]
    np.testing.assert_equal(np.random.get_state(), before[1])


def test_a_batchify_that_draws_after_a_stage_draws_something_else_for_each_batch():
    """No sample is asked for one by one there, which is when the generators are seeded."""

    def batchify(samples: list[Any]) -> Any:
        return [np.random.rand(), random.random()]

    def numbers(executor: str) -> list[Any]:
        with opened(images(), executor, seed=3, batchify_fn=batchify) as loader:
            return [batch for _ in range(2) for batch in loader]

    expected = numbers("inline")
    assert len({each for batch in expected for each in batch}) == 24
    assert numbers("inline") == numbers("processes-1") == expected


@every_executor
def test_it_comes_after_a_batchify_of_the_users_own(executor):
    def batchify(samples: list[Any]) -> Any:
        return {"sum": np.float32(sum(samples)), "all": np.array(samples)}

    def changed(batch: Any) -> Any:
        return {**batch, "nd": mx.nd.array(batch["all"]) * 2}

    with opened(NUMBERS, executor, batchify_fn=batchify, batch_transform=changed) as loader:
        batch = next(iter(loader))
    assert batch["sum"] == 6
    assert batch["nd"].asnumpy().tolist() == [0, 2, 4, 6]
    assert type(batch["all"]) is np.ndarray


class Refilled:
    """Gives the same memory each time."""

    def __init__(self, way: str) -> None:
        self.array = np.zeros((4, 20_000), np.float32)
        self.nd = mx.nd.zeros((4, 20_000))
        self.way = way

    def __call__(self, batch: Any) -> Any:
        for row, number in enumerate(batch.asnumpy().tolist()):
            self.array[row] = number
        if self.way == "array":
            return self.array
        self.nd[:] = mx.nd.array(self.array)
        return [self.nd[:3], self.nd]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("way", ["array", "NDArray"])
def test_batches_in_memory_that_is_used_again_stay_as_they_were(executor, way):
    with opened(NUMBERS, executor, batch_transform=Refilled(way), thread_safe=False) as loader:
        batches = list(loader)
    last = [batch[-1] if isinstance(batch, list) else batch for batch in batches]
    arrays = [each if isinstance(each, np.ndarray) else each.asnumpy() for each in last]
    assert [set(np.unique(row)) for array in arrays for row in array] == [{n} for n in NUMBERS]


@pytest.mark.parametrize("executor", EXECUTORS[:2])
def test_a_block_may_be_one(executor):
    with opened(NUMBERS, executor, batch_transform=Cast("float64")) as loader:
        batches = list(loader)
    assert {np.dtype(batch.dtype) for batch in batches} == {np.dtype(np.float64)}
    assert [number for batch in values(batches) for number in batch] == NUMBERS.tolist()


def fails(batch: Any) -> Any:
    raise KeyError("no")


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize(
    ("transform", "kind", "message"),
    [(fails, KeyError, "no"), (lambda batch: None, ValueError, "must return a batch, got None")],
)
def test_an_error_names_the_batch(executor, transform, kind, message):
    loader = opened(NUMBERS, executor, batch_transform=transform, on_error="skip")
    with loader, pytest.raises(kind, match=message) as info:
        list(loader)
    notes = notes_of(info.value)
    assert "in batch_transform" in notes
    assert "in batch 0 of epoch 0" in notes


@pytest.mark.parametrize("wrong", [3, lambda: None, lambda batch, rng, more: None])
def test_what_can_not_be_called_with_a_batch_is_refused(wrong):
    with pytest.raises(TypeError, match="batch_transform must"):
        gluon_loader(NUMBERS, 2, batch_transform=wrong)


def test_explain_names_it(capsys):
    with opened(NUMBERS, "inline", batch_transform=mixed) as loader:
        loader.explain()
    assert "batch_transform mixed (test_batch_transform.py:" in capsys.readouterr().out


def test_a_twin_and_a_diagnosis_have_it():
    with opened(images(), "inline", seed=1, batch_transform=mixed) as loader:
        expected = [outline(batch) for batch in loader]
        with loader._twin() as twin:
            assert [outline(batch) for batch in twin] == expected
        parts = FRONT_END.ablations(loader)
        assert parts.memory.batch_transform is mixed
        assert parts.collation.batch_transform is None
        for plan in (parts.whole, parts.storage, parts.memory, parts.collation):
            plan.batch(BatchKey(0, 0), np.empty)


def test_an_estimator_takes_a_loader_with_all_of_it():
    net = mx.gluon.nn.Dense(2)
    net.initialize()
    estimator = Estimator(
        net,
        mx.gluon.loss.SoftmaxCrossEntropyLoss(),
        trainer=mx.gluon.Trainer(net.collect_params(), "sgd"),
        context=mx.cpu(0),
    )
    estimator.logger.setLevel("ERROR")
    data = ArrayDataset(nd(pixels(SIZE)), NUMBERS % 2).transform_first(ToTensor())
    arguments = {"shard": (1, 2), "on_error": "skip", "batch_transform": same}
    with opened(data, THREADS, shuffle=True, seed=1, **arguments) as loader:
        loader.load_state_dict({"epoch": 3, "samples": 8})
        estimator.fit(loader, epochs=2)
        assert loader.state_dict() == {"epoch": 5, "samples": 0}
