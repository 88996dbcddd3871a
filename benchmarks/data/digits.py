"""The digits of the MNIST experiments: the real ones where they lie, else a substitute.

Looked for in this order: under `--data-dir`, in Keras's cache (`mnist.npz`), in MXNet's
(`*-ubyte.gz`). Where there are none, `handwriting` draws a substitute of the same shape and format,
once, into the cache folder. Rows, which are fresh processes, only read: `find_digits` runs in the
harness, `load_digits` in a row.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.data.cache import made_once
from benchmarks.data.idx import read_idx, write_idx

SUBSTITUTE = "substitute for MNIST drawn from scikit-learn's handwritten digits"
# A new number whenever `handwriting` would draw others, so that no stale cache is read.
SUBSTITUTE_FOLDER = "handwriting-1"

# The idx files' first words; "t10k" is what MNIST calls its test set.
PREFIXES = {"train": "train", "test": "t10k"}
# As published, and as some mirrors unpack it.
ENDINGS = ("-ubyte", "-ubyte.gz")
SEPARATORS = ("-", ".")

Sample = tuple[npt.NDArray[np.uint8], np.int32]
ScaledSample = tuple[npt.NDArray[np.float32], np.int32]
Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]
ScaledBatch = tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]
_SCALE = np.float32(1 / 255)


@dataclass(frozen=True)
class Digits:
    """Where the digits lie, and what every table calls them.

    Args:
        name: For the tables: says whether they are MNIST or the substitute.
        path: An `mnist.npz`, or a folder with the four idx files.
    """

    name: str
    path: Path


def find_digits(data_dir: Path | None = None) -> Digits:
    """The real MNIST where it is found, else the substitute, drawn now if it isn't in the cache.

    Args:
        data_dir: A folder that may have `mnist.npz` or the idx files, gzip or plain.
    """
    if data_dir is not None:
        for folder in (data_dir, data_dir / "mnist", data_dir / "MNIST" / "raw"):
            found = _in_folder(folder)
            if found is not None:
                return Digits("digits under --data-dir", found)
    keras_home = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
    mxnet_home = Path(os.environ.get("MXNET_HOME", Path.home() / ".mxnet"))
    for folder in (keras_home / "datasets", mxnet_home / "datasets" / "mnist"):
        found = _in_folder(folder)
        if found is not None:
            return Digits("MNIST", found)
    return Digits(SUBSTITUTE, _substitute())


def load_digits(
    path: Path, split: str, count: int
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The first `count` digits of a split.

    Args:
        path: `Digits.path`.
        split: "train" or "test".
        count: At most this many.

    Returns:
        Images, uint8 (count, 28, 28), and labels, int32 (count,).
    """
    if path.is_file():
        with np.load(path) as arrays:
            images, labels = arrays[f"x_{split}"], arrays[f"y_{split}"]
    else:
        images = read_idx(_require(path, split, "images", 3))
        labels = read_idx(_require(path, split, "labels", 1))
    return np.ascontiguousarray(images[:count]), labels[:count].astype(np.int32)


def scale_nhwc(sample: Sample) -> ScaledSample:
    """The per-sample transform: uint8 (28, 28) to float32 (28, 28, 1), 0 to 1."""
    image, label = sample
    return image.astype(np.float32)[:, :, np.newaxis] / 255, label


def scale_nchw(sample: Sample) -> ScaledSample:
    """The per-sample transform: uint8 (28, 28) to float32 (1, 28, 28), 0 to 1."""
    image, label = sample
    return image.astype(np.float32)[np.newaxis] / 255, label


def scale_batch_nhwc(batch: Batch) -> ScaledBatch:
    """The batch transform: uint8 (n, 28, 28) to float32 (n, 28, 28, 1), 0 to 1."""
    images, labels = batch
    return np.multiply(images[..., np.newaxis], _SCALE, dtype=np.float32), labels


def scale_batch_nchw(batch: Batch) -> ScaledBatch:
    """The batch transform: uint8 (n, 28, 28) to float32 (n, 1, 28, 28), 0 to 1."""
    images, labels = batch
    return np.multiply(images[:, np.newaxis], _SCALE, dtype=np.float32), labels


def _in_folder(folder: Path) -> Path | None:
    """The npz in the folder, or the folder itself if it has all four idx files."""
    if (folder / "mnist.npz").is_file():
        return folder / "mnist.npz"
    wanted = [(split, *kind) for split in PREFIXES for kind in (("images", 3), ("labels", 1))]
    return folder if all(_idx_file(folder, *one) for one in wanted) else None


def _idx_file(folder: Path, split: str, kind: str, dimensions: int) -> Path | None:
    for separator in SEPARATORS:
        for ending in ENDINGS:
            path = folder / f"{PREFIXES[split]}-{kind}{separator}idx{dimensions}{ending}"
            if path.is_file():
                return path
    return None


def _require(folder: Path, split: str, kind: str, dimensions: int) -> Path:
    path = _idx_file(folder, split, kind, dimensions)
    if path is None:
        raise FileNotFoundError(f"no {split} {kind} in idx format in {folder}")
    return path


def _substitute() -> Path:
    """The substitute's folder in the cache."""
    return made_once(SUBSTITUTE_FOLDER, _draw)


def _draw(folder: Path) -> None:
    from benchmarks.data.handwriting import draw_digits

    for split, (images, labels) in draw_digits().items():
        write_idx(folder / f"{PREFIXES[split]}-images-idx3-ubyte", images)
        write_idx(folder / f"{PREFIXES[split]}-labels-idx1-ubyte", labels)
