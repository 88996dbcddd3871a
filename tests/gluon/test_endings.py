"""However a loader ends, or its interpreter: no worker is left, nobody waits, nothing is said."""

from __future__ import annotations

import gc
import itertools
import signal
import threading
import weakref
from typing import Any

import mxnet as mx
import numpy as np
import pytest

from adapters import ClosedError, gluon_loader
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
)
from tests.gluon.test_importing import output_of

# Workers look for their parent every second.
SECONDS = 10
EXPECTED = [list(range(i, min(i + 4, 26))) for i in range(0, 26, 4)]
READ = """
from tests.gluon.executors import every_kind, every_quick_executor, opened as loader_of
loader = loader_of(Numbers({size}), "{executor}")
iterator = iter(loader)
print(next(iterator).asnumpy().tolist(), flush=True)
print("reads", flush=True)
"""


# Each starts an interpreter with MXNet.
every_script = pytest.mark.parametrize(
    "executor",
    [
        pytest.param("inline", marks=pytest.mark.full),
        pytest.param(THREADS, marks=pytest.mark.full),
        "processes-1",
    ],
)


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
def test_a_break_a_new_pass_and_an_abandoned_iterator_leave_the_loader_as_it_was(executor):
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
def test_an_iterator_that_nobody_reads_costs_nothing(executor):
    """As with MXNet's, work begins with the first batch that is asked for."""
    with opened(Numbers(), executor) as loader:
        iter(loader)
        assert (worker_threads(), workers()) == ([], [])


@every_kind
def test_a_loader_that_nobody_refers_to_ends_its_workers(executor):
    loader = opened(Numbers(), executor)
    assert values(loader) == EXPECTED
    del loader
    gc.collect()
    wait_until(nobody_works)


@every_kind
def test_a_loader_is_kept_by_its_iterator(executor):
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


def test_a_loader_whose_owner_is_in_its_batchify_is_collected_with_it():
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
def test_a_closed_loader_says_so_however_often_it_was_closed(executor):
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


def test_a_loader_that_was_closed_before_it_was_read_says_so_too():
    loader = gluon_loader(np.arange(4), 2)
    loader.close()
    with pytest.raises(ClosedError):
        list(loader)


@every_executor
def test_two_loaders_are_read_side_by_side(executor):
    with opened(Numbers(), executor) as one, opened(Numbers(8), executor, 2) as other:
        for mine, its in zip(one, other):
            assert mine.asnumpy()[0] == 2 * its.asnumpy()[0]
        other.close()
        assert values(one) == EXPECTED


@every_kind
def test_a_loader_may_live_in_another_thread(executor):
    """MXNet's own can't even be made there."""
    found: list[Any] = []

    def train() -> None:
        with opened(Numbers(), executor) as loader:
            found.extend(values(loader))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join(30)
    assert found == EXPECTED


@every_kind
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


def test_a_script_needs_no_guard_and_may_define_all_that_it_uses(tmp_path):
    file = tmp_path / "train.py"
    file.write_text("""
import numpy as np
from adapters import gluon_loader
from mxnet.gluon.data import Dataset

print("begins")
SCALE = 2

class Own(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, number):
        return np.float32(number)

loader = gluon_loader(Own().transform(lambda sample: (sample * SCALE, 0)), 2,
                      num_workers=2, thread_pool=False)
batches = list(loader)
print([float(value) for batch in batches for value in batch[0].asnumpy()])
""")
    run = f"""
os.environ["PYTHONPATH"] = os.getcwd()
os.execv(sys.executable, [sys.executable, "-u", "-W", "error", {str(file)!r}])
"""
    with script(run) as running:
        code, output, errors = running.finish(60)
        assert (code, errors) == (0, "")
        assert output.splitlines() == ["begins", str([2.0 * i for i in range(8)])]
        assert running.survivors(SECONDS) == []


def test_worker_processes_say_nothing():
    """Their MXNet would tell that its engine is not the usual one."""
    with script(read("processes-1", 16) + "print(len(list(iterator)))\nloader.close()") as running:
        assert running.finish(60) == (0, "[0, 1, 2, 3]\nreads\n3\n", "")


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
        *(
            pytest.param(executor, kept, marks=pytest.mark.full)
            for executor, kept in (
                *itertools.product(["inline"], KEPT),
                (THREADS, "batches"),
                (THREADS, "an exception"),
                (THREADS, "a circle"),
                (PROCESSES, "a thread that reads"),
            )
        ),
    ],
)
def test_the_interpreter_ends_quietly_whatever_is_still_referred_to(executor, kept):
    with script(read(executor) + KEPT[kept]) as running:
        code, output, errors = running.finish(60)
        assert (code, errors) == (3 if kept == "an exception" else 0, "")
        assert output == "[0, 1, 2, 3]\nreads\n"
        assert running.survivors(SECONDS) == []


@pytest.mark.full
def test_the_interpreter_does_not_crash_while_operations_let_go_of_batches():
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


@every_script
def test_ctrl_c_ends_everything_with_one_keyboard_interrupt(executor):
    with script(read(executor) + "while True:\n    list(loader)") as running:
        running.wait_for("reads")
        running.interrupt()
        code, _, errors = running.finish(SECONDS)
        assert code == -signal.SIGINT
        assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1
        assert running.survivors(SECONDS) == []


def test_ctrl_c_during_a_collection_is_not_lost():
    """What a callback of the collector's raises is ignored, so ours must raise nothing."""
    text = """
    import ctypes, functools, gc, signal
    from adapters import gluon_loader
    import mxnet as mx
    gluon_loader
    come = ctypes.CDLL(None)["raise"]
    come.argtypes = (ctypes.c_int, ctypes.py_object, ctypes.py_object)
    gc.callbacks.insert(0, functools.partial(come, signal.SIGINT))
    try:
        gc.collect()
        print("lost")
    except KeyboardInterrupt:
        gc.callbacks.pop(0)
        print("raised")
    """
    assert output_of(text) == ["raised"]


@every_script
def test_workers_go_when_the_trainer_was_killed(executor):
    with script(read(executor) + "while True:\n    list(loader)") as running:
        running.wait_for("reads")
        running.kill()
        assert running.survivors(SECONDS) == []


# --- fork ---


@pytest.mark.parametrize("executor", [pytest.param("inline", marks=pytest.mark.full), THREADS])
def test_a_forked_process_reads_on_with_workers_of_its_own(executor):
    text = """
child = os.fork()
rest = [int(batch.asnumpy()[0]) for batch in iterator]
right = rest == list(range(4, 400, 4)) and len(list(loader)) == 100
loader.close()
if not child:
    os._exit(0 if right else 1)
print(right, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    with script(read(executor) + text) as running:
        assert running.finish(60) == (0, "[0, 1, 2, 3]\nreads\nTrue 0\n", "")


def test_forking_while_an_operation_uses_a_batch_does_not_hang():
    """MXNet's engine is stopped then; its threads must not need the interpreter to let go of it."""
    text = """
import faulthandler
import mxnet as mx
faulthandler.dump_traceback_later(15, exit=True)
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
        assert running.finish(60) == (0, "[0, 1, 2, 3]\nreads\nforked\n", "")


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX's, where a test before used it.
@every_quick_executor
def test_mxnets_own_loader_may_fork_its_workers_beside_ours(executor):
    with opened(np.ones((64, 16, 16), np.float32), executor) as loader:
        theirs = mx.gluon.data.DataLoader(
            mx.gluon.data.ArrayDataset(np.arange(8)), 4, num_workers=1
        )
        total = sum(float(batch.sum().asscalar()) for batch in loader)
        assert (total, values(theirs)) == (64 * 256.0, [[0, 1, 2, 3], [4, 5, 6, 7]])
        theirs._worker_pool.terminate()
        theirs._worker_pool.join()
        del theirs


LAST = """
import threading, time
import numpy as np
from tests.gluon.executors import opened

class Waiting:
    def __len__(self):
        return 40

    def __getitem__(self, number):
        time.sleep(0.02)
        return np.array([number])

def read():
    for _ in range(2):
        print(sum(len(batch) for batch in loader), flush=True)

loader = opened(Waiting(), "{executor}")
threading.Thread(target=read).start()
"""


@every_script
def test_a_thread_may_read_on_after_the_main_thread_has_ended(executor):
    assert output_of(LAST.format(executor=executor)) == ["40", "40"]
