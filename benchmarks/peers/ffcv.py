"""FFCV: its own file, and its own decoders, compiled by Numba.

What it makes is said in `pictures`. Its file is written once, into the cache folder, by FFCV's
writer, which encodes every picture once more, at the same quality. FFCV has no wheels, and to build
it takes a compiler, pkg-config, and the headers of OpenCV and of libjpeg-turbo's TurboJPEG. On
Debian, where NumPy and PyTorch are installed::

    apt-get install g++ pkg-config libopencv-dev libturbojpeg0-dev
    pip install numba pytorch-pfn-extras "setuptools < 81" wheel
    pip install --no-build-isolation --no-deps ffcv

Its requirements ask for opencv-python, which would write over opencv-python-headless: hence
`--no-deps`.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data.cache import made_once
from benchmarks.data.photographs import QUALITY, find_photographs
from benchmarks.harness.ratios import BATCH, endless
from benchmarks.peers.pictures import AREA, RATIO, SHORT, SIDE, TRAIN, Batches, Files, passes


class Decoded:
    """What FFCV's writer is given: (picture, label)."""

    def __init__(self) -> None:
        self._files = Files(find_photographs())

    def __len__(self) -> int:
        """Number of files."""
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        """(PIL image, label)."""
        from PIL import Image

        jpeg, label = self._files[number]
        return Image.open(io.BytesIO(jpeg)).convert("RGB"), label


def find_beton() -> Path:
    """The pictures in FFCV's format, made now if they aren't in the cache."""
    return made_once("photographs-beton-1", _make_beton) / "train.beton"


def _make_beton(folder: Path) -> None:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    fields = {"image": RGBImageField("jpg", jpeg_quality=QUALITY), "label": IntField()}
    DatasetWriter(str(folder / "train.beton"), fields, num_workers=1).from_indexed_dataset(
        Decoded()
    )


def batches_of(threads: int, work: str) -> Batches:
    """Endless batches.

    Args:
        threads: That decode.
        work: Of the two.
    """
    from ffcv.fields.basics import IntDecoder
    from ffcv.fields.rgb_image import CenterCropRGBImageDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor

    size = (SIDE, SIDE)
    if work == TRAIN:
        decode = [RandomResizedCropRGBImageDecoder(size, AREA, RATIO), RandomHorizontalFlip()]
    else:
        decode = [CenterCropRGBImageDecoder(size, SIDE / SHORT)]
    loader = Loader(
        str(find_beton()),
        BATCH,
        threads,
        os_cache=True,
        order=OrderOption.RANDOM if work == TRAIN else OrderOption.SEQUENTIAL,
        # Many passes as one, as it starts anew with each.
        indices=passes(work).astype(np.uint64),
        pipelines={"image": [*decode, ToTensor()], "label": [IntDecoder(), ToTensor()]},
    )
    yield from endless(loader)
