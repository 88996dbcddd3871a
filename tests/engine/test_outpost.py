"""What serves batches on a worker of a cluster, with the trainer's end of its socket in here."""

from __future__ import annotations

import os
import subprocess
import sys

# As Dask starts its workers: what is freed goes back to the system, which zeroes it the next time.
DASK = {"MALLOC_TRIM_THRESHOLD_": "65536"}
SCRIPT = """
import pickle, resource, socket
import numpy as np
from adapters.batch.key import BatchKey
from adapters.engine import frames
from adapters.engine.outpost import Outpost
from adapters.engine.shipment import Shipment
from tests.plans import batch_of, plan_of

images = np.arange(64 * 200 * 1000, dtype=np.uint32).view(np.uint8).reshape(64, -1)
plan = plan_of(images, 8)
here, there = socket.socketpair()
post = Outpost(Shipment.of(plan), 1)
post.start(there)
memory = np.empty(images.nbytes // 8, np.uint8)

def asked(index):
    post.ask(index, 1, pickle.dumps([BatchKey(0, index)]))
    number, (made,) = frames.receive(here, lambda shape, dtype: memory, bool)
    assert number == index
    return made

for index in range(8):
    batch = asked(index).opened(None).batch
    np.testing.assert_array_equal(batch, batch_of(plan, 0, index))
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for index in range(8):
    asked(index)
pages = 8 * memory.nbytes / resource.getpagesize()
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / pages)
post.end()
"""


def test_its_memory_is_used_again():
    command = [sys.executable, "-c", SCRIPT]
    told = subprocess.run(command, env={**os.environ, **DASK}, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert float(told.stdout) < 0.1
