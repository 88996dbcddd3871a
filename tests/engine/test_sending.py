"""What can be sent to worker processes, and what they then import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from adapters.sources import SequenceSource
from tests.engine.executors import end_idle_workers, opened, read, workers
from tests.engine.workloads import Numbers

PROCESSES = "processes-2"


def test_lambdas_and_closures_can_be_sent():
    def scaled_by(factor: int) -> Any:
        class Scale:
            def __call__(self, sample: int) -> int:
                return sample * factor

        return Scale()

    arguments = {"transform": scaled_by(3), "batch_transform": lambda batch: batch + 1}
    with opened(Numbers(8), PROCESSES, **arguments) as engine:
        assert np.concatenate(read(engine, 2)).tolist() == [1, 4, 7, 10, 13, 16, 19, 22]


SCRIPT = """
import numpy as np
from adapters.batch.sourceplan import SourcePlan
from adapters.engine import Engine, Settings
from adapters.batch.order import Order
from adapters.sources import as_source

print("main")

class Data:
    def __len__(self):
        return 6

    def __getitem__(self, number):
        return Sample(number)

class Sample:
    def __init__(self, number):
        self.number = number

class Refused(Exception):
    def __init__(self, number, *, why):
        super().__init__(f"{number}: {why}")
        self.why = why

OFFSET = 10

def transform(sample):
    if sample.number == 4:
        raise Refused(sample.number, why="four")
    return sample.number + OFFSET

engine = Engine(SourcePlan(as_source(Data()), Order(6, 2), transform), Settings(2, True, 4))
stream = engine.stream(0, 0, False)
print(stream.next(), stream.next())
try:
    stream.next()
except Refused as error:
    print(error, error.why)
engine.close()
"""


def test_a_script_without_an_if_main_guard_works_with_classes_of_its_own(tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    finished = subprocess.run(
        [sys.executable, "-W", "error", "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (finished.stdout, finished.stderr) == ("main\n[10 11] [12 13]\n4: four four\n", "")


def test_workers_import_no_framework():
    """Not even those that the trainer has."""
    pytest.importorskip("jax", reason="JAX is one of the optional frameworks")

    def imported(sample: int) -> str:
        return " ".join(sys.modules)

    end_idle_workers()  # One that was kept may have imported some for somebody before.
    with opened(Numbers(8), PROCESSES, transform=imported) as engine:
        modules = set(read(engine, 1)[0].flat[0].split())
    assert "numpy" in modules
    assert modules & {"tensorflow", "keras", "mxnet", "torch", "jax"} == set()


def test_a_sequence_of_batches_can_be_sent_with_its_lock():
    source = SequenceSource([np.full(2, i) for i in range(4)], changes_between_epochs=False)
    with opened(source, PROCESSES, 1) as engine:
        assert np.concatenate(read(engine, 4)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_what_cannot_be_sent_runs_inline_and_the_log_says_so(caplog):
    generator = (number for number in range(3))
    transform = lambda sample: (generator, sample)[1]  # noqa: E731
    with opened(Numbers(), PROCESSES, transform=transform) as engine:
        assert read(engine, 1)[0].tolist() == [0, 1, 2, 3]
        assert workers() == []
    assert "cannot pickle 'generator'" in caplog.text
    assert "on first use" in caplog.text
