"""The peers of `open_records` whose pipelines are compiled: tf.data, DALI and MXNet's.

What they make is said in `record_peers`, where their like is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.comparisons import BATCH, Contestant, endless, pace
from benchmarks.photographs import PICTURES
from benchmarks.record_peers import (
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

# --- tf.data ---


def tf_data_batches(
    tfrecord: Path, calls: int | None, threads: int | None, work: str = TRAIN
) -> Batches:
    """TensorFlow's own.

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


def tf_data(tfrecord: Path, counted: int, calls: int | None, threads: int | None) -> Contestant:
    """TensorFlow's own, as a contestant."""
    return contestant_of(lambda: tf_data_batches(tfrecord, calls, threads), counted)


def tf_data_raw(tfrecord: Path, counted: int, batched: bool, calls: int | None) -> Contestant:
    """TensorFlow's own, for raw digits.

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


# --- DALI ---


def dali_batches(tfrecord: Path, threads: int = 2, work: str = TRAIN) -> Batches:
    """DALI on the CPU; it reads the index that `RecordWriter` writes.

    Args:
        tfrecord: The Examples.
        threads: That decode.
        work: Of the two.
    """
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali import tfrecord as fields

    @pipeline_def(batch_size=BATCH, num_threads=threads, device_id=None)
    def pipeline() -> Any:
        features = {
            "image/encoded": fields.FixedLenFeature((), fields.string, ""),
            "image/class/label": fields.FixedLenFeature([1], fields.int64, -1),
        }
        example = fn.readers.tfrecord(
            path=str(tfrecord),
            index_path=str(tfrecord.with_suffix(".idx")),
            features=features,
            random_shuffle=work == TRAIN,
            initial_fill=PICTURES,
        )
        jpeg, label = example["image/encoded"], example["image/class/label"]
        how = {"interp_type": types.INTERP_LINEAR, "antialias": False}
        if work == TRAIN:
            box = fn.decoders.image_random_crop(jpeg, random_area=AREA, random_aspect_ratio=RATIO)
            row = fn.resize(box, size=(SIDE, SIDE), **how)
            return fn.flip(row, horizontal=fn.random.coin_flip()), label
        row = fn.resize(fn.decoders.image(jpeg), resize_shorter=SHORT, **how)
        return fn.crop(row, crop=(SIDE, SIDE)), label

    made = pipeline()
    made.build()
    while True:
        yield made.run()


def dali(tfrecord: Path, counted: int) -> Contestant:
    """DALI on the CPU with two threads, as a contestant."""
    return contestant_of(lambda: dali_batches(tfrecord), counted)


# --- MXNet ---


def mxnet_iterator_batches(recordio: Path, threads: int | None, work: str = TRAIN) -> Batches:
    """MXNet's iterator in C++, whose batches are uint8 (64, 3, 224, 224).

    Args:
        recordio: The records.
        threads: That decode; None for as many as MXNet takes for the CPU. It never takes more than
            one less than there are cores.
        work: Of the two.
    """
    from adapters.gluon import import_mxnet

    mx = import_mxnet()
    # With "cpu" it ignores the number of threads; device -1 is the CPU's own memory.
    wanted = {"ctx": "cpu"} if threads is None else {"preprocess_threads": threads}
    if work == TRAIN:
        wanted |= {
            "shuffle": True,
            "random_resized_crop": True,
            "min_random_area": AREA[0],
            "max_random_area": AREA[1],
            "min_aspect_ratio": RATIO[0],
            "max_aspect_ratio": RATIO[1],
            "rand_mirror": True,
        }
    else:
        wanted |= {"resize": SHORT}  # What is cut out of that is the centre.
    iterator = mx.io.ImageRecordIter(
        path_imgrec=str(recordio),
        path_imgidx=str(recordio.with_suffix(".idx")),
        data_shape=(3, SIDE, SIDE),
        batch_size=BATCH,
        dtype="uint8",
        device_id=-1,
        verbose=False,
        **wanted,
    )
    while True:
        for batch in iterator:
            yield batch.data[0], batch.label[0]
        iterator.reset()


def mxnet_iterator(recordio: Path, counted: int, threads: int | None) -> Contestant:
    """MXNet's iterator in C++, as a contestant."""
    return contestant_of(lambda: mxnet_iterator_batches(recordio, threads), counted)


def mxnet_loader_batches(
    recordio: Path, thread_pool: bool, workers: int = 2, work: str = TRAIN
) -> Batches:
    """MXNet's DataLoader.

    Args:
        recordio: The records.
        thread_pool: Threads, not processes.
        workers: How many of them.
        work: Of the two.
    """
    from adapters.gluon import import_mxnet

    data = import_mxnet().gluon.data
    transforms = data.vision.transforms
    if work == TRAIN:
        steps = [
            transforms.RandomResizedCrop(SIDE, AREA, RATIO, interpolation=1),
            transforms.RandomFlipLeftRight(),
        ]
    else:
        steps = [transforms.Resize(SHORT, keep_ratio=True), transforms.CenterCrop(SIDE)]
    records = data.vision.ImageRecordDataset(str(recordio))
    loader = data.DataLoader(
        records.transform_first(transforms.Compose(steps)),
        BATCH,
        shuffle=work == TRAIN,
        num_workers=workers,
        thread_pool=thread_pool,
    )
    yield from endless(loader)


def mxnet_loader(recordio: Path, counted: int, thread_pool: bool) -> Contestant:
    """MXNet's DataLoader with two workers, as a contestant."""
    return contestant_of(lambda: mxnet_loader_batches(recordio, thread_pool), counted)
