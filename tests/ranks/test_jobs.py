"""Jobs of several processes on this machine: they train as one, and any number of them goes on.

Each trains a linear regression for one epoch and a step on two processes, is killed, and goes on
with another number of them and the same batch over all. Whoever does that on one process has the
same weights after each step, and each sample has come once per epoch.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.batch.order import Order
from tests.ranks.launch import run
from tests.ranks.programs.training import EPOCHS, RATE, SIZE, data

GLOBAL_BATCH = 12
BATCHES = SIZE // GLOBAL_BATCH
KILLED_AFTER = BATCHES + 1
# The program, what it needs, and on how many processes it goes on.
JOBS = {
    "mxnet_loop": ("mxnet", 3),
    "jax_fit": ("jax", 1),
    "torch_fit": ("torch", 1),
    "tensorflow_loop": ("tensorflow", 1),
}
_QUICK = {"jax_fit"}


def alone() -> list[tuple[list[int], np.ndarray]]:
    """The samples of each step and the weights after it, in NumPy, on one process."""
    (x, y), order = data(), Order(SIZE, GLOBAL_BATCH, True, 7)
    weights, steps = np.zeros((2, 1)), []
    for step in range(EPOCHS * BATCHES):
        numbers = order.batch(*divmod(step, BATCHES))
        error = x[numbers] @ weights - y[numbers]
        weights = weights - RATE * 2 * x[numbers].T @ error / len(numbers)
        steps.append((numbers.tolist(), weights))
    return steps


def told(folder: Path, world: int) -> list[list[dict[str, Any]]]:
    paths = [folder / f"rank-{rank}-of-{world}.jsonl" for rank in range(world)]
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "program",
    [pytest.param(name, marks=() if name in _QUICK else pytest.mark.full) for name in JOBS],
)
def test_a_killed_job_goes_on_with_other_ranks_as_one_process_would(program, tmp_path):
    package, goes_on_with = JOBS[program]
    for needed in (package, *(() if package == "mxnet" else ("keras",))):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} isn't installed")
    steps = []
    for world, dies_after in ((2, KILLED_AFTER), (goes_on_with, None)):
        batch_size = GLOBAL_BATCH // world
        run(program, world, folder=str(tmp_path), batch_size=batch_size, dies_after=dies_after)
        lines = told(tmp_path, world)
        assert [len(each) for each in lines] == [
            dies_after or EPOCHS * BATCHES - KILLED_AFTER
        ] * world
        for turn in zip(*lines):
            # Equal weights and states on all ranks.
            assert all(each["weights"] == turn[0]["weights"] for each in turn)
            assert all(each["state"] == turn[0]["state"] for each in turn)
            steps.append(turn)
    for number, (turn, (numbers, weights)) in enumerate(zip(steps, alone(), strict=True)):
        np.testing.assert_allclose(turn[0]["weights"], weights, rtol=1e-4, atol=1e-5)
        epoch, batch = divmod(number + 1, BATCHES)
        assert turn[0]["state"] == {"epoch": epoch, "samples": batch * GLOBAL_BATCH}
        if turn[0]["samples"] is not None:
            taken = [number for each in turn for number in each["samples"]]
            assert sorted(taken) == sorted(numbers)
