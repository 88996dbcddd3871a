"""The pictures of the ResNet-20 experiment: CIFAR-10 where it lies, else a substitute.

Looked for under `--data-dir` and in Keras's cache: the folder `cifar-10-batches-py` of the Python
version, which torchvision keeps under the same name. Where it isn't, parts of 32x32 pixels of ten
photographs, each a class, are cut once, into the cache folder. Rows only read: `find_cifar` runs in
the harness, `load_cifar` in a row.
"""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.data.cache import made_once
from benchmarks.data.photographs import find_photographs

FOLDER = "cifar-10-batches-py"
TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
SIDE = 32  # pixels
MADE = 50_000
PARTS = 25  # of each picture; each is up to LARGEST pixels wide
LARGEST = 256
SEED = 10
SUBSTITUTE = "substitute for CIFAR-10: parts of ten photographs, 32x32, each photograph a class"


@dataclass(frozen=True)
class Cifar:
    """Where the pictures lie, and what every table calls them.

    Args:
        name: For the tables.
        path: A folder with CIFAR-10's batches, or with the substitute's two arrays.
    """

    name: str
    path: Path


def find_cifar(data_dir: Path | None = None) -> Cifar:
    """CIFAR-10 where it is found, else the substitute, cut now if it isn't in the cache.

    Args:
        data_dir: A folder that has `cifar-10-batches-py`.
    """
    keras_home = Path(os.environ.get("KERAS_HOME", Path.home() / ".keras"))
    if data_dir is not None and _is_there(data_dir / FOLDER):
        return Cifar("CIFAR-10 under --data-dir", data_dir / FOLDER)
    # Keras 3 unpacks it into a folder of its own.
    for parent in (keras_home / "datasets", keras_home / "datasets" / f"{FOLDER}-target"):
        if _is_there(parent / FOLDER):
            return Cifar("CIFAR-10", parent / FOLDER)
    return Cifar(SUBSTITUTE, made_once("cifar-parts-1", _cut))


def load_cifar(path: Path, count: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    """The first `count` training pictures.

    Args:
        path: `Cifar.path`.
        count: At most this many.

    Returns:
        Images, uint8 (count, 32, 32, 3), and labels, int32 (count,).
    """
    if not _is_there(path):
        images = np.load(path / "images.npy", mmap_mode="r")[:count]
        return np.array(images), np.load(path / "labels.npy")[:count]
    batches = [pickle.loads((path / name).read_bytes(), encoding="bytes") for name in TRAIN]
    planes = np.concatenate([batch[b"data"] for batch in batches])[:count]
    labels = np.concatenate([batch[b"labels"] for batch in batches])[:count]
    images = planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels.astype(np.int32)


def _is_there(folder: Path) -> bool:
    return all((folder / name).is_file() for name in TRAIN)


def _cut(folder: Path) -> None:
    import cv2

    photographs, rng = find_photographs(), np.random.default_rng(SEED)
    images, labels = np.empty((MADE, SIDE, SIDE, 3), np.uint8), np.empty(MADE, np.int32)
    order = rng.permutation(MADE)
    for number, (path, label) in enumerate(zip(photographs.paths, photographs.labels)):
        picture = cv2.cvtColor(cv2.imread(str(path), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        for place in order[number * PARTS : (number + 1) * PARTS]:
            width = rng.integers(SIDE, LARGEST + 1)
            top, left = (rng.integers(side - width + 1) for side in picture.shape[:2])
            part = picture[top : top + width, left : left + width]
            images[place] = cv2.resize(part, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
            labels[place] = label
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)
