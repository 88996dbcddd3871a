"""Our loaders and those of others, on the same pictures: `pytest benchmarks --peers`."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from benchmarks.data.photographs import SMALL, find_packed, find_photographs
from benchmarks.experiments.correctness import check, faults, references
from benchmarks.experiments.mnist_sweep import cpu_counts
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.ratios import BATCH
from benchmarks.harness.results import Column, Experiment
from benchmarks.harness.sweeps import RowSpec, Session, our_failures
from benchmarks.lab.experiments.every_loader import LOADERS, WORKS
from benchmarks.peers.pictures import EVAL, SIDE, TRAIN

RAW = ("raw",)

COLUMNS = (
    Column("samples_per_second", "samples/s", ",.0f"),
    Column("per_core", "per core", ",.0f"),
    Column("per_cpu_second", "per CPU s", ",.0f"),
    Column("pixels_off", "pixels off", ".2f"),
    Column("worst_off", "worst", ".2f"),
    Column("lost", "lost", ",.0f"),
    Column("repeated", "repeated", ",.0f"),
    Column("peak_pss_mib", "peak PSS MiB", ",.0f"),
    Column("cpu_percent", "CPU %", ",.0f"),
)
NOTES = (
    "2,000 JPEG pictures of 500x375, batches of 64 as uint8 224x224; train: random boxes, flipped, "
    "shuffled; eval: the centre, in order; the range is that of the rounds of a process",
    "pictures of 47 KB are of JPEG quality 90, of 98 KB, as ImageNet's on average, of quality 98; "
    "raw: pixels whose shorter side was made 256 beforehand, from those of 47 KB",
    "per CPU s: samples for each second of processor time, of all processes",
    "pixels off: of 64 centres, on average and in the worst picture, in grey levels from OpenCV's, "
    "without antialiasing, of the whole file; lost, repeated: of the first 2,000 samples, among "
    "which there are some of the next pass where a loader mixes passes",
)
# Those whose rows are repeated on fewer cores: ours, and of others those that use all of them best.
BY_CORES = (
    "SafeSequence, TFRecord",
    "tf.data, TFRecord",
    "Grain processes, OpenCV",
    "PyDataset threads, OpenCV",
    "PyTorch processes, torchvision",
    "DALI, TFRecord",
)
SIZES = {  # "auto" takes up to a dozen batches to choose: they are skipped.
    "smoke": {"skipped": 1, "rounds": 1, "seconds": 0.0, "whole_epoch": False},
    "default": {"skipped": 14, "rounds": 5, "seconds": 0.8, "whole_epoch": True},
    "full": {"skipped": 14, "rounds": 5, "seconds": 5.0, "whole_epoch": True},
}
REPEATS = {"smoke": 1, "default": 1, "full": 3}
LIMIT_SECONDS = 240  # FFCV compiles its pipelines first.


@pytest.mark.parametrize(("work", "pictures"), WORKS)
def test_peers(session: Session, work: str, pictures: str) -> None:
    """Every row of this package's loaders ends well."""
    experiment = _experiment(session)
    runs = session.sweep(experiment, _specs(session, work, pictures), REPEATS[session.size])
    assert our_failures(runs) == []


def test_peers_by_cores(session: Session) -> None:
    """On one core and on more: every row of this package's loaders ends well."""
    experiment = session.experiment(
        "peers-cpus",
        "Peers on so many cores: random boxes of JPEG pictures",
        "How fast does everybody load the same pictures on more cores?",
    )
    experiment.columns, experiment.axis = COLUMNS, "CPU cores"
    experiment.note(*NOTES[:1], *NOTES[2:3], "a worker for each core, but for tf.data: its own")
    specs = [
        dataclasses.replace(spec, framework="cores", workers=cpus, cpus=cpus)
        for cpus in cpu_counts(usable_cpus(), session.size)
        for spec in _specs(session, TRAIN, SMALL)
        if spec.loader in BY_CORES
    ]
    runs = session.sweep(experiment, specs, REPEATS[session.size])
    assert our_failures(runs) == []


def _experiment(session: Session) -> Experiment:
    experiment = session.experiment(
        "peers",
        "Peers: pictures from JPEG, everybody's loaders",
        "How fast does everybody load the same pictures?",
    )
    experiment.columns = COLUMNS
    experiment.panels = ()  # What one loader's workers are is not what another's are.
    missing = [
        f"not run, as {each.module}, or what it needs, isn't installed: {name}"
        for name, each in LOADERS.items()
        if each.missing
    ]
    experiment.note(*NOTES, *missing)
    return experiment


def _specs(session: Session, work: str, pictures: str) -> list[RowSpec]:
    """The rows of one work, whose pictures are made now if they aren't in the cache."""
    with session.uncaptured():
        find_photographs(pictures)
        for encoding in RAW if pictures == SMALL else ():
            find_packed(encoding)
    return [
        RowSpec(
            framework=f"peers {work}, {pictures}",
            loader=name,
            workers=each.workers,
            ours=each.ours,
            program="benchmarks.lab.experiments.every_loader",
            options={"work": work, "pictures": pictures, **SIZES[session.size]},
            limit_seconds=LIMIT_SECONDS,
        )
        for name, each in LOADERS.items()
        if not each.missing and (pictures == SMALL or not each.raw)
    ]


def test_zeros_are_refused() -> None:
    """A loader that delivers nothing is no fast one."""
    photographs = find_photographs()
    zeros, numbers = np.zeros((BATCH, SIDE, SIDE, 3), np.uint8), np.arange(BATCH)
    with pytest.raises(ValueError, match="not the centres of the pictures"):
        check((zeros, numbers), EVAL, photographs)
    with pytest.raises(ValueError, match="random order"):
        check((zeros, numbers[::-1]), TRAIN, photographs)


def test_other_sizes_are_refused() -> None:
    """Nor is one that delivers less."""
    batch = np.zeros((BATCH, 112, 112, 3), np.uint8), np.zeros(BATCH)
    with pytest.raises(ValueError, match="not uint8 pictures of 224x224: uint8"):
        check(batch, TRAIN, find_photographs())


def test_another_picture_is_noticed() -> None:
    """In its order, and of its number."""
    photographs, numbers = find_photographs(), list(range(BATCH))
    for pictures in references(photographs, numbers):
        found = check((pictures, numbers), EVAL, photographs)
        assert found == {"pixels_off": 0.0, "worst_off": 0.0}
    pictures[7] = pictures[8]
    with pytest.raises(ValueError, match="grey levels off"):
        check((pictures, numbers), EVAL, photographs)
    with pytest.raises(ValueError, match="the first pictures"):
        check((pictures, numbers[::-1]), EVAL, photographs)


def test_faults_are_counted() -> None:
    """What never came, and what came twice."""
    assert faults([0, 1, 1, 3], range(4)) == {"lost": 1.0, "repeated": 1.0}
