"""Records that only the lab reads: digits in a hundred files, and 100,000 of them in one.

Made once, into the cache folder::

    digit-shards-1/train-00000-of-00100.tfrecord, ...   as digit-examples-1, in a hundred files
    many-records-1/train.tfrecord, train.idx            as digit-records-1, 100,000 of them
"""

from __future__ import annotations

import itertools
from pathlib import Path

from benchmarks.data.cache import made_once
from benchmarks.data.digits import find_digits, load_digits
from benchmarks.data.examples import DIGITS, digits, write
from benchmarks.data.photographs import DIGIT_RECORDS, write_raw

SHARDS = 100
MANY_RECORDS = 100_000


def find_digit_shards() -> list[Path]:
    """60,000 digits in a hundred files; made now if they aren't in the cache."""
    return sorted(made_once("digit-shards-1", _make_shards).glob("*.tfrecord"))


def _make_shards(folder: Path) -> None:
    payloads = list(digits())
    for number in range(SHARDS):
        own = payloads[DIGITS * number // SHARDS : DIGITS * (number + 1) // SHARDS]
        write(folder / f"train-{number:05}-of-{SHARDS:05}.tfrecord", own)


def find_many_records() -> Path:
    """100,000 raw records, uint8 (28, 28); made now if they aren't in the cache."""
    return made_once("many-records-1", _make_many_records) / "train.tfrecord"


def _make_many_records(folder: Path) -> None:
    images, labels = load_digits(find_digits().path, "train", DIGIT_RECORDS)
    samples = itertools.cycle(list(zip(images, labels.tolist())))
    write_raw(folder, itertools.islice(samples, MANY_RECORDS))
