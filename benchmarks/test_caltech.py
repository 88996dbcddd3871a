"""Caltech-256 with ResNet-50: originals decoded on the way against pictures packed beforehand."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path

from adapters.machine import gpu_names
from benchmarks.data.caltech_pictures import files_in, find_pictures
from benchmarks.experiments.caltech import (
    DEMANDS,
    EPOCH,
    NAIVE,
    NAIVE_KERAS,
    PACKED,
    TRAINED,
)
from benchmarks.harness import page_cache
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.results import Column, Run
from benchmarks.harness.sweeps import RowSpec, Session, our_failures

COLUMNS = (
    Column("samples_per_second", "samples/s", ",.0f"),
    Column("epoch_seconds", "epoch s", ",.0f"),
    Column("waited_share", "starved", ".1%"),
    Column("utilisation", "utilisation", ".1%"),
    Column("wait_p99_ms", "wait p99 ms", ",.1f"),
    Column("on_time_share", "within t", ".1%"),
    Column("peak_pss_mib", "peak PSS MiB", ",.0f"),
    Column("cpu_percent", "CPU %", ".0f"),
)
PANELS = (
    ("samples_per_second", "images/s"),
    ("waited_share", "starved, % of time"),
    ("utilisation", "utilisation, %"),
)
NOTES = (
    "naive: the original decoded and resized when it is asked for; packed: resized to 256 pixels "
    "beforehand; one worker of PyDataset is the training loop's own thread",
    f"epoch s: {EPOCH:,} images at that speed",
    "published: V100, as printed about 100 images/s with 1 worker and about 300 with 7; its epochs "
    f"of 260 s and 96 s make 118 and 319 of {EPOCH:,} images; utilisation with 1 worker: at most",
)
PACED_NOTE = (
    "starved, utilisation, wait: of the accelerator that the consumer stands for; within t: "
    "batches that were there before the step before them had ended, to be 99% or more"
)
TRAINED_NOTE = (
    "starved, wait: the training loop stood in the fetch of the next batch, while the GPU may "
    "still have been computing; utilisation: the share of time in which it ran a kernel, by NVML"
)
UNUSED_NOTE = "{} not used: {} trains on the CPU here"
# Workers: seconds of an epoch, and the GPU's utilisation.
PUBLISHED = {1: (260, 0.50), 7: (96, 0.95)}


@dataclass(frozen=True)
class Size:
    """How long a row is.

    Args:
        images: The most that are counted.
        seconds: No batch is asked for later than this.
        repeats: How many times each row runs.
        limit_seconds: From a row's start to its result.
    """

    images: int
    seconds: float
    repeats: int
    limit_seconds: float


SIZES = {
    "smoke": Size(192, 10, 1, 180),
    "default": Size(EPOCH, 3, 1, 180),
    "full": Size(EPOCH, 600, 3, 900),
}
# On a GPU: its first step is compiled for up to a minute.
GPU_SECONDS, GPU_LIMIT_SECONDS = 10, 300


def test_caltech(session: Session) -> None:
    """Every row of this package's loaders ends well."""
    size = SIZES[session.size]
    with session.uncaptured():
        pictures = find_pictures(session.data_dir)
    page_cache.fill(Path(path) for path, _ in files_in(pictures.folder))
    page_cache.fill(map(Path, glob.glob(pictures.packed)))
    backend = session.backends.chosen[0]
    trained = backend.on_gpu
    seconds = max(size.seconds, GPU_SECONDS) if trained else size.seconds
    experiment = session.experiment(
        "caltech",
        "Caltech-256 for ResNet-50: images of 224x224",
        "Decode originals or pack them once, for how fast an accelerator?",
    )
    experiment.columns, experiment.panels = COLUMNS, PANELS
    told = TRAINED_NOTE if trained else PACED_NOTE
    experiment.notes += [f"pictures, in the page cache: {pictures.name}", *NOTES, told]
    if not trained:
        experiment.note(*(f"pace: {each.source}" for each in DEMANDS.values() if each.source))
    if gpu_names() and not trained:
        experiment.note(UNUSED_NOTE.format(" and ".join(gpu_names()), backend.title))
        experiment.note(*session.backends.notes())
    specs = [
        RowSpec(
            framework=DEMANDS[key].trained if trained else DEMANDS[key].paced,
            loader=loader,
            workers=workers,
            ours=loader != NAIVE_KERAS,
            program="benchmarks.experiments.caltech",
            options={
                "demand": key,
                "folder": str(pictures.folder),
                "packed": pictures.packed,
                "batches": -(-size.images // DEMANDS[key].batch_size),
                "seconds": seconds,
                "trained": trained,
            },
            limit_seconds=max(size.limit_seconds, GPU_LIMIT_SECONDS * trained),
            trains_keras=trained,
        )
        for key, loader, workers in rows(session.all_rows and session.size != "smoke", trained)
    ]
    runs = session.sweep(experiment, specs, size.repeats)
    assert our_failures(runs) == []
    for framework in dict.fromkeys(run.framework for run in runs):
        if framework.startswith(specs[0].framework):  # Behind it may be a backend's name.
            experiment.runs += published(framework)
        experiment.runs += published_rate(framework)


def rows(every: bool, trained: bool) -> list[tuple[str, str, int | str]]:
    """Keys of demands, loaders and workers, which are 1 and one less than there are cores, or 2.

    Without a GPU, the default has the article's accelerator, which one worker keeps busy, and one
    that asks for nine times as much.

    Args:
        every: Whether rows run that the default leaves out.
        trained: Whether on a GPU.
    """
    many = max(2, usable_cpus() - 1)
    fast = "mixed" if trained else "h100"
    if not every:
        slow = [] if trained else [("single", NAIVE_KERAS, 1), ("single", PACKED, 1)]
        return [*slow, (fast, NAIVE_KERAS, many), (fast, NAIVE, "auto"), (fast, PACKED, "auto")]
    found: list[tuple[str, str, int | str]] = []
    for key in TRAINED if trained else DEMANDS:
        for loader in (NAIVE_KERAS, NAIVE, PACKED):
            found += [
                (key, loader, workers) for workers in ((1, many) if key in TRAINED else (many,))
            ]
        found += [(key, loader, "auto") for loader in (NAIVE, PACKED)]
    return found


def published_rate(framework: str) -> list[Run]:
    """What an accelerator was published to train at, beside those that are paced like it."""
    rates = {each.paced: each for each in DEMANDS.values() if each.source}
    if framework not in rates:
        return []
    speed = rates[framework].batch_size / rates[framework].step_seconds
    metrics = {"samples_per_second": speed, "epoch_seconds": EPOCH / speed, "utilisation": 1.0}
    loader = f"published, {framework.partition(' at ')[0]}"
    return [Run(framework, loader, "", False, metrics, "", "", None, "")]


def published(framework: str) -> list[Run]:
    """The published figures, beside ours."""
    return [
        Run(
            framework=framework,
            loader="published, V100",
            workers=workers,
            ours=False,
            metrics={
                "samples_per_second": EPOCH / seconds,
                "epoch_seconds": seconds,
                "utilisation": utilisation,
            },
            software="",
            device="",
            failure=None,
            log="",
        )
        for workers, (seconds, utilisation) in PUBLISHED.items()
    ]
