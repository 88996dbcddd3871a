"""DALI on the CPU, which reads TFRecord files with the index that `RecordWriter` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.data.photographs import PICTURES
from benchmarks.harness.ratios import BATCH, Contestant
from benchmarks.peers.pictures import AREA, RATIO, SHORT, SIDE, TRAIN, Batches, contestant_of


def batches_of(tfrecord: Path, threads: int = 2, work: str = TRAIN) -> Batches:
    """Endless batches.

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


def contestant(tfrecord: Path, counted: int) -> Contestant:
    """DALI on the CPU with two threads, as a contestant."""
    return contestant_of(lambda: batches_of(tfrecord), counted)
