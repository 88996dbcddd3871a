"""Our loaders of records, folders and raw pictures, and these as contestants of a ratio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.data.examples import (
    find_digit_examples,
    find_digit_headers,
)
from benchmarks.data.photographs import (
    SMALL,
    find_photographs,
)
from benchmarks.harness.ratios import BATCH, Contestant, endless, pace
from benchmarks.peers.pictures import EPOCH, SIDE, rows

SKIPPED = 14  # Batches before the clock starts: "auto" takes up to a dozen of them to choose.
COUNTED = 120  # Two seconds of pictures, as long as a round of the bare C loop takes.


def training_decoder(layout: str = "NHWC") -> Any:
    """Random boxes, flipped."""
    from adapters import ImageDecoder

    return ImageDecoder(SIDE, crop="random_resized", flip=True, layout=layout)


def pictures_for_keras(size: str = SMALL) -> Any:
    """A SafeSequence of pictures out of Examples."""
    from adapters import SafeSequence, open_records

    source = open_records(find_photographs(size).tfrecord, decode=training_decoder())
    return SafeSequence(source, BATCH, shuffle=True)


def scaled(batch: Any) -> Any:
    """Digits from 0 to 1."""
    pixels, labels = batch
    return np.multiply(pixels, np.float32(1 / 255), dtype=np.float32), labels


def digit_features() -> Any:
    """What anybody's Examples of digits hold."""
    from adapters import Feature

    return {"image": Feature("uint8", (28, 28, 1), stored="raw"), "label": Feature("int64")}


def digit_examples_for_keras(find: Callable[[], Any] = find_digit_examples) -> Any:
    """A SafeSequence of digits in anybody's Examples, as float32."""
    from adapters import SafeSequence, open_records

    source = open_records(find(), decode=digit_features(), outputs=("image", "label"))
    return SafeSequence(source, BATCH, shuffle=True, batch_transform=scaled)


def pictures_for_gluon(layout: str) -> Any:
    """A loader of pictures out of RecordIO."""
    from adapters import gluon_loader, open_records

    source = open_records(find_photographs().recordio, decode=training_decoder(layout))
    return gluon_loader(source, BATCH, shuffle=True)


def digit_headers_for_gluon(shuffle: bool = True) -> Any:
    """A loader of digits behind IRHeaders, by Gluon's ToTensor float32 (64, 1, 28, 28)."""
    from adapters import Feature, gluon_loader, open_records
    from adapters.gluon import import_mxnet

    data = import_mxnet().gluon.data
    features = {"image": Feature("uint8", (28, 28, 1), stored="raw"), "label": Feature("float32")}
    source = open_records(find_digit_headers(), decode=features, outputs=("image", "label"))
    digits = data.SimpleDataset(source).transform_first(data.vision.transforms.ToTensor())
    return gluon_loader(digits, BATCH, shuffle=shuffle)


def contestant_of(
    make: Callable[[], Any],
    skipped: int = SKIPPED,
    counted: int = COUNTED,
    amount: Callable[[Any], float] = rows,
) -> Contestant:
    """A loader that is made anew in each round.

    Args:
        make: Makes it.
        skipped: Batches before the clock starts.
        counted: Batches of a round.
        amount: Of a batch.
    """

    def contestant() -> float:
        with make() as loader:
            return pace(endless(loader), skipped, counted, amount)

    return contestant


def pictures(size: str = SMALL) -> Contestant:
    """Of JPEG Examples."""
    return contestant_of(lambda: pictures_for_keras(size))


def digits(make: Callable[[], Any]) -> Contestant:
    """Of digits, which are fast."""
    return contestant_of(make, EPOCH, 8_000)
