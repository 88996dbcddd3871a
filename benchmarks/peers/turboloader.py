"""turboloader: a TAR of JPEG files, decoded by its own C++ into float32 from 0 to 1.

Its fast path has no uint8, and cuts no centre: where the work is `EVAL`, it is the whole picture,
squeezed to 224x224. A sample's label is its place in the TAR, by which one looks labels up.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

from benchmarks.data.cache import made_once
from benchmarks.data.photographs import QUALITIES, Photographs
from benchmarks.harness.ratios import BATCH
from benchmarks.peers.pictures import SIDE, TRAIN, Batches


def find_tar(photographs: Photographs) -> Path:
    """The files in one TAR, by number; made now if it isn't in the cache."""

    def make(folder: Path) -> None:
        with tarfile.open(folder / "train.tar", "w") as archive:
            for path in photographs.paths:
                archive.add(path, path.name)

    return made_once(f"photographs-tar-1-{QUALITIES[photographs.size]}", make) / "train.tar"


def batches_of(photographs: Photographs, work: str) -> Batches:
    """Endless batches, by as many threads as turboloader's process-wide pool takes.

    Args:
        photographs: The files.
        work: Of the two.
    """
    from turboloader import DataLoader

    loader = DataLoader(
        str(find_tar(photographs)),
        BATCH,
        shuffle=work == TRAIN,
        image_size=SIDE,
        output_format="numpy",
        train_aug=work == TRAIN,
    )
    epoch = 0
    try:
        while True:
            loader.set_epoch(epoch)
            for pictures, about in loader:
                yield pictures, np.array(about["indices"])
            epoch += 1
    finally:
        loader.close()
