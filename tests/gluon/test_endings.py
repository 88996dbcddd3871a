"""However a loader ends, or its interpreter: no worker is left, nobody waits, nothing is said."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from adapters import ClosedError
from tests.engine.executors import wait_until, workers
from tests.engine.scripts import script
from tests.engine.workloads import Numbers
from tests.gluon.data_sets import values
from tests.gluon.executors import (
    PROCESSES,
    THREADS,
    every_executor,
    every_kind,
    every_quick_executor,
    opened,
    output_of,
)

# So long at most, however busy the machine is; workers look for their parent every second.
SECONDS = 60
EXPECTED = [list(range(i, min(i + 4, 26))) for i in range(0, 26, 4)]
READ = """
from tests.gluon.executors import every_kind, every_quick_executor, opened as loader_of
loader = loader_of(Numbers({size}), "{executor}")
iterator = iter(loader)
print(next(iterator).asnumpy().tolist(), flush=True)
print("reads", flush=True)
"""


def read(executor: str, size: int = 400) -> str:
    """A script's lines that read the first batch."""
    return READ.format(executor=executor, size=size)


def worker_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("adapters-worker")]


def nobody_works() -> bool:
    """A collected loader waits for no thread, so they end a moment later."""
    return not worker_threads() and not workers()


# --- within a program ---


@every_executor
def test_break_and_new_pass_leave_the_loader_as_it_was(executor):
    with opened(Numbers(), executor) as loader:
        for batch in loader:
            assert batch.asnumpy().tolist() == EXPECTED[0]
            break
        abandoned = iter(loader)
        assert next(abandoned).asnumpy().tolist() == EXPECTED[0]
        assert values(loader) == EXPECTED
        assert next(abandoned).asnumpy().tolist() == EXPECTED[1]
        del abandoned
        assert values(loader) == EXPECTED


@every_quick_executor
def test_iterator_that_nobody_reads_costs_nothing(executor):
    """As with MXNet's, work begins with the first batch that is asked for."""
    with opened(Numbers(), executor) as loader:
        iter(loader)
        assert (worker_threads(), workers()) == ([], [])


@every_kind
def test_loader_that_nobody_refers_to_ends_its_workers(executor):
    loader = opened(Numbers(), executor)
    assert values(loader) == EXPECTED
    del loader
    gc.collect()
    wait_until(nobody_works)


@every_kind
def test_loader_is_kept_by_its_iterator(executor):
    loader = opened(Numbers(), executor)
    iterator = iter(loader)
    batches = [next(iterator).asnumpy().tolist()]
    del loader
    gc.collect()
    batches += values(iterator)
    assert batches == EXPECTED
    del iterator
    gc.collect()
    wait_until(nobody_works)


class Trainer:
    """Has a loader that has one of its methods: a circle, as people make them."""

    def __init__(self) -> None:
        self.loader = opened(Numbers(), THREADS, batchify_fn=self.batchify)

    def batchify(self, samples: list[int]) -> Any:
        return mx.nd.array(samples)


def test_loader_is_collected_with_its_owner():
    trainer = Trainer()
    assert values(trainer.loader) == EXPECTED
    collected = weakref.ref(trainer)
    del trainer
    gc.collect()
    try:
        assert collected() is None
        wait_until(nobody_works)
    finally:
        if (left := collected()) is not None:
            left.loader.close()


@every_kind
def test_closed_loader_says_so(executor):
    with opened(Numbers(), executor) as loader:
        iterator = iter(loader)
        next(iterator)
    loader.close()
    loader.close()
    for pass_ in (iterator, iter(loader)):
        with pytest.raises(ClosedError):
            next(pass_)
    assert len(loader) == 7
    assert (worker_threads(), workers()) == ([], [])


@every_quick_executor
def test_threads_may_each_read_a_pass_of_their_own(executor):
    with opened(Numbers(), executor) as loader:
        found: list[Any] = []
        threads = [threading.Thread(target=lambda: found.append(values(loader))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert found == [EXPECTED] * 3


# --- scripts ---


KEPT = {
    "batches": "kept = [next(iterator) for _ in range(5)]",
    "an exception": "kept = next(iterator)\nraise SystemExit(3)",
    "a circle": "kept = [next(iterator), iterator]; kept.append(kept); del iterator, loader",
    "a thread that reads": """
from adapters import ClosedError
def read_on():
    try:
        while True:
            kept = list(loader)
    except ClosedError:
        pass
threading.Thread(target=read_on, daemon=True).start()
""",
}


@pytest.mark.parametrize(
    ("executor", "kept"),
    [
        (THREADS, "a thread that reads"),
        (PROCESSES, "batches"),
        pytest.param("inline", "an exception", marks=pytest.mark.full),
        pytest.param(THREADS, "a circle", marks=pytest.mark.full),
    ],
)
def test_interpreter_ends_quietly(executor, kept):
    with script(read(executor) + KEPT[kept]) as running:
        code, output, errors = running.finish(100)
        assert (code, errors) == (3 if kept == "an exception" else 0, "")
        assert output == "[0, 1, 2, 3]\nreads\n"
        assert running.survivors(SECONDS) == []


@pytest.mark.full
def test_interpreter_ends_while_operations_go_on():
    """MXNet's threads give batches back, which takes an interpreter that is still there."""
    text = """
    import numpy as np
    from adapters import gluon_loader
    import mxnet as mx
    wide, rows = mx.nd.ones((400, 400)), np.ones((40000, 400), "float32")
    loader = gluon_loader(rows, 400, num_workers=0)
    kept = [mx.nd.dot(batch, wide) for _ in range(4) for batch in loader]
    """
    for _ in range(5):  # It takes an operation that ends at the wrong moment.
        assert output_of(text) == []


def test_ctrl_c_ends_everything():
    with script(read("processes-1") + "while True:\n    list(loader)") as running:
        running.wait_for("reads")
        running.interrupt()
        code, _, errors = running.finish(SECONDS)
        assert code == -signal.SIGINT
        # It may come while another exception is handled, whose traceback is printed before it.
        handled = errors.count("During handling of the above exception")
        assert errors.count("Traceback") - handled == errors.count("KeyboardInterrupt") == 1
        assert running.survivors(SECONDS) == []


def test_workers_go_when_the_trainer_was_killed():
    with script(read("processes-1") + "while True:\n    list(loader)") as running:
        running.wait_for("reads")
        running.kill()
        assert running.survivors(SECONDS) == []


# --- fork ---


def test_fork_while_a_batch_is_used_does_not_hang():
    """MXNet's engine is stopped then; its threads must not need the interpreter to let go of it."""
    text = """
import faulthandler
import mxnet as mx
faulthandler.dump_traceback_later(90, exit=True)
for batch in loader_of(np.ones((256, 64, 64), "float32"), "inline"):
    product = mx.nd.dot(batch, batch.reshape((64, -1)))
    del batch
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
print("forked")
"""
    with script(read("inline") + text) as running:
        assert running.finish(100) == (0, "[0, 1, 2, 3]\nreads\nforked\n", "")


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX's, where a test before used it.
def test_mxnets_own_loader_may_fork_its_workers_beside_ours():
    with opened(np.ones((64, 16, 16), np.float32), THREADS) as loader:
        theirs = mx.gluon.data.DataLoader(
            mx.gluon.data.ArrayDataset(np.arange(8)), 4, num_workers=1
        )
        total = sum(float(batch.sum().asscalar()) for batch in loader)
        assert (total, values(theirs)) == (64 * 256.0, [[0, 1, 2, 3], [4, 5, 6, 7]])
        theirs._worker_pool.terminate()
        theirs._worker_pool.join()
        del theirs


# --- forked workers ---


# Scripts by their paths, each in a fork, with its exit code; a script that hangs is ended.
SERVES = """
for path in map(str.strip, sys.stdin):
    if not (child := os.fork()):
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    os._exit(0)
signal.alarm(120)
for number, name in enumerate([os.devnull, path + ".out", path + ".err"]):
    os.dup2(os.open(name, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
with open(path) as file:
    exec(file.read())
"""
FORKS = """
import os, signal, sys, threading, time
import numpy as np
import psutil
from adapters import gluon_loader
from adapters.gluon import import_mxnet

mx = import_mxnet()

class Indexed(mx.gluon.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return mx.nd.ones((3, 4)) * index, np.float32(index)

def doubled(data, label):
    return mx.nd.transpose(data) * 2, label

def children():
    return [child.pid for child in psutil.Process().children()]

def command(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()

def forked():
    return [command(pid) == command(os.getpid()) for pid in children()]

def descriptors(pid):
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:  # That of the folder itself.
            pass
    return found

def loader(transform=doubled, workers=2, **options):
    data = Indexed().transform(transform)
    options.update(num_workers=workers, thread_pool=False, seed=3, shuffle=True)
    return gluon_loader(data, 16, **options)

def values(batches):
    return [(data.asnumpy().tolist(), label.asnumpy().tolist()) for data, label in batches]
"""


@pytest.fixture(scope="module")
def run_forks(tmp_path_factory) -> Iterator[Callable[[str], str]]:
    """Run a script in a fork of one interpreter, as MXNet's import takes long; gives its output."""
    path = tmp_path_factory.mktemp("scripts") / "script"
    command = [sys.executable, "-c", FORKS + SERVES]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as interpreter:

        def run(script: str) -> str:
            path.write_text(textwrap.dedent(script))
            interpreter.stdin.write(f"{path}\n")
            code = interpreter.stdout.readline()
            assert code == "0\n", path.with_suffix(".err").read_text()
            return path.with_suffix(".out").read_text()

        yield run


def test_forks_deliver_the_same_batches(run_forks) -> None:
    """Also when one is killed, and its successor is a fork; none holds the trainer's sockets."""
    run_forks("""
        expected = values(loader(workers=0))
        with loader() as batches:
            found = []
            for number, batch in enumerate(batches):
                found += values([batch])
                if number == 3:
                    assert forked() == [True, True]
                    os.kill(children()[0], signal.SIGKILL)
            assert found == expected
            assert forked() == [True, True]
            assert values(batches) != expected  # The next epoch.
            # A worker notices at once that the trainer has gone, whoever else is alive.
            sockets = {name for name in descriptors("self") if name.startswith("socket:")}
            for pid in children():
                assert not sockets & descriptors(pid)
    """)


def test_no_process_is_forked_beside_libraries_with_threads(run_forks) -> None:
    """Their threads don't survive a fork."""
    run_forks("""
        import types
        from adapters.gluon.arguments import may_fork
        for name in ("jax", "obstore", "tensorflow", "torch"):
            assert may_fork()
            sys.modules[name] = types.ModuleType(name)
            assert not may_fork()
            with loader(workers=1) as batches:
                if name == "torch":
                    next(iter(batches))
                    assert not any(forked())
            del sys.modules[name]
    """)


def test_no_process_is_forked_in_another_thread(run_forks) -> None:
    """The main thread may be within MXNet then."""
    run_forks("""
        found = []
        def train():
            with loader(workers=1) as batches:
                next(iter(batches))
                found.extend(forked())
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        assert found == [False]
    """)


def test_fork_takes_over_no_state_of_the_trainer(run_forks) -> None:
    """Text that the trainer has printed is written once."""
    printed = run_forks("""
        sys.stdout.write("once ")
        signal.signal(signal.SIGTERM, lambda *_: print("handled"))
        np.random.seed(7)
        def drawn(data, label):
            found = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            at_end = os.read(0, 1) == b""
            return data, np.array([found, at_end, np.random.get_state()[1][0] != 7])
        with loader(drawn) as batches:
            assert all(label.asnumpy().all() for _, label in batches)
        assert np.random.get_state()[1][0] == 7
    """)
    assert printed == "once "


def test_nothing_is_left_by_ctrl_c_during_a_fork(run_forks) -> None:
    """Not even a process that has ended and was not waited for."""
    run_forks("""
        fork = os.fork
        def interrupted():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return fork()
        os.fork = interrupted
        try:
            next(iter(loader()))
        except KeyboardInterrupt:
            assert children() == []
        else:
            raise AssertionError("no KeyboardInterrupt")
    """)


def test_ctrl_c_during_a_collection_is_not_lost(run_forks) -> None:
    """What a callback of the collector's raises is ignored, so ours must raise nothing."""
    printed = run_forks("""
        import ctypes, functools, gc
        come = ctypes.CDLL(None)["raise"]
        come.argtypes = (ctypes.c_int, ctypes.py_object, ctypes.py_object)
        gc.callbacks.insert(0, functools.partial(come, signal.SIGINT))
        try:
            gc.collect()
            print("lost")
        except KeyboardInterrupt:
            gc.callbacks.pop(0)
            print("raised")
    """)
    assert printed == "raised\n"
