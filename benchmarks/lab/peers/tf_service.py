"""tf.data service: TensorFlow's own batches from other processes, over loopback.

Its servers listen on every interface. So the dispatcher, the workers and the reader run in a
network namespace that has no other than loopback.

    python -m benchmarks.lab.peers.tf_service 60        prints GB/s
    python -m benchmarks.lab.peers.tf_service worker PORT
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

DISPATCHER_PORT, WORKER_PORTS = 8991, (8992, 8993)
SHAPE = (64, 224, 224, 3)
SKIPPED = 8
_LIMIT_SECONDS = 90
_ALONE = 'ip link set lo up; exec "$@"'


def gigabytes_per_second(batches: int) -> float:
    """Of so many batches, uint8 `SHAPE`, by two workers.

    Raises:
        subprocess.CalledProcessError: This machine allows no network namespaces.
    """
    flags = "-n" if os.getuid() == 0 else "-rn"
    alone = ["unshare", flags, "bash", "-c", _ALONE, "bash"]
    command = [*alone, sys.executable, "-m", __name__, str(batches)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    told = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=True,
    ).stdout
    return float(told.splitlines()[-1])


def _read(batches: int) -> float:
    import tensorflow as tf

    service: Any = tf.data.experimental.service
    dispatcher = service.DispatchServer(service.DispatcherConfig(port=DISPATCHER_PORT))
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.lab.peers.tf_service", "worker", str(port)]
        )
        for port in WORKER_PORTS
    ]
    try:
        numbers = tf.data.Dataset.range(1_000_000)
        data = numbers.map(lambda number: tf.fill(SHAPE, tf.cast(number % 256, tf.uint8)))
        where = f"grpc://{dispatcher.target.removeprefix('grpc://')}"
        data = data.apply(service.distribute("distributed_epoch", where))
        read = iter(data)
        for _ in range(SKIPPED):
            next(read)
        started, total = time.perf_counter(), 0
        for _ in range(batches):
            total += next(read).numpy().nbytes
        return total / (time.perf_counter() - started) / 1e9
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _serve(port: int) -> None:
    import tensorflow as tf

    service: Any = tf.data.experimental.service
    config = service.WorkerConfig(
        dispatcher_address=f"localhost:{DISPATCHER_PORT}",
        worker_address=f"localhost:{port}",
        port=port,
    )
    service.WorkerServer(config).join()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        _serve(int(sys.argv[2]))
    else:
        print(_read(int(sys.argv[1])), flush=True)
        os._exit(0)  # The service would hold the process up.
