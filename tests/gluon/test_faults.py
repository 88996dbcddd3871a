"""The fault matrix: what raises, dies, hangs or can't be sent; inline, in threads, in processes."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from contextlib import suppress
from typing import Any

import mxnet as mx
import numpy as np
import psutil
import pytest
from mxnet.gluon.data import SimpleDataset
from mxnet.gluon.data.vision.transforms import ToTensor

from adapters import WorkerError, gluon_loader
from tests.engine.executors import wait_until, within, workers, workers_and_idle
from tests.engine.workloads import Dying, Numbers
from tests.gluon.data_sets import values
from tests.gluon.executors import (
    PROCESSES,
    THREADS,
    every_executor,
    every_kind,
    every_quick_executor,
    opened,
)

pytestmark = pytest.mark.timeout(60)
# What workers have no part in, or what doesn't depend on their number: to start one takes seconds.
# Recovery is promised within seconds; each new process imports MXNet.
SECONDS = 20
EXPECTED = [list(range(i, min(i + 4, 26))) for i in range(0, 26, 4)]


class OwnError(Exception):
    """Pickle can't make one of these."""

    def __init__(self, number: int, *, why: str) -> None:
        super().__init__(f"{number}: {why}")
        self.why = why


class LockedError(Exception):
    """Nor one of these, whatever it is told."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.lock = threading.Lock()


class Faulty(Numbers):
    """Raises at sample 9, unless there is a file that says that it has done so before."""

    def __init__(self, path: Any, error: str = "own", size: int = 26) -> None:
        super().__init__(size)
        self.path = path
        self.error = error

    def __getitem__(self, number: int) -> int:
        if number == 9 and not self.path.exists():
            self.path.touch()
            raise self.fault()
        return number

    __call__ = __getitem__

    def fault(self) -> BaseException:
        return {
            "own": lambda: OwnError(9, why="spoilt"),
            "stop": lambda: StopIteration("spoilt"),
            "locked": lambda: LockedError(9),
            "interrupt": lambda: KeyboardInterrupt("spoilt"),
            "exit": lambda: SystemExit("spoilt"),
        }[self.error]()

    def batchify(self, samples: list[int]) -> Any:
        return mx.nd.array([self(sample) for sample in samples])


def numbers(count: int = 26) -> Any:
    return SimpleDataset(list(range(count)))


PLACES = {
    "data set": lambda faulty: (faulty, {}),
    "transform": lambda faulty: (numbers().transform(faulty), {}),
    "second transform": lambda faulty: (numbers().transform(int).transform(faulty), {}),
    "batchify": lambda faulty: (numbers(), {"batchify_fn": faulty.batchify}),
}


def notes(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


def fail(loader: Any, kind: type[BaseException]) -> Any:
    """The error that ends a pass, after the batches before it."""
    iterator, batches = iter(loader), []
    with pytest.raises(kind) as caught:
        batches.extend(batch.asnumpy().tolist() for batch in iterator)
    assert batches == EXPECTED[:2]
    with pytest.raises(StopIteration):
        next(iterator)
    return caught.value


# --- raise ---


@every_executor
@pytest.mark.parametrize("place", PLACES)
def test_an_error_arrives_as_it_is_and_the_next_pass_works(executor, place, tmp_path):
    data, arguments = PLACES[place](Faulty(tmp_path / "raised"))
    with opened(data, executor, **arguments) as loader:
        error = fail(loader, OwnError)
        assert (error.why, str(error)) == ("spoilt", "9: spoilt")
        assert "in batch 2 of epoch 0" in notes(error)
        assert ("in sample 9" in notes(error)) == (place != "batchify")
        assert values(loader) == EXPECTED


@every_quick_executor
def test_the_sample_is_named_as_the_sampler_did(executor, tmp_path):
    order = [[3, 4], [9, 5]]
    with opened(Faulty(tmp_path / "raised"), executor, None, batch_sampler=order) as loader:
        with pytest.raises(OwnError) as caught:
            list(loader)
        assert "in sample 9\n" in notes(caught.value)
        assert values(loader) == order


@every_quick_executor
@pytest.mark.parametrize("place", PLACES)
def test_stop_iteration_is_an_error_and_no_silent_end(executor, place, tmp_path):
    data, arguments = PLACES[place](Faulty(tmp_path / "raised", "stop"))
    with opened(data, executor, **arguments) as loader:
        assert "raised StopIteration" in str(fail(loader, RuntimeError))
        assert len(values(loader)) == 7


def test_stop_iteration_in_a_worker_process_is_an_error_too(tmp_path):
    with opened(Faulty(tmp_path / "raised", "stop"), "processes-1") as loader:
        assert "raised StopIteration" in str(fail(loader, RuntimeError))
        assert values(loader) == EXPECTED


@every_kind
@pytest.mark.parametrize(
    ("error", "kind"), [("interrupt", KeyboardInterrupt), ("exit", SystemExit)]
)
def test_what_would_end_a_process_arrives_too(executor, error, kind, tmp_path):
    with opened(Faulty(tmp_path / "raised", error), executor) as loader:
        fail(loader, kind)
        assert values(loader) == EXPECTED


@every_kind
def test_an_error_that_cannot_be_pickled_is_told_all_the_same(executor, tmp_path):
    with opened(Faulty(tmp_path / "raised", "locked"), executor) as loader:
        error = fail(loader, Exception)
        assert "LockedError" in type(error).__name__ + str(error)
        assert "in sample 9" in notes(error)
        assert values(loader) == EXPECTED


@every_kind
def test_a_stage_that_fails_names_its_sample(executor):
    images = [np.zeros((4, 4, 3), np.uint8)] * 9 + [np.zeros(5, np.uint8)]
    data = SimpleDataset([mx.nd.array(image, dtype="uint8") for image in images])
    with opened(data.transform(ToTensor()), executor, 1) as loader:
        iterator = iter(loader)
        for _ in range(9):
            assert next(iterator).shape == (1, 3, 4, 4)
        with pytest.raises(mx.MXNetError) as caught:
            next(iterator)
        assert "sample 9" in notes(caught.value)


@every_kind
@pytest.mark.parametrize("make", [np.zeros, mx.nd.zeros], ids=["NumPy", "MXNet"])
def test_ragged_samples_are_named_with_both_shapes(executor, make):
    data = SimpleDataset([(make((2, 3)), 1), (make((2, 3)), 1), (make((2, 4)), 1)])
    with (
        opened(data, executor, 3) as loader,
        pytest.raises(ValueError, match="must have equal shapes") as caught,
    ):
        next(iter(loader))
    for part in ("sample 2 ", "sample 0 ", "(2, 3)", "(2, 4)"):
        assert part in str(caught.value)


@every_quick_executor
@pytest.mark.parametrize("other", [(3, 2), (6,), (2, 1, 3)])
def test_samples_of_one_size_and_two_shapes_are_not_mixed(executor, other):
    """MXNet's own stack takes one for the other: a portrait among landscapes becomes noise."""
    with (
        opened(SimpleDataset([mx.nd.zeros((2, 3)), mx.nd.zeros(other)]), executor, 2) as loader,
        pytest.raises(ValueError, match="sample 1"),
    ):
        next(iter(loader))


@every_quick_executor
@pytest.mark.parametrize(
    ("sample", "words"),
    [
        ("text", "a dtype that MXNet has"),
        ({"a": 1}, r"arrays, numbers or tuples of them, got a dict of \['a'\]"),
        (np.uint16(3), "a dtype that MXNet has"),
    ],
    ids=["str", "dict", "uint16"],
)
def test_samples_that_mxnet_has_no_type_for_are_refused(executor, sample, words):
    with opened([sample] * 4, executor) as loader, pytest.raises(TypeError, match=words):
        next(iter(loader))


# --- die ---


class DyingData(Numbers):
    def __init__(self, dying: Dying) -> None:
        super().__init__()
        self.dying = dying

    def __getitem__(self, number: int) -> int:
        return self.dying(number)


@pytest.mark.serial
@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_worker_that_dies_once_costs_nothing_but_time(how, tmp_path):
    data = DyingData(Dying(tmp_path / "deaths", how, 9, times=1))
    with opened(data, PROCESSES) as loader, within(SECONDS):
        assert values(loader) == EXPECTED
    assert data.dying.deaths.calls == 1


@pytest.mark.serial
def test_a_sample_that_always_kills_its_worker_is_a_worker_error_and_the_loader_goes_on(tmp_path):
    data = DyingData(Dying(tmp_path / "deaths", "kill", 9, times=3))
    with opened(data, PROCESSES) as loader, within(2 * SECONDS):
        error = fail(loader, WorkerError)
        assert "was killed by SIGKILL" in str(error)
        assert "batch 2 of epoch 0; tried 3 times" in str(error)
        assert data.dying.deaths.calls == 3
        assert values(loader) == EXPECTED


@pytest.mark.serial
def test_workers_killed_between_batches_lose_nothing():
    with (
        opened(Numbers(), PROCESSES, prefetch=1, batchify_fn=mx.nd.array) as loader,
        within(SECONDS),
    ):
        iterator = iter(loader)
        batches = [next(iterator).asnumpy().tolist()]
        for worker in workers():
            with suppress(psutil.NoSuchProcess):  # The pool has noticed already.
                worker.kill()
                wait_until(lambda worker=worker: worker.status() == psutil.STATUS_ZOMBIE)
        batches += values(iterator)
    assert batches == EXPECTED


@pytest.mark.serial
def test_workers_killed_between_passes_are_replaced():
    with opened(Numbers(), PROCESSES) as loader:
        assert values(loader) == EXPECTED
        wait_until(workers_and_idle)
        workers_and_idle()[0].kill()
        with within(SECONDS):
            assert values(loader) == EXPECTED


# --- not to be sent ---


class Holding(Numbers):
    """Holds something that can't be sent to a process."""

    def __init__(self, thing: Any) -> None:
        super().__init__()
        self.thing = thing


@pytest.mark.parametrize("make", [lambda: (n for n in ())], ids=["generator"])
@pytest.mark.parametrize("thread_pool", [False, "auto"])
def test_what_processes_cannot_have_is_computed_inline_and_logged(make, thread_pool, caplog):
    arguments = {"num_workers": 2, "thread_pool": thread_pool}
    caplog.set_level(logging.WARNING, "adapters")
    with gluon_loader(Holding(make()), 4, **arguments) as loader:
        assert values(loader) == EXPECTED
        names = {thread.name.rpartition("_")[0] for thread in threading.enumerate()}
        assert "adapters-worker" not in names
        assert workers() == []
    (record,) = caplog.records
    assert record.name == "adapters"
    assert "computed inline, as processes can't be used: TypeError" in record.getMessage()


def test_a_batch_that_cannot_be_sent_back_says_so():
    with (
        opened(Numbers(), "processes-1", batchify_fn=lambda samples: threading.Lock()) as loader,
        pytest.raises(TypeError) as caught,
    ):
        next(iter(loader))
    assert "can't be sent from a worker process" in notes(caught.value)


# --- hang ---


def test_a_batch_that_takes_too_long_is_a_timeout_error():
    go_on = threading.Event()

    class Waiting(Numbers):
        def __getitem__(self, number: int) -> int:
            assert number != 9 or go_on.wait(20)
            return number

    with opened(Waiting(), THREADS, timeout=0.5) as loader, within(10):
        try:
            error = fail(loader, multiprocessing.TimeoutError)
            assert "batch 2 in 0.5 seconds" in str(error)
        finally:
            go_on.set()
        assert values(loader) == EXPECTED


def test_the_time_that_workers_need_to_start_is_no_timeout():
    """It takes seconds to import MXNet, and no batch is late for it."""
    with opened(Numbers(), "processes-1", timeout=0.5) as loader:
        assert values(loader) == EXPECTED
