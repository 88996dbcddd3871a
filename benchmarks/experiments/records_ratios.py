"""What records must be worth behind ``SafeSequence`` and ``gluon_loader``, against their peers."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.data.digits import find_digits, load_digits
from benchmarks.data.examples import (
    DIGITS,
    SCALARS,
    find_digit_examples,
    find_digit_headers,
    find_digit_shards,
    find_table_examples,
)
from benchmarks.data.photographs import LARGE, SMALL, find_digit_records, find_photographs
from benchmarks.experiments import kernel_limit, our_records, packing
from benchmarks.experiments.correctness import OFF, centres_of, faults
from benchmarks.experiments.our_records import TABLE_BATCH
from benchmarks.harness.ratios import Contestant, Ratio, measure_ratio
from benchmarks.harness.row import Measurement
from benchmarks.peers import dali, grain, mxnet, py_dataset, tf_data, torch
from benchmarks.peers.installed import Peer

PEER_COUNTED = 20
Table = Mapping[str, tuple[Peer, Ratio]]
Contestants = Mapping[str, Contestant]


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    return measure_row(TABLE, options)


def measure_row(table: Table, options: Mapping[str, Any]) -> Measurement:
    """Run one ratio of a table."""
    peer, ratio = table[options["loader"]]
    os.environ["KERAS_BACKEND"] = ratio.backend or "jax"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    return measure_ratio(ratio, options["rounds"], peer.version, options["short"])


def finished(table: Table, smoke: Callable[[str], bool] = lambda name: True) -> Table:
    """The rows, all run in the smoke size but for some, and none in the default one.

    Three minutes more than the default size takes.
    """
    return {
        name: (peer, dataclasses.replace(ratio, extra=True, smoke=smoke(name)))
        for name, (peer, ratio) in table.items()
    }


def _tf_data(size: str) -> Contestants:
    path = find_photographs(size).tfrecord
    return {
        "SafeSequence, auto": our_records.pictures(size),
        "tf.data, AUTOTUNE": tf_data.contestant(path, PEER_COUNTED, None, None),
        "tf.data, 2 calls": tf_data.contestant(path, PEER_COUNTED, 2, None),
        "tf.data, 2 own threads": tf_data.contestant(path, PEER_COUNTED, None, 2),
    }


def _grain(size: str) -> Contestants:
    photographs = find_photographs(size)
    return {
        "SafeSequence, auto": our_records.pictures(size),
        "Grain, 2 threads": grain.contestant(photographs, PEER_COUNTED, 2, 0),
        "Grain, 16 threads": grain.contestant(photographs, PEER_COUNTED, 16, 0),
        "Grain, 2 processes": grain.contestant(photographs, PEER_COUNTED, 0, 2),
    }


def _py_dataset(size: str) -> Contestants:
    photographs = find_photographs(size)
    return {
        "SafeSequence, auto": our_records.pictures(size),
        "PyDataset, 2 threads": py_dataset.contestant(photographs, PEER_COUNTED, False),
        "PyDataset, 2 processes": py_dataset.contestant(photographs, PEER_COUNTED, True),
    }


def _torch() -> Contestants:
    return {
        "SafeSequence, auto": our_records.pictures(),
        "DataLoader, 2 workers": torch.contestant(find_photographs(), PEER_COUNTED),
    }


def _dali() -> Contestants:
    return {
        "SafeSequence, auto": our_records.pictures(),
        "DALI, 2 threads": dali.contestant(find_photographs().tfrecord, PEER_COUNTED),
    }


def _raw() -> Contestants:
    path = find_digit_records()
    return {
        "SafeSequence, auto": our_records.digits(our_records.digits_for_keras),
        "tf.data, by the sample": tf_data.raw_contestant(path, 500, False, None),
        "tf.data, by the batch": tf_data.raw_contestant(path, 2_000, True, None),
        "tf.data, by the batch, 2 calls": tf_data.raw_contestant(path, 2_000, True, 2),
    }


def _digit_examples() -> Contestants:
    path = find_digit_examples()
    return {
        "SafeSequence, auto": our_records.digits(our_records.digit_examples_for_keras),
        "tf.data, AUTOTUNE": tf_data.digits_contestant([path], 2_000, None),
        "tf.data, 2 calls": tf_data.digits_contestant([path], 2_000, 2),
    }


def _digit_shards() -> Contestants:
    paths = find_digit_shards()
    ours = partial(our_records.digit_examples_for_keras, find_digit_shards)
    return {
        "SafeSequence, auto": our_records.digits(ours),
        "tf.data, AUTOTUNE": tf_data.digits_contestant(paths, 2_000, None),
        "tf.data, interleaved": tf_data.digits_contestant(paths, 2_000, None, True),
        "tf.data, 2 calls": tf_data.digits_contestant(paths, 2_000, 2),
    }


def _table() -> Contestants:
    path = find_table_examples()
    return {
        "SafeSequence, auto": our_records.table(),
        "tf.data, AUTOTUNE": tf_data.table_contestant(path, SCALARS, TABLE_BATCH, 300, None),
        "tf.data, 2 calls": tf_data.table_contestant(path, SCALARS, TABLE_BATCH, 300, 2),
    }


def _mxnet_iterator() -> Contestants:
    path = find_photographs().recordio
    make = partial(our_records.pictures_for_gluon, "NCHW")
    return {
        "gluon_loader, auto": our_records.contestant_of(make),
        "ImageRecordIter, 2 threads": mxnet.iterator_contestant(path, PEER_COUNTED, 2),
        "ImageRecordIter, for the CPU": mxnet.iterator_contestant(path, PEER_COUNTED, None),
    }


def _mxnet_loader() -> Contestants:
    path = find_photographs().recordio
    make = partial(our_records.pictures_for_gluon, "NHWC")
    return {
        "gluon_loader, auto": our_records.contestant_of(make),
        "DataLoader, 2 processes": mxnet.loader_contestant(path, PEER_COUNTED, False),
        "DataLoader, 2 threads": mxnet.loader_contestant(path, PEER_COUNTED, True),
    }


def _digit_headers() -> Contestants:
    path = find_digit_headers()
    return {
        "gluon_loader, auto": our_records.digits(our_records.digit_headers_for_gluon),
        "DataLoader, no workers": mxnet.digits_contestant(path, 200, 0, False),
        "DataLoader, 2 processes": mxnet.digits_contestant(path, 200, 2, False),
        "DataLoader, 2 threads": mxnet.digits_contestant(path, 200, 2, True),
    }


def _digits_correct() -> Mapping[str, float]:
    images, labels = load_digits(find_digits().path, "train", DIGITS)
    seen: list[bytes] = []
    with our_records.digit_headers_for_gluon() as loader:
        for batch in loader:
            pixels, found = (member.asnumpy() for member in batch)
            pixels = np.rint(pixels * 255).astype(np.uint8)
            seen += [image.tobytes() + bytes([int(label)]) for image, label in zip(pixels, found)]
    with our_records.digit_headers_for_gluon(shuffle=False) as loader:
        first = next(iter(loader))[0].asnumpy()[:, 0] * 255
    off = np.abs(first - images[: len(first)]).mean(axis=(1, 2))
    expected = (image.tobytes() + bytes([label]) for image, label in zip(images, labels.tolist()))
    return {OFF: float(off.mean()), "worst_off": float(off.max()), **faults(seen, expected)}


@cache  # Rows of the same process ask again.
def _centres(size: str) -> Mapping[str, float]:
    from adapters import open_records

    photographs = find_photographs(size)
    return centres_of(lambda decode: open_records(photographs.tfrecord, decode=decode), photographs)


def _limit() -> Contestants:
    return {
        "SafeSequence, auto": our_records.pictures(),
        "bare C, 2 threads": kernel_limit.bare_loop(find_photographs(), 2),
    }


def _pack() -> Contestants:
    photographs = find_photographs()
    return {
        "pack, 2 workers": packing.pack(photographs, 2),
        "im2rec.py, 2 workers": packing.im2rec(photographs, 2),
    }


TENSORFLOW = Peer("Keras", "tensorflow", "tensorflow")
KERAS = Peer("Keras", "keras", "keras")
MXNET = Peer("Gluon", "mxnet", "mxnet")
_GRAIN = Peer("Keras", "grain", "grain")


def _pictures(
    bar: float, contestants: Callable[[str], Contestants], size: str, rounds: int = 3, **more: Any
) -> Ratio:
    """A row of JPEG Examples of either size."""
    correct = partial(_centres, size)
    return Ratio("samples/s", bar, partial(contestants, size), rounds, correct=correct, **more)


TABLE: Table = finished(
    {
        "JPEG TFRecord against tf.data": (
            TENSORFLOW,
            _pictures(1.6, _tf_data, SMALL, backend="tensorflow"),
        ),
        "JPEG TFRecord against Grain": (_GRAIN, _pictures(2, _grain, SMALL)),
        "JPEG TFRecord against PyDataset": (KERAS, _pictures(2, _py_dataset, SMALL, 7)),
        "JPEG TFRecord against PyTorch": (
            Peer("Keras", "torch", "torch"),
            Ratio("samples/s", 2, _torch, 3),
        ),
        "JPEG TFRecord against DALI": (
            Peer("Keras", "nvidia.dali", "nvidia-dali-cuda120"),
            Ratio("samples/s", 2, _dali, 3),
        ),
        "JPEG TFRecord against its limit": (
            Peer("Keras", "", "a C compiler", kernel_limit.missing),
            Ratio("samples/s", 0.85, _limit, 5),
        ),
        "JPEG of 98 KB against tf.data": (
            TENSORFLOW,
            _pictures(2.4, _tf_data, LARGE, backend="tensorflow"),
        ),
        "JPEG of 98 KB against Grain": (_GRAIN, _pictures(2.4, _grain, LARGE)),
        "JPEG of 98 KB against PyDataset": (KERAS, _pictures(2.4, _py_dataset, LARGE, 7)),
        "raw TFRecord against tf.data": (
            TENSORFLOW,
            Ratio("samples/s", 6, _raw, 3, "tensorflow"),
        ),
        "typed digits of TFRecord against tf.data": (
            TENSORFLOW,
            Ratio("samples/s", 6, _digit_examples, 3, "tensorflow"),
        ),
        "typed digits of 100 TFRecords against tf.data": (
            TENSORFLOW,
            Ratio("samples/s", 6, _digit_shards, 3, "tensorflow"),
        ),
        "a table of TFRecord against tf.data": (
            TENSORFLOW,
            Ratio("rows/s", 3, _table, 3, "tensorflow"),
        ),
        "typed digits of RecordIO against DataLoader": (
            MXNET,
            Ratio("samples/s", 20, _digit_headers, 3, correct=_digits_correct),
        ),
        "JPEG RecordIO against ImageRecordIter": (
            MXNET,
            Ratio("samples/s", 4, _mxnet_iterator, 3),
        ),
        "JPEG RecordIO against DataLoader": (
            MXNET,
            Ratio("samples/s", 1, _mxnet_loader, 3),
        ),
        "pack against im2rec": (MXNET, Ratio("images/s", 1, _pack, 5)),
    },
    # These read or write all pictures, whatever the size.
    smoke=lambda name: "limit" not in name and "im2rec" not in name,
)
