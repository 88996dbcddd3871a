"""However a loader ends, or its interpreter: no worker is left, nobody waits, nothing is said."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import mxnet as mx
import pytest

from adapters import ClosedError
from adapters.gluon.importing import QUIET
from tests.engine.executors import wait_until, workers
from tests.engine.scripts import script
from tests.engine.workloads import Numbers
from tests.gluon.data_sets import values
from tests.gluon.executors import THREADS, every_kind, every_quick_executor, opened

# So long at most, however busy the machine is; workers look for their parent every second.
SECONDS = 60
EXPECTED = [list(range(i, min(i + 4, 26))) for i in range(0, 26, 4)]


def worker_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("adapters-worker")]


def nobody_works() -> bool:
    """A collected loader waits for no thread, so they end a moment later."""
    return not worker_threads() and not workers()


# --- within a program ---


@every_quick_executor
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
        with pytest.raises(ClosedError, match="loader"):
            next(pass_)
    assert len(loader) == 7
    assert (worker_threads(), workers()) == ([], [])


# --- scripts ---


def test_interpreter_ends_quietly():
    """With batches that are kept, MXNet's operations under way, and a thread that reads."""
    text = """
from adapters import ClosedError
from tests.gluon.executors import opened
loader = opened(np.ones((400, 400), "float32"), "processes-2")
kept = [mx.nd.dot(batch, mx.nd.ones((400, 400))) for batch in loader]
kept.append(kept)
def read_on():
    try:
        while True:
            list(loader)
    except ClosedError:
        pass
threading.Thread(target=read_on, daemon=True).start()
print("reads")
"""
    with script("from adapters.gluon import import_mxnet\nmx = import_mxnet()\n" + text) as running:
        assert running.finish(100) == (0, "reads\n", "")
        assert running.survivors(SECONDS) == []


# Scripts by their paths, each in a fork, with its exit code; a script that hangs is ended.
SERVES = """
for path in map(str.strip, sys.stdin):
    if not (child := os.fork()):
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
else:
    os._exit(0)
signal.alarm(90)
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

def children(pid=None):
    return [child.pid for child in psutil.Process(pid).children()]

def command(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read()

def forked():
    return [command(pid) == command(os.getpid()) for pid in children()]

def sockets(pid):
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:  # That of the folder itself.
            pass
    return {name for name in found if name.startswith("socket:")}

def loader(transform=doubled, workers=2, **options):
    data = Indexed().transform(transform)
    options.update(num_workers=workers, thread_pool=False, seed=3, shuffle=True)
    return gluon_loader(data, 16, **options)

def values(batches):
    return [(data.asnumpy().tolist(), label.asnumpy().tolist()) for data, label in batches]
"""


@pytest.fixture(scope="module")
def run_forks(tmp_path_factory) -> Iterator[Callable[[str], tuple[str, str]]]:
    """Run a script in a fork of one interpreter, as MXNet's import takes long: what it says."""
    path = tmp_path_factory.mktemp("scripts") / "script"
    command, environment = [sys.executable, "-c", FORKS + SERVES], {**os.environ, QUIET: "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, text=True, bufsize=1, env=environment
    ) as interpreter:

        def run(script: str) -> tuple[str, str]:
            path.write_text(textwrap.dedent(script))
            interpreter.stdin.write(f"{path}\n")
            code = interpreter.stdout.readline()
            output, errors = (path.with_suffix(end).read_text() for end in (".out", ".err"))
            assert code == "0\n", errors
            return output, errors

        yield run


def test_forks_deliver_the_same_batches(run_forks):
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
            for pid in children():
                assert not sockets("self") & sockets(pid)
    """)


@pytest.mark.parametrize("end", ["SIGKILL", "SIGINT"])
def test_forks_end_with_the_trainer(end, run_forks):
    """Ctrl-C reaches the workers, too."""
    _, errors = run_forks(f"""
        begun, begins = os.pipe()
        if not (trainer := os.fork()):
            with loader() as batches:
                while True:
                    for batch in batches:
                        os.write(begins, b".")
        os.read(begun, 1)
        workers = [psutil.Process(pid) for pid in children(trainer)]
        assert len(workers) == 2
        ended = 0, 0
        while not ended[0]:
            for pid in [trainer, *children(trainer)] if "{end}" == "SIGINT" else [trainer]:
                os.kill(pid, signal.{end})
            again = time.monotonic() + 5  # Python drops a Ctrl-C that comes in MXNet's __del__.
            while not ended[0] and time.monotonic() < again:
                time.sleep(0.02)
                ended = os.waitpid(trainer, os.WNOHANG)
        assert os.waitstatus_to_exitcode(ended[1]) == -signal.{end}
        while any(each.is_running() and each.status() != "zombie" for each in workers):
            time.sleep(0.02)
    """)
    # It may come while another exception is handled, whose traceback is printed before it.
    handled = errors.count("During handling of the above exception")
    found = errors.count("KeyboardInterrupt")
    assert errors.count("Traceback") - handled == found
    assert (found > 0) == (end == "SIGINT")


@pytest.mark.parametrize("beside", ["torch", "main"], ids=["a library", "another thread"])
def test_no_process_is_forked_beside_threads(beside, run_forks):
    """A library's don't survive a fork, and the main one may be within MXNet then."""
    said = run_forks(f"""
        import types
        from adapters.gluon.arguments import may_fork
        found = []
        def train():
            with loader(workers=1) as batches:
                next(iter(batches))
                found.extend(forked())
        if "{beside}" == "torch":
            for name in ("jax", "obstore", "tensorflow", "torch"):
                assert may_fork()
                sys.modules[name] = types.ModuleType(name)
                assert not may_fork()
                if name != "torch":
                    del sys.modules[name]
            train()
        else:
            thread = threading.Thread(target=train)
            thread.start()
            thread.join()
        assert found == [False]
    """)
    assert said == ("", "")


def test_fork_takes_over_no_state_of_the_trainer(run_forks):
    """Text that the trainer has printed is written once."""
    said = run_forks("""
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
    assert said == ("once ", "")


def test_ctrl_c_during_a_collection_is_not_lost(run_forks):
    """What a callback of the collector's raises is ignored, so ours must raise nothing."""
    said = run_forks("""
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
    assert said == ("raised\n", "")


def test_nothing_is_left_by_ctrl_c_during_a_fork(run_forks):
    """Not even a process that has ended and was not waited for."""
    said = run_forks("""
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
    assert said == ("", "")


def test_fork_while_a_batch_is_used_does_not_hang(run_forks):
    """MXNet's engine is stopped then; its threads must not need the interpreter to let go of it."""
    said = run_forks("""
        for batch in gluon_loader(np.ones((256, 64, 64), "float32"), 4, num_workers=0):
            product = mx.nd.dot(batch, batch.reshape((64, -1)))
            del batch
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
        print("forked")
    """)
    assert said == ("forked\n", "")


# --- workers that start in odd places ---

_TRAINS = """
from adapters import gluon_loader
class Data(list):
    def __getitem__(self, number):
        if {nested} and len(self) > 2:
            inner = gluon_loader(Data(range(2)), 2, num_workers=1, thread_pool=False, timeout=30)
            return sum(map(len, inner))
        return super().__getitem__(number)
print([len(batch) for batch in gluon_loader(Data(range(8)), 4, num_workers={workers}, timeout=30)])
"""


@pytest.mark.parametrize(("nested", "workers"), [(0, "1, thread_pool=False"), (1, "0")])
def test_workers_start_within_an_import_and_within_a_sample(nested, workers, tmp_path):
    """As a fork has neither the thread of an import nor that of a sample."""
    (tmp_path / "trains.py").write_text(_TRAINS.format(nested=nested, workers=workers))
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.getcwd()}"}
    command = [sys.executable, "-c", "import trains"]
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    assert found.stdout.strip() == "[4, 4]", found.stderr
