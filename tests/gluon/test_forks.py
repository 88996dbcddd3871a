"""Worker processes of a loader are forks of the trainer if that is safe, and behave as others."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import psutil
import pytest

PROLOGUE = """
import os, signal, sys, threading, time
import numpy as np
import psutil
from adapters import gluon_loader
from adapters.gluon import import_mxnet

mx = import_mxnet()

class Numbers(mx.gluon.data.Dataset):
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
    data = Numbers().transform(transform)
    options.update(num_workers=workers, thread_pool=False, seed=3, shuffle=True)
    return gluon_loader(data, 16, **options)

def values(batches):
    return [(data.asnumpy().tolist(), label.asnumpy().tolist()) for data, label in batches]
"""


def run(script: str, *modules: str) -> str:
    """Run a script with some modules imported before, in a new interpreter; return its output."""
    before = "".join(f"import {name}\n" for name in modules)
    program = before + PROLOGUE + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_processes_are_forks_that_deliver_the_same_batches() -> None:
    """They also do when one of them is killed, and its successor is a fork, too."""
    run("""
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
    """)


@pytest.mark.parametrize("module", ["jax", "tensorflow", "torch"])
def test_no_process_is_forked_beside_libraries_with_threads(module: str) -> None:
    """Their threads don't survive a fork."""
    pytest.importorskip(module)
    run(
        """
        with loader() as batches:
            next(iter(batches))
            assert not any(forked())
        """,
        module,
    )


def test_no_process_is_forked_in_another_thread_than_the_main_one() -> None:
    """The main thread may be within MXNet then."""
    run("""
        found = []
        def train():
            with loader() as batches:
                next(iter(batches))
                found.extend(forked())
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        assert len(found) == 2 and not any(found), found
    """)


def test_a_fork_takes_over_no_output_no_input_no_signal_handler_and_no_random_state() -> None:
    """Text that the trainer has printed is written once."""
    printed = run("""
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


def test_a_fork_holds_no_descriptor_of_the_trainers_workers() -> None:
    """A worker therefore notices at once that the trainer has gone, whoever else is alive."""
    run("""
        with loader() as batches:
            for batch in batches:
                pass
            own = descriptors("self")
            sockets = {name for name in own if name.startswith("socket:")}
            for pid in children():
                assert not sockets & descriptors(pid)
    """)


def test_nothing_is_left_by_ctrl_c_during_a_fork() -> None:
    """Not even a process that has ended and was not waited for."""
    run("""
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


def test_nothing_is_left_when_the_trainer_is_killed() -> None:
    """Forked workers end by themselves."""
    process: Any = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PROLOGUE
            + textwrap.dedent("""
                batches = iter(loader())
                next(batches)
                print(*children(), flush=True)
                time.sleep(60)
            """),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    workers = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    process.kill()
    process.communicate()
    assert not psutil.wait_procs(workers, timeout=30)[1]
