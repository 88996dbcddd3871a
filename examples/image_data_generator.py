"""`ImageDataGenerator.flow_from_directory` before, and what to write now.

Both give batches of the same classes; the second reads ahead, in order, on any backend. The first
computes a batch when it is requested, and needs Pillow: `pip install pillow`.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from pathlib import Path

from keras.src.legacy.preprocessing.image import ImageDataGenerator
from shapes import folder_of

from adapters import ImageDecoder, SafeSequence, open_images, split

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("photos", type=Path, nargs="?", help="a folder with a folder per class")
options = parser.parse_args()


def samples_a_second(batches) -> float:
    """Of an epoch, in a loop."""
    started = time.perf_counter()
    epoch = itertools.islice(batches, len(batches))  # Keras's generator has no end.
    count = sum(len(labels) for _, labels in epoch)
    return count / (time.perf_counter() - started)


with tempfile.TemporaryDirectory() as made:
    photos = options.photos or folder_of(Path(made, "photos"), 320)

    # Before.
    generator = ImageDataGenerator(rescale=1 / 255, horizontal_flip=True, validation_split=0.2)
    before = generator.flow_from_directory(
        photos, target_size=(128, 128), batch_size=32, class_mode="sparse", subset="training"
    )

    # Now.
    decode = ImageDecoder(
        (128, 128), flip=True, dtype="float32", mean=(0, 0, 0), std=(255, 255, 255)
    )
    images = open_images(photos, decode=decode)
    train, validation = split(images, [0.8, 0.2], seed=1, stratify=images.labels)
    now = SafeSequence(train, batch_size=32, shuffle=True)
    assert list(before.class_indices) == train.classes
    print(f"before: {samples_a_second(before):,.0f} samples/s")
    samples_a_second(now)  # The first epoch chooses the workers.
    print(f"now: {samples_a_second(now):,.0f} samples/s")
    now.close()
