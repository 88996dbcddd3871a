"""Records as users write them: digits as bytes and labels.

They are made once, into the cache folder::

    digit-examples-1/train.tfrecord, train.idx   "image": 784 raw bytes, "label": one integer
    digit-headers-1/train.rec, train.idx         784 raw bytes behind an IRHeader with the label

The Examples are written by hand, as TensorFlow would stay in the harness's memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from adapters import RecordWriter
from adapters.records import example
from benchmarks.data.cache import made_once
from benchmarks.data.digits import find_digits, load_digits
from benchmarks.data.photographs import headed_record

DIGITS = 60_000


def find_digit_examples() -> Path:
    """60,000 digits; made now if they aren't in the cache."""
    return made_once("digit-examples-1", _make_examples) / "train.tfrecord"


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


def write(path: Path, payloads: Iterable[bytes]) -> None:
    """A TFRecord file of them."""
    with RecordWriter(path, format="tfrecord") as writer:
        for payload in payloads:
            writer.write(payload)
