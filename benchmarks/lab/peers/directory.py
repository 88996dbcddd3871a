"""Keras's own way to a folder of pictures: whole ones, squeezed, float32 from 0 to 255."""

from __future__ import annotations

from benchmarks.data.photographs import Photographs
from benchmarks.harness.ratios import BATCH, Contestant, endless
from benchmarks.peers.pictures import SIDE, Batches, contestant_of


def batches_of(photographs: Photographs) -> Batches:
    """Endless batches of a shuffled `image_dataset_from_directory`, read ahead by tf.data.

    Args:
        photographs: The files.
    """
    import keras

    data = keras.utils.image_dataset_from_directory(
        str(photographs.folder), batch_size=BATCH, image_size=(SIDE, SIDE), verbose=False
    )
    yield from endless(data)


def contestant(photographs: Photographs, counted: int) -> Contestant:
    """Keras's folder, as a contestant."""
    return contestant_of(lambda: batches_of(photographs), counted)
