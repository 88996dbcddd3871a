"""MXNet's own ways to records of pictures: ImageRecordIter, in C++, and Gluon's DataLoader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.ratios import BATCH, Contestant, endless
from benchmarks.peers.pictures import AREA, RATIO, SHORT, SIDE, TRAIN, Batches, contestant_of


def iterator_batches(recordio: Path, threads: int | None, work: str = TRAIN) -> Batches:
    """MXNet's iterator in C++, whose batches are uint8 (64, 3, 224, 224).

    Args:
        recordio: The records.
        threads: That decode; None for as many as MXNet takes for the CPU. It never takes more than
            one less than there are cores.
        work: Of the two.
    """
    from adapters.gluon import import_mxnet

    mx = import_mxnet()
    # With "cpu" it ignores the number of threads; device -1 is the CPU's own memory.
    wanted = {"ctx": "cpu"} if threads is None else {"preprocess_threads": threads}
    if work == TRAIN:
        wanted |= {
            "shuffle": True,
            "random_resized_crop": True,
            "min_random_area": AREA[0],
            "max_random_area": AREA[1],
            "min_aspect_ratio": RATIO[0],
            "max_aspect_ratio": RATIO[1],
            "rand_mirror": True,
        }
    else:
        wanted |= {"resize": SHORT}  # What is cut out of that is the centre.
    iterator = mx.io.ImageRecordIter(
        path_imgrec=str(recordio),
        path_imgidx=str(recordio.with_suffix(".idx")),
        data_shape=(3, SIDE, SIDE),
        batch_size=BATCH,
        dtype="uint8",
        device_id=-1,
        verbose=False,
        **wanted,
    )
    while True:
        for batch in iterator:
            # The last one is filled up with pictures of the next pass.
            count = BATCH - batch.pad
            yield batch.data[0][:count], batch.label[0][:count]
        iterator.reset()


def iterator_contestant(recordio: Path, counted: int, threads: int | None) -> Contestant:
    """MXNet's iterator in C++, as a contestant."""
    return contestant_of(lambda: iterator_batches(recordio, threads), counted)


def loader_batches(
    recordio: Path, thread_pool: bool, workers: int = 2, work: str = TRAIN
) -> Batches:
    """MXNet's DataLoader.

    Args:
        recordio: The records.
        thread_pool: Threads, not processes.
        workers: How many of them.
        work: Of the two.
    """
    from adapters.gluon import import_mxnet

    data = import_mxnet().gluon.data
    transforms = data.vision.transforms
    if work == TRAIN:
        steps = [
            transforms.RandomResizedCrop(SIDE, AREA, RATIO, interpolation=1),
            transforms.RandomFlipLeftRight(),
        ]
    else:
        steps = [transforms.Resize(SHORT, keep_ratio=True), transforms.CenterCrop(SIDE)]
    records = data.vision.ImageRecordDataset(str(recordio))
    loader = data.DataLoader(
        records.transform_first(transforms.Compose(steps)),
        BATCH,
        shuffle=work == TRAIN,
        num_workers=workers,
        thread_pool=thread_pool,
    )
    yield from endless(loader)


def loader_contestant(recordio: Path, counted: int, thread_pool: bool, workers: int) -> Contestant:
    """MXNet's DataLoader, as a contestant."""
    return contestant_of(lambda: loader_batches(recordio, thread_pool, workers), counted)


def unpacked(record: bytes) -> tuple[Any, Any]:
    """A digit behind an IRHeader, as one takes it out: float32 (1, 28, 28) from 0 to 1, label."""
    from adapters.gluon import import_mxnet

    header, pixels = import_mxnet().recordio.unpack(record)
    image = np.frombuffer(pixels, np.uint8).reshape(1, 28, 28)
    return image.astype(np.float32) / 255, np.float32(header.label)


def digits_contestant(recordio: Path, counted: int, workers: int, thread_pool: bool) -> Contestant:
    """MXNet's DataLoader of a RecordFileDataset of digits, as a contestant.

    Args:
        recordio: Raw digits behind IRHeaders.
        counted: Batches of a round.
        workers: How many; 0 for none.
        thread_pool: Threads, not processes.
    """
    from adapters.gluon import import_mxnet

    data = import_mxnet().gluon.data
    records = data.RecordFileDataset(str(recordio)).transform(unpacked)

    def batches() -> Batches:
        loader = data.DataLoader(
            records, BATCH, shuffle=True, num_workers=workers, thread_pool=thread_pool
        )
        yield from endless(loader)

    return contestant_of(batches, counted)
