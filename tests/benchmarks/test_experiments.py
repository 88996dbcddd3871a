"""The experiments: their rows, their data, and the devices that they are paced or measured by."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest

from adapters import open_records
from benchmarks.data.caltech_pictures import draw_size, files_in, find_pictures
from benchmarks.experiments import mnist_sweep
from benchmarks.experiments.mnist_sweep import Contestants, claims, cpu_sweep, worker_sweep
from benchmarks.experiments.steps import LENET, SIMULATED
from benchmarks.harness.gpu_utilisation import GpuUtilisation, find_reader, parse_percent
from benchmarks.harness.paced_consumer import Steps, consume
from benchmarks.harness.sweeps import Session
from tests.benchmarks.made_up import made_up_run, open_session

needs_keras = pytest.mark.skipif(
    importlib.util.find_spec("keras") is None, reason="Keras is an extra"
)


@needs_keras
def test_the_training_is_ended_without_asking_the_callback_for_its_model() -> None:
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


@needs_keras
def test_every_accelerator_paces_ours_and_the_naive_loader():
    from benchmarks.experiments.caltech import DEMANDS, NAIVE_KERAS, PACKED
    from benchmarks.test_caltech import rows

    found = {(key, loader) for key, loader, _ in rows(every=True, trained=False)}
    assert found >= {(key, loader) for key in DEMANDS for loader in (NAIVE_KERAS, PACKED)}
    assert {key for key, _, _ in rows(every=False, trained=False)} == {"single", "h100"}
    # A GPU that is there trains at its own pace.
    assert {key for key, _, _ in rows(every=True, trained=True)} == {"single", "mixed"}


@needs_keras
@pytest.mark.parametrize(("key", "rate"), [("h100", 2_791), ("single", None)])
def test_a_published_rate_stands_beside_its_rows_and_names_its_source(key, rate):
    from benchmarks.experiments.caltech import DEMANDS
    from benchmarks.test_caltech import published_rate

    demand = DEMANDS[key]
    speeds = [run.metrics["samples_per_second"] for run in published_rate(demand.paced)]
    assert speeds == ([] if rate is None else [pytest.approx(rate)])
    assert (rate is None) == (demand.source == "")
    if rate is not None:
        assert f"{rate:,}" in demand.source


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
def test_the_real_folder_is_found_under_data_dir(tmp_path: Path, inside: str) -> None:
    folder = write_real(tmp_path / "data" / inside)
    pictures = find_pictures(tmp_path / "data")
    assert pictures.folder.samefile(folder)
    assert pictures.name == "Caltech-256 under --data-dir"


def test_the_real_folder_is_found_in_kerass_cache(tmp_path: Path) -> None:
    folder = write_real(tmp_path / "keras" / "datasets" / "256_ObjectCategories")
    pictures = find_pictures()
    assert (pictures.folder, pictures.name) == (folder, "Caltech-256")


def test_classes_are_numbered_by_name(tmp_path: Path) -> None:
    files = files_in(write_real(tmp_path / "256_ObjectCategories"))
    assert [(Path(path).name, label) for path, label in files] == [
        ("001_0001.jpg", 0),
        ("001_0002.jpg", 0),
        ("002_0001.jpg", 1),
        ("002_0002.jpg", 1),
        ("003_0001.jpg", 2),
        ("003_0002.jpg", 2),
    ]


def test_packed_pictures_are_the_same_but_smaller(tmp_path: Path) -> None:
    write_real(tmp_path / "256_ObjectCategories")
    with open_records(find_pictures(tmp_path).packed, decode="image") as packed:
        samples = [packed[number] for number in range(len(packed))]
    assert [label for _, label in samples] == [0, 0, 1, 1, 2, 2]
    assert {min(image.shape[:2]) for image, _ in samples} == {256}
    assert [round(float(image.mean())) for image, _ in samples] == [0, 0, 60, 60, 120, 120]


def test_another_folder_is_packed_anew(tmp_path: Path) -> None:
    write_real(tmp_path / "one")
    write_real(tmp_path / "two")
    assert find_pictures(tmp_path / "one").packed != find_pictures(tmp_path / "two").packed


def test_sizes_are_spread_as_the_model_says() -> None:
    rng = np.random.default_rng(0)
    widths, heights = np.transpose([draw_size(rng) for _ in range(20_000)])
    assert np.median(widths) == pytest.approx(370, rel=0.03)
    assert np.median(heights) == pytest.approx(325, rel=0.03)
    assert np.mean(widths > 700) == pytest.approx(0.1, abs=0.02)
    assert min(widths.min(), heights.min()) >= 100


PLAIN = Contestants(
    framework="Plain",
    program="tests.benchmarks.learning",
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


def test_rows_that_had_all_cores_are_not_run_again(session: Session) -> None:
    assert cpu_sweep(session, PLAIN) == []
    assert [
        (run.framework, run.loader, run.workers, run.metrics["samples_per_second"])
        for run in session.experiments["mnist-cpus"].runs
    ] == [("Plain", "ours auto", 1, 10), ("Plain on JAX", "theirs", 1, 20)]


@pytest.mark.parametrize("least_repeats", [1, 2])
def test_rows_that_are_asked_for_run(session: Session, least_repeats: int) -> None:
    session.rows, session.least_repeats = "Plain ours auto workers 1", least_repeats
    run, *others = cpu_sweep(session, PLAIN)
    assert len(others) == least_repeats - 1
    assert (run.failure, run.name) == (None, "Plain ours auto, workers 1")
    assert session.experiments["mnist-cpus"].runs == [run, *others]


def test_a_comparison_runs_all_rows(session: Session) -> None:
    """As those that look slower run again."""
    session.least_repeats = 2
    assert [run.loader for run in cpu_sweep(session, PLAIN)] == ["ours auto", "theirs"] * 2


def test_each_repeat_of_a_row_has_another_seed(session: Session) -> None:
    session.rows, session.repeats = "Plain ours auto workers 1", 3
    cpu_sweep(session, PLAIN)
    experiment = session.experiments["mnist-cpus"]
    assert [run.seed for run in experiment.runs] == [1, 2, 3]
    (row,) = experiment.rows()
    assert row.over_seeds["accuracy"].seeds == 3


def test_a_row_that_looks_slower_runs_again_with_new_seeds(session: Session) -> None:
    session.rows, session.repeats = "Plain ours auto workers 1", 2
    session.suspects = lambda experiment: {("Plain", "ours auto", 1)}
    assert [run.seed for run in cpu_sweep(session, PLAIN)] == [1, 2, 3, 4]


def test_the_default_has_few_rows_and_long_has_all(session: Session) -> None:
    assert PLAIN.rows(session, LENET) == (("ours", "auto"), ("theirs", 0))
    session.long = True
    assert len(PLAIN.rows(session, LENET)) == 1 + 2 * 3
    session.size = "full"
    assert len(PLAIN.rows(session, LENET)) == 1 + 2 * 5
    session.size = "smoke"
    assert PLAIN.rows(session, SIMULATED) == (("ours", 0),)


def test_another_step_has_a_name_of_its_own(session: Session) -> None:
    _, (run,) = worker_sweep(session, PLAIN, SIMULATED, "")
    assert run.framework == "Plain, simulated device"


def test_rows_are_held_against_those_of_their_kind(session: Session) -> None:
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
def test_a_gpu_that_mxnet_cannot_compute_on_is_not_trained_on(
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
def test_a_loader_that_keeps_up_starves_nobody(fetch: float) -> None:
    steps = steps_of(*[fetch] * 8)
    assert steps.waits_seconds == [0.0] * 8
    assert (steps.utilisation, steps.on_time_share) == (1.0, 1.0)
    assert steps.total_seconds == 8 * STEP


def test_a_loader_half_as_fast_leaves_it_idle_half_of_the_time() -> None:
    steps = steps_of(*[2 * STEP] * 8)
    assert steps.waits_seconds == [STEP] * 8
    assert (steps.utilisation, steps.on_time_share) == (0.5, 0.0)


def test_one_late_batch_is_not_made_up_for() -> None:
    steps = steps_of(0, 0, 4 * STEP, 0, 0, 0)
    assert steps.waits_seconds == [0, 0, 3 * STEP, 0, 0, 0]
    assert steps.on_time_share == 5 / 6
    # Six steps from the end of the one before the first, and the wait.
    assert [start - 100 for start in steps.starts] == [0.5, 1.0, 3.0, 3.5, 4.0, 4.5]
    assert steps.total_seconds == 4.5


def test_as_many_batches_as_asked_for() -> None:
    assert len(steps_of(*[0.0] * 8, batches=3).starts) == 3


def test_no_fetch_after_the_time_is_up() -> None:
    """The fetches begin 0, 1 and 2 seconds after the call; the third ends at 3."""
    assert len(steps_of(*[2 * STEP] * 8, limit=2.5).starts) == 3


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="at least one, got none"):
        steps_of()
    with pytest.raises(ValueError, match="most_batches must be >= 1, got 0"):
        steps_of(0.0, batches=0)
    with pytest.raises(ValueError, match="step_seconds must be > 0, got 0"):
        consume(iter([1]), 0, most_batches=1, most_seconds=1)


# --- the utilisation of a GPU ---


@pytest.mark.parametrize(
    ("output", "percent"),
    [
        ("0\n", 0.0),
        (" 100 \n", 100.0),
        ("[N/A]\n", None),
        ("", None),
        ("No devices were found\n", None),
    ],
)
def test_what_nvidia_smi_writes_of_a_gpu(output: str, percent: float | None) -> None:
    assert parse_percent(output) == percent


def test_the_share_is_the_mean_of_the_samples() -> None:
    enough, percents = threading.Event(), iter([50.0, None, 100.0])

    def read() -> float | None:
        percent = next(percents, None)
        if percent == 100:
            enough.set()
        return percent

    with GpuUtilisation(read) as gpu:
        assert enough.wait(20)
    assert (gpu.samples, gpu.share) == ([50.0, 100.0], 0.75)


def test_no_share_without_samples() -> None:
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


def test_the_first_visible_gpu_is_asked(nvml: Any) -> None:
    assert find_reader()() == 51


@pytest.mark.parametrize(
    "broken", ["nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUtilizationRates"]
)
def test_pynvml_that_cannot_tell_ends_nothing(nvml: Any, broken: str) -> None:
    """There is no driver's library, or no such GPU, or it is a part of one."""
    setattr(nvml, broken, fail)
    assert find_reader()() is None


def test_nvidia_smi_is_asked_where_pynvml_finds_no_driver(nvml: Any, tmp_path: Path) -> None:
    nvml.nvmlInit = fail
    program = tmp_path / "nvidia-smi"
    program.write_text('#!/bin/sh\n[ "$1" = --id=1 ] && echo 42\n')
    program.chmod(0o755)
    assert find_reader()() == 42
