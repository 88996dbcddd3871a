"""However it ends, nothing is left: no process, and nobody waits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from adapters.engine import usable_cpus
from tests.engine.scripts import script

# Workers look for their parent every second.
SECONDS = 5
every_pool = pytest.mark.parametrize("executor", ["threads-2", "processes-2"])
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


# --- the trainer is killed ---


@pytest.mark.parametrize("seconds", [0.001, 0.3], ids=["light", "heavy"])
def test_workers_go_when_the_trainer_was_killed(seconds):
    with script(read("processes-2", seconds) + AND_ON) as running:
        running.wait_for("reads")
        running.kill()
        assert running.survivors(SECONDS) == []


def test_workers_that_hang_go_when_the_trainer_was_killed():
    with script(read("processes-2") + "\nengine.plan.transform.seconds = 1000" + AND_ON) as running:
        running.wait_for("reads")
        running.kill()
        assert running.survivors(SECONDS) == []


@pytest.mark.skipif(usable_cpus() < 2, reason="one CPU has one process that computes")
@pytest.mark.parametrize("milliseconds", [20, 100])
def test_workers_that_are_starting_go_when_the_trainer_was_killed(milliseconds):
    text = f"""
engine = Engine(plan_of(Numbers(400)), settings_of("processes-2"))
threading.Thread(target=read, args=(engine, 100)).start()
wait_until(lambda: len(workers()) == 2)
time.sleep({milliseconds / 1000})
os.kill(os.getpid(), signal.SIGKILL)
"""
    with script(text) as running:
        assert running.wait(30) == -signal.SIGKILL
        assert running.survivors(SECONDS) == []


# --- Ctrl-C ---


@pytest.mark.parametrize("executor", ["inline", "threads-2", "processes-2", "auto"])
def test_ctrl_c_ends_everything_with_one_keyboard_interrupt(executor):
    with script(read(executor) + AND_ON) as running:
        running.wait_for("reads")
        running.interrupt()
        code, _, errors = running.finish(SECONDS)
        assert code == -signal.SIGINT
        assert errors.count("Traceback") == errors.count("KeyboardInterrupt") == 1
        assert running.survivors(SECONDS) == []


@pytest.mark.parametrize("executor", ["threads-2", "processes-2"])
def test_ctrl_c_ends_a_trainer_that_waits_for_a_slow_batch(executor):
    with script(read(executor, 0.3) + AND_ON) as running:
        running.wait_for("reads")
        running.interrupt()
        code, _, errors = running.finish(SECONDS + 2)
        assert (code, errors.count("KeyboardInterrupt")) == (-signal.SIGINT, 1)
        assert running.survivors(SECONDS) == []


@pytest.mark.parametrize("moment", range(4))
def test_ctrl_c_while_the_workers_start_leaves_nobody(moment):
    text = """
print("imported")
wait = threading.Thread(target=lambda: (wait_until(workers), print("starting")), daemon=True)
wait.start()
""" + read("processes-2")
    with script(text + AND_ON) as running:
        running.wait_for(["imported", "begins", "starting", "reads"][moment])
        running.interrupt()
        code, _, errors = running.finish(SECONDS + 25)
        assert (code, "KeyboardInterrupt" in errors) == (-signal.SIGINT, True)
        assert running.survivors(SECONDS) == []


@pytest.mark.parametrize("executor", ["threads-2", "processes-2"])
def test_after_a_caught_ctrl_c_one_can_go_on(executor):
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
    with script(read(executor) + text) as running:
        running.wait_for("trying")
        running.interrupt()
        code, output, errors = running.finish(SECONDS)
        assert (code, output) == (0, "caught\n[4, 5, 6, 7]\n")
        assert "Traceback" not in errors
        assert running.survivors(SECONDS) == []


# --- the interpreter's end ---

LAST_WORDS = {
    "nothing closed": ("", 0),
    "closed twice": ("engine.close(); engine.close(); stream.close()", 0),
    "stream closed": ("stream.close()", 0),
    "deleted": ("del stream, engine", 0),
    "deleted in a cycle": ("engine.me = engine; stream.me = stream; del stream, engine", 0),
    "an exception": ("raise SystemExit('spoilt')", 1),
    "half a batch": ("threading.Thread(target=stream.next, daemon=True).start()", 0),
}


@every_pool
@pytest.mark.parametrize("last", LAST_WORDS)
def test_the_interpreter_ends_quietly_however_it_was_left(executor, last):
    words, expected = LAST_WORDS[last]
    with script(read(executor) + words) as running:
        code, output, errors = running.finish(SECONDS + 25)
        assert (code, output) == (expected, "begins\nreads\n")
        assert errors in ("", "spoilt\n")
        assert running.survivors(SECONDS) == []


# --- other ways to be a process ---


@pytest.mark.parametrize("executor", ["threads-2", "processes-2", "auto"])
@pytest.mark.parametrize("count", [1, 100], ids=["under way", "read"])
def test_a_forked_process_reads_on_with_workers_of_its_own(executor, count):
    text = f"""
engine = Engine(plan_of(Numbers(400)), settings_of("{executor}"))
stream = engine.stream(0, 0, False)
for _ in range({count}):
    stream.next()
child = os.fork()
first = [4 * i % 400 for i in range({count}, {count} + 20)]
right = [stream.next()[0] for _ in range(20)] == first and len(read(engine, 100)) == 100
engine.close()
if not child:
    os._exit(0 if right else 1)
print(right, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    with script(text) as running:
        assert running.finish(30) == (0, "True 0\n", "")


@pytest.mark.parametrize(
    ("executor", "daemon", "answer"),
    [
        ("processes-2", False, "[0, 4]"),
        ("processes-2", True, "RuntimeError a daemonic process may not start worker processes"),
        ("auto", True, "[0, 4]"),
    ],
)
def test_a_spawned_script_may_have_workers(executor, daemon, answer, tmp_path):
    """What it defines is called ``__mp_main__`` there, which no worker can import."""
    file = tmp_path / "train.py"
    file.write_text(f"""
import multiprocessing, time
from tests.engine.executors import opened, read
from tests.engine.workloads import Numbers

def own(sample):
    deadline = time.process_time() + 0.001
    while time.process_time() < deadline:
        pass
    return sample

def train():
    try:
        with opened(Numbers(80), "{executor}", transform=own) as engine:
            print([int(batch[0]) for batch in read(engine, 8)[:2]])
    except RuntimeError as error:
        print("RuntimeError", str(error).split(":")[0])

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=train, daemon={daemon})
    process.start()
    process.join()
""")
    ended = subprocess.run(
        [sys.executable, str(file)],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (ended.stdout.strip(), ended.stderr) == (answer, "")
