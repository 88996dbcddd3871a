"""The peers of `open_records` whose pipelines are compiled: tf.data, DALI and MXNet's.

What they make is said in `record_peers`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.comparisons import BATCH, Contestant, endless, pace
from benchmarks.photographs import PICTURES
from benchmarks.record_peers import AREA, EPOCH, RATIO, SIDE, SKIPPED, rows

# --- tf.data ---


def tf_data(tfrecord: Path, counted: int, calls: int | None, threads: int | None) -> Contestant:
    """TensorFlow's own.

    Args:
        tfrecord: The Examples.
        counted: Batches of a round.
        calls: Parallel ones; None for AUTOTUNE.
        threads: Of a pool of its own; None for TensorFlow's.
    """
    import tensorflow as tf

    features = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
    }
    whole = tf.constant([[[0.0, 0.0, 1.0, 1.0]]])

    def sample(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        jpeg = example["image/encoded"]
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.io.extract_jpeg_shape(jpeg),
            whole,
            min_object_covered=0.0,
            aspect_ratio_range=RATIO,
            area_range=AREA,
            max_attempts=10,
        )
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        box = tf.io.decode_and_crop_jpeg(jpeg, window, channels=3)
        row = tf.cast(tf.image.resize(box, (SIDE, SIDE)), tf.uint8)
        return tf.image.random_flip_left_right(row), example["image/class/label"]

    data = tf.data.TFRecordDataset(str(tfrecord)).shuffle(PICTURES).repeat()
    data = data.map(sample, tf.data.AUTOTUNE if calls is None else calls, deterministic=False)
    data = data.batch(BATCH).prefetch(tf.data.AUTOTUNE)
    if threads is not None:
        options = tf.data.Options()
        options.threading.private_threadpool_size = threads
        data = data.with_options(options)
    return lambda: pace(iter(data), SKIPPED, counted, rows)


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


def dali(tfrecord: Path, counted: int) -> Contestant:
    """DALI on the CPU, with two threads; it reads the index that `RecordWriter` writes."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali import tfrecord as fields

    @pipeline_def(batch_size=BATCH, num_threads=2, device_id=None)
    def pipeline() -> Any:
        features = {
            "image/encoded": fields.FixedLenFeature((), fields.string, ""),
            "image/class/label": fields.FixedLenFeature([1], fields.int64, -1),
        }
        example = fn.readers.tfrecord(
            path=str(tfrecord),
            index_path=str(tfrecord.with_suffix(".idx")),
            features=features,
            random_shuffle=True,
            initial_fill=PICTURES,
        )
        box = fn.decoders.image_random_crop(
            example["image/encoded"], random_area=AREA, random_aspect_ratio=RATIO
        )
        row = fn.resize(box, size=(SIDE, SIDE), interp_type=types.INTERP_LINEAR, antialias=False)
        return fn.flip(row, horizontal=fn.random.coin_flip()), example["image/class/label"]

    def contestant() -> float:
        made = pipeline()
        made.build()

        def batches() -> Iterator[Any]:
            while True:
                yield made.run()

        return pace(batches(), SKIPPED, counted, rows)

    return contestant


# --- MXNet ---


def mxnet_iterator(recordio: Path, counted: int, threads: int | None) -> Contestant:
    """MXNet's iterator in C++, whose batches are uint8 (64, 3, 224, 224).

    Args:
        recordio: The records.
        counted: Batches of a round.
        threads: That decode; None for as many as MXNet takes for the CPU. It never takes more than
            one less than there are cores.
    """
    from adapters.gluon import import_mxnet

    mx = import_mxnet()
    # With "cpu" it ignores the number of threads; device -1 is the CPU's own memory.
    wanted = {"ctx": "cpu"} if threads is None else {"preprocess_threads": threads}

    def contestant() -> float:
        iterator = mx.io.ImageRecordIter(
            path_imgrec=str(recordio),
            path_imgidx=str(recordio.with_suffix(".idx")),
            data_shape=(3, SIDE, SIDE),
            batch_size=BATCH,
            shuffle=True,
            random_resized_crop=True,
            min_random_area=AREA[0],
            max_random_area=AREA[1],
            min_aspect_ratio=RATIO[0],
            max_aspect_ratio=RATIO[1],
            rand_mirror=True,
            dtype="uint8",
            device_id=-1,
            verbose=False,
            **wanted,
        )

        def batches() -> Iterator[Any]:
            while True:
                for batch in iterator:
                    yield batch.data[0], batch.label[0]
                iterator.reset()

        return pace(batches(), SKIPPED, counted, rows)

    return contestant


def mxnet_loader(recordio: Path, counted: int, thread_pool: bool) -> Contestant:
    """MXNet's DataLoader, with two workers.

    Args:
        recordio: The records.
        counted: Batches of a round.
        thread_pool: Two threads, not two processes.
    """
    from adapters.gluon import import_mxnet

    data = import_mxnet().gluon.data
    transforms = data.vision.transforms

    def contestant() -> float:
        augment = transforms.Compose(
            [
                transforms.RandomResizedCrop(SIDE, AREA, RATIO, interpolation=1),
                transforms.RandomFlipLeftRight(),
            ]
        )
        records = data.vision.ImageRecordDataset(str(recordio)).transform_first(augment)
        loader = data.DataLoader(
            records, BATCH, shuffle=True, num_workers=2, thread_pool=thread_pool
        )
        return pace(endless(loader), SKIPPED, counted, rows)

    return contestant
