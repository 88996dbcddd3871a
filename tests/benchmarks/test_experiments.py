"""The experiments: rows, data, the devices that they are paced by, and who imports whom."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

import benchmarks
from adapters import open_records
from benchmarks.data.caltech_pictures import files_in, find_pictures
from benchmarks.experiments import mnist_sweep
from benchmarks.experiments.mnist_sweep import Contestants, claims, cpu_sweep
from benchmarks.experiments.steps import LENET, SIMULATED
from benchmarks.harness.gpu_utilisation import GpuUtilisation, find_reader, parse_percent
from benchmarks.harness.paced_consumer import Steps, consume
from benchmarks.harness.sweeps import Session
from tests.benchmarks.made_up import made_up_run, open_session
from tests.test_package import imported

needs_keras = pytest.mark.skipif(
    importlib.util.find_spec("keras") is None, reason="Keras is an extra"
)


@needs_keras
def test_caltech_training_ends_by_its_watch() -> None:
    """Keras calls it in a thread, where `Callback.model` breaks the step that JAX computes."""
    from benchmarks.experiments.caltech import watch_of

    model = SimpleNamespace(stop_training=False)
    watch = watch_of(model, 3_600, GpuUtilisation(lambda: None))
    watch.on_train_begin()
    watch.on_train_batch_end(0)
    assert not model.stop_training
    watch = watch_of(model, -1, GpuUtilisation(lambda: None))
    watch.on_train_begin()
    watch.on_train_batch_end(0)
    assert model.stop_training


CLASSES = ("001.ak47", "002.american-flag", "257.clutter")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


def write_real(folder: Path) -> Path:
    """Two pictures of each of three classes, and what else lies in the real archive."""
    for label, name in enumerate(CLASSES):
        (folder / name / "greg").mkdir(parents=True)
        for number in (1, 2):
            picture = np.full((300 + 10 * number, 400, 3), 60 * label, np.uint8)
            cv2.imwrite(str(folder / name / f"{label + 1:03}_{number:04}.jpg"), picture)
    (folder / CLASSES[2] / "RENAME2").write_text("no picture")
    return folder


@pytest.mark.parametrize("inside", [".", "256_ObjectCategories", "caltech256/256_ObjectCategories"])
def test_caltech_folder_is_found(tmp_path: Path, inside: str) -> None:
    folder = write_real(tmp_path / "data" / inside)
    pictures = find_pictures(tmp_path / "data")
    assert pictures.folder.samefile(folder)
    assert pictures.name == "Caltech-256 under --data-dir"
    files = [(Path(path).name, label) for path, label in files_in(folder)]
    names = ("001_0001.jpg", "001_0002.jpg", "002_0001.jpg", "002_0002.jpg")
    assert files == list(zip((*names, "003_0001.jpg", "003_0002.jpg"), (0, 0, 1, 1, 2, 2)))


def test_caltech_packed_pictures_are_smaller(tmp_path: Path) -> None:
    write_real(tmp_path / "256_ObjectCategories")
    with open_records(find_pictures(tmp_path).packed, decode="image") as packed:
        samples = [packed[number] for number in range(len(packed))]
    assert [label for _, label in samples] == [0, 0, 1, 1, 2, 2]
    assert {min(image.shape[:2]) for image, _ in samples} == {256}
    assert [round(float(image.mean())) for image, _ in samples] == [0, 0, 60, 60, 120, 120]


PLAIN = Contestants(
    framework="Plain",
    program="none",
    ours=("ours",),
    others=("theirs",),
    auto=("ours",),
    few={LENET: (("ours", "auto"), ("theirs", 0)), SIMULATED: (("ours", 0),)},
    best="theirs",
)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    """After a worker sweep on one core, with made-up digits."""
    digits = SimpleNamespace(name="none", path=tmp_path / "none")
    monkeypatch.setattr(mnist_sweep, "find_digits", lambda folder: digits)
    monkeypatch.setattr(mnist_sweep, "usable_cpus", lambda: 1)
    session = open_session(tmp_path)
    session.experiment("mnist", "MNIST").runs += [
        made_up_run("ours", "auto", framework="Plain", accuracy=1, samples_per_second=10),
        made_up_run("theirs", 1, framework="Plain on JAX", accuracy=1, samples_per_second=20),
        made_up_run("theirs", 2, framework="Plain", accuracy=1, samples_per_second=30),
        made_up_run("theirs", 1, framework="Other", accuracy=1, samples_per_second=40),
    ]
    return session


def test_mnist_rows_of_all_cores_are_not_run_again(session: Session) -> None:
    assert cpu_sweep(session, PLAIN) == []
    assert [
        (run.framework, run.loader, run.workers, run.metrics["samples_per_second"])
        for run in session.experiments["mnist-cpus"].runs
    ] == [("Plain", "ours auto", 1, 10), ("Plain on JAX", "theirs", 1, 20)]


def test_mnist_rows_are_held_against_their_kind(session: Session) -> None:
    experiment = session.experiments["mnist"]
    speeds = {
        ("SafeSequence vectorised", "auto"): 90,
        ("SafeSequence vectorised", 2): 100,
        ("PyDataset vectorised", 2): 50,
        ("PyDataset threads", 0): 60,
    }
    experiment.runs = [
        made_up_run(loader, workers, samples_per_second=speed)
        for (loader, workers), speed in speeds.items()
    ]
    claims(session, experiment, "Keras")
    found = {name: (each.here, each.met) for name, each in experiment.verdicts.items()}
    assert found == {
        "mnist: to PyDataset of that kind, Keras, SafeSequence vectorised, 2": (2, True),
        "mnist: auto to the best row of its work, Keras, vectorised": (0.9, False),
        "mnist: vectorised auto to PyDataset's best row, Keras": (1.5, True),
    }


needs_mxnet = pytest.mark.skipif(
    importlib.util.find_spec("mxnet") is None, reason="MXNet has no wheels for this Python"
)


@needs_mxnet
def test_mnist_is_not_trained_on_a_gpu_that_mxnet_cannot_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As one that is newer than the wheel; a wheel for CPUs refuses in the same way."""
    from benchmarks.experiments.mnist_gluon import find_context, mx

    if mx.context.num_gpus():
        pytest.skip("MXNet may well compute on the GPU that is here")
    monkeypatch.setattr(mx.context, "num_gpus", lambda: 1)
    assert find_context() == mx.cpu(0)


# --- the paced consumer ---


STEP = 0.5  # seconds; a power of two, so that sums are exact


class FakeTime:
    """A clock that only a fetch or a sleep moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds

    def fetches(self, *seconds: float) -> Iterator[int]:
        """Batches, each of which takes so long from when it is asked for."""
        for number, each in enumerate(seconds):
            self.now += each
            yield number


def steps_of(*seconds: float, batches: int = 1_000, limit: float = 1_000) -> Steps:
    fake = FakeTime()
    return consume(
        fake.fetches(*seconds),
        STEP,
        most_batches=batches,
        most_seconds=limit,
        clock=fake,
        sleep=fake.sleep,
    )


@pytest.mark.parametrize("fetch", [0.0, STEP / 2, STEP])
def test_consumer_of_a_loader_that_keeps_up(fetch: float) -> None:
    steps = steps_of(*[fetch] * 8)
    assert steps.waits_seconds == [0.0] * 8
    assert (steps.utilisation, steps.on_time_share) == (1.0, 1.0)
    assert steps.total_seconds == 8 * STEP


def test_consumer_of_one_half_as_fast() -> None:
    steps = steps_of(*[2 * STEP] * 8)
    assert steps.waits_seconds == [STEP] * 8
    assert (steps.utilisation, steps.on_time_share) == (0.5, 0.0)


def test_consumer_makes_up_for_nothing() -> None:
    steps = steps_of(0, 0, 4 * STEP, 0, 0, 0)
    assert steps.waits_seconds == [0, 0, 3 * STEP, 0, 0, 0]
    assert steps.on_time_share == 5 / 6
    # Six steps from the end of the one before the first, and the wait.
    assert [start - 100 for start in steps.starts] == [0.5, 1.0, 3.0, 3.5, 4.0, 4.5]
    assert steps.total_seconds == 4.5


def test_consumer_ends() -> None:
    """The fetches begin 0, 1 and 2 seconds after the call; the third ends at 3."""
    assert len(steps_of(*[0.0] * 8, batches=3).starts) == 3
    assert len(steps_of(*[2 * STEP] * 8, limit=2.5).starts) == 3


# --- the utilisation of a GPU ---


@pytest.mark.parametrize(
    ("output", "percent"),
    [(" 100 \n", 100.0), ("[N/A]\n", None), ("", None), ("No devices were found\n", None)],
)
def test_gpu_by_nvidia_smi(output: str, percent: float | None) -> None:
    assert parse_percent(output) == percent


def test_gpu_share_is_the_mean() -> None:
    enough, percents = threading.Event(), iter([50.0, None, 100.0])

    def read() -> float | None:
        percent = next(percents, None)
        if percent == 100:
            enough.set()
        return percent

    with GpuUtilisation(read) as gpu:
        assert enough.wait(20)
    assert (gpu.samples, gpu.share) == ([50.0, 100.0], 0.75)
    with GpuUtilisation(lambda: None) as gpu:
        pass
    assert gpu.share is None


class NVMLError(Exception):
    pass


def fail(*arguments: object) -> Any:
    raise NVMLError


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """pynvml of a GPU that is half busy, and no nvidia-smi."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    made: Any = ModuleType("pynvml")
    made.NVMLError = NVMLError
    made.nvmlInit = lambda: None
    made.nvmlDeviceGetHandleByIndex = lambda index: index
    made.nvmlDeviceGetUtilizationRates = lambda handle: type("Rates", (), {"gpu": 50 + handle})
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def test_gpu_is_the_first_visible(nvml: Any) -> None:
    assert find_reader()() == 51


@pytest.mark.parametrize(
    "broken", ["nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUtilizationRates"]
)
def test_gpu_that_pynvml_cannot_tell_of(nvml: Any, broken: str) -> None:
    """There is no driver's library, or no such GPU, or it is a part of one."""
    setattr(nvml, broken, fail)
    assert find_reader()() is None


def test_gpu_without_pynvml(nvml: Any, tmp_path: Path) -> None:
    nvml.nvmlInit = fail
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\n[ "$1" = --id=1 ] && echo 42\n')
    program.chmod(0o755)
    assert find_reader()() == 42


PACKAGE = Path(benchmarks.__file__).parent
# Without those of results, which anything may lie in.
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "results" not in path.parts)
# Which rooms a room may look into, besides itself. What lies in none of them, the tests and their
# conftest, may look into all; and so may the lab, which none of them may look into.
ALLOWED = {
    "harness": set(),
    "data": set(),
    "peers": {"data", "harness"},
    "experiments": {"data", "harness", "peers"},
}
MODULE = re.compile(r"benchmarks(\.\w+)+")


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


def wrong_imports(room: str, source: str) -> list[str]:
    """What a file of this room imports and should not."""
    names = [name.split(".") for name in imported(ast.parse(source))]
    allowed = ALLOWED[room] | {room}
    ours = [name for name in names if name[0] in ("benchmarks", "tests")]
    return [".".join(name) for name in ours if name[0] == "tests" or name[1] not in allowed]


def missing_modules(source: str) -> list[str]:
    """Modules that strings name, as those of programs do, and that aren't there."""
    strings = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [
        text
        for text in strings
        if MODULE.fullmatch(text)
        and not PACKAGE.parent.joinpath(*text.split(".")).with_suffix(".py").is_file()
    ]


@pytest.mark.parametrize("path", [path for path in FILES if room_of(path) in ALLOWED], ids=name_of)
def test_imports(path):
    assert wrong_imports(room_of(path), path.read_text()) == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_modules_that_strings_name_are_there(path):
    assert missing_modules(path.read_text()) == []
