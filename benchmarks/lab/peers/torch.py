"""PyTorch's DataLoader, with Pillow, or with torchvision's or torchcodec's decoder.

Either of these makes a tensor, of which torchvision cuts and resizes the box.
"""

from __future__ import annotations

import importlib.util
import io
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
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


def without_torchvision() -> bool:
    """Whether torchvision isn't installed, or was built for another PyTorch."""
    return not _imports("torchvision.io")


def without_torchcodec() -> bool:
    """Whether torchcodec, or torchvision, isn't there or was built for another PyTorch."""
    return without_torchvision() or not _imports("torchcodec.decoders")


@cache
def _imports(module: str) -> bool:
    """Asked of another process: PyTorch would stay in this one's memory."""
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        return False
    command = [sys.executable, "-c", f"import torch, {module}"]
    return subprocess.run(command, capture_output=True).returncode == 0


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


def with_torchvision(jpeg: bytes, uniform: Uniform | None) -> Any:
    """As `with_pillow`, a tensor, decoded by torchvision."""
    from torch import frombuffer, uint8
    from torchvision.io import ImageReadMode, decode_jpeg

    return _resized(
        decode_jpeg(frombuffer(bytearray(jpeg), dtype=uint8), ImageReadMode.RGB), uniform
    )


def with_torchcodec(jpeg: bytes, uniform: Uniform | None) -> Any:
    """As `with_pillow`, a tensor, decoded by torchcodec."""
    from torchcodec.decoders import decode_jpeg

    return _resized(decode_jpeg(jpeg, mode="RGB"), uniform)


def _resized(picture: Any, uniform: Uniform | None) -> Any:
    from torchvision.transforms.v2 import functional

    box = box_of(*picture.shape[1:], uniform)
    row = functional.resized_crop(picture, *box, [SIDE, SIDE], antialias=False)
    if uniform is not None and uniform(0, 1) < 0.5:
        row = functional.horizontal_flip(row)
    return row.permute(1, 2, 0)


DECODERS: dict[str, Callable[[bytes, Uniform | None], Any]] = {
    "Pillow": with_pillow,
    "torchvision": with_torchvision,
    "torchcodec": with_torchcodec,
}


class DecodedFiles(Files):
    """What a PyTorch data set is.

    Args:
        photographs: The files.
        work: Of the two.
        decoder: Of `DECODERS`.
    """

    def __init__(self, photographs: Photographs, work: str, decoder: str) -> None:
        super().__init__(photographs)
        self._work, self._decoder = work, decoder

    def __getitem__(self, number: int) -> tuple[Any, int]:
        """(uint8 (224, 224, 3), number)."""
        jpeg, _ = super().__getitem__(number)
        decode = DECODERS[self._decoder]
        return decode(jpeg, random.uniform if self._work == TRAIN else None), number


def batches_of(
    photographs: Photographs, workers: int = 2, work: str = TRAIN, decoder: str = "Pillow"
) -> Batches:
    """PyTorch's DataLoader.

    Args:
        photographs: The files.
        workers: Processes.
        work: Of the two.
        decoder: Of `DECODERS`.
    """
    from torch.utils.data import DataLoader

    files, order = DecodedFiles(photographs, work, decoder), passes(work).tolist()
    yield from DataLoader(files, BATCH, sampler=order, num_workers=workers)


def contestant(photographs: Photographs, counted: int) -> Contestant:
    """PyTorch's DataLoader with Pillow and two workers, as a contestant."""
    return contestant_of(lambda: batches_of(photographs), counted)
