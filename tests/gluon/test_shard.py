"""``shard``: a part of the one global order for each process, and states of other shards."""

from __future__ import annotations

import itertools
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from adapters import gluon_loader, ranks
from adapters.gluon import Resume
from tests.gluon.data_sets import values
from tests.gluon.executors import THREADS, opened

SIZE, COUNT = 23, 3
NUMBERS = np.arange(SIZE)
ORDERS = pytest.mark.parametrize("order", [{}, {"shuffle": True, "seed": 4}], ids=str)


def shards(passes: int = 1, **arguments: Any) -> list[Any]:
    """The passes over each shard."""
    found = []
    for index in range(COUNT):
        with opened(NUMBERS, "inline", shard=(index, COUNT), **arguments) as loader:
            found.append([values(loader) for _ in range(passes)])
    return found


@ORDERS
@pytest.mark.parametrize("last_batch", ["keep", "discard"])
def test_all_shards_together_are_the_batches_of_one_loader(order, last_batch):
    """But for what is left over at the end of the order."""
    arguments = {**order, "last_batch": last_batch}
    with gluon_loader(NUMBERS, 4 * COUNT, num_workers=0, **order) as loader:
        (*expected,) = itertools.chain(*values(loader))
    found = [batches for (batches,) in shards(**arguments)]
    assert [[len(batch) for batch in shard] for shard in found] == [
        [4] if last_batch == "discard" else [4, 3]
    ] * COUNT
    together = [n for batches in zip(*found) for row in zip(*batches) for n in row]
    assert together == expected[: len(together)]


@ORDERS
def test_what_rolls_over_on_a_shard_is_its_own(order):
    arguments = {**order, "last_batch": "rollover"}
    found = shards(passes=4, **arguments)
    # 7 + 3, 7 + 2 and so on.
    assert [[len(batches) for batches in passes] for passes in found] == [[1, 2, 2, 2]] * COUNT
    delivered = np.concatenate([*map(np.concatenate, itertools.chain(*found))])
    assert len(delivered) == 4 * 7 * COUNT
    assert np.bincount(delivered).max() <= 4
    one = {"shard": (1, COUNT), **arguments}
    with opened(NUMBERS, THREADS, **one) as loader:
        loader.load_state_dict({"epoch": 2, "batch": 1})
        assert [values(loader), values(loader)] == [found[1][2][1:], found[1][3]]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"shard": 3}, TypeError, "shard must be (index, count)"),
        ({"shard": (3, 3)}, ValueError, "0 <= index < count"),
        ({"shard": (0, 24)}, ValueError, "leave every shard a sample, got 24 shards of 23"),
        ({"shard": (0, 2), "shuffle": True}, ValueError, "give all of them the same seed"),
        ({"shard": "auto", "shuffle": True}, ValueError, "shard needs a seed with a random order"),
        ({"sampler": 5}, TypeError, "sampler must be an iterable of sample numbers, "),
        ({"shard": "auto", "sampler": [1, 2]}, ValueError, "have them do what shard would"),
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


def trained(
    folder: Path, shard: Any, batch_size: int, kill_at: int | None = None
) -> list[tuple[int, list[int]]]:
    """The epoch and the samples of each batch; ``kill_at`` ends it before one."""
    net = mx.gluon.nn.Dense(1, in_units=1)
    net.initialize()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd")
    x, seen = np.arange(24, dtype="float32").reshape(-1, 1), []
    with gluon_loader(x, batch_size, True, seed=2, shard=shard, num_workers=0) as loader:
        resume = Resume(folder, loader, "1 batch")
        for epoch in resume.epochs(2, net, trainer):
            for data in loader:
                resume._folder.wait()
                if len(seen) == kill_at:
                    return seen
                seen.append((epoch, data.asnumpy()[:, 0].astype(int).tolist()))
                resume.step()
    return seen


@pytest.mark.parametrize(("count", "batch_size"), [(3, 2), (1, 2)])
def test_other_shards_resume_within_an_epoch(count, batch_size, tmp_path):
    """Of two ranks that had 3 of 6 batches of 2 each, 12 of 24 samples."""
    trained(tmp_path, (0, 2), 2, kill_at=3)
    seen = trained(tmp_path, (0, count), batch_size, kill_at=2)
    seen += trained(tmp_path, (0, count), batch_size)
    batches = 24 // (count * batch_size)
    assert [epoch for epoch, _ in seen] == [0] * (batches // 2) + [1] * batches
    if count == 1:
        assert len({n for epoch, numbers in seen for n in numbers if epoch == 0}) == 12
        assert sorted(n for epoch, numbers in seen for n in numbers if epoch == 1) == [*range(24)]


FEW = np.arange(24)


class Kv(mx.kvstore.KVStoreBase):
    """The second of three."""

    rank, num_workers, type = 1, 3, "dist_sync"


@pytest.fixture(autouse=True)
def nothing_was_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_warned", set())


def read(batches: Any) -> list[int]:
    return [int(number) for batch in values(batches) for number in batch]


@pytest.mark.parametrize(
    ("shard", "last_batch", "expected"),
    [
        (Kv(), "keep", FEW[1::3]),
        (Kv(), "rollover", FEW[1::3]),
        (mx.kv.create("local"), "keep", FEW),
    ],
    ids=["keep", "rollover", "one process"],
)
def test_kvstore_says_the_shard(shard, last_batch, expected):
    with opened(FEW, "inline", shard=shard, last_batch=last_batch) as loader:
        assert read(loader) == expected.tolist()


@pytest.mark.parametrize(
    ("use", "order"),
    [(iter, {}), (len, {"last_batch": "rollover"}), (lambda loader: loader.state_dict(), {})],
)
def test_first_use_settles_it(use, order, monkeypatch):
    with opened(FEW, "inline", shard="auto", **order) as loader:
        place = {"get_rank": lambda: 1, "get_world_size": lambda: 2}
        module = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, **place)
        monkeypatch.setitem(sys.modules, "torch.distributed", module)
        use(loader)
        monkeypatch.delitem(sys.modules, "torch.distributed")
        assert read(loader) == FEW[1::2].tolist()


def test_workers_with_all_of_the_data_are_warned_of(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, logger="adapters")
    monkeypatch.setenv("DMLC_ROLE", "worker")
    monkeypatch.setenv("DMLC_NUM_WORKER", "2")
    with opened(FEW, "inline") as loader:
        for _ in range(2):
            list(loader)
    (record,) = caplog.records
    assert "shard=kv" in record.getMessage()


# --- a state is the samples that all shards have consumed ---


MANY = 101
MANY_NUMBERS = np.arange(MANY)
ORDER = {"shuffle": True, "seed": 5}


def loader_of(shard: Any, executor: str = "inline", batch_size: int = 4, **arguments: Any) -> Any:
    return opened(MANY_NUMBERS, executor, batch_size, shard=shard, **{**ORDER, **arguments})


def saved_on(count: int, batches: int) -> tuple[list[int], Any]:
    """What all shards have consumed by then, and the state, which is the same on each."""
    consumed, states = [], []
    for index in range(count):
        with loader_of((index, count)) as loader:
            loader.set_epoch(1)
            consumed += read(itertools.islice(loader, batches))
            states.append(loader.state_dict())
    assert all(state == states[0] for state in states)
    return consumed, json.loads(json.dumps(states[0]))


@pytest.mark.parametrize(("count", "batch_size"), [(3, 3), (16, 4)])
def test_run_of_eight_shards_goes_on_with_others(count, batch_size):
    consumed, state = saved_on(8, 2)
    assert state == {"epoch": 1, "samples": 64}
    rest, after = [], []
    for index in range(count):
        with loader_of((index, count), batch_size=batch_size) as loader:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            rest += read(loader)
            assert loader.state_dict() == {"epoch": 2, "samples": 0}
            after += read(loader)
    assert len({*consumed, *rest}) == len(consumed) + len(rest)
    assert len(rest) == (MANY - 64) // count * count
    with loader_of((0, 1)) as loader:
        loader.set_epoch(2)
        assert sorted(after) == sorted(read(loader)[: MANY // count * count])


def test_what_leaves_no_batch_is_the_next_epoch():
    with loader_of((0, 3), last_batch="discard") as loader:
        loader.load_state_dict({"epoch": 4, "samples": 90})
        assert loader.state_dict() == {"epoch": 5, "samples": 0}
        assert len(read(loader)) == 32


def test_state_that_counts_batches_is_of_equal_shards(caplog):
    with loader_of((1, 2)) as loader:
        expected = read(loader)
        loader.load_state_dict({"epoch": 0, "batch": 3})
        assert loader.state_dict() == {"epoch": 0, "samples": 24}
        assert read(loader) == expected[12:]
    (record,) = caplog.records
    assert "counts batches, taken to be of 8 samples" in record.getMessage()


def test_order_by_batches_is_counted_in_batches():
    lengths = np.arange(MANY) % 7
    with loader_of((0, 2), bucket_by=lengths) as loader:
        next(iter(loader))
        state = loader.state_dict()
        assert state == {"epoch": 0, "batch of 8": 1}
    with loader_of((0, 4), batch_size=2, bucket_by=lengths) as loader:
        expected = read(loader)[2:]
        loader.load_state_dict(state)
        assert read(loader) == expected
        assert loader.replay(0, 1, state=state).batch.asnumpy().tolist() == expected[:2]


def test_what_rolls_over_is_counted_in_batches(caplog):
    with loader_of((0, 2), last_batch="rollover") as loader:
        next(iter(loader))
        state = loader.state_dict()
        with pytest.raises(ValueError, match="state must be what state_dict"):
            loader.load_state_dict({"epoch": 0, "samples": 8})
        loader.load_state_dict(state)
        assert loader.state_dict() == state == {"epoch": 0, "batch": 1}
    (record,) = caplog.records
    assert record.getMessage().endswith("right only if the run that it comes from had the same")
