"""What every loader makes of the same pictures, for training and for evaluation.

Pictures in random order, of each a random box (area 0.08 to 1, width / height 3/4 to 4/3), resized
to 224x224, every other one turned left to right, in batches of 64, uint8: that is what our
`ImageDecoder` does for training. Where the work is `EVAL`: pictures in their own order, the short
side resized to 256, the centre of 224x224.

Each peer is a generator of endless batches (`batches_of`) of pictures and their numbers, whose
`close` ends what it started, and a contestant of a ratio in training. Those that run Python for
every sample, Grain, PyDataset, PyTorch, webdataset, litdata and spdl, share the functions here that
choose the box; tf.data, DALI, FFCV, turboloader and MXNet have compiled pipelines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.data.photographs import PICTURES, Numbered, Photographs
from benchmarks.harness.ratios import BATCH, DIGITS, Contestant, pace

TRAIN, EVAL = "train", "eval"  # The works.
SIDE = 224  # pixels
SHORT = 256  # pixels, of the short side before the centre is cut out
AREA = 0.08, 1.0
RATIO = 3 / 4, 4 / 3
SKIPPED = 6  # batches before the clock starts
# Of raw digits; skipped before the clock starts, as a training run has many, of which our first one
# also checks the CRCs.
EPOCH = -(-DIGITS // BATCH)
# More than any round takes: an order of this many has no border between passes to wait at.
BATCHES = 1_000

Box = tuple[int, int, int, int]
Uniform = Callable[[float, float], float]
Batches = Generator[Any, None, None]


def rows(batch: Any) -> float:
    """How many samples a batch of any contestant's has, once they are there."""
    if hasattr(batch[0], "wait_to_read"):
        # An NDArray may still be on its way.
        batch[0].wait_to_read()
    return float(len(batch[0]))


def contestant_of(batches: Callable[[], Batches], counted: int) -> Contestant:
    """A contestant that makes its batches anew in each round.

    Args:
        batches: A generator's function.
        counted: Batches of a round.
    """

    def contestant() -> float:
        with closing(batches()) as made:
            return pace(made, SKIPPED, counted, rows)

    return contestant


def random_box(height: int, width: int, uniform: Uniform) -> Box:
    """Top, left, height and width of a random box, as torchvision's RandomResizedCrop draws it."""
    for _ in range(10):
        pixels = height * width * uniform(*AREA)
        aspect = math.exp(uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        box_width, box_height = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
        if 0 < box_width <= width and 0 < box_height <= height:
            top = int(uniform(0, height - box_height + 1))
            left = int(uniform(0, width - box_width + 1))
            return top, left, box_height, box_width
    return 0, 0, height, width


def centre_box(height: int, width: int) -> Box:
    """What an image's centre of 224x224 was before its short side was resized to 256.

    To cut first and to resize then is the same, and less work.
    """
    side = round(min(height, width) * SIDE / SHORT)
    return (height - side) // 2, (width - side) // 2, side, side


def box_of(height: int, width: int, uniform: Uniform | None) -> Box:
    """A random box, or without a generator the centre."""
    if uniform is None:
        return centre_box(height, width)
    return random_box(height, width, uniform)


def with_opencv(jpeg: bytes, uniform: Uniform | None) -> npt.NDArray[np.uint8]:
    """A JPEG file as uint8 (224, 224, 3); without a generator its centre."""
    import cv2

    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    top, left, height, width = box_of(*picture.shape[:2], uniform)
    box = picture[top : top + height, left : left + width]
    row = cv2.resize(box, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    if uniform is not None and uniform(0, 1) < 0.5:
        row = cv2.flip(row, 1)
    return cv2.cvtColor(row, cv2.COLOR_BGR2RGB)


class Files(Numbered):
    """The bytes of the JPEG files, and their numbers.

    Args:
        photographs: The files.
    """

    def __init__(self, photographs: Photographs) -> None:
        super().__init__(photographs.paths)


def passes(work: str) -> npt.NDArray[np.int64]:
    """The numbers of the pictures, pass after pass; at least 1,000 batches of them."""
    rng = np.random.default_rng(0)
    count = -(-BATCHES * BATCH // PICTURES)
    if work == TRAIN:
        return np.concatenate([rng.permutation(PICTURES) for _ in range(count)])
    return np.tile(np.arange(PICTURES), count)
