"""TFRecords as TensorFlow's users write them, read by their features: `typed_tfrecords.py`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import keras
import tensorflow as tf
from shapes import arrays_of

from adapters import Feature, SafeSequence, open_records

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--samples", type=int, default=6000)
parser.add_argument("--epochs", type=int, default=3)
options = parser.parse_args()


def written(path: Path) -> Path:
    """Pictures and labels, an Example each."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for digit, label in zip(*arrays_of(options.samples)):
            image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[digit.tobytes()]))
            number = tf.train.Feature(int64_list=tf.train.Int64List(value=[label]))
            features = tf.train.Features(feature={"image": image, "label": number})
            writer.write(tf.train.Example(features=features).SerializeToString())
    return path


with tempfile.TemporaryDirectory() as made:
    records = open_records(
        written(Path(made, "train.tfrecord")),
        # `adapters inspect train.tfrecord` prints this, ready to paste.
        decode={
            "image": Feature("uint8", (28, 28, 1), stored="raw"),
            "label": tf.io.FixedLenFeature([], tf.int64),  # or Feature("int64")
        },
        outputs=("image", "label"),
    )
    train = SafeSequence(
        records,
        batch_size=64,
        shuffle=True,
        batch_transform=lambda batch: (batch[0].astype("float32") / 255, batch[1]),
    )
    model = keras.Sequential(
        [
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(2, "softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(train, epochs=options.epochs)
