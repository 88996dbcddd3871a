"""``adapters doctor`` of scripts with loops over Gluon's loaders."""

from __future__ import annotations

import pytest

from tests.cli.scripts import doctored, found_in, told_in

LOOP = """
import sys
import time
from adapters.gluon import gluon_loader, import_mxnet

mx = import_mxnet()
import numpy as np
from mxnet.gluon.data import ArrayDataset, DataLoader

data = ArrayDataset(np.zeros((64, 3), "float32"), np.arange(64))

class Slow(ArrayDataset):
    def __getitem__(self, number):
        time.sleep(0.004)
        return super().__getitem__(number)

slow = Slow(np.zeros((64, 3), "float32"), np.arange(64))

def train(loader, seconds):
    for epoch in range(1000):
        for x, y in loader:
            time.sleep(seconds)
            (2 * x).wait_to_read()
"""


@pytest.mark.full
def test_mxnets_loader_on_slow_storage_is_found(tmp_path):
    text = LOOP + "train(DataLoader(slow, 8, shuffle=True), 0)\nprint('went on')"
    process = doctored(tmp_path, text)
    assert found_in(process) == "storage: fetching the samples"
    assert "gluon_loader in the place of DataLoader" in process.stdout
    assert "went on" not in process.stdout


@pytest.mark.full
def test_our_loader_on_slow_storage_is_found(tmp_path):
    process = doctored(tmp_path, LOOP + "train(gluon_loader(slow, 8, thread_pool=True), 0)")
    assert found_in(process) == "storage: fetching the samples"


@pytest.mark.full
def test_a_slow_body_of_a_loop_is_found(tmp_path):
    text = LOOP + "if __name__ == '__main__':\n    train(DataLoader(data, 8), 0.05)"
    assert found_in(doctored(tmp_path, text)) == "the step itself"


@pytest.mark.full
def test_a_script_that_asks_for_mxnet_late_is_examined(tmp_path):
    """Its import is noticed wherever it comes from."""
    text = "from adapters import gluon_loader\n" + LOOP + "train(DataLoader(data, 8), 0.05)"
    assert found_in(doctored(tmp_path, text)) == "the step itself"


@pytest.mark.full
def test_loops_are_skipped(tmp_path):
    text = LOOP + "for _ in DataLoader(slow, 8):\n    pass\ntrain(DataLoader(data, 8), 0.05)"
    process = doctored(tmp_path, text, options=["--skip", 1])
    assert found_in(process) == "the step itself"


@pytest.mark.full
def test_mxnets_computation_that_goes_on_is_the_loops(tmp_path):
    """The body returns at once, and its operations take their time."""
    text = (
        LOOP
        + "square = mx.nd.ones((350, 350))\n"
        + "for epoch in range(1000):\n    for x, y in DataLoader(data, 8):\n"
        + "        square = mx.nd.dot(square, square) / 350\n"
    )
    assert told_in(doctored(tmp_path, text)) in ("the step itself", None)
