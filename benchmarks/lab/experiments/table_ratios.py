"""Ratios of raw arrays and of rows of a table in TFRecord to tf.data.

The rows are made once, into the cache folder, written by hand, as TensorFlow would stay in the
harness's memory; the features are in an order that is none, as in TensorFlow's own::

    table-examples-1/train.tfrecord, train.idx   ten floats, "x0" to "x9", and one integer, "id"
    digit-records-1/train.tfrecord, train.idx    digits as NPY arrays, in tf.train.Example
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adapters.records import example
from benchmarks.data.cache import made_once
from benchmarks.data.digits import find_digits, load_digits
from benchmarks.data.examples import write
from benchmarks.data.photographs import DIGIT_RECORDS, write_raw
from benchmarks.experiments.our_records import contestant_of, digits
from benchmarks.experiments.records_ratios import CPUS, TENSORFLOW, Contestants, row
from benchmarks.harness.ratios import BATCH, Contestant, Ratio, measure_ratio, pace
from benchmarks.harness.row import Measurement
from benchmarks.peers.pictures import EPOCH, rows
from benchmarks.peers.tf_data import shuffled

ROWS = 60_000
SCALARS = [f"x{place}" for place in range(10)]
SEED = 25
TABLE_BATCH = 1_024


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    return measure_ratio(TABLE[options["loader"]], options)


def find_table_examples() -> Path:
    """60,000 rows of eleven numbers; made now if they aren't in the cache."""
    return made_once("table-examples-1", _make_table) / "train.tfrecord"


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


def find_digit_records() -> Path:
    """60,000 digits, uint8 (28, 28), as raw records; made now if they aren't in the cache."""
    return made_once("digit-records-1", _make_digit_records) / "train.tfrecord"


def _make_digit_records(folder: Path) -> None:
    images, labels = load_digits(find_digits().path, "train", DIGIT_RECORDS)
    write_raw(folder, zip(images, labels.tolist()))


def digits_for_keras() -> Any:
    """A SafeSequence of raw digits."""
    from adapters import SafeSequence, open_records

    return SafeSequence(open_records(find_digit_records(), decode="image"), BATCH, shuffle=True)


def table_for_keras() -> Any:
    """A SafeSequence of rows of eleven numbers."""
    from adapters import Feature, SafeSequence, open_records

    features = {**{name: Feature("float32") for name in SCALARS}, "id": Feature("int64")}
    source = open_records(find_table_examples(), decode=features)
    return SafeSequence(source, TABLE_BATCH, shuffle=True)


def table() -> Contestant:
    """Of a table."""
    skipped = -(-ROWS // TABLE_BATCH)
    return contestant_of(table_for_keras, skipped, 2_000, lambda batch: float(len(batch["id"])))


def table_contestant(
    tfrecord: Path, names: Sequence[str], batch: int, counted: int, calls: int | None
) -> Contestant:
    """tf.data of a table, parsed by the batch, as a contestant.

    Args:
        tfrecord: Examples of one float for each name, and of "id".
        names: Of the floats.
        batch: Rows of a batch.
        counted: Batches of a round.
        calls: Parallel ones; None for AUTOTUNE.
    """
    import tensorflow as tf

    features = {name: tf.io.FixedLenFeature([], tf.float32) for name in names}
    features["id"] = tf.io.FixedLenFeature([], tf.int64)
    data = shuffled([tfrecord], batch).map(
        lambda records: tf.io.parse_example(records, features),
        calls or tf.data.AUTOTUNE,
        deterministic=False,
    )
    data = data.prefetch(tf.data.AUTOTUNE)
    return lambda: pace(iter(data), EPOCH * BATCH // batch, counted, lambda each: len(each["id"]))


def raw_contestant(tfrecord: Path, counted: int, batched: bool, calls: int | None) -> Contestant:
    """tf.data of raw digits, as a contestant.

    Args:
        tfrecord: The Examples.
        counted: Batches of a round.
        batched: Parse a batch at a time, not a record.
        calls: Parallel ones; None for AUTOTUNE.
    """
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    pixels = 28 * 28

    def one(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        npy = tf.io.decode_raw(example["image/encoded"], tf.uint8)
        return tf.reshape(npy[-pixels:], (28, 28)), example["image/class/label"]

    def many(records: Any) -> Any:
        examples = tf.io.parse_example(records, features)
        npy = tf.io.decode_raw(examples["image/encoded"], tf.uint8)
        return tf.reshape(npy[:, -pixels:], (-1, 28, 28)), examples["image/class/label"]

    parallel = tf.data.AUTOTUNE if calls is None else calls
    data = tf.data.TFRecordDataset(str(tfrecord)).shuffle(10_000).repeat()
    if batched:
        data = data.batch(BATCH).map(many, parallel, deterministic=False)
    else:
        data = data.map(one, parallel, deterministic=False).batch(BATCH)
    data = data.prefetch(tf.data.AUTOTUNE)
    return lambda: pace(iter(data), EPOCH, counted, rows)


def _raw() -> Contestants:
    path = find_digit_records()
    return {
        "SafeSequence, auto": digits(digits_for_keras),
        "tf.data, by the sample": raw_contestant(path, 500, False, None),
        "tf.data, by the batch": raw_contestant(path, 2_000, True, None),
        f"tf.data, by the batch, {CPUS} calls": raw_contestant(path, 2_000, True, CPUS),
    }


def _table() -> Contestants:
    path = find_table_examples()
    return {
        "SafeSequence, auto": table(),
        "tf.data, AUTOTUNE": table_contestant(path, SCALARS, TABLE_BATCH, 300, None),
        f"tf.data, {CPUS} calls": table_contestant(path, SCALARS, TABLE_BATCH, 300, CPUS),
    }


TABLE: Mapping[str, Ratio] = {
    "raw TFRecord against tf.data": row(TENSORFLOW, _raw, find_digit_records, backend="tensorflow"),
    "a table of TFRecord against tf.data": row(
        TENSORFLOW, _table, find_table_examples, unit="rows/s", backend="tensorflow"
    ),
}
