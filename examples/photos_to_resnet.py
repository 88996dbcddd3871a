"""A folder of photos, packed once, into `fit` with a ResNet: `photos_to_resnet.py photos/`."""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

import keras
from shapes import folder_of

from adapters import ImageDecoder, SafeSequence, open_records, pack, split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("photos", type=Path, nargs="?", help="a folder with a folder per class")
parser.add_argument("--size", type=int, default=224, help="of a side, in pixels")
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()
logging.basicConfig(level="INFO")  # Says which workers were chosen, and why.

with tempfile.TemporaryDirectory() as made:
    photos = options.photos or folder_of(Path(made, "photos"), 320)
    # Once; an interrupted run continues, and one that is whole does nothing.
    manifest = pack(photos, Path(made, "train"), format="tfrecord", resize=options.size * 8 // 7)

    crop = ImageDecoder(options.size, crop="random_resized", flip=True)
    whole = ImageDecoder(options.size, crop="center", resize_short=options.size)
    paths = sorted(Path(made).glob("train*.tfrecord"))
    train, _ = split(open_records(paths, decode=crop), [0.8, 0.2])
    _, validation = split(open_records(paths, decode=whole), [0.8, 0.2])

    model = keras.Sequential(
        [
            keras.Input((options.size, options.size, 3)),
            keras.layers.Rescaling(1 / 127.5, -1),
            keras.applications.ResNet50(weights=None, include_top=False, pooling="avg"),
            keras.layers.Dense(len(manifest.classes), "softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        SafeSequence(train, batch_size=32, shuffle=True),
        validation_data=SafeSequence(validation, batch_size=32),
        epochs=options.epochs,
    )
