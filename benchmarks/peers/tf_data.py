"""tf.data, TensorFlow's own pipelines of records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.data.photographs import PICTURES
from benchmarks.harness.ratios import BATCH, Contestant, pace
from benchmarks.peers.pictures import (
    AREA,
    EPOCH,
    EVAL,
    RATIO,
    SHORT,
    SIDE,
    TRAIN,
    Batches,
    contestant_of,
    rows,
)


def batches_of(
    tfrecord: Path, calls: int | None, threads: int | None, work: str = TRAIN
) -> Batches:
    """Endless batches of pictures.

    Args:
        tfrecord: The Examples.
        calls: Parallel ones; None for AUTOTUNE.
        threads: Of a pool of its own; None for TensorFlow's.
        work: Of the two.
    """
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])

    def random_window(shape: Any) -> Any:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            shape,
            whole,
            min_object_covered=0.0,
            aspect_ratio_range=RATIO,
            area_range=AREA,
            max_attempts=10,
        )
        return tf.stack([begin[0], begin[1], size[0], size[1]])

    def centre_window(shape: Any) -> Any:
        side = tf.reduce_min(shape[:2]) * SIDE // SHORT
        return tf.stack([(shape[0] - side) // 2, (shape[1] - side) // 2, side, side])

    def sample(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        jpeg = example["image/encoded"]
        shape = tf.io.extract_jpeg_shape(jpeg)
        window = random_window(shape) if work == TRAIN else centre_window(shape)
        box = tf.io.decode_and_crop_jpeg(jpeg, window, channels=3)
        row = tf.cast(tf.image.resize(box, (SIDE, SIDE)), tf.uint8)
        if work == TRAIN:
            row = tf.image.random_flip_left_right(row)
        return row, example["image/class/label"]

    data = tf.data.TFRecordDataset(str(tfrecord))
    data = data.shuffle(PICTURES).repeat() if work == TRAIN else data.repeat()
    parallel = tf.data.AUTOTUNE if calls is None else calls
    data = data.map(sample, parallel, deterministic=work == EVAL)
    data = data.batch(BATCH).prefetch(tf.data.AUTOTUNE)
    if threads is not None:
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        data = data.with_options(options)
    yield from data


def contestant(tfrecord: Path, counted: int, calls: int | None, threads: int | None) -> Contestant:
    """tf.data, as a contestant."""
    return contestant_of(lambda: batches_of(tfrecord, calls, threads), counted)


def digits_contestant(
    tfrecords: Sequence[Path], counted: int, calls: int | None, interleaved: bool = False
) -> Contestant:
    """tf.data of digits as float32 of 0 to 1, parsed by the batch, as a contestant.

    Args:
        tfrecords: Examples of "image", raw bytes, and "label".
        counted: Batches of a round.
        calls: Parallel ones; None for AUTOTUNE.
        interleaved: Several files are read at once, as TensorFlow's guide has it.
    """
    import tensorflow as tf

    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def many(records: Any) -> Any:
        examples = tf.io.parse_example(records, features)
        pixels = tf.reshape(tf.io.decode_raw(examples["image"], tf.uint8), (-1, 28, 28, 1))
        return tf.cast(pixels, tf.float32) / 255, examples["label"]

    data = shuffled(tfrecords, BATCH, interleaved)
    data = data.map(many, calls or tf.data.AUTOTUNE, deterministic=False)
    data = data.prefetch(tf.data.AUTOTUNE)
    return lambda: pace(iter(data), EPOCH, counted, rows)


def shuffled(tfrecords: Sequence[Path], batch: int, interleaved: bool = False) -> Any:
    """Batches of records, through a buffer of 10,000."""
    import tensorflow as tf

    names = [str(path) for path in tfrecords]
    if interleaved:
        data = (
            tf.data.Dataset.from_tensor_slices(names)
            .shuffle(len(names))
            .interleave(
                tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
            )
        )
    else:
        data = tf.data.TFRecordDataset(names)
    return data.shuffle(10_000).repeat().batch(batch)
