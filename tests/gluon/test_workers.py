"""Workers of loaders: read-ahead, shared passes, blocks on threads, data sets that change."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon.data import ArrayDataset, Dataset
from mxnet.gluon.data.vision import transforms

from adapters import gluon_loader
from adapters.engine import pool, usable_cpus
from adapters.gluon.stages import call
from tests.engine.executors import end_idle_workers
from tests.engine.test_window import settled
from tests.engine.workloads import Tally
from tests.gluon.data_sets import pixels
from tests.gluon.executors import PROCESSES, THREADS, arguments_of, every_kind, opened
from tests.turns import read_by_threads

BATCH = 4
SIZE = 400


class Counted:
    """A data set that counts what is asked of it, in all processes."""

    def __init__(self, path: Path) -> None:
        self.tally = Tally(path)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, number: int) -> Any:
        return self.tally(number)


@pytest.mark.parametrize("executor", [THREADS, pytest.param(PROCESSES, marks=pytest.mark.full)])
@pytest.mark.parametrize(("prefetch", "ahead"), [(1, 3), (3, 5), (None, 4)])
def test_as_many_batches_are_ready_as_prefetch_says_and_one_in_progress_for_each_worker(
    executor, prefetch, ahead, tmp_path
):
    data = Counted(tmp_path / "calls")
    with gluon_loader(data, BATCH, prefetch=prefetch, **arguments_of(executor)) as loader:
        for taken, _ in enumerate(loader, 1):
            most = (taken + ahead) * BATCH
            assert settled(data.tally, most) == most
            if taken == 5:
                break


class Spinning:
    """A data set of numbers and of who made them, which holds the interpreter's lock meanwhile."""

    def __len__(self) -> int:
        return 20 * BATCH

    def __getitem__(self, number: int) -> Any:
        until = time.thread_time() + 0.004
        while time.thread_time() < until:
            pass
        return number, os.getpid()


def made(batches: Iterable[Any]) -> tuple[list[int], set[int]]:
    """The numbers in some batches of these, and who made them."""
    numbers, processes = (np.concatenate([b.asnumpy() for b in each]) for each in zip(*batches))
    return numbers.tolist(), set(processes.tolist())


@pytest.mark.full
@pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has nothing to choose from")
def test_two_passes_at_once_have_all_samples_in_order_where_auto_chooses_processes(
    monkeypatch, capsys
):
    """A thread makes the first batches, and processes take over in the midst of both passes."""
    end_idle_workers()
    monkeypatch.setattr(pool.shared_pool(), "start_seconds", 0.05)
    with gluon_loader(Spinning(), BATCH, num_workers="auto") as loader:
        epochs = [[made(each) for each in zip(*zip(loader, loader))] for _ in range(2)]
        loader.explain()
    assert f"workers: {usable_cpus()} processes" in capsys.readouterr().out
    assert [numbers for epoch in epochs for numbers, _ in epoch] == 4 * [[*range(20 * BATCH)]]
    assert all(os.getpid() not in processes for _, processes in epochs[-1])


# --- Gluon's blocks on several threads ---

SECONDS = 10


class Meeting(mx.gluon.Block):
    """Tells how many calls there are at the same time, of two that would meet if they could."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self.patience = patience
        self.met: list[bool] = []
        self._both = threading.Barrier(2)

    def forward(self, value):
        try:
            self._both.wait(self.patience)
            self.met.append(True)
        except threading.BrokenBarrierError:
            self._both.reset()
            self.met.append(False)
        return value


def called_by_two_threads(block: Meeting) -> list[bool]:
    block.met.clear()
    threads = [threading.Thread(target=call, args=(block, 1)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    return block.met


def test_nobody_else_calls_a_block_that_is_being_built():
    assert called_by_two_threads(Meeting(0.2)) == [False, False]


def test_a_block_that_was_built_is_called_by_several_threads_at_once():
    block = Meeting(0.0)
    call(block, 1)
    block.patience = SECONDS
    assert called_by_two_threads(block) == [True, True]


def test_a_block_whose_first_call_failed_is_still_to_be_built():
    block = Meeting(0.2)
    with pytest.raises(TypeError):
        call(block)
    assert called_by_two_threads(block) == [False, False]


@pytest.mark.parametrize("opaque", [False, True], ids=["known", "opaque"])
def test_new_transforms_work_on_threads(opaque):
    """Without the lock, two of five such loaders fail."""
    data = ArrayDataset(mx.nd.array(pixels(64, 40, 44), dtype="uint8"), np.arange(64))
    for _ in range(20):
        blocks = [transforms.Resize(20), transforms.ToTensor(), transforms.Normalize(0.1, 0.2)]
        transform = transforms.Compose(blocks)
        if opaque:
            transform = transforms.Compose([transforms.RandomLighting(0.1), *blocks[:1]])
        with gluon_loader(
            data.transform_first(transform), 8, num_workers=2, thread_pool=True
        ) as loader:
            assert len(list(loader)) == 8


@pytest.mark.parametrize("method", ["forward", "hybrid_forward"])
def test_a_method_of_one_block_alone_is_called(method):
    block = transforms.ToTensor()
    object.__setattr__(block, method, lambda *arguments: arguments[-1].astype("float32"))
    data = ArrayDataset(mx.nd.array(pixels(4), dtype="uint8"), np.arange(4)).transform_first(block)
    with gluon_loader(data, 2, num_workers=0) as loader:
        assert next(iter(loader))[0].shape[-1] == 3


# --- threads that share a pass ---

SHARED = 301


@every_kind
def test_each_batch_goes_to_one_of_them(executor):
    with opened(np.arange(SHARED), executor, 1, shuffle=True, seed=0) as loader:
        for epoch in range(3):
            given = read_by_threads(iter(loader))
            assert sorted(int(batch.asnumpy()[0]) for batch in given) == list(range(SHARED))
            assert loader.state_dict() == {"epoch": epoch + 1, "batch": 0}


# --- data sets that change between epochs ---


class Growing(Dataset):
    """All samples are of the same number, which the trainer changes."""

    number = 0

    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> Any:
        return np.full(2, self.number)


def busy(sample: Any) -> Any:
    """Holds the GIL for so long that "auto" takes processes."""
    until = time.perf_counter() + 0.003
    while time.perf_counter() < until:
        pass
    return sample


def seen(loader: Any) -> set[float]:
    return {float(value) for batch in loader for value in batch.asnumpy().ravel()}


@pytest.mark.parametrize(
    "arguments",
    [{}, {"num_workers": 0}, {"num_workers": 2, "thread_pool": True}],
    ids=["auto", "inline", "threads"],
)
def test_an_epoch_has_the_data_set_as_it_is_when_it_begins(arguments):
    data = Growing()
    with gluon_loader(data.transform(busy), 8, **arguments) as loader:
        epochs = []
        for data.number in range(5):
            epochs.append(seen(loader))
        assert epochs == [{0.0}, {1.0}, {2.0}, {3.0}, {4.0}]


def test_an_array_that_was_changed_in_place_is_sent_to_processes_again():
    array = np.zeros((160, 2))
    with gluon_loader(ArrayDataset(array).transform(busy), 8) as loader:
        epochs = []
        for number in range(5):
            array[:] = number
            epochs.append(seen(loader))
        assert epochs == [{0.0}, {1.0}, {2.0}, {3.0}, {4.0}]
