"""A Dask cluster of a test's own: processes that listen on the loopback interface only.

    python -m tests.clusters 2 threads    prints its address, and ends when its input does

With ``nannies`` each worker is a process, and another one starts where one dies. With ``bare``
nobody there has this package.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
HOST = "127.0.0.1"
_START_SECONDS = 60
# Dask keeps these for the next client of the process.
THREADS = ("Dask-", "IO loop", "Profile")


@contextmanager
def cluster(workers: int = 2, kind: str = "threads") -> Iterator[Any]:
    """The client of a new cluster, with one thread a worker."""
    distributed = pytest.importorskip("distributed", reason="needs dask.distributed")
    # No child of this process, so that its semaphores are seen not to be ours.
    command = ["setsid", "--fork", sys.executable, "-m", "tests.clusters", str(workers), kind]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:  # type: ignore[call-overload]
        try:
            address = process.stdout.readline().strip()
            with distributed.Client(address, set_as_default=False) as client:
                client.wait_for_workers(workers, timeout=_START_SECONDS)
                yield client
        finally:
            process.stdin.close()
            process.stdout.read()  # Until it has ended.


def _serve(workers: int, kind: str) -> None:
    if kind == "bare":
        sys.modules["adapters"] = None  # type: ignore[assignment]
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=kind == "nannies",
        protocol="tcp://",
        host=HOST,
        dashboard_address=f"{HOST}:0",
        worker_dashboard_address=f"{HOST}:0",
        silence_logs=50,
    ) as made:
        print(made.scheduler_address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2])
