"""The peers of `open_records`: each makes what our `ImageDecoder` does for training on pictures.

Pictures in random order, of each a random box (area 0.08 to 1, width / height 3/4 to 4/3), resized
to 224x224, every other one turned left to right, in batches of 64, uint8. Those in this file run
Python for every sample and share one function that draws the box; `pipeline_peers` has the others.
"""

from __future__ import annotations

import io
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.comparisons import BATCH, DIGITS, Contestant, pace
from benchmarks.photographs import PICTURES, Photographs

SIDE = 224  # pixels
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


def rows(batch: Any) -> float:
    """How many samples a batch of any contestant's has, once they are there."""
    if hasattr(batch[0], "wait_to_read"):
        # An NDArray may still be on its way.
        batch[0].wait_to_read()
    return float(len(batch[0]))


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


def with_opencv(jpeg: bytes, uniform: Uniform) -> npt.NDArray[np.uint8]:
    """A JPEG file as uint8 (224, 224, 3)."""
    import cv2

    picture = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    top, left, height, width = random_box(*picture.shape[:2], uniform)
    box = picture[top : top + height, left : left + width]
    row = cv2.resize(box, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    if uniform(0, 1) < 0.5:
        row = cv2.flip(row, 1)
    return cv2.cvtColor(row, cv2.COLOR_BGR2RGB)


def with_pillow(jpeg: bytes, uniform: Uniform) -> npt.NDArray[np.uint8]:
    """A JPEG file as uint8 (224, 224, 3)."""
    from PIL import Image

    picture = Image.open(io.BytesIO(jpeg)).convert("RGB")
    top, left, height, width = random_box(picture.height, picture.width, uniform)
    box = picture.crop((left, top, left + width, top + height))
    row = box.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    if uniform(0, 1) < 0.5:
        row = row.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(row)


class Files:
    """The bytes of the JPEG files, and their labels.

    Args:
        photographs: The files.
    """

    def __init__(self, photographs: Photographs) -> None:
        self._paths = [str(path) for path in photographs.paths]
        self._labels = photographs.labels

    def __len__(self) -> int:
        """Number of files."""
        return len(self._paths)

    def __getitem__(self, number: int) -> tuple[bytes, int]:
        """(JPEG, label)."""
        return Path(self._paths[number]).read_bytes(), self._labels[number]


class PillowFiles(Files):
    """What a PyTorch data set is, with Pillow."""

    def __getitem__(self, number: int) -> tuple[Any, int]:
        """(uint8 (224, 224, 3), label)."""
        jpeg, label = super().__getitem__(number)
        return with_pillow(jpeg, random.uniform), label


def grain(photographs: Photographs, counted: int, threads: int, processes: int) -> Contestant:
    """Grain with OpenCV.

    Args:
        photographs: The files.
        counted: Batches of a round.
        threads: That read and decode, without processes.
        processes: That make batches, each with one thread.
    """
    from grain.python import MapDataset, MultiprocessingOptions, ReadOptions

    def sample(file: tuple[bytes, int], rng: np.random.Generator) -> tuple[Any, int]:
        return with_opencv(file[0], rng.uniform), file[1]

    def contestant() -> float:
        data = MapDataset.source(Files(photographs)).seed(0).shuffle().repeat().random_map(sample)
        if processes:
            batches = data.batch(BATCH).to_iter_dataset(ReadOptions(1, 2))
            iterator = iter(batches.mp_prefetch(MultiprocessingOptions(processes, 2)))
        else:
            # By the sample: batches of many threads would come all at once.
            iterator = iter(data.to_iter_dataset(ReadOptions(threads, 2 * BATCH)).batch(BATCH))
        try:
            return pace(iterator, SKIPPED, counted, rows)
        finally:
            iterator.close()

    return contestant


def keras_files(photographs: Photographs, counted: int, processes: bool) -> Contestant:
    """Keras's PyDataset with OpenCV and two workers.

    Args:
        photographs: The files.
        counted: Batches of a round.
        processes: Two of them, not two threads.
    """
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        """What a Keras user writes."""

        def __init__(self) -> None:
            super().__init__(workers=2, use_multiprocessing=processes)
            rng = np.random.default_rng(0)
            passes = [rng.permutation(PICTURES) for _ in range(BATCHES * BATCH // PICTURES)]
            self.order = np.concatenate(passes)
            self.files = Files(photographs)

        def __len__(self) -> int:
            return BATCHES

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            chosen = self.order[index * BATCH : (index + 1) * BATCH]
            samples = [self.files[number] for number in chosen.tolist()]
            pictures = np.stack([with_opencv(jpeg, random.uniform) for jpeg, _ in samples])
            return pictures, np.array([label for _, label in samples])

    def contestant() -> float:
        adapter = PyDatasetAdapter(Batches())
        adapter.on_epoch_begin()
        try:
            return pace(adapter._get_iterator(), SKIPPED, counted, rows)
        finally:
            adapter.on_epoch_end()

    return contestant


def torch_files(photographs: Photographs, counted: int) -> Contestant:
    """PyTorch's DataLoader with Pillow and two workers."""
    from torch.utils.data import DataLoader, RandomSampler

    def contestant() -> float:
        files = PillowFiles(photographs)
        sampler = RandomSampler(files, num_samples=BATCHES * BATCH)
        return pace(
            iter(DataLoader(files, BATCH, sampler=sampler, num_workers=2)), SKIPPED, counted, rows
        )

    return contestant
