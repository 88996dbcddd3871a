"""Records as users write them: digits as bytes, and rows of a table.

They are made once, into the cache folder::

    digit-examples-1/train.tfrecord, train.idx   "image": 784 raw bytes, "label": one integer
    table-examples-1/train.tfrecord, train.idx   ten floats, "x0" to "x9", and one integer, "id"
    digit-headers-1/train.rec, train.idx         784 raw bytes behind an IRHeader with the label

The Examples are written by hand, as TensorFlow would stay in the harness's memory; packed as it
does that, with the features in an order that is none, as in its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from adapters import RecordWriter
from adapters.records import example
from benchmarks.data.cache import made_once
from benchmarks.data.digits import find_digits, load_digits
from benchmarks.data.photographs import headed_record

DIGITS = 60_000
ROWS = 60_000
SCALARS = [f"x{place}" for place in range(10)]
SEED = 25


def find_digit_examples() -> Path:
    """60,000 digits; made now if they aren't in the cache."""
    return made_once("digit-examples-1", _make_examples) / "train.tfrecord"


def find_table_examples() -> Path:
    """60,000 rows of eleven numbers; made now if they aren't in the cache."""
    return made_once("table-examples-1", _make_table) / "train.tfrecord"


def find_digit_headers() -> Path:
    """60,000 digits in RecordIO; made now if they aren't in the cache."""
    return made_once("digit-headers-1", _make_headers) / "train.rec"


def _make_headers(folder: Path) -> None:
    images, labels = load_digits(find_digits().path, "train", DIGITS)
    with RecordWriter(folder / "train.rec", format="recordio") as writer:
        for number, (image, label) in enumerate(zip(images, labels.tolist())):
            writer.write(headed_record(image.tobytes(), label, number))


def _make_examples(folder: Path) -> None:
    write(folder / "train.tfrecord", digits())


def digits() -> Iterable[bytes]:
    """The Examples."""
    images, labels = load_digits(find_digits().path, "train", DIGITS)
    return (
        example.encode({"label": label, "image": image.tobytes()})
        for image, label in zip(images, labels.tolist())
    )


def _make_table(folder: Path) -> None:
    rows = np.random.default_rng(SEED).random((ROWS, len(SCALARS)), np.float32)
    write(
        folder / "train.tfrecord", (_row(number, row.tolist()) for number, row in enumerate(rows))
    )


def _row(number: int, values: list[float]) -> bytes:
    entries = [
        _message(1, _message(1, name.encode()) + _message(2, _floats(value)))
        for name, value in zip(SCALARS, values)
    ]
    # Between the others, so that its length moves what comes behind it.
    (own,) = (example.encode({"id": number})[2:],)
    entries.insert(4, own)
    return _message(1, b"".join(entries))


def _floats(value: float) -> bytes:
    return _message(2, _message(1, struct.pack("<f", value)))


def _message(number: int, content: bytes) -> bytes:
    """Tag, length in one or two bytes, and what has that length."""
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    return bytes([number << 3 | 2]) + length + content


def write(path: Path, payloads: Iterable[bytes]) -> None:
    """A TFRecord file of them."""
    with RecordWriter(path, format="tfrecord") as writer:
        for payload in payloads:
            writer.write(payload)
