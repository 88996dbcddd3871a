"""Grain, in threads or processes of its own, with OpenCV."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.data.photographs import Photographs
from benchmarks.harness.ratios import BATCH, Contestant
from benchmarks.peers.pictures import TRAIN, Batches, Files, contestant_of, with_opencv


def batches_of(
    photographs: Photographs, threads: int, processes: int, work: str = TRAIN
) -> Batches:
    """Grain with OpenCV.

    Args:
        photographs: The files.
        threads: That read and decode, without processes.
        processes: That make batches, each with one thread.
        work: Of the two.
    """
    from absl import flags
    from grain.python import MapDataset, MultiprocessingOptions, ReadOptions

    if not flags.FLAGS.is_parsed():  # Grain's processes ask for them; `absl.app.run` would do it.
        flags.FLAGS.mark_as_parsed()

    def drawn(file: tuple[bytes, int], rng: np.random.Generator) -> tuple[Any, int]:
        return with_opencv(file[0], rng.uniform), file[1]

    def centre(file: tuple[bytes, int]) -> tuple[Any, int]:
        return with_opencv(file[0], None), file[1]

    files = MapDataset.source(Files(photographs)).seed(0)
    training = work == TRAIN
    data = files.shuffle().repeat().random_map(drawn) if training else files.repeat().map(centre)
    if processes:
        batched = data.batch(BATCH).to_iter_dataset(ReadOptions(1, 2))
        iterator = iter(batched.mp_prefetch(MultiprocessingOptions(processes, 2)))
    else:
        # By the sample: batches of many threads would come all at once.
        iterator = iter(data.to_iter_dataset(ReadOptions(threads, 2 * BATCH)).batch(BATCH))
    try:
        yield from iterator
    finally:
        iterator.close()


def contestant(photographs: Photographs, counted: int, threads: int, processes: int) -> Contestant:
    """Grain with OpenCV, as a contestant."""
    return contestant_of(lambda: batches_of(photographs, threads, processes), counted)
