"""Orders other than a shuffle, in ``gluon_loader``: blocks, weights."""

from __future__ import annotations

import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset

from adapters import Blocks, Weighted, gluon_loader, mix
from tests.gluon.data_sets import values
from tests.gluon.executors import EXECUTORS, opened

SIZE = 1003
X = np.arange(SIZE)
ORDERS = {
    "blocks": {"shuffle": Blocks(block_bytes=8 * 50, window=4)},
    "weights": {"weights": Weighted(1 + X % 3, 700)},
    "bucket_by": {"shuffle": True, "bucket_by": X % 97},
    "mix": {"dataset": mix([X[:600], X[600:]], [1, 2]), "shuffle": True},
}
EACH = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)


@EACH
@pytest.mark.parametrize("executor", EXECUTORS)
def test_all_workers_give_the_same_batches(order, executor):
    arguments = {"dataset": X, "seed": 5, "batch_size": 64, **order}
    with gluon_loader(num_workers=0, **arguments) as loader:
        expected = [values(loader) for _ in range(2)]
    assert expected[0] != expected[1]
    data, batch_size = arguments.pop("dataset"), arguments.pop("batch_size")
    with opened(data, executor, batch_size, **arguments) as loader:
        assert [values(loader) for _ in range(2)] == expected


@EACH
def test_a_pass_goes_on_in_its_middle_and_shards_deal_the_order(order):
    arguments = {"dataset": X, "num_workers": 0, "seed": 5, **order}
    with gluon_loader(batch_size=12, **arguments) as loader:
        expected = values(loader)
        loader.load_state_dict({"epoch": 0, "batch": 7})
        assert values(loader) == expected[7:]
    parts = []
    for index in range(3):
        with gluon_loader(batch_size=4, shard=(index, 3), **arguments) as loader:
            parts.append(values(loader))
    together = [n for batches in zip(*parts) for row in zip(*batches) for n in row]
    assert together == np.concatenate(expected).tolist()[: len(together)]
    assert len(together) >= sum(map(len, expected)) - 2


def test_blocks_have_every_sample_once_whatever_the_data_set():
    for data in (X, ArrayDataset(X), list(X.tolist())):
        with gluon_loader(data, 64, shuffle="blocks", seed=1, num_workers=0) as loader:
            assert sorted(np.concatenate(values(loader)).tolist()) == X.tolist()


def test_without_a_seed_that_of_blocks_is_drawn_from_numpy():
    found = []
    for _ in range(2):
        np.random.seed(3)
        with gluon_loader(X, 64, shuffle="blocks", num_workers=0) as loader:
            found.append(values(loader))
            with pytest.raises(ValueError, match="seed of its order is drawn from numpy"):
                loader.load_state_dict({"epoch": 0, "batch": 3})
    assert found[0] == found[1]
    with gluon_loader(X, 64, shuffle="blocks", num_workers=0) as loader:
        assert values(loader) != found[0]


def test_what_rolls_over_in_blocks_is_every_sample_once_in_a_row_of_passes():
    arguments = {"shuffle": "blocks", "seed": 1, "last_batch": "rollover", "num_workers": 0}
    with gluon_loader(np.arange(10), 4, **arguments) as loader:
        delivered = [n for _ in range(4) for n in np.concatenate(values(loader)).tolist()]
    assert sorted(delivered[:10]) == sorted(delivered[10:20]) == list(range(10))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_sampler": [[1]], "weights": X}, "weights must not be specified if sampler or"),
        ({"batch_size": 2, "sampler": [1], "weights": X}, "weights must not be specified if sampl"),
        ({"batch_size": 2, "shard": (0, 2), "weights": X}, "shard needs a seed"),
        ({"batch_size": 2, "shard": (0, 2), "shuffle": "blocks"}, "shard needs a seed"),
    ],
)
def test_wrong_orders_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        gluon_loader(X, **arguments)


def test_a_word_that_is_no_order_is_refused():
    with pytest.raises(TypeError, match="shuffle must be True or False, got 'block'"):
        gluon_loader(X, 2, shuffle="block")


def test_blocks_are_measured_by_the_first_sample_that_can_be_read():
    class Broken:
        def __len__(self):
            return 100

        def __getitem__(self, number):
            if number < 2:
                raise OSError(f"{number} can't be read")
            return np.int64(number)

    arguments = {"shuffle": Blocks(64, 2), "seed": 1, "on_error": "skip", "num_workers": 0}
    with gluon_loader(Broken(), 4, **arguments) as loader:
        read = [int(each) for batch in loader for each in batch.asnumpy()]
    assert sorted(set(read)) == list(range(2, 100))
    assert len(read) == 100
