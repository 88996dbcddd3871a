"""A row as a fresh process: started, watched and, where it must be, ended from outside.

The harness samples the memory of the row's whole process tree, so that the row's interpreter lock
isn't disturbed by its own measurement. A row that crashes, hangs or leaves processes behind is a
result with a reason, never an end of the sweep; nothing that a row started outlives it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks.harness.cpu_seconds import cpu_seconds_of
from benchmarks.harness.row import Measurement

ROOT = Path(__file__).resolve().parents[2]

# Reading the memory of a row with TensorFlow in it (0.8 GiB) took 11 to 15 ms of processor time;
# at this interval that is 3 % of one core.
SAMPLE_INTERVAL_SECONDS = 0.5
EXIT_LIMIT_SECONDS = 20.0  # from the row's result to its end; slower is a hang
CHILDREN_LIMIT_SECONDS = 3.0  # from the row's end to the end of everything that it started
LOOK_SECONDS = 0.02  # between two looks at who has ended
TRACEBACK_SECONDS = 1.0  # for faulthandler to write where a hanging row stands
EXIT_CODE = "exit code"
LOG_CHARACTERS = 8_000  # of a failed row's output, kept in the JSON


@dataclass(frozen=True)
class Outcome:
    """What became of one row.

    Args:
        result: What the row program returned, if it came that far.
        failure: Why the row doesn't count as good; None where nothing went wrong. With a result,
            it is about the end: a hang at exit, processes left behind.
        rounds: `peak_pss_mib`, the memory that the tree held at once, shared pages counted once, at
            each look inside the measured window; and `cpu_percent` between two looks. Empty where
            the system doesn't tell, or the window is too short.
        log: The end of the row's output where it failed, with the threads' tracebacks of a hang.
    """

    result: Measurement | None
    failure: str | None
    rounds: dict[str, list[float]]
    log: str


def run_row(
    program: str, options: Mapping[str, Any], limit_seconds: float, backend: str | None = None
) -> Outcome:
    """Run one row in a fresh process; blocks until it and all that it started are gone.

    Args:
        program: The module whose `measure` the row calls.
        options: Its argument; must survive JSON.
        limit_seconds: From the start to the result.
        backend: Keras's; None leaves it to the environment and to Keras.

    Returns:
        The row's outcome; failures of the row are in it, not raised.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-row-") as folder:
        options_path, result_path = Path(folder, "options.json"), Path(folder, "result.json")
        log_path = Path(folder, "log.txt")
        options_path.write_text(json.dumps(options))
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.harness.row",
                    program,
                    options_path,
                    result_path,
                ],
                cwd=ROOT,
                env=environment_of(backend),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal reaches the harness only, which then ends the tree.
                start_new_session=True,
            )
            watch = Watch(process)
            try:
                failure = watch.wait(result_path, limit_seconds)
            finally:
                left_behind = watch.end()
        output = log_path.read_text(errors="replace").strip()
        if failure is None and left_behind:
            failure = f"left {left_behind} of its processes running"
        result: Measurement | None = None
        if result_path.is_file():
            result = json.loads(result_path.read_text())
        if failure is not None and failure.startswith(EXIT_CODE) and output:
            # An exception's own line; other ends leave tracebacks of many threads.
            failure += ": " + output.splitlines()[-1].strip()
        rounds = {} if result is None else watch.rounds(result)
        return Outcome(result, failure, rounds, "" if failure is None else output[-LOG_CHARACTERS:])


def environment_of(backend: str | None) -> dict[str, str]:
    """What a row's process finds in its environment.

    Args:
        backend: Keras's; None leaves it to the environment and to Keras.
    """
    environment = dict(os.environ)
    paths = [str(ROOT), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    environment["PYTHONFAULTHANDLER"] = "1"
    environment.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if backend is not None:
        environment["KERAS_BACKEND"] = backend
    return environment


class _Sample(NamedTuple):
    """What the tree held at a moment of `time.monotonic`, and what it had computed until then."""

    moment: float
    pss_bytes: int
    cpu_seconds: float


class Watch:
    """Owns the row's process and its descendants until `end`; used by one thread."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._seen: set[psutil.Process] = set()
        self._samples: list[_Sample] = []

    def wait(self, result_path: Path, limit_seconds: float) -> str | None:
        """Sample memory until the process ends or its time is up; say what went wrong."""
        now = time.monotonic()
        deadline, reason = now + limit_seconds, f"no result within {limit_seconds:.0f} s"
        exiting = False
        while self._process.poll() is None:
            now = time.monotonic()
            if now > deadline:
                return reason
            if not exiting and result_path.is_file():
                exiting = True
                deadline = now + EXIT_LIMIT_SECONDS
                reason = f"hung at exit for {EXIT_LIMIT_SECONDS:.0f} s"
            self._sample()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(SAMPLE_INTERVAL_SECONDS)
        return self._ended()

    def _ended(self) -> str | None:
        code = self._process.returncode
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"{EXIT_CODE} {code}" if code else None

    def end(self) -> int:
        """End all that still runs; returns how many processes outlived a row that ended itself."""
        if self._process.poll() is None:
            self._descendants()
            # faulthandler answers this with every thread's traceback, then the process dies.
            self._process.send_signal(signal.SIGABRT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(TRACEBACK_SECONDS)
            self._process.kill()
            self._process.wait()
            left = list(self._seen)
        else:
            left = self._outliving(CHILDREN_LIMIT_SECONDS)
        running = [one for one in left if _is_alive(one)]
        # Last, when they have removed what the others leave in shared memory.
        trackers = [one for one in running if _is_tracker(one)]
        for one in running:
            if one not in trackers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        psutil.wait_procs(trackers, timeout=CHILDREN_LIMIT_SECONDS)
        for one in trackers:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return len(running)

    def _outliving(self, seconds: float) -> list[psutil.Process]:
        """What still runs after so long; whoever reaps the others may take longer than they did."""
        deadline = time.monotonic() + seconds
        while (left := list(filter(_is_alive, self._seen))) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return left

    def rounds(self, result: Measurement) -> dict[str, list[float]]:
        """What the samples of the measured time tell; see `Outcome`."""
        busy = result.get("busy", result["window"])
        memory = [one.pss_bytes / 2**20 for one in self._inside(result["window"])]
        loads = [
            100 * max(0.0, later.cpu_seconds - one.cpu_seconds) / (later.moment - one.moment)
            for one, later in pairwise(self._inside(busy))
        ]
        rounds = {"peak_pss_mib": memory, "cpu_percent": loads}
        return {name: values for name, values in rounds.items() if values}

    def _inside(self, window: Sequence[float]) -> list[_Sample]:
        begin, end = window
        return [one for one in self._samples if begin <= one.moment <= end]

    def _sample(self) -> None:
        moment = time.monotonic()
        tree = [*self._root(), *self._descendants()]
        sizes = [size for size in map(_pss_bytes, tree) if size is not None]
        if sizes:
            self._samples.append(_Sample(moment, sum(sizes), cpu_seconds_of(tree)))

    def _root(self) -> list[psutil.Process]:
        try:
            return [psutil.Process(self._process.pid)]
        except psutil.NoSuchProcess:
            return []

    def _descendants(self) -> list[psutil.Process]:
        try:
            children = [child for one in self._root() for child in one.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        self._seen.update(children)
        return children


def _is_alive(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie that nobody has reaped doesn't."""
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is_tracker(process: psutil.Process) -> bool:
    """Whether it is a resource tracker of multiprocessing's; they end by themselves."""
    try:
        return "resource_tracker" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def _pss_bytes(process: psutil.Process) -> int | None:
    """Proportional set size: own pages, and of each shared page this process's part."""
    try:
        with Path(f"/proc/{process.pid}/smaps_rollup").open() as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass  # gone in the meantime, or a system without such a file
    return None
