"""A launcher: the processes of a job, in a network of their own that has nothing but loopback.

``run`` starts this file in such a network, where it starts the ranks. When one of them dies, it
ends the others, as launchers do.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HOST, PORT = "127.0.0.1", 29_400
_UP = 'ip link set lo up 2>/dev/null || ifconfig lo up; exec "$@"'
_LIMIT_SECONDS = 240


def _alone() -> list[str]:
    unshare = shutil.which("unshare")
    for flags in ("-n", "-rn"):
        command = [unshare or "unshare", flags, "sh", "-c", _UP, "sh"]
        if unshare and not subprocess.call([*command, "true"], stderr=subprocess.DEVNULL):
            return command
    pytest.skip("no network namespace: what a framework binds can't be kept to loopback")


def run(program: str, world: int, **told: Any) -> int:
    """Run a job to its end; the exit status of the first rank that failed, or 0."""
    asked = json.dumps({"program": program, "world": world, **told})
    command = [*_alone(), sys.executable, "-m", "tests.ranks.launch", asked]
    log = Path(told["folder"], f"{program}-{world}.log")
    with log.open("wb") as out:
        job = subprocess.Popen(
            command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = job.wait(_LIMIT_SECONDS + 10)
        except BaseException:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            raise
    expected = -signal.SIGKILL if told.get("dies_after") is not None else 0
    assert status == expected % 256, log.read_text()[-3000:]
    return status


def _variables(program: str, rank: int, world: int) -> dict[str, str]:
    framework = program.partition("_")[0]
    if framework == "torch":
        place = {"RANK": str(rank), "WORLD_SIZE": str(world), "GLOO_SOCKET_IFNAME": "lo"}
        return {"KERAS_BACKEND": "torch", "MASTER_ADDR": HOST, "MASTER_PORT": str(PORT), **place}
    if framework == "tensorflow":
        workers = [f"{HOST}:{PORT + number}" for number in range(world)]
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        return {"KERAS_BACKEND": "tensorflow", "TF_CONFIG": json.dumps(config)}
    if framework == "mxnet":
        return {"DMLC_ROLE": "worker", **_dmlc(world)}
    return {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}


def _dmlc(world: int) -> dict[str, str]:
    counts = {"DMLC_NUM_WORKER": str(world), "DMLC_NUM_SERVER": "1"}
    root = {"DMLC_PS_ROOT_URI": HOST, "DMLC_PS_ROOT_PORT": str(PORT)}
    return {**counts, **root, "DMLC_NODE_HOST": HOST, "DMLC_INTERFACE": "lo"}


def _start(program: str, told: dict[str, Any], variables: dict[str, str]) -> subprocess.Popen:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", f"tests.ranks.programs.{program}", json.dumps(told)]
    return subprocess.Popen(command, env={**os.environ, **quiet, **variables})


def _main(asked: dict[str, Any]) -> int:
    program, world = asked.pop("program"), asked["world"]
    told = {"dies_after": None, **asked, "address": f"{HOST}:{PORT}"}
    helpers, ranks = [], []
    try:
        if program.startswith("mxnet"):
            for role in ("scheduler", "server"):
                helpers.append(_start(program, told, {"DMLC_ROLE": role, **_dmlc(world)}))
        for rank in range(world):
            variables = _variables(program, rank, world)
            ranks.append(_start(program, {**told, "rank": rank}, variables))
        until = time.monotonic() + _LIMIT_SECONDS
        while time.monotonic() < until:
            statuses = [rank.poll() for rank in ranks]
            if failed := [status for status in statuses if status]:
                return min(failed)  # Of the one that was killed, if others have noticed.
            if None not in statuses:
                return 0
            time.sleep(0.02)
        return 1
    finally:
        for process in (*ranks, *helpers):
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(_main(json.loads(sys.argv[1])) % 256)
