"""Keras's PyDataset, as a Keras user writes one with OpenCV."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from benchmarks.data.photographs import Photographs
from benchmarks.harness.ratios import BATCH, Contestant
from benchmarks.peers.pictures import (
    BATCHES,
    TRAIN,
    Batches,
    Files,
    contestant_of,
    passes,
    with_opencv,
)


def batches_of(
    photographs: Photographs, processes: bool, workers: int = 2, work: str = TRAIN
) -> Batches:
    """Keras's PyDataset with OpenCV.

    Args:
        photographs: The files.
        processes: Not threads.
        workers: How many of them.
        work: Of the two.
    """
    import keras
    from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

    class Dataset(keras.utils.PyDataset):  # type: ignore[misc]
        """What a Keras user writes."""

        def __init__(self) -> None:
            super().__init__(workers=workers, use_multiprocessing=processes)
            self.order = passes(work)
            self.files = Files(photographs)

        def __len__(self) -> int:
            return BATCHES

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            chosen = self.order[index * BATCH : (index + 1) * BATCH]
            samples = [self.files[number] for number in chosen.tolist()]
            uniform = random.uniform if work == TRAIN else None
            pictures = np.stack([with_opencv(jpeg, uniform) for jpeg, _ in samples])
            return pictures, chosen

    adapter = PyDatasetAdapter(Dataset())
    adapter.on_epoch_begin()
    try:
        yield from adapter._get_iterator()
    finally:
        adapter.on_epoch_end()


def contestant(photographs: Photographs, counted: int, processes: bool, workers: int) -> Contestant:
    """Keras's PyDataset with OpenCV, as a contestant."""
    return contestant_of(lambda: batches_of(photographs, processes, workers), counted)
