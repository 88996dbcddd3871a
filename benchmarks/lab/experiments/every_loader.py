"""Everybody's pictures: this package's loaders and all others, each in a process of its own.

Two works, which `pictures` describes: the random boxes that one trains on, and the centres that
one evaluates. Every loader reads the same 2,000 JPEG pictures, from the files or records that are
its own way to keep them, and has the settings that were best for it on two cores; some read pixels,
of pictures whose shorter side was made 256 beforehand. Before the clock starts, a loader's first
batch is looked at: one that delivers anything else fails. How far its pixels are from OpenCV's, and
how many pictures of the first 2,000 are missing or there twice, is in the table.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from benchmarks.data.photographs import (
    LARGE,
    PICTURES,
    SMALL,
    Photographs,
    find_packed,
    find_photographs,
)
from benchmarks.experiments.correctness import as_numbers, check, faults
from benchmarks.harness.cpu_seconds import tree_cpu_seconds
from benchmarks.harness.installed import is_missing, version_of
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.ratios import BATCH, endless
from benchmarks.harness.row import Measurement
from benchmarks.lab.peers import dali, ffcv, grain, litdata, torch, webdataset
from benchmarks.peers import mxnet, py_dataset, tf_data
from benchmarks.peers.pictures import EVAL, SHORT, SIDE, TRAIN, Batches, rows

# What a loader makes, and of which pictures.
WORKS = ((TRAIN, SMALL), (EVAL, SMALL), (TRAIN, LARGE))
CPUS = usable_cpus()


@dataclass(frozen=True)
class Loader:
    """A contestant.

    Args:
        workers: How many threads or processes it is given, or "auto".
        module: What is imported.
        distributions: What is installed for that, and what decodes where that is another's; one
            that isn't there may have "-cpu" behind its name.
        batches: Makes endless batches, of pictures, of a work, with so many workers.
        ours: Whether it is this package's.
        raw: Whether it reads what was made of the pictures of 47 KB beforehand.
        ordered: Whether evaluated pictures come in their order.
        whole: Whether it squeezes evaluated pictures, in place of cutting out the centre.
        absent: Tells whether it can't run, where that isn't whether the module can be found.
    """

    workers: int | str
    module: str
    distributions: tuple[str, ...]
    batches: Callable[[Photographs, str, Any], Batches]
    ours: bool = False
    raw: bool = False
    ordered: bool = True
    whole: bool = False
    absent: Callable[[], bool] | None = None

    @property
    def missing(self) -> bool:
        """Whether it isn't installed."""
        return is_missing(self.module, self.absent)

    @property
    def versions(self) -> str:
        """Names and versions of what is installed."""
        return ", ".join(version_of(name) for name in self.distributions)


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one loader on one work, in a process of its own.

    Args:
        options: `loader`, `work`, `pictures` (as `QUALITIES` has them), `skipped`,
            `rounds` and `seconds` (of each), and `whole_epoch`: whether to go on until all
            pictures must have been there, and to compare pixels where the work is to train, too.
    """
    os.environ["KERAS_BACKEND"] = "jax"  # No network is trained.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    loader, work = LOADERS[options["loader"]], options["work"]
    workers = loader.workers  # For the CPUs that the row may use.
    photographs = find_photographs(options["pictures"])
    looks = {"ordered": loader.ordered, "whole": loader.whole}
    metrics: dict[str, float] = {}
    if work == TRAIN and options["whole_epoch"]:
        with closing(loader.batches(photographs, EVAL, workers)) as batches:
            metrics |= check(next(batches), EVAL, photographs, **looks)
    with closing(loader.batches(photographs, work, workers)) as batches:
        seen = Seen(batches)
        metrics |= check(next(seen), work, photographs, **looks)
        for _ in range(options["skipped"]):
            next(seen)
        began, cpu_began, before = time.monotonic(), tree_cpu_seconds(), seen.samples
        speeds = [_round(seen, options["seconds"]) for _ in range(options["rounds"])]
        ended, cpu_ended, after = time.monotonic(), tree_cpu_seconds(), seen.samples
        while options["whole_epoch"] and seen.samples < PICTURES:
            next(seen)
    speed = statistics.median(speeds)
    return Measurement(
        software=f"{options['loader']}: {loader.versions}",
        device="the CPU",
        metrics={
            "samples_per_second": speed,
            "per_core": speed / CPUS,
            "per_cpu_second": (after - before) / max(cpu_ended - cpu_began, 0.01),
            "cpu_percent": 100 * (cpu_ended - cpu_began) / (ended - began),
            **metrics,
            **seen.faults(),
        },
        window=(began, ended),
        rounds={"samples_per_second": speeds},
    )


class Seen:
    """The batches of a loader, counted, and the numbers of the pictures of one epoch kept.

    Args:
        batches: Endless ones.
    """

    def __init__(self, batches: Batches) -> None:
        self.samples = 0.0
        self._batches, self._numbers = batches, list[int]()

    def __next__(self) -> Any:
        batch = next(self._batches)
        self.samples += rows(batch)
        if len(self._numbers) < PICTURES:
            self._numbers += as_numbers(batch[1])
        return batch

    def faults(self) -> dict[str, float]:
        """How many pictures came again, and, where it was a whole epoch, how many never did."""
        found = faults(self._numbers[:PICTURES], range(PICTURES))
        return found if len(self._numbers) >= PICTURES else {"repeated": found["repeated"]}


def _round(seen: Seen, seconds: float) -> float:
    """Samples per second of at least one batch and so many seconds."""
    before, began, passed = seen.samples, time.perf_counter(), 0.0
    while not passed or passed < seconds:
        next(seen)
        passed = time.perf_counter() - began
    return (seen.samples - before) / passed


def _decoder_of(work: str) -> Any:
    from adapters import ImageDecoder

    if work == TRAIN:
        return ImageDecoder(SIDE, crop="random_resized", flip=True)
    return ImageDecoder(SIDE, crop="center", resize_short=SHORT)


def _in_sequence(source: Any, work: str, workers: int | str) -> Batches:
    from adapters import SafeSequence

    with SafeSequence(source, BATCH, shuffle=work == TRAIN, workers=workers) as sequence:
        yield from endless(sequence)


def _safe_sequence(photographs: Photographs, work: str, workers: int | str) -> Batches:
    from adapters import open_records

    source = open_records(photographs.tfrecord, decode=_decoder_of(work))
    return _in_sequence(source, work, workers)


def _folder(photographs: Photographs, work: str, workers: int | str) -> Batches:
    from adapters import open_images

    # A list of files and labels, where a folder would have its classes for labels.
    files = [(str(path), number) for number, path in enumerate(photographs.paths)]
    return _in_sequence(open_images(files, decode=_decoder_of(work)), work, workers)


def _packed(encoding: str) -> Callable[[Photographs, str, Any], Batches]:
    def batches(photographs: Photographs, work: str, workers: int | str) -> Batches:
        from adapters import open_records

        source = open_records(find_packed(encoding), decode=_decoder_of(work))
        return _in_sequence(source, work, workers)

    return batches


def _gluon_loader(photographs: Photographs, work: str, workers: int | str) -> Batches:
    from adapters import gluon_loader, open_records

    source = open_records(photographs.recordio, decode=_decoder_of(work))
    with gluon_loader(source, BATCH, shuffle=work == TRAIN, num_workers=workers) as loader:
        yield from endless(loader)


def _tf_data(photographs: Photographs, work: str, workers: str) -> Batches:
    return tf_data.batches_of(photographs.tfrecord, None, None, work)


def _grain_threads(photographs: Photographs, work: str, workers: int) -> Batches:
    return grain.batches_of(photographs, workers, 0, work)


def _grain_processes(photographs: Photographs, work: str, workers: int) -> Batches:
    return grain.batches_of(photographs, 0, workers, work)


def _py_dataset(photographs: Photographs, work: str, workers: int) -> Batches:
    return py_dataset.batches_of(photographs, False, workers, work)


def _torch(decoder: str) -> Callable[[Photographs, str, Any], Batches]:
    def batches(photographs: Photographs, work: str, workers: int) -> Batches:
        return torch.batches_of(photographs, workers, work, decoder)

    return batches


def _dali(photographs: Photographs, work: str, workers: int) -> Batches:
    return dali.batches_of(photographs.tfrecord, workers, work)


def _ffcv(photographs: Photographs, work: str, workers: int) -> Batches:
    return ffcv.batches_of(photographs, workers, work)


def _ffcv_raw(photographs: Photographs, work: str, workers: int) -> Batches:
    return ffcv.batches_of(photographs, workers, work, raw=True)


def _webdataset(photographs: Photographs, work: str, workers: int) -> Batches:
    return webdataset.batches_of(photographs, workers, work)


def _litdata(photographs: Photographs, work: str, workers: int) -> Batches:
    return litdata.batches_of(photographs, workers, work)


def _mxnet_iterator(photographs: Photographs, work: str, workers: int) -> Batches:
    return mxnet.iterator_batches(photographs.recordio, workers, work)


def _mxnet_loader(photographs: Photographs, work: str, workers: int) -> Batches:
    return mxnet.loader_batches(photographs.recordio, False, workers, work)


_OPENCV = "opencv-python-headless"
_OWN = ("loader-adapters", "keras")
# Grain's threads take turns at Python's lock: sixteen, as it has by default, do more than two.
LOADERS: Mapping[str, Loader] = {
    "SafeSequence, TFRecord": Loader("auto", "keras", _OWN, _safe_sequence, ours=True),
    "SafeSequence, JPEG files": Loader("auto", "keras", _OWN, _folder, ours=True),
    "SafeSequence, raw 256": Loader("auto", "keras", _OWN, _packed("raw"), ours=True, raw=True),
    "gluon_loader, RecordIO": Loader(
        "auto", "mxnet", ("loader-adapters", "mxnet"), _gluon_loader, ours=True
    ),
    "tf.data, TFRecord": Loader("auto", "tensorflow", ("tensorflow",), _tf_data),
    "Grain threads, OpenCV": Loader(16, "grain", ("grain", _OPENCV), _grain_threads),
    "Grain processes, OpenCV": Loader(CPUS, "grain", ("grain", _OPENCV), _grain_processes),
    "PyDataset threads, OpenCV": Loader(CPUS, "keras", ("keras", _OPENCV), _py_dataset),
    "PyTorch processes, Pillow": Loader(CPUS, "torch", ("torch", "pillow"), _torch("Pillow")),
    "PyTorch processes, torchvision": Loader(
        CPUS,
        "torchvision",
        ("torch", "torchvision"),
        _torch("torchvision"),
        absent=torch.without_torchvision,
    ),
    "PyTorch processes, torchcodec": Loader(
        CPUS,
        "torchcodec",
        ("torch", "torchcodec", "torchvision"),
        _torch("torchcodec"),
        absent=torch.without_torchcodec,
    ),
    "webdataset processes, OpenCV": Loader(
        CPUS,
        "webdataset",
        ("webdataset", "torch", _OPENCV),
        _webdataset,
        ordered=False,
        absent=webdataset.missing,
    ),
    "litdata processes, OpenCV": Loader(CPUS, "litdata", ("litdata", "torch", _OPENCV), _litdata),
    "DALI, TFRecord": Loader(CPUS, "nvidia.dali", ("nvidia-dali-cuda120",), _dali),
    "FFCV, beton": Loader(CPUS, "ffcv", ("ffcv", "numba"), _ffcv),
    "FFCV, raw 256": Loader(CPUS, "ffcv", ("ffcv", "numba"), _ffcv_raw, raw=True),
    "ImageRecordIter, RecordIO": Loader(CPUS, "mxnet", ("mxnet",), _mxnet_iterator),
    "DataLoader processes, RecordIO": Loader(CPUS, "mxnet", ("mxnet",), _mxnet_loader),
}
