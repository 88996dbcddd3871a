"""When workers end: with ``fit``, with the sequence, with Ctrl-C, with the interpreter."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import keras
import numpy as np
import psutil
import pytest

from adapters import SafeSequence, WorkerError
from tests.engine.executors import wait_until
from tests.keras.conftest import BACKENDS
from tests.keras.programs import Program, run_program
from tests.keras.recording import (
    AUTO,
    BACKEND,
    PROCESSES,
    TWO_THREADS,
    AfterBatch,
    built_recorder,
    epochs_of,
    sequence_of,
    worker_processes,
)
from tests.keras.samples import FailsAt, Unreadable, frameworks, numbered

BATCHES = 10
WORKERS = [pytest.param(TWO_THREADS, id="threads"), pytest.param(PROCESSES, id="processes")]
# TensorFlow is where this hangs without a SafeSequence, and not every time.
INTERRUPTS = 5 if BACKEND == "tensorflow" else 1
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data:UserWarning")
# Less than the ten seconds, and more than the one that workers are waited for after Ctrl-C.
_STUCK_SECONDS = 8.0


def workers_alive() -> list[str]:
    threads = [t.name for t in threading.enumerate() if t.name.startswith("adapters-worker")]
    return threads + [f"process {process.pid}" for process in worker_processes()]


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Only what nothing refers to goes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Boom(Exception):
    """What a callback may raise."""


def stop_training(sequence: SafeSequence) -> None:
    def stop(model: keras.Model, batches: int) -> None:
        model.stop_training = batches == 4

    built_recorder().fit(sequence, epochs=2, callbacks=[AfterBatch(stop)], verbose=0)


def callbacks_error(sequence: SafeSequence) -> None:
    def fail(model: keras.Model, batches: int) -> None:
        if batches == 4:
            raise Boom

    with pytest.raises(Boom):
        built_recorder().fit(sequence, epochs=2, callbacks=[AfterBatch(fail)], verbose=0)


def workers_error(sequence: SafeSequence) -> None:
    with pytest.raises(Unreadable):
        built_recorder().fit(sequence, epochs=2, shuffle=False, verbose=0)


CAUSES: list[Callable[[SafeSequence], None]] = [stop_training, callbacks_error, workers_error]


def failing_sequence(cause: object, workers: dict[str, object]) -> SafeSequence:
    transform = FailsAt(17 if cause is workers_error else -1)
    return SafeSequence(numbered(4 * BATCHES), 4, transform=transform, **workers)


@pytest.mark.parametrize(
    ("call", "workers"),
    [(call, TWO_THREADS) for call in ("fit", "evaluate", "predict")]
    + [("fit", PROCESSES), ("fit", AUTO)],
)
def test_no_worker_survives_a_normal_end(no_garbage_collection, call, workers):
    model, sequence = built_recorder(), sequence_of(BATCHES, **workers)
    getattr(model, call)(sequence, verbose=0)
    assert workers_alive() == []


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("cause", CAUSES)
def test_no_worker_survives_fit(no_garbage_collection, cause, workers):
    sequence = failing_sequence(cause, workers)
    cause(sequence)
    assert workers_alive() == []
    sequence.close()


@pytest.mark.one_backend
def test_no_worker_survives_close():
    sequence = sequence_of(BATCHES, **TWO_THREADS)
    next(iter(sequence))
    sequence.close()
    assert workers_alive() == []


@pytest.mark.one_backend
@pytest.mark.parametrize("workers", WORKERS)
def test_no_worker_survives_del_after_half_an_epoch(no_garbage_collection, workers):
    sequence = sequence_of(BATCHES, **workers)
    batches = iter(sequence)
    next(batches)
    del sequence, batches
    wait_until(lambda: not workers_alive())  # ``__del__`` waits for no thread.


@pytest.mark.one_keras
@pytest.mark.parametrize("at", [1, 30, 39], ids=["early", "in epoch 1", "before the end"])
def test_a_killed_worker_process_costs_no_batch(at):
    recorder = built_recorder()

    def kill(model: keras.Model, batches: int) -> None:
        if batches == at:
            os.kill(worker_processes()[0].pid, signal.SIGKILL)

    sequence = sequence_of(20, shuffle=True, **PROCESSES, max_queue_size=4)
    recorder.fit(sequence, epochs=2, callbacks=[AfterBatch(kill)], verbose=0)
    assert recorder.trained == epochs_of(sequence, 2)


@pytest.mark.one_backend
def test_a_worker_process_that_always_dies_is_an_error_and_no_hang():
    def die(sample: object) -> object:
        os._exit(3)

    with (
        SafeSequence(numbered(8), 4, transform=die, **PROCESSES) as sequence,
        pytest.raises(WorkerError, match="exited with code 3"),
    ):
        built_recorder().fit(sequence, verbose=0)


@pytest.mark.one_keras
def test_worker_processes_import_no_framework():
    with SafeSequence(list(range(8)), 4, transform=frameworks, **PROCESSES) as sequence:
        batches = list(sequence)
    np.testing.assert_array_equal(batches, np.zeros((2, 4, 1)))


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("processes", INTERRUPTS),
        pytest.param("threads", 1, marks=[pytest.mark.full, pytest.mark.one_keras]),
    ],
)
def test_ctrl_c_ends_fit_and_everything_it_started(kind, count):
    program, children = Program("interrupted", kind, str(count)), []
    for _ in range(count):
        program.wait_until_ready()
        children += psutil.Process(program.process.pid).children(recursive=True)
        program.interrupt()
    ended = program.end(timeout_seconds=20)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert (ended.code, alive) == (-signal.SIGINT, [])


@pytest.mark.one_backend
@pytest.mark.full
def test_a_thread_may_train_after_the_main_thread_has_ended():
    assert run_program("outliving").output == "trained\n"


@pytest.mark.one_keras
@pytest.mark.full
@pytest.mark.timeout(240)
def test_the_interpreter_exits_right_after_fit_without_close():
    tensorflow = {"processes": 3, "threads": 2, "inline": 2}
    counts = tensorflow if BACKEND == "tensorflow" else {"threads": 1}
    programs = [Program("leaving", kind, str(count)) for kind, count in counts.items()]
    ended = [program.end(timeout_seconds=200) for program in programs]
    assert [(end.code, end.output.split()) for end in ended] == [
        (0, count * ["0"]) for count in counts.values()
    ]


@pytest.mark.one_backend
@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_ends_a_fit_whose_transform_is_stuck_on_a_thread(backend):
    """Workers are waited for ten seconds otherwise, and TensorFlow waits for ever."""
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    program = Program("stuck", environment={"KERAS_BACKEND": backend})
    program.wait_until_ready()
    program.interrupt()
    assert program.process.stdout is not None
    began, line = time.monotonic(), program.process.stdout.readline()
    seconds, ended = time.monotonic() - began, program.end()
    assert (line, ended.code, seconds < _STUCK_SECONDS) == ("interrupted\n", 0, True), ended.errors
    assert "is left there" in ended.errors
