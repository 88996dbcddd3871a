"""A data set of Hugging Face into `fit`: `hugging_face.py`.

It needs `pip install datasets`, and beside NumPy 1, which MXNet needs, "pyarrow<26", too.
"""

from __future__ import annotations

import argparse

import datasets
import keras
from shapes import arrays_of

from adapters import SafeSequence

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("name", nargs="?", help='as "mnist" or "beans"; without it, made images')
parser.add_argument("--epochs", type=int, default=2)
options = parser.parse_args()

if options.name:
    found = datasets.load_dataset(options.name, split="train")
else:
    x, y = arrays_of(1000)
    columns = {"image": x.tolist(), "label": y.tolist()}
    features = {"image": datasets.Array3D((28, 28, 1), "uint8"), "label": datasets.Value("int64")}
    found = datasets.Dataset.from_dict(columns, datasets.Features(features))

train = SafeSequence(
    found.with_format("numpy"),
    batch_size=64,
    shuffle=True,
    transform=lambda row: (row["image"].astype("float32") / 255, row["label"]),
)
model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
model.fit(train, epochs=options.epochs)
