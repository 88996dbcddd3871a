"""``Blocks``: every sample once, from few blocks at a time, mixed nearly like a full shuffle."""

from __future__ import annotations

import logging
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters import Blocks, Feature, open_records, pack
from adapters.batch.arranging import bytes_of_samples, order_of
from adapters.batch.blocks import BlockOrder
from adapters.batch.order import Order
from adapters.sources import as_source
from tests.fuzzing import examples
from tests.sources.record_files import write


def order(size, block, window, batch_size=16, seed=0, shard=(0, 1)):
    """An order of samples of 8 bytes."""
    arrangement = BlockOrder(size, min(size, block), window, seed)
    return Order(size, batch_size, True, seed, False, shard, arrangement)


def numbers_of(order, epoch=0):
    return np.concatenate([order.batch(epoch, index) for index in range(len(order))])


@given(
    st.integers(1, 600),
    st.integers(1, 70),
    st.integers(1, 20),
    st.integers(0, 2**70),
    st.integers(0, 5),
)
@settings(max_examples=examples(100))
def test_blocks_have_every_sample_once(size, block, window, seed, epoch):
    numbers = BlockOrder(size, min(size, block), window, seed).numbers(epoch, np.arange(size))
    assert np.array_equal(np.sort(numbers), np.arange(size))


@given(st.integers(1, 600), st.integers(1, 70), st.integers(1, 20), st.data())
@settings(max_examples=examples(100))
def test_blocks_map_a_position_alike_among_others(size, block, window, data):
    arrangement = BlockOrder(size, min(size, block), window, 5)
    some = data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=9))
    whole = arrangement.numbers(2, np.arange(size))
    assert arrangement.numbers(2, np.array(some)).tolist() == whole[some].tolist()


@pytest.mark.parametrize(("count", "size"), [(2, 6437), (4, 6400), (8, 6437)])
def test_shards_share_no_block_if_they_divide_the_window(size, count):
    """But for the rest behind the last whole block."""
    readers = np.zeros((64, count), bool)
    for shard in range(count):
        numbers = numbers_of(order(size, 100, 16, shard=(shard, count)), 1)
        blocks = numbers[numbers < 64 * 100] // 100
        readers[blocks, shard] = True
    assert (readers.sum(1) == 1).all()


def test_a_window_has_few_blocks():
    numbers = numbers_of(order(6400, 100, 8))
    assert [len(set(part // 100)) for part in numbers.reshape(8, 800)] == [8] * 8
    assert all(len(set(row // 100)) == 8 for row in numbers.reshape(-1, 8))


def test_rest_is_spread_over_one_window():
    found = set()
    for epoch in range(20):
        numbers = numbers_of(order(6450, 100, 8), epoch)
        places = np.flatnonzero(numbers >= 6400)
        assert len(places) == 50
        assert places[-1] - places[0] < 850
        assert np.diff(places).max() > 50
        found.add(int(places[0]) // 800)
        assert numbers[places].tolist() != sorted(numbers[places])
    assert len(found) > 3


def test_order_of_epochs_seeds_and_blocks_differs():
    first = numbers_of(order(6400, 100, 8))
    assert (first == numbers_of(order(6400, 100, 8))).all()
    assert (first != numbers_of(order(6400, 100, 8), 1)).mean() > 0.9
    assert (first != numbers_of(order(6400, 100, 8, seed=1))).mean() > 0.9
    lanes = first[:800].reshape(100, 8).T % 100
    assert len({tuple(lane) for lane in lanes.tolist()}) == 8


# --- golden values: a release that changes one of these changes everybody's training runs ---


def test_golden_order():
    assert order(1000, 30, 4, seed=7).batch(3, 20).tolist() == GOLDEN


GOLDEN = [411, 950, 344, 870, 406, 953, 353, 878, 415, 955, 357, 892, 408, 948, 339, 881]


# --- arguments ---


def test_block_has_as_many_samples_as_fit():
    source = as_source(np.zeros((1000, 10), np.float32))
    arrangement = order_of(1000, 4, Blocks(4000, 2), source=source).arrangement
    assert (arrangement.block, arrangement.window) == (100, 2)


class OfRandomLengths:
    def __len__(self):
        return 100

    def __getitem__(self, number):
        return np.zeros(np.random.randint(1, 10_000) + random.randrange(10_000), np.uint8)


def test_bytes_of_random_samples_are_alike_in_all_processes():
    measured = set()
    for mine in range(3):
        random.seed(mine)
        np.random.seed(mine)
        before = random.getstate(), np.random.get_state()[2]
        measured.add(bytes_of_samples(as_source(OfRandomLengths())))
        assert (random.getstate(), np.random.get_state()[2]) == before
    assert len(measured) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"block_bytes": 0}, ValueError, "block_bytes must be >= 1, got 0"),
        ({"window": 0}, ValueError, "window must be >= 1, got 0"),
        ({"window": 1.5}, TypeError, "window must be an integer >= 1, got 1.5"),
    ],
)
def test_wrong_blocks_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Blocks(**arguments)


# --- what is sorted by class is told of once, with the figures ---

SORTED = np.repeat(np.arange(100), 50)


def told(caplog, source, shuffle=Blocks(block_bytes=50 * 16, window=4), batch_size=64):  # noqa: B008
    with caplog.at_level(logging.WARNING, "adapters"):
        order_of(len(source), batch_size, shuffle, source=source)
        order_of(len(source), batch_size, shuffle, source=source)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    "source",
    [
        as_source((np.zeros(len(SORTED)), SORTED)),
        as_source([(0.0, label) for label in SORTED.tolist()]),
        as_source((np.zeros(len(SORTED)), SORTED)).select(range(4000)),
    ],
    ids=["arrays", "list", "part"],
)
def test_sorted_labels_are_told_once(caplog, source):
    (message,) = told(caplog, source)
    classes, best = float(message.split()[1]), float(message.split("shuffle has ")[1].split(":")[0])
    assert "classes in a batch of 64" in message
    assert classes <= 10 < 40 < best <= 64


MIXED = np.random.default_rng(0).permutation(SORTED)


@pytest.mark.parametrize(
    "labels", [np.arange(5000) % 7, np.arange(5000), np.zeros(5000), MIXED, np.zeros((5000, 2))]
)
def test_sorted_labels_are_not_others(caplog, labels):
    assert told(caplog, as_source((np.zeros(5000), labels))) == []
    assert told(caplog, as_source((np.zeros(5000), SORTED)), shuffle=True) == []
    assert told(caplog, as_source(np.zeros((5000, 2)))) == []


def test_a_rare_class_is_not_sorted(caplog):
    """It is in one of two batches by chance."""
    for seed in range(20):
        labels = np.random.default_rng(seed).random(5000) < 0.003
        assert told(caplog, as_source((np.zeros(5000), labels)), batch_size=256) == []


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Records of sorted labels, shuffled by ``pack`` or not."""
    arrays = np.zeros((2000, 2, 2), np.uint8), SORTED[:2000]
    folder = tmp_path_factory.mktemp("packed")
    for seed in (None, "auto"):
        pack(arrays, folder / f"{seed}.tfrecord", format="tfrecord", encoding="raw", seed=seed)
    return folder


@pytest.mark.parametrize(
    ("names", "outputs", "count"),
    [
        (("image/encoded", "image/class/label"), None, 1),
        (("x", "label"), None, 1),
        (("x", "y"), ("x", "y"), 1),
        (("x", "y"), None, 0),  # Which one is the label?
    ],
)
def test_sorted_labels_of_features(caplog, packed, names, outputs, count):
    stored = dict(zip(names, ("image/encoded", "image/class/label")))
    decode = dict(zip(names, (Feature(bytes), Feature("int64"))))
    path = packed / "None.tfrecord"
    with open_records(path, decode=decode, fields=stored, outputs=outputs) as records:
        assert len(told(caplog, records, Blocks(int(50 * records.sample_bytes), 4))) == count


def test_sorted_labels_that_pack_shuffled_are_fine(caplog, packed):
    with open_records(packed / "auto.tfrecord", decode="image") as records:
        assert told(caplog, records, Blocks(int(50 * records.sample_bytes), 4)) == []


def test_sorted_labels_of_damaged_records(caplog, tmp_path):
    path = write(tmp_path / "x.rec", "recordio", [b"no image"] * 300)
    with open_records(path, decode="image") as records:
        assert told(caplog, records, Blocks(1000, 2)) == []
