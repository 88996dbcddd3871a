"""Everybody's pictures: this package's loaders and all others, each in a process of its own.

Two works, which `pictures` describes: the random boxes that one trains on, and the centres that
one evaluates. Every loader reads the same 2,000 JPEG pictures, from the files or records that are
its own way to keep them, and has the settings that were best for it on two cores. Before the clock
starts, its first batch is looked at: a loader that delivers anything else fails.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.data.photographs import find_photographs
from benchmarks.harness.cpu_seconds import tree_cpu_seconds
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.ratios import BATCH, endless
from benchmarks.harness.row import Measurement
from benchmarks.peers import dali, ffcv, grain, mxnet, py_dataset, spdl, tf_data, torch
from benchmarks.peers.installed import is_missing, version_of
from benchmarks.peers.pictures import EVAL, SHORT, SIDE, TRAIN, Batches, rows

WORKS = (TRAIN, EVAL)
CPUS = usable_cpus()
# Pixels on either side of a block. Of evaluated pictures, blocks are at most 4.3 grey levels from
# ours on average, as loaders round the place of the centre and resize in their own ways; those of
# another picture more than 11, of the same one flipped more than 8.
BLOCK = 8
MOST_DIFFERENCE = 6
MOST_MEAN_DIFFERENCE = 40  # Means of 64 random pictures vary by some 8 grey levels.


@dataclass(frozen=True)
class Loader:
    """A contestant.

    Args:
        workers: How many threads or processes it is given, or "auto".
        module: What is imported.
        distributions: What is installed for that, and what decodes where that is another's; one
            that isn't there may have "-cpu" behind its name.
        batches: Makes endless batches, of a work, with so many workers.
        ours: Whether it is this package's.
        absent: Tells whether it can't run, where that isn't whether the module can be found.
    """

    workers: int | str
    module: str
    distributions: tuple[str, ...]
    batches: Callable[[str, Any], Batches]
    ours: bool = False
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
    """Run one loader on one work, in a process of its own."""
    os.environ["KERAS_BACKEND"] = "jax"  # No network is trained.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    loader, work = LOADERS[options["loader"]], options["work"]
    with closing(loader.batches(work, options["workers"])) as batches:
        check(next(batches), work)
        for _ in range(options["skipped"]):
            next(batches)
        began, cpu_began = time.monotonic(), tree_cpu_seconds()
        speeds = [_round(batches, options["seconds"]) for _ in range(options["rounds"])]
        ended, cpu_ended = time.monotonic(), tree_cpu_seconds()
    return Measurement(
        software=f"{options['loader']}: {loader.versions}",
        device="the CPU",
        metrics={
            "samples_per_second": statistics.median(speeds),
            "cpu_percent": 100 * (cpu_ended - cpu_began) / (ended - began),
        },
        window=(began, ended),
        rounds={"samples_per_second": speeds},
    )


def check(batch: Any, work: str) -> None:
    """Look whether the first batch is what the work asks for.

    Args:
        batch: (pictures, labels), as the loader's framework has them.
        work: Of the two.

    Raises:
        ValueError: It isn't.
    """
    pictures, labels = _as_array(batch[0]), _as_array(batch[1]).reshape(-1).astype(int).tolist()
    if pictures.shape == (BATCH, 3, SIDE, SIDE):
        pictures = pictures.transpose(0, 2, 3, 1)
    if (pictures.shape, pictures.dtype) != ((BATCH, SIDE, SIDE, 3), np.uint8):
        raise ValueError(f"not uint8 pictures of {SIDE}x{SIDE}: {pictures.dtype} {pictures.shape}")
    in_order = list(find_photographs().labels[:BATCH])
    centres = _our_centres()
    if work == EVAL:
        differences = np.abs(_blocks(pictures) - _blocks(centres))
        difference = float(differences.mean(axis=(1, 2, 3)).max())
        if labels != in_order or difference > MOST_DIFFERENCE:
            raise ValueError(f"not the centres of the first pictures: {difference:.1f}, {labels}")
        return
    if labels == in_order or len({picture.tobytes() for picture in pictures}) < BATCH:
        raise ValueError(f"not {BATCH} pictures in random order: {labels}")
    difference = abs(float(pictures.mean() - centres.mean()))
    if difference > MOST_MEAN_DIFFERENCE or pictures.std(axis=(1, 2, 3)).min() == 0:
        raise ValueError(f"not boxes of the pictures: the mean is {difference:.1f} off")


def _round(batches: Batches, seconds: float) -> float:
    """Samples per second of at least one batch and so many seconds."""
    total, began, passed = 0.0, time.perf_counter(), 0.0
    while not total or passed < seconds:
        total += rows(next(batches))
        passed = time.perf_counter() - began
    return total / passed


def _as_array(values: Any) -> npt.NDArray[Any]:
    """An array of any framework's."""
    for method in ("asnumpy", "as_array", "numpy"):  # MXNet; DALI; TensorFlow and PyTorch
        if hasattr(values, method):
            return np.asarray(getattr(values, method)())
    return np.asarray(values)


def _blocks(pictures: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Means of blocks of 8x8 pixels."""
    count = SIDE // BLOCK
    return pictures.reshape(BATCH, count, BLOCK, count, BLOCK, 3).mean(axis=(2, 4))


def _our_centres() -> npt.NDArray[np.uint8]:
    """The first batch in order, cut out of the files by ImageDecoder."""
    from adapters import ImageDecoder

    decoder = ImageDecoder(SIDE, crop="center", resize_short=SHORT)
    paths = find_photographs().paths[:BATCH]
    return np.stack([decoder.decode(path.read_bytes()) for path in paths])


def _decoder_of(work: str) -> Any:
    from adapters import ImageDecoder

    if work == TRAIN:
        return ImageDecoder(SIDE, crop="random_resized", flip=True)
    return ImageDecoder(SIDE, crop="center", resize_short=SHORT)


def _safe_sequence(work: str, workers: int | str) -> Batches:
    from adapters import SafeSequence, open_records

    source = open_records(find_photographs().tfrecord, decode=_decoder_of(work))
    with SafeSequence(source, BATCH, shuffle=work == TRAIN, workers=workers) as sequence:
        yield from endless(sequence)


def _gluon_loader(work: str, workers: int | str) -> Batches:
    from adapters import gluon_loader, open_records

    source = open_records(find_photographs().recordio, decode=_decoder_of(work))
    with gluon_loader(source, BATCH, shuffle=work == TRAIN, num_workers=workers) as loader:
        yield from endless(loader)


def _tf_data(work: str, workers: str) -> Batches:
    return tf_data.batches_of(find_photographs().tfrecord, None, None, work)


def _grain_threads(work: str, workers: int) -> Batches:
    return grain.batches_of(find_photographs(), workers, 0, work)


def _grain_processes(work: str, workers: int) -> Batches:
    return grain.batches_of(find_photographs(), 0, workers, work)


def _py_dataset(work: str, workers: int) -> Batches:
    return py_dataset.batches_of(find_photographs(), False, workers, work)


def _torch(work: str, workers: int) -> Batches:
    return torch.batches_of(find_photographs(), workers, work)


def _dali(work: str, workers: int) -> Batches:
    return dali.batches_of(find_photographs().tfrecord, workers, work)


def _spdl(work: str, workers: int) -> Batches:
    return spdl.batches_of(find_photographs(), workers, work)


def _ffcv(work: str, workers: int) -> Batches:
    return ffcv.batches_of(workers, work)


def _mxnet_iterator(work: str, workers: int) -> Batches:
    return mxnet.iterator_batches(find_photographs().recordio, workers, work)


def _mxnet_loader(work: str, workers: int) -> Batches:
    return mxnet.loader_batches(find_photographs().recordio, False, workers, work)


_OPENCV = "opencv-python-headless"
# Grain's threads take turns at Python's lock: sixteen, as it has by default, do more than two.
LOADERS: Mapping[str, Loader] = {
    "SafeSequence, TFRecord": Loader(
        "auto", "keras", ("loader-adapters", "keras"), _safe_sequence, ours=True
    ),
    "gluon_loader, RecordIO": Loader(
        "auto", "mxnet", ("loader-adapters", "mxnet"), _gluon_loader, ours=True
    ),
    "tf.data, TFRecord": Loader("auto", "tensorflow", ("tensorflow",), _tf_data),
    "Grain threads, OpenCV": Loader(16, "grain", ("grain", _OPENCV), _grain_threads),
    "Grain processes, OpenCV": Loader(CPUS, "grain", ("grain", _OPENCV), _grain_processes),
    "PyDataset threads, OpenCV": Loader(CPUS, "keras", ("keras", _OPENCV), _py_dataset),
    "PyTorch processes, Pillow": Loader(CPUS, "torch", ("torch", "pillow"), _torch),
    "DALI, TFRecord": Loader(CPUS, "nvidia.dali", ("nvidia-dali-cuda120",), _dali),
    "spdl, FFmpeg": Loader(CPUS, "spdl.io", ("spdl_io",), _spdl, absent=spdl.missing),
    "FFCV, beton": Loader(CPUS, "ffcv", ("ffcv", "numba"), _ffcv),
    "ImageRecordIter, RecordIO": Loader(CPUS, "mxnet", ("mxnet",), _mxnet_iterator),
    "DataLoader processes, RecordIO": Loader(CPUS, "mxnet", ("mxnet",), _mxnet_loader),
}
