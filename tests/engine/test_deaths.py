"""Worker processes that die: the batch is computed again, or somebody is told; never a hang."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from adapters import WorkerError
from adapters.sources import SequenceSource
from tests.engine.executors import PROCESSES, opened, read, within
from tests.engine.workloads import Dying, Numbers, die
from tests.plans import epoch_of, plan_of

pytestmark = pytest.mark.timeout(60)
every_pool = pytest.mark.parametrize("executor", PROCESSES)
every_death = pytest.mark.parametrize("how", ["exit", "kill"])
HOW = {"exit": "exited with code 7", "kill": r"was killed by SIGKILL \(signal 9\)"}
# Recovery is promised within seconds.
SECONDS = 10


# --- run ---


@pytest.mark.serial
@every_pool
@every_death
@pytest.mark.parametrize("place", ["transform", "batch_transform"])
def test_a_worker_that_dies_once_costs_nothing_but_time(executor, how, place, tmp_path):
    dying = Dying(tmp_path / "deaths", how, 9, times=1)
    with opened(Numbers(), executor, shuffle=True, **{place: dying}) as engine, within(SECONDS):
        batches = np.concatenate(read(engine, 14)).tolist()
    plan = plan_of(Numbers(), shuffle=True)
    assert batches == [n for epoch in (0, 1) for n in np.concatenate(epoch_of(plan, epoch))]
    assert dying.deaths.calls == 1


@pytest.mark.serial
@every_pool
@every_death
def test_a_worker_that_dies_in_the_source_is_replaced(executor, how, tmp_path):
    class Data(Numbers):
        def __getitem__(self, number: int) -> int:
            return dying(number)

    dying = Dying(tmp_path / "deaths", how, 9, times=1)
    with opened(Data(), executor) as engine, within(SECONDS):
        assert np.concatenate(read(engine, 7)).tolist() == list(range(26))


@pytest.mark.serial
@every_pool
def test_a_worker_that_dies_in_a_sequence_is_replaced(executor, tmp_path):
    class Batches(Numbers):
        def __getitem__(self, number: int) -> Any:
            return dying(np.full(2, number))

    dying = Dying(tmp_path / "deaths", "kill", 5, times=1)
    source = SequenceSource(Batches(9), changes_between_epochs=False)
    with opened(source, executor, 1) as engine, within(SECONDS):
        assert [batch.tolist() for batch in read(engine, 9)] == [[i, i] for i in range(9)]


@pytest.mark.serial
@every_pool
@every_death
def test_a_batch_that_always_kills_its_worker_is_given_up_with_all_that_is_known(
    executor, how, tmp_path
):
    dying = Dying(tmp_path / "deaths", how, 9)
    with opened(Numbers(), executor, transform=dying) as engine, within(SECONDS):
        stream = engine.stream(0, 0, False)
        assert [stream.next()[0], stream.next()[0]] == [0, 4]
        expected = rf"worker process \d+ {HOW[how]} while computing batch 2 of epoch 0; tried 3 t"
        with pytest.raises(WorkerError, match=expected):
            stream.next()
        stream.close()
    assert dying.deaths.calls == 3


@every_pool
def test_a_deadly_batch_spares_the_others(executor, tmp_path):
    with opened(Numbers(), executor, transform=Dying(tmp_path / "deaths", "exit", 9)) as engine:
        for _ in range(2):
            with pytest.raises(WorkerError):
                read(engine, 3)
            assert np.concatenate(read(engine, 4, step=3)).tolist() == list(range(12, 26))


def test_a_deadly_batch_is_found_among_the_many_that_one_job_has(tmp_path):
    """Batches that take little go to a worker several at a time."""
    dying = Dying(tmp_path / "deaths", "kill", 333)
    with opened(Numbers(800), "processes-2", queue=40, transform=dying) as engine:
        stream = engine.stream(0, 0, False)
        for step in range(83):
            assert stream.next()[0] == 4 * step
        with pytest.raises(WorkerError, match="computing batch 83 of epoch 0; tried 3 times"):
            stream.next()
        stream.close()
        assert read(engine, 1, step=84)[0].tolist() == [336, 337, 338, 339]


@every_pool
def test_two_deadly_batches_are_told_apart(executor, tmp_path):
    first, second = Dying(tmp_path / "a", "exit", 9), Dying(tmp_path / "b", "kill", 13)

    def both(sample: int) -> int:
        return second(first(sample))

    with opened(Numbers(), executor, transform=both) as engine:
        with pytest.raises(WorkerError, match=rf"{HOW['exit']} while computing batch 2 "):
            read(engine, 3)
        with pytest.raises(WorkerError, match=rf"{HOW['kill']} while computing batch 3 "):
            read(engine, 1, step=3)


# --- run, in parts ---


def heavy(sample: int) -> int:
    time.sleep(0.01)
    return sample


@pytest.mark.parametrize("times", [1, 2])
def test_a_worker_that_dies_over_a_part_is_replaced(times, tmp_path):
    dying = Dying(tmp_path / "deaths", "kill", 45, times)

    def transform(sample: int) -> int:
        return dying(heavy(sample))

    with opened(Numbers(64), "processes-2", 8, queue=1, transform=transform) as engine:
        assert np.concatenate(read(engine, 8)).tolist() == list(range(64))
    assert dying.deaths.calls == times


def test_a_part_that_always_kills_its_worker_is_given_up(tmp_path):
    dying = Dying(tmp_path / "deaths", "kill", 45)

    def transform(sample: int) -> int:
        return dying(heavy(sample))

    with opened(Numbers(64), "processes-2", 8, queue=2, transform=transform) as engine:
        stream = engine.stream(0, 0, False)
        for _ in range(5):
            stream.next()
        with pytest.raises(WorkerError, match="computing batch 5 of epoch 0; tried 3 times"):
            stream.next()
        stream.close()
        assert read(engine, 1, step=6)[0].tolist() == list(range(48, 56))


def test_a_worker_that_dies_after_writing_into_its_batch_leaves_no_trace(tmp_path):
    dying = Dying(tmp_path / "deaths", "kill", 2 * 45, times=1)

    def double(batch: Any) -> Any:
        batch *= 2
        return dying(batch)

    arguments = {"transform": heavy, "batch_transform": double}
    with opened(Numbers(64), "processes-2", 8, queue=1, **arguments) as engine:
        assert np.concatenate(read(engine, 8)).tolist() == list(range(0, 128, 2))
    assert dying.deaths.calls == 1


# --- submit ---


@pytest.mark.serial
@every_pool
@every_death
def test_a_plan_that_kills_whoever_receives_it_is_given_up(executor, how):
    class Deadly:
        def __init__(self) -> None:
            self.how = how

        def __setstate__(self, state: Any) -> None:
            die(state["how"])

        def __getstate__(self) -> Any:
            return vars(self)

        def __call__(self, sample: int) -> int:
            return sample

    with (
        within(SECONDS),
        opened(Numbers(), executor, transform=Deadly()) as engine,
        pytest.raises(WorkerError, match=HOW[how]),
    ):
        read(engine, 1)


# --- deliver ---


class DiesWhenSent:
    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        die(self.how)
        return int, ()


@pytest.mark.serial
@every_pool
@every_death
def test_a_batch_that_kills_its_worker_on_the_way_back_is_given_up(executor, how):
    def deadly(sample: int) -> Any:
        return DiesWhenSent(how) if sample == 9 else sample

    with opened(Numbers(), executor, transform=deadly) as engine, within(SECONDS):
        stream = engine.stream(0, 0, False)
        assert [stream.next()[0], stream.next()[0]] == [0, 4]
        with pytest.raises(WorkerError, match="process"):
            stream.next()
        stream.close()
