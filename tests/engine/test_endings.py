"""However it ends, nothing is left: no process, no thread, and nobody waits."""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import closing
from unittest.mock import Mock

import pytest

from adapters.engine import Engine, Settings, usable_cpus
from tests.engine.executors import opened, wait_until, workers
from tests.engine.scripts import ended, script
from tests.engine.workloads import Gate, Numbers, Slow
from tests.plans import plan_of

# So long at most, however busy the machine is; workers look for their parent every second.
SECONDS = 60
READ = """
engine = Engine(plan_of(Numbers(400), transform=Slow({seconds})), settings_of("{executor}"))
stream = engine.stream(0, 0, False)
print("begins")
stream.next()
print("reads")
"""
AND_ON = """
while True:
    stream.next()
"""


def read(executor: str, seconds: float = 0.005) -> str:
    """A script's lines that read the first batch."""
    return READ.format(executor=executor, seconds=seconds)


def test_hanging_workers_go_when_the_trainer_was_killed():
    with script(read("processes-2") + "\nengine.plan.transform.seconds = 1000" + AND_ON) as running:
        running.wait_for("reads")
        running.kill()
        assert running.survivors(SECONDS) == []


@pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has one process that computes")
def test_starting_workers_go_when_the_trainer_was_killed():
    text = """
engine = Engine(plan_of(Numbers(400)), settings_of("processes-2"))
threading.Thread(target=read, args=(engine, 100)).start()
wait_until(lambda: len(workers()) == 2)
time.sleep(0.05)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with script(text) as running:
        assert running.wait(30) == -signal.SIGKILL
        assert running.survivors(SECONDS) == []


@pytest.mark.parametrize(("executor", "seconds"), [("threads-2", 0.3), ("processes-2", 0.005)])
def test_ctrl_c_ends_everything(executor, seconds):
    with script(read(executor, seconds) + AND_ON) as running:
        running.wait_for("reads")
        running.interrupt()
        code, _, errors = running.finish(SECONDS)
        assert code == -signal.SIGINT
        # It may come while another exception is handled, whose traceback is printed before it.
        handled = errors.count("During handling of the above exception")
        assert errors.count("Traceback") - handled == errors.count("KeyboardInterrupt") == 1
        assert running.survivors(SECONDS) == []


@pytest.mark.parametrize("line", ["begins", "starting"])
def test_ctrl_c_while_the_workers_start_leaves_nobody(line):
    text = """
wait = threading.Thread(target=lambda: (wait_until(workers), print("starting")), daemon=True)
wait.start()
"""
    with script(text + read("processes-2") + AND_ON) as running:
        running.wait_for(line)
        running.interrupt()
        code, _, errors = running.finish(SECONDS + 25)
        assert (code, "KeyboardInterrupt" in errors) == (-signal.SIGINT, True)
        assert running.survivors(SECONDS) == []


def test_after_a_caught_ctrl_c_one_can_go_on():
    text = """
try:
    print("trying")
    while True:
        stream.next()
except KeyboardInterrupt:
    print("caught")
stream.close()
print(read(engine, 2)[1].tolist())
engine.close()
"""
    with script(read("processes-2") + text) as running:
        running.wait_for("trying")
        running.interrupt()
        code, output, errors = running.finish(SECONDS)
        assert (code, output) == (0, "caught\n[4, 5, 6, 7]\n")
        assert "Traceback" not in errors
        assert running.survivors(SECONDS) == []


@pytest.mark.parametrize("method", ["threads.Threads.close", "pool.Pool.give_back"])
def test_what_ctrl_c_leaves_is_ended_by_the_next_close(method, monkeypatch):
    with opened(Numbers(), "threads-2" if "Threads" in method else "processes-2") as engine:
        engine.stream(0, 0, False).next()
        monkeypatch.setattr(f"adapters.engine.{method}", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            engine.close()
        monkeypatch.undo()
    assert workers() == []
    assert not any(each.name.startswith("adapters-worker") for each in threading.enumerate())


def test_ctrl_c_within_a_wait_is_no_other_error(tmp_path, monkeypatch):
    def interrupted(_: float) -> None:
        engine.dispatcher._changed._release_save()
        raise KeyboardInterrupt

    gate = Gate(tmp_path / "gate")
    with opened(Numbers(), "threads-1", transform=gate) as engine:
        monkeypatch.setattr(engine.dispatcher._changed, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.stream(0, 0, False).next()
        gate.open()


HALF = """
from contextlib import suppress
from adapters.errors import ClosedError

def half():
    with suppress(ClosedError):  # It may come after the end.
        stream.next()

threading.Thread(target=half, daemon=True).start()
"""


@pytest.mark.parametrize(
    ("executor", "last", "expected"),
    [
        ("processes-2", "", 0),
        ("processes-2", "engine.me = engine; stream.me = stream; del stream, engine", 0),
        ("threads-2", HALF, 0),
        ("threads-2", "raise SystemExit('spoilt')", 1),
    ],
    ids=["nothing closed", "deleted in a cycle", "half a batch", "an exception"],
)
def test_interpreter_ends_quietly(executor, last, expected):
    with script(read(executor) + last) as running:
        code, output, errors = running.finish(SECONDS + 25)
        assert (code, output) == (expected, "begins\nreads\n")
        assert errors == ("spoilt\n" if expected else "")
        assert running.survivors(SECONDS) == []


def test_threads_of_a_dropped_sequence_end_their_batch_before_the_program():
    """One that is ended within C++ code aborts the program."""
    text = """
class Marks:
    def __call__(self, sample):
        print("<", end="")
        time.sleep(0.2)
        print(">", end="")
        return sample

def main():
    from adapters import SafeSequence
    next(iter(SafeSequence(np.zeros(400), 4, transform=Marks(), workers=1)))

main()
"""
    with script(text) as running:
        code, output, _ = running.finish(SECONDS)
    assert code == 0
    assert output.count("<") == output.count(">") > 0


# --- other ways to be a process ---


def test_forked_process_reads_on_with_workers_of_its_own():
    text = """
engine = Engine(plan_of(Numbers(400)), settings_of("processes-2"))
stream = engine.stream(0, 0, False)
for _ in range(100):
    stream.next()
child = os.fork()
right = [stream.next()[0] for _ in range(20)] == [4 * i for i in range(20)]
right = right and len(read(engine, 100)) == 100
engine.close()
if not child:
    os._exit(0 if right else 1)
print(right, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    with script(text) as running:
        assert running.finish(30) == (0, "True 0\n", "")


SPAWNS = """
import multiprocessing, time
from tests.engine.executors import opened, read
from tests.engine.workloads import Numbers

def own(sample):
    deadline = time.process_time() + 0.001
    while time.process_time() < deadline:
        pass
    return sample

def train(executors):
    for executor in executors:
        with opened(Numbers(80), executor, transform=own) as engine:
            print([int(batch[0]) for batch in read(engine, 8)[:2]], flush=True)

if __name__ == "__main__":
    for executors, daemon in ((["processes-2"], False), (["processes-2", "auto"], True)):
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=train, args=(executors,), daemon=daemon)
        process.start()
        process.join()
"""


def test_spawned_script_may_have_workers(tmp_path):
    """What it defines is called ``__mp_main__`` there, which no worker can import."""
    file = tmp_path / "train.py"
    file.write_text(SPAWNS)
    process = ended(file, check=True)
    assert (process.stdout.splitlines(), process.stderr) == (["[0, 4]"] * 3, "")


# --- closing, and threads that hang ---


def test_earlier_ctrl_c_takes_no_patience_away(monkeypatch):
    monkeypatch.setattr(sys, "last_type", KeyboardInterrupt, raising=False)
    monkeypatch.setattr("adapters.engine.threads._INTERRUPTED_PATIENCE_SECONDS", 0.0)
    engine = Engine(plan_of(Numbers(8), 4, transform=Slow(0.1)), Settings(1))
    stream = engine.stream(0, 0, False)
    stream.peek(0)
    time.sleep(0.05)
    engine.close()
    assert not any(each.name.startswith("adapters-worker") for each in threading.enumerate())


def test_closing_without_waiting_returns_at_once(tmp_path):
    gate = Gate(tmp_path / "gate")
    engine = Engine(plan_of(Numbers(8), 4, transform=gate), Settings(1))
    stream = engine.stream(0, 0, False)
    stream.peek(0)
    wait_until(lambda: gate.arrived.calls)
    started = time.monotonic()
    engine.close(wait=False)
    assert time.monotonic() - started < 1
    gate.open()
    threads = (each for each in threading.enumerate() if each.name.startswith("adapters-worker"))
    for thread in threads:
        thread.join(20)


def test_threads_that_cannot_all_start_leave_none(monkeypatch):
    start, started = threading.Thread.start, []

    def some(self: threading.Thread) -> None:
        if self.name.startswith("adapters-worker") and len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(self)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", some)
    engine = Engine(plan_of(Numbers(400), 4, transform=abs, thread_safe=True), Settings(8))
    with closing(engine), pytest.raises(RuntimeError, match="can't start new thread"):
        engine.stream(0, 0, False).next()
    for thread in started:
        thread.join(20)
        assert not thread.is_alive()


TRAINS_ON = """
engine = Engine(plan_of(Numbers(800)), settings_of("processes-1"))
threading._register_atexit(engine.end_with_main_thread)

def trains():
    stream, count = engine.stream(0, 0, False), 0
    while stream.position[0] == 0:
        stream.next()
        time.sleep(0.002)
        count += 1
        if count == 20:
            begun.set()
    print(count)

begun = threading.Event()
threading.Thread(target=trains).start()
begun.wait(30)
"""


def test_thread_trains_on_after_the_main_thread():
    """The front ends end their engines so."""
    with script(TRAINS_ON) as running:
        assert running.finish(SECONDS) == (0, "200\n", "")
