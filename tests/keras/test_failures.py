"""Exceptions, kills, Ctrl-C and exits: what arrives, and what is left of the workers."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import keras
import psutil
import pytest

from adapters import SafeSequence
from tests.engine.executors import wait_until
from tests.engine.executors import workers as worker_processes
from tests.keras import recording
from tests.keras.conftest import BACKENDS
from tests.keras.programs import Program, run_program
from tests.keras.recording import PROCESSES, TWO_THREADS, built_recorder, fail, sequence_of, stop
from tests.keras.samples import FailsAt, Unreadable, frameworks, numbered

BATCHES = 10
LATER = 13
# On TensorFlow the pass ends early and then raises; before 3.9, Keras remarks on the first.
_REMARK = "ignore" if recording.WARNS_BEFORE_IT_RAISES else "error"
pytestmark = pytest.mark.filterwarnings(f"{_REMARK}:Your input ran out of data:UserWarning")
CALLS: dict[str, Callable[[recording.Recorder, SafeSequence], Any]] = {
    "fit": lambda model, sequence: model.fit(sequence, epochs=2, shuffle=False, verbose=0),
    "evaluate": lambda model, sequence: model.evaluate(sequence, verbose=0),
    "predict": lambda model, sequence: model.predict(sequence, verbose=0),
    "validation": lambda model, sequence: model.fit(
        *numbered(4), validation_data=sequence, verbose=0
    ),
}


@pytest.mark.parametrize(
    ("call", "workers", "number"),
    [
        ("fit", recording.INLINE, 0),
        ("fit", recording.AUTO, LATER),
        ("fit", PROCESSES, LATER),
        ("evaluate", TWO_THREADS, LATER),
        ("predict", TWO_THREADS, 0),
        ("predict", TWO_THREADS, LATER),
        ("validation", TWO_THREADS, LATER),
    ],
)
def test_exception_names_the_sample(workers, call, number):
    with (
        sequence_of(BATCHES, transform=FailsAt(number), **workers) as sequence,
        pytest.raises(Unreadable) as raised,
    ):
        CALLS[call](recording.Recorder(), sequence)
    notes = "\n".join(raised.value.__notes__)
    assert (raised.value.line, f"sample {number}," in notes) == (number, True)
    if workers is PROCESSES:  # Which sends its traceback.
        assert 'raise Unreadable("picture.jpg"' in notes


@recording.READS_A_BATCH_AHEAD
def test_batches_before_a_failure():
    recorder = built_recorder()
    with (
        sequence_of(BATCHES, transform=FailsAt(LATER), **TWO_THREADS) as sequence,
        pytest.raises(Unreadable),
    ):
        CALLS["fit"](recorder, sequence)
    assert recorder.trained == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def test_on_error_skip():
    recorder, options = built_recorder(), {"transform": FailsAt(5), "on_error": "skip"}
    with sequence_of(2, **options, **TWO_THREADS) as sequence:
        recorder.fit(sequence, shuffle=False, verbose=0)
    assert recorder.trained == [[0, 1, 2, 3], [4, 6, 6, 7]]


# --- what is left ---


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


@pytest.mark.parametrize(
    ("call", "workers", "end"),
    [
        ("evaluate", TWO_THREADS, None),
        ("fit", recording.AUTO, None),
        ("fit", PROCESSES, None),
        ("fit", TWO_THREADS, stop),
        ("fit", PROCESSES, fail),
        ("fit", TWO_THREADS, FailsAt(17)),
    ],
)
def test_no_worker_survives(no_garbage_collection, call, workers, end):
    fails = isinstance(end, FailsAt)
    callbacks = [recording.after(4, end)] if end in (stop, fail) else []
    sequence = sequence_of(BATCHES, transform=end if fails else None, **workers)
    with contextlib.suppress(recording.Boom, Unreadable):
        getattr(built_recorder(), call)(sequence, callbacks=callbacks, verbose=0)
    assert workers_alive() == []
    sequence.close()


@pytest.mark.one_backend
@pytest.mark.parametrize("workers", [TWO_THREADS, PROCESSES], ids=["threads", "processes"])
def test_no_worker_survives_del(no_garbage_collection, workers):
    sequence = sequence_of(BATCHES, **workers)
    batches = iter(sequence)
    next(batches)
    del sequence, batches
    wait_until(lambda: not workers_alive())  # ``__del__`` waits for no thread.


@pytest.mark.one_keras
@pytest.mark.parametrize("at", [1, 15], ids=["early", "in epoch 1"])
def test_worker_killed(at):
    recorder = built_recorder()

    def kill(model: keras.Model, batches: int) -> None:
        if batches == at:
            os.kill(worker_processes()[0].pid, signal.SIGKILL)

    sequence = sequence_of(BATCHES, shuffle=True, **PROCESSES, max_queue_size=2)
    recorder.fit(sequence, epochs=2, callbacks=[recording.AfterBatch(kill)], verbose=0)
    assert recorder.trained == recording.epochs_of(sequence, 2)


@pytest.mark.one_keras
def test_workers_import_no_framework(new_processes):
    class Frameworks(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> Any:
            return frameworks(index)

    samples = SafeSequence(list(range(8)), 4, transform=frameworks, **PROCESSES)
    for sequence in (samples, SafeSequence(Frameworks(), **PROCESSES)):
        with sequence:
            assert [batch.sum() for batch in sequence] == [0, 0]


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("processes", 1),
        # TensorFlow is where this hangs without a SafeSequence, and not every time.
        pytest.param("processes", 3, marks=pytest.mark.full),
        pytest.param("threads", 1, marks=[pytest.mark.full, pytest.mark.one_keras]),
    ],
)
def test_ctrl_c(kind, count):
    program, children = Program("interrupted", kind, str(count)), []
    for _ in range(count):
        program.wait_until_ready()
        children += psutil.Process(program.process.pid).children(recursive=True)
        program.interrupt()
    ended = program.end()
    _, alive = psutil.wait_procs(children, timeout=60)
    assert (ended.code, alive) == (-signal.SIGINT, [])


@pytest.mark.one_backend
@pytest.mark.full
def test_thread_outlives_the_main_thread():
    assert run_program("outliving") == "trained\n"


@pytest.mark.one_keras
@pytest.mark.full
@pytest.mark.timeout(240)
def test_exit_after_fit():
    tensorflow = {"processes": 3, "threads": 2, "inline": 2}
    counts = tensorflow if recording.BACKEND == "tensorflow" else {"threads": 1}
    programs = [Program("leaving", kind, str(count)) for kind, count in counts.items()]
    ended = [program.end(timeout_seconds=200) for program in programs]
    assert [(end.code, end.output.split()) for end in ended] == [
        (0, count * ["0"]) for count in counts.values()
    ]


@pytest.mark.one_backend
@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_ctrl_c_while_a_transform_is_stuck(backend):
    """Workers are waited for ten seconds otherwise, and TensorFlow waits for ever."""
    if find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    program = Program("stuck_in_a_transform", environment={"KERAS_BACKEND": backend})
    program.wait_until_ready()
    program.interrupt()
    assert program.process.stdout is not None
    line, ended = program.process.stdout.readline(), program.end()
    assert (line, ended.code) == ("interrupted\n", 0), ended.errors
    assert "is left there" in ended.errors
