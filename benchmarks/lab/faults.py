"""A campaign of faults: what is injected, and what comes of it.

    python benchmarks/lab/faults.py 10000            # takes hours on two cores
    python benchmarks/lab/faults.py 200 --only "worker killed" --seed 7

Each fault is drawn by its number: workers and trainers are killed, files are cut, flipped and
replaced, disks and descriptors run out, servers fail, users press Ctrl-C. What must come of it is
what docs/guarantees.md says: the same batches, or an error of the promised type, within a limit of
time, and nothing left behind. The table at the end counts both; everything else is "bad", printed
with its number, and makes the exit status 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import http.server
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

LIMIT_SECONDS = 30.0
SAMPLES, BATCH_SIZE = 96, 4
RECOVERED, REFUSED = "recovered", "error as promised"


class Bad(Exception):
    """What should not have come of a fault."""


def check(holds: bool, what: str) -> None:
    """Raise `Bad` unless it holds."""
    if not holds:
        raise Bad(what)


# --- what is read ---


class Samples:
    """A source whose samples take a little while; code of users runs for each."""

    def __init__(self, action: Callable[[int], None] | None = None) -> None:
        self.action = action

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, number: int) -> tuple[Any, int]:
        if self.action is not None:
            self.action(number)
        return np.arange(64, dtype=np.float32) * number, number


def sequence(source: Any, **options: Any) -> Any:
    """A `SafeSequence` on two processes, shuffled."""
    from adapters import SafeSequence

    settings = {"workers": 2, "use_multiprocessing": True, "shuffle": True, "seed": 3}
    return SafeSequence(source, BATCH_SIZE, **{**settings, **options})


def digest(batches: Any) -> str:
    """A hash of all batches, in order."""
    found = hashlib.sha256()
    for batch in batches:
        for array in batch if isinstance(batch, tuple) else (batch,):
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


_expected: list[str] = []


def expected() -> str:
    """The hash without a fault."""
    if not _expected:
        with sequence(Samples(), workers=0, use_multiprocessing=False) as seq:
            _expected.append(digest(seq))
    return _expected[0]


def workers_of(pid: int) -> list[psutil.Process]:
    """Living worker processes of a process."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return [
            child
            for child in psutil.Process(pid).children(recursive=True)
            if child.status() != psutil.STATUS_ZOMBIE
        ]
    return []


# --- faults of workers, in this process ---


def worker_killed(draw: random.Random, folder: Path) -> str:
    """SIGKILL one or both workers, once or twice, between two batches or while one is awaited."""
    kills = {draw.randrange(SAMPLES // BATCH_SIZE) for _ in range(draw.choice([1, 1, 2]))}
    later = draw.random() * 0.01
    timers: list[threading.Timer] = []

    def kill() -> None:
        found = workers_of(os.getpid())
        for each in draw.sample(found, min(len(found), draw.choice([1, 2]))):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    with sequence(Samples()) as seq:

        def batches() -> Iterator[Any]:
            for step, batch in enumerate(seq):
                if step in kills:
                    timers.append(threading.Timer(later, kill))
                    timers[-1].start()
                    time.sleep(draw.choice([0.0, later * 2]))
                yield batch

        check(digest(batches()) == expected(), "other batches")
        for timer in timers:
            timer.join()  # Children of the next fault aren't its workers.
    return RECOVERED


def worker_exits(draw: random.Random, folder: Path) -> str:
    """User code ends its process, at one sample, each time."""
    from adapters import WorkerError

    wanted, code = draw.randrange(SAMPLES), draw.choice([0, 1, 7])
    trainer = os.getpid()

    def leave(number: int) -> None:
        if number == wanted and os.getpid() != trainer:
            os._exit(code)

    with sequence(Samples(leave)) as seq:
        try:
            digest(seq)
        except WorkerError as error:
            check("process" in str(error), f"a message without the process: {error}")
            return REFUSED
    raise Bad("no error")


class Unpicklable(Exception):
    """An error that can't be sent as it is."""

    def __init__(self, number: int, lock: Any) -> None:
        super().__init__(number)
        self.lock = lock


def error_raised(draw: random.Random, folder: Path) -> str:
    """User code raises, an error that can't be pickled among others."""
    wanted = draw.randrange(SAMPLES)
    kind = draw.choice([ValueError, KeyError, MemoryError, ArithmeticError, Unpicklable])
    processes = draw.random() < 0.5

    def fail(number: int) -> None:
        if number == wanted:
            raise kind(number, threading.Lock()) if kind is Unpicklable else kind(number)

    with sequence(Samples(fail), workers=2, use_multiprocessing=processes) as seq:
        try:
            digest(seq)
        except Exception as error:
            check(type(error).__name__ == kind.__name__, f"{type(error).__name__}: {error}")
            notes = " ".join(getattr(error, "__notes__", ()))
            check(f"sample {wanted}" in notes, f"no sample number in {notes!r}")
            return REFUSED
    raise Bad("no error")


def pass_left(draw: random.Random, folder: Path) -> str:
    """The reader leaves a pass: by `break`, `del` or `close`, and reads it again."""
    processes = draw.random() < 0.5
    seq = sequence(Samples(), workers=draw.choice([1, 2, 3]), use_multiprocessing=processes)
    way, most = draw.choice(["break", "del", "close"]), draw.randrange(SAMPLES // BATCH_SIZE)
    batches = iter(seq)
    for _ in range(most):
        next(batches)
    if way == "close":
        batches.close()
    del batches
    check(digest(seq) == expected(), "other batches")
    seq.close()
    return RECOVERED


def process_forked(draw: random.Random, folder: Path) -> str:
    """A pass is read while the process forks; both read on."""
    with sequence(Samples(), workers=draw.choice([0, 2]), use_multiprocessing=False) as seq:
        batches, before = iter(seq), []
        for _ in range(draw.randrange(1, 10)):
            before.append(next(batches))
        pid = os.fork()
        if not pid:
            code = 1
            with contextlib.suppress(BaseException):
                own = sequence(Samples(), workers=0, use_multiprocessing=False)
                code = int(digest(own) != expected())
            os._exit(code)
        same = digest([*before, *batches]) == expected()
        check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "wrong in the forked process")
    check(same, "other batches")
    return RECOVERED


# --- faults of files ---


def written(folder: Path, format_: str, count: int = 40) -> Path:
    """A record file."""
    from adapters import RecordWriter

    path = folder / f"records.{'rec' if format_ == 'recordio' else 'tfrecord'}"
    with RecordWriter(str(path), format=format_) as writer:
        for number in range(count):
            writer.write(bytes([number]) * (number * 7 % 90 + 1))
    return path


def file_damaged(draw: random.Random, folder: Path) -> str:
    """A file is cut, or one bit of it flips; opened afterwards."""
    from adapters import RecordError, open_records

    format_ = draw.choice(["recordio", "tfrecord"])
    path = written(folder, format_)
    whole = path.read_bytes()
    for index in folder.glob("*.idx*"):
        index.unlink()
    flips = draw.random() < 0.5
    if flips:
        place = draw.randrange(len(whole))
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
    else:
        path.write_bytes(whole[: draw.randrange(len(whole))])
    try:
        source = open_records(str(path), format=format_)
        records = [bytes(source[number]) for number in range(len(source))]
    except RecordError as error:
        check(path.name in str(error), f"an error without the file: {error}")
        return REFUSED
    except ValueError as error:  # An empty file.
        check("no record" in str(error) or "empty" in str(error), f"ValueError: {error}")
        return REFUSED
    good = [bytes([number]) * (number * 7 % 90 + 1) for number in range(40)]
    if flips and format_ == "recordio":  # It has no CRC: a flip in a payload can't be seen.
        check(len(records) == 40, "records lost or invented")
        return RECOVERED
    check(not flips or records == good, "wrong records, unnoticed")
    check(flips or records == good[: len(records)], "wrong records, unnoticed")
    return RECOVERED


def file_replaced(draw: random.Random, folder: Path) -> str:
    """A file is cut or replaced while it is read; large records, which are read by `pread`."""
    from adapters import RecordWriter

    path = folder / "large.rec"
    with RecordWriter(str(path), format="recordio") as writer:
        for number in range(30):
            writer.write(bytes([number]) * 20_000)
    other = folder / "other.rec"
    other.write_bytes(b"")
    act = draw.choice([f"os.truncate(path, {draw.randrange(600_000)})", "os.replace(other, path)"])
    code = f"""
import os, sys
from adapters import open_records
path, other = {str(path)!r}, {str(other)!r}
source = open_records(path)
for number in range(len(source)):
    if number == {draw.randrange(30)}:
        {act}
    assert bytes(source[number]) == bytes([number]) * 20_000
"""
    done = child(code)
    if done.returncode == 0:
        return RECOVERED
    check("RecordError" in done.stderr, f"exit status {done.returncode}: {done.stderr[-300:]}")
    return REFUSED


def writer_killed(draw: random.Random, folder: Path) -> str:
    """A writer is killed, at any moment, or its disk is full; then the work is done again."""
    final = folder / "out.tfrecord"
    limit = draw.randrange(2_000, 4_000_000) if draw.random() < 0.4 else 0
    code = f"""
import resource, signal
from adapters import RecordWriter
if {limit}:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
with RecordWriter({str(final)!r}, format="tfrecord") as writer:
    print("ready", flush=True)
    for number in range(2000):
        writer.write(bytes([number % 251]) * 2000)
"""
    process = started(code)
    assert process.stdout is not None
    process.stdout.readline()
    if not limit:
        time.sleep(draw.random() * 0.1)
        process.kill()
    process.wait(LIMIT_SECONDS)
    from adapters import open_records

    if final.exists():
        check(len(open_records(str(final))) == 2000, "half a file under its final name")
        return RECOVERED
    check(process.returncode != 0, "no file, and no error")
    check(child(code.replace(f"if {limit}", "if 0")).returncode == 0, "the second run failed")
    check(len(open_records(str(final))) == 2000, "half a file of the second run")
    return RECOVERED


# --- faults of trainers, in processes of their own ---

TRAINER = """
import sys
sys.path.insert(0, {place!r})
from benchmarks.lab.faults import Samples, digest, sequence
import adapters.keras, gc
gc.callbacks.clear()  # JAX's, a Python function, swallows a Ctrl-C that comes during a collection.
seq = sequence(Samples(), workers={workers}, use_multiprocessing={processes})
print("ready", flush=True)
for epoch in range({epochs}):
    print(digest(seq), flush=True)
seq.close()
"""


def started(code: str, **options: Any) -> subprocess.Popen[str]:
    """Start a program."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        **options,
    )


def child(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS
    )


def trainer(draw: random.Random, epochs: int) -> str:
    """The program of a trainer."""
    place = str(Path(__file__).resolve().parents[2])
    return TRAINER.format(
        place=place, workers=draw.choice([1, 2]), processes=draw.random() < 0.7, epochs=epochs
    )


def trainer_ended(draw: random.Random, folder: Path) -> str:
    """SIGKILL or Ctrl-C of a trainer, at any moment: it ends, and so do its workers."""
    process = started(trainer(draw, 10_000))
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.random() * 1.5)
        workers = workers_of(process.pid)
        number = draw.choice([signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
        process.communicate(timeout=LIMIT_SECONDS)
        _, alive = psutil.wait_procs(workers, timeout=5)
        check(not alive, f"{len(alive)} workers left after {number.name}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return RECOVERED


def descriptors_exhausted(draw: random.Random, folder: Path) -> str:
    """A trainer that may open few files: all batches, or an error; no hang."""
    limit = draw.randrange(24, 120)
    code = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}))\n"
    process = started(code + trainer(draw, 2))
    try:
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise Bad(f"a hang with {limit} descriptors") from None
    hashes = [line for line in out.split() if line != "ready"]
    check(not hashes or hashes[0] == expected(), f"other batches with {limit} descriptors")
    if process.returncode == 0:
        check(len(hashes) == 2, "batches missing")
        return RECOVERED
    check("Error" in err, f"no error with {limit} descriptors: {err[-200:]}")
    return REFUSED


# --- faults of stores ---


class _Store(http.server.BaseHTTPRequestHandler):
    """Serves ranges of one file, and fails as its server's `faults` say."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        """Answer with the size."""
        self._answer(b"", head=True)

    def do_GET(self) -> None:
        """Answer with a range."""
        self._answer(self.server.content)  # type: ignore[attr-defined]

    def _answer(self, content: bytes, head: bool = False) -> None:
        server: Any = self.server
        fault = server.faults.pop() if server.faults else None
        if fault == "reset":
            self.connection.close()
            self.close_connection = True
            return
        if isinstance(fault, int):
            self.send_response(fault)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        size = len(server.content)
        begin, end = 0, size
        asked = self.headers.get("Range", "")
        if asked.startswith("bytes=") and not head:
            low, _, high = asked[6:].partition("-")
            if low:
                begin, end = int(low), min(int(high or size - 1) + 1, size)
            else:
                begin = size - int(high)
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        else:
            self.send_response(200)
        body = b"" if head else content[begin:end]
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Sun, 01 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(size if head else len(body)))
        self.end_headers()
        if fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        self.wfile.write(body)


def store_fails(draw: random.Random, folder: Path) -> str:
    """Requests to a store fail now and then, or it vanishes."""
    from adapters import Cache, open_records

    path = written(folder, "tfrecord")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Store)
    server.daemon_threads = True
    state: Any = server
    state.content = path.read_bytes()
    gone = draw.random() < 0.3
    transient = [500, 503, 429, "reset", "cut", None]
    state.faults = [draw.choice(transient) for _ in range(draw.randrange(6))]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        cache = Cache(str(folder / "cache"), 10**7) if draw.random() < 0.5 else None
        url = f"http://127.0.0.1:{server.server_address[1]}/records.tfrecord"
        try:
            source = open_records(url, format="tfrecord", cache=cache)
            if gone:
                state.faults = [404] * 100
            records = [bytes(source[number]) for number in range(len(source))]
        except (OSError, ValueError) as error:
            check(gone, f"{type(error).__name__} after transient errors: {error}")
            return REFUSED
        check(
            records == [bytes([number]) * (number * 7 % 90 + 1) for number in range(40)],
            "wrong records",
        )
        return RECOVERED
    finally:
        server.shutdown()
        server.server_close()


FAULTS: dict[str, tuple[Callable[[random.Random, Path], str], int]] = {
    "worker killed": (worker_killed, 20),
    "worker exits": (worker_exits, 4),
    "error raised": (error_raised, 12),
    "pass left": (pass_left, 12),
    "process forked": (process_forked, 6),
    "file damaged": (file_damaged, 30),
    "file replaced": (file_replaced, 3),
    "writer killed, disk full": (writer_killed, 4),
    "trainer killed, Ctrl-C": (trainer_ended, 4),
    "descriptors exhausted": (descriptors_exhausted, 3),
    "store fails": (store_fails, 6),
}
"""Each fault, and how often it is drawn."""


def campaign(count: int, seed: int, only: str | None) -> int:
    """Inject faults, and print what came of them."""
    import logging

    logging.disable(logging.CRITICAL)
    names = [only] if only else list(FAULTS)
    weights = [FAULTS[name][1] for name in names]
    came: collections.Counter[tuple[str, str]] = collections.Counter()
    longest: dict[str, float] = {}
    bad = 0
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        name = draw.choices(names, weights)[0]
        folder = Path(tempfile.mkdtemp(prefix="faults-"))
        started_at = time.monotonic()
        try:
            outcome = FAULTS[name][0](draw, folder)
        except Exception as error:
            bad += 1
            outcome = "bad"
            print(f"fault {number}, {name}: {type(error).__name__}: {error}", flush=True)
        seconds = time.monotonic() - started_at
        if seconds > LIMIT_SECONDS:
            bad += 1
            print(f"fault {number}, {name}: took {seconds:.0f} s", flush=True)
        came[name, outcome] += 1
        longest[name] = max(longest.get(name, 0.0), seconds)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'fault':26}{'injected':>9}{RECOVERED:>11}{REFUSED:>19}{'bad':>5}{'longest s':>11}")
    for name in names:
        row = [came[name, each] for each in (RECOVERED, REFUSED, "bad")]
        print(
            f"{name:26}{sum(row):9,}{row[0]:11,}{row[1]:19,}{row[2]:5,}"
            f"{longest.get(name, 0.0):11.1f}"
        )
    return bad


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=list(FAULTS))
    chosen = parser.parse_args()
    os.environ.setdefault("KERAS_BACKEND", "jax")
    return int(campaign(chosen.count, chosen.seed, chosen.only) > 0)


if __name__ == "__main__":
    sys.exit(main())
