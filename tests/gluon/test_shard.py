"""``shard``: a part of the one global order for each process."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset
from mxnet.gluon.data.vision.transforms import RandomFlipLeftRight

from adapters import gluon_loader
from tests.gluon.data_sets import nd, outline, pixels, values
from tests.gluon.executors import EXECUTORS, THREADS, opened

SIZE, COUNT = 23, 3
NUMBERS = np.arange(SIZE)
ORDERS = pytest.mark.parametrize(
    "order", [{}, {"shuffle": True, "seed": 4}], ids=["plain", "shuffled"]
)


def shards(data: Any, executor: str = "inline", passes: int = 1, **arguments: Any) -> list[Any]:
    """The passes over each shard."""
    found = []
    for index in range(COUNT):
        with opened(data, executor, shard=(index, COUNT), **arguments) as loader:
            found.append([list(loader) for _ in range(passes)])
    return found


@ORDERS
@pytest.mark.parametrize("last_batch", ["keep", "discard"])
def test_all_shards_together_are_the_batches_of_one_loader(order, last_batch):
    """But for what is left over at the end of the order."""
    arguments = {**order, "last_batch": last_batch}
    with gluon_loader(NUMBERS, 4 * COUNT, num_workers=0, **order) as loader:
        (*expected,) = itertools.chain(*values(loader))
    found = [values(batches) for (batches,) in shards(NUMBERS, **arguments)]
    assert [[len(batch) for batch in shard] for shard in found] == [
        [4] if last_batch == "discard" else [4, 3]
    ] * COUNT
    together = [n for batches in zip(*found) for row in zip(*batches) for n in row]
    assert together == expected[: len(together)]


def test_a_samples_random_numbers_are_its_own_on_any_shard():
    data = ArrayDataset(nd(pixels(SIZE)), NUMBERS).transform_first(RandomFlipLeftRight())
    arguments = {"shuffle": True, "seed": 4}
    with opened(data, "inline", SIZE, **arguments) as loader:
        ((images, numbers),) = loader
    whole = dict(zip(numbers.asnumpy().tolist(), images.asnumpy()))
    for (batches,) in shards(data, THREADS, **arguments):
        for images, numbers in batches:
            for number, image in zip(numbers.asnumpy().tolist(), images.asnumpy()):
                np.testing.assert_array_equal(image, whole[number])


@ORDERS
def test_what_rolls_over_on_a_shard_is_its_own(order):
    arguments = {**order, "last_batch": "rollover"}
    found = [[values(each) for each in passes] for passes in shards(NUMBERS, passes=4, **arguments)]
    # 7 + 3, 7 + 2 and so on.
    assert [[len(batches) for batches in passes] for passes in found] == [[1, 2, 2, 2]] * COUNT
    delivered = np.concatenate([*map(np.concatenate, itertools.chain(*found))])
    assert len(delivered) == 4 * 7 * COUNT
    assert np.bincount(delivered).max() <= 4
    one = {"shard": (1, COUNT), **arguments}
    with opened(NUMBERS, THREADS, **one) as loader:
        loader.load_state_dict({"epoch": 2, "batch": 1})
        assert [values(loader), values(loader)] == [found[1][2][1:], found[1][3]]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_shard_is_the_same_for_all_workers(executor):
    arguments = {"shuffle": True, "seed": 4, "shard": (1, COUNT)}
    with opened(NUMBERS, "inline", **arguments) as loader:
        expected = [outline(list(loader)) for _ in range(2)]
    with opened(NUMBERS, executor, **arguments) as loader:
        assert [outline(list(loader)) for _ in range(2)] == expected


def test_explain_names_the_shard(capsys):
    with opened(NUMBERS, "inline", shard=(1, COUNT)) as loader:
        loader.explain()
    assert "shard: 1 of 3, 7 of 23" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shard": 3}, TypeError, "shard must be (index, count)"),
        ({"shard": (3, 3)}, ValueError, "0 <= index < count"),
        ({"shard": (0, 24)}, ValueError, "leave every shard a sample, got 24 shards of 23"),
        ({"shard": (0, 2), "shuffle": True}, ValueError, "give all of them the same seed"),
        ({"shard": (0, 2), "sampler": [1, 2]}, ValueError, "have them give this shard's"),
        (
            {"shard": (0, 2), "batch_sampler": [[1]], "batch_size": None},
            ValueError,
            "shard must not be specified if sampler or batch_sampler is specified",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, error, message):
    with pytest.raises(error) as info:
        gluon_loader(NUMBERS, **{"batch_size": 4, "num_workers": 0, **arguments})
    assert message in str(info.value)
