"""FFCV: its own file, and its own decoders, compiled by Numba.

What it makes is said in `pictures`. Its file is written once, into the cache folder, by FFCV's
writer, which encodes every picture once more, at the same quality; or, raw, keeps the pixels of
pictures whose shorter side has 256. FFCV has no wheels, and to build
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
from benchmarks.data.photographs import QUALITIES, SHORT, Photographs
from benchmarks.harness.ratios import BATCH, Contestant, endless
from benchmarks.peers.pictures import (
    AREA,
    RATIO,
    SIDE,
    TRAIN,
    Batches,
    Files,
    contestant_of,
    passes,
)


class Decoded:
    """What FFCV's writer is given: (picture, number).

    Args:
        photographs: The files.
        short: Pixels of the shorter side; None leaves the pictures as they are.
    """

    def __init__(self, photographs: Photographs, short: int | None) -> None:
        self._files, self._short = Files(photographs), short

    def __len__(self) -> int:
        """Number of files."""
        return len(self._files)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        """(PIL image, number)."""
        from PIL import Image

        jpeg, _ = self._files[number]
        picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
        if self._short is not None:
            scale = self._short / min(picture.size)
            width, height = (round(side * scale) for side in picture.size)
            picture = picture.resize((width, height), Image.Resampling.BOX)
        return picture, number


def find_beton(photographs: Photographs, raw: bool) -> Path:
    """The pictures in FFCV's format, made now if they aren't in the cache.

    Args:
        photographs: The files.
        raw: Pixels, of a shorter side of 256.
    """
    quality = QUALITIES[photographs.size]

    def make(folder: Path) -> None:
        from ffcv.fields import IntField, RGBImageField
        from ffcv.writer import DatasetWriter

        how = {"write_mode": "raw"} if raw else {"write_mode": "jpg", "jpeg_quality": quality}
        fields = {"image": RGBImageField(**how), "label": IntField()}
        decoded = Decoded(photographs, SHORT if raw else None)
        path = str(folder / "train.beton")
        DatasetWriter(path, fields, num_workers=1).from_indexed_dataset(decoded)

    name = "raw" if raw else str(quality)
    return made_once(f"photographs-beton-2-{name}", make) / "train.beton"


def batches_of(photographs: Photographs, threads: int, work: str, raw: bool = False) -> Batches:
    """Endless batches.

    Args:
        photographs: The files.
        threads: That decode.
        work: Of the two.
        raw: From pixels, of a shorter side of 256.
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
        str(find_beton(photographs, raw)),
        BATCH,
        threads,
        os_cache=True,
        # Many passes as one, as it starts anew with each; in random order for training.
        order=OrderOption.SEQUENTIAL,
        indices=passes(work).astype(np.uint64),
        pipelines={"image": [*decode, ToTensor()], "label": [IntDecoder(), ToTensor()]},
    )
    yield from endless(loader)


def raw_contestant(photographs: Photographs, counted: int, threads: int) -> Contestant:
    """FFCV from pixels, as a contestant."""
    return contestant_of(lambda: batches_of(photographs, threads, TRAIN, raw=True), counted)
