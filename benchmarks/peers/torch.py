"""PyTorch's DataLoader, with Pillow."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.data.photographs import Photographs
from benchmarks.harness.ratios import BATCH, Contestant
from benchmarks.peers.pictures import (
    SIDE,
    TRAIN,
    Batches,
    Files,
    Uniform,
    box_of,
    contestant_of,
    passes,
)


def with_pillow(jpeg: bytes, uniform: Uniform | None) -> npt.NDArray[np.uint8]:
    """A JPEG file as uint8 (224, 224, 3); without a generator its centre."""
    from PIL import Image

    picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
    top, left, height, width = box_of(picture.height, picture.width, uniform)
    box = picture.crop((left, top, left + width, top + height))
    row = box.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    if uniform is not None and uniform(0, 1) < 0.5:
        row = row.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(row)


class PillowFiles(Files):
    """What a PyTorch data set is, with Pillow.

    Args:
        photographs: The files.
        work: Of the two.
    """

    def __init__(self, photographs: Photographs, work: str) -> None:
        super().__init__(photographs)
        self._work = work

    def __getitem__(self, number: int) -> tuple[Any, int]:
        """(uint8 (224, 224, 3), label)."""
        jpeg, label = super().__getitem__(number)
        return with_pillow(jpeg, random.uniform if self._work == TRAIN else None), label


def batches_of(photographs: Photographs, workers: int = 2, work: str = TRAIN) -> Batches:
    """PyTorch's DataLoader with Pillow.

    Args:
        photographs: The files.
        workers: Processes.
        work: Of the two.
    """
    from torch.utils.data import DataLoader

    files, order = PillowFiles(photographs, work), passes(work).tolist()
    yield from DataLoader(files, BATCH, sampler=order, num_workers=workers)


def contestant(photographs: Photographs, counted: int) -> Contestant:
    """PyTorch's DataLoader with Pillow and two workers, as a contestant."""
    return contestant_of(lambda: batches_of(photographs), counted)
