"""Orders other than a shuffle, in ``SafeSequence``: blocks, weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adapters import Blocks, SafeSequence, Weighted, mix

SIZE = 1003
X = np.arange(SIZE)
BLOCKS = Blocks(block_bytes=8 * 50, window=4)
ORDERS = {
    "blocks": {"shuffle": BLOCKS},
    "weights": {"weights": Weighted(1 + X % 3, 700)},
    "bucket_by": {"shuffle": True, "bucket_by": X % 97},
    "mix": {"source": mix([X[:600], X[600:]], [1, 2]), "shuffle": True},
    "mix in blocks": {"source": mix([X[:600], X[600:]], [1, 2]), "shuffle": BLOCKS},
}
EACH = pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)


def epoch_of(sequence):
    return [batch.tolist() for batch in sequence]


def expected_of(epochs=2, **order):
    with SafeSequence(**{"source": X, **order}, batch_size=16, seed=5, workers=0) as sequence:
        return [epoch_of(sequence) for _ in range(epochs)]


@pytest.mark.one_backend
@EACH
@pytest.mark.parametrize(
    "workers",
    [{"workers": 2}, {"workers": 2, "use_multiprocessing": True}],
    ids=["threads", "pool"],
)
def test_all_workers_give_the_same_batches(order, workers):
    with SafeSequence(**{"source": X, **order}, batch_size=16, seed=5, **workers) as sequence:
        assert [epoch_of(sequence) for _ in range(2)] == expected_of(**order)


@pytest.mark.one_backend
@EACH
def test_epochs_are_read_again_and_go_on_in_the_middle(order):
    first, second = expected_of(**order)
    assert first != second
    with SafeSequence(**{"source": X, **order}, batch_size=16, seed=5, workers=0) as sequence:
        sequence.load_state_dict({"epoch": 1, "batch": 9})
        assert epoch_of(sequence) == second[9:]
        sequence.set_epoch(0)
        assert sequence[3].tolist() == first[3]


@EACH
def test_a_run_on_four_ranks_continues_on_two(order):
    (whole,) = expected_of(1, **order)
    flat = np.concatenate(whole)

    def rank(index, count, batch_size, state):
        arguments = {"source": X, "shard": (index, count), "seed": 5, "workers": 0, **order}
        with SafeSequence(batch_size=batch_size, **arguments) as sequence:
            sequence.load_state_dict(state)
            return [sequence[batch] for batch in range(state["batch"], state["batch"] + 5)]

    before = [rank(index, 4, 4, {"epoch": 0, "batch": 0}) for index in range(4)]
    after = [rank(index, 2, 8, {"epoch": 0, "batch": 5}) for index in range(2)]
    read = [np.stack([part[step] for part in before], 1).ravel() for step in range(5)]
    read += [np.stack([part[step] for part in after], 1).ravel() for step in range(5)]
    assert np.concatenate(read).tolist() == flat[:160].tolist()


@pytest.mark.one_backend
def test_blocks_have_every_sample_once():
    (whole,) = expected_of(1, shuffle="blocks")
    assert sorted(np.concatenate(whole).tolist()) == X.tolist() != np.concatenate(whole).tolist()


def test_an_epoch_may_be_longer_than_the_source():
    with SafeSequence(X, 10, weights=Weighted(np.ones(SIZE), 5000), workers=0) as sequence:
        assert len(sequence) == 500 == len(list(sequence))


def test_a_sample_that_fails_is_replaced_by_one_of_the_source():
    """Also where an epoch is shorter than the source."""

    def fail(x):
        if x == 9:
            raise ValueError("no")
        return x

    arguments = {"on_error": "skip", "transform": fail, "workers": 0}
    weights = Weighted(np.eye(12)[9], 4)
    with SafeSequence(np.arange(12), 4, weights=weights, **arguments) as sequence:
        assert sequence[0].tolist() == [10] * 4


@EACH
def test_explain_names_the_order(order, capsys):
    with SafeSequence(**{"source": X, **order}, batch_size=16, workers=0) as sequence:
        sequence.explain()
    assert "order: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shuffle": "block"}, TypeError, "shuffle must be True or False, got 'block'; \"blocks\""),
        ({"shuffle": BLOCKS, "weights": X}, ValueError, "shuffle and weights must not be given"),
        ({"weights": X[1:]}, ValueError, "weights must have one number for each of the 1003"),
    ],
)
def test_wrong_orders_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        SafeSequence(X, 16, **arguments)


class Broken:
    """Some of its first samples can't be read."""

    def __init__(self, broken: int, size: int = 200) -> None:
        self.broken, self.size = broken, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        if number < self.broken:
            raise OSError(f"{number} can't be read")
        return np.int64(number)


@pytest.mark.parametrize("on_error", ["skip", lambda error, number: np.int64(number)])
@pytest.mark.parametrize("source", [Broken, lambda broken: mix([Broken(broken), np.arange(10)])])
def test_blocks_are_measured_by_the_first_sample_that_can_be_read(source, on_error, caplog):
    arguments = {"shuffle": Blocks(64, 2), "on_error": on_error, "workers": 0}
    with SafeSequence(source(3), 4, **arguments) as sequence:
        assert sum(len(batch) for batch in sequence) >= 200
    said = [each for each in caplog.messages if each.startswith("blocks are as large as sample 3")]
    assert "where a state is loaded: OSError: 0 can't be read" in said[0]


def test_blocks_of_what_cannot_be_read_are_an_error():
    with pytest.raises(OSError, match="0 can't be read"):
        SafeSequence(Broken(1), 4, shuffle="blocks", workers=0)
    with pytest.raises(OSError, match="0 can't be read"):
        SafeSequence(Broken(200), 4, shuffle="blocks", on_error="skip", workers=0)
