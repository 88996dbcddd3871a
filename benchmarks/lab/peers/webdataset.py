"""webdataset: TAR files of pictures, read by the processes of PyTorch's DataLoader, with OpenCV.

Each process reads shards of its own, so batches aren't in the pictures' order, whatever the work.
"""

from __future__ import annotations

import importlib.util
import io
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.cache import made_once
from benchmarks.data.photographs import PICTURES, QUALITIES, Numbered, Photographs
from benchmarks.harness.ratios import BATCH, endless
from benchmarks.peers.pictures import TRAIN, Batches, with_opencv

SHARDS = 8


def missing() -> bool:
    """Whether it isn't installed, or PyTorch isn't, whose processes it needs."""
    return any(importlib.util.find_spec(name) is None for name in ("webdataset", "torch"))


def find_shards(photographs: Photographs) -> list[str]:
    """The TAR files, each sample a JPEG file and its number; made now if they aren't there."""

    def make(folder: Path) -> None:
        files = Numbered(photographs.paths)
        for shard in range(SHARDS):
            with tarfile.open(folder / f"train-{shard}.tar", "w") as archive:
                for number in range(shard, len(files), SHARDS):
                    jpeg, _ = files[number]
                    _add(archive, f"{number:05}.jpg", jpeg)
                    _add(archive, f"{number:05}.cls", str(number).encode())

    folder = made_once(f"photographs-shards-1-{QUALITIES[photographs.size]}", make)
    return sorted(str(path) for path in folder.glob("*.tar"))


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


class Decode:
    """From a JPEG file and its number to a sample.

    Args:
        work: Of the two.
    """

    def __init__(self, work: str) -> None:
        self._work = work

    def __call__(self, sample: tuple[bytes, bytes]) -> tuple[Any, int]:
        """(uint8 (224, 224, 3), number)."""
        uniform = random.uniform if self._work == TRAIN else None
        return with_opencv(sample[0], uniform), int(sample[1])


def collated(samples: list[tuple[Any, int]]) -> tuple[Any, Any]:
    """A batch."""
    pictures, numbers = zip(*samples)
    return np.stack(pictures), np.array(numbers)


def batches_of(
    photographs: Photographs, workers: int, work: str, address: str | None = None
) -> Batches:
    """Endless batches.

    Args:
        photographs: The files.
        workers: Processes.
        work: Of the two.
        address: Of a server of the shards; None for the files.
    """
    import webdataset

    training = work == TRAIN
    shards = find_shards(photographs)
    if address is not None:
        shards = [f"{address}{Path(shard).name}" for shard in shards]
    data = webdataset.WebDataset(
        shards, shardshuffle=SHARDS if training else False, empty_check=False
    )
    if training:
        data = data.shuffle(PICTURES)
    data = data.to_tuple("jpg", "cls").map(Decode(work)).batched(BATCH, collation_fn=collated)
    loader = webdataset.WebLoader(
        data, batch_size=None, num_workers=workers, persistent_workers=True
    )
    yield from endless(loader)
