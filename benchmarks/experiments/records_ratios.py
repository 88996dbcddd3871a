"""Ratios of records behind ``SafeSequence`` and ``gluon_loader`` to their peers.

Peers have as many workers as there are cores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from benchmarks.data.digits import find_digits, load_digits
from benchmarks.data.examples import (
    DIGITS,
    find_digit_examples,
    find_digit_headers,
)
from benchmarks.data.photographs import find_photographs
from benchmarks.experiments import our_records
from benchmarks.experiments.correctness import OFF, centres_of, faults
from benchmarks.harness.installed import Peer
from benchmarks.harness.machine import usable_cpus
from benchmarks.harness.ratios import Contestant, Ratio, measure_ratio
from benchmarks.harness.row import Measurement
from benchmarks.peers import mxnet, py_dataset, tf_data

CPUS = usable_cpus()
PEER_COUNTED = 20
Contestants = Mapping[str, Contestant]


def measure(options: Mapping[str, Any]) -> Measurement:
    """Run one ratio, in a process of its own."""
    return measure_ratio(TABLE[options["loader"]], options)


def _tf_data() -> Contestants:
    path = find_photographs().tfrecord
    return {
        "SafeSequence, auto": our_records.pictures(),
        "tf.data, AUTOTUNE": tf_data.contestant(path, PEER_COUNTED, None, None),
        f"tf.data, {CPUS} calls": tf_data.contestant(path, PEER_COUNTED, CPUS, None),
        f"tf.data, {CPUS} own threads": tf_data.contestant(path, PEER_COUNTED, None, CPUS),
    }


def _py_dataset() -> Contestants:
    photographs = find_photographs()
    return {
        "SafeSequence, auto": our_records.pictures(),
        f"PyDataset, {CPUS} threads": py_dataset.contestant(photographs, PEER_COUNTED, False, CPUS),
        f"PyDataset, {CPUS} processes": py_dataset.contestant(
            photographs, PEER_COUNTED, True, CPUS
        ),
    }


def _digit_examples() -> Contestants:
    path = find_digit_examples()
    return {
        "SafeSequence, auto": our_records.digits(our_records.digit_examples_for_keras),
        "tf.data, AUTOTUNE": tf_data.digits_contestant([path], 2_000, None),
        f"tf.data, {CPUS} calls": tf_data.digits_contestant([path], 2_000, CPUS),
    }


def _mxnet_iterator() -> Contestants:
    path = find_photographs().recordio
    make = partial(our_records.pictures_for_gluon, "NCHW")
    return {
        "gluon_loader, auto": our_records.contestant_of(make),
        f"ImageRecordIter, {CPUS} threads": mxnet.iterator_contestant(path, PEER_COUNTED, CPUS),
        "ImageRecordIter, for the CPU": mxnet.iterator_contestant(path, PEER_COUNTED, None),
    }


def _mxnet_loader() -> Contestants:
    path = find_photographs().recordio
    make = partial(our_records.pictures_for_gluon, "NHWC")
    return {
        "gluon_loader, auto": our_records.contestant_of(make),
        f"DataLoader, {CPUS} processes": mxnet.loader_contestant(path, PEER_COUNTED, False, CPUS),
        f"DataLoader, {CPUS} threads": mxnet.loader_contestant(path, PEER_COUNTED, True, CPUS),
    }


def _digit_headers() -> Contestants:
    path = find_digit_headers()
    return {
        "gluon_loader, auto": our_records.digits(our_records.digit_headers_for_gluon),
        "DataLoader, no workers": mxnet.digits_contestant(path, 200, 0, False),
        f"DataLoader, {CPUS} processes": mxnet.digits_contestant(path, 200, CPUS, False),
        f"DataLoader, {CPUS} threads": mxnet.digits_contestant(path, 200, CPUS, True),
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
def _centres() -> Mapping[str, float]:
    from adapters import open_records

    photographs = find_photographs()
    return centres_of(lambda decode: open_records(photographs.tfrecord, decode=decode), photographs)


TENSORFLOW = Peer("Keras", "tensorflow", "tensorflow")
KERAS = Peer("Keras", "keras", "keras")
MXNET = Peer("Gluon", "mxnet", "mxnet")


def row(
    peer: Peer, contestants: Callable[[], Contestants], data: Callable[[], object], **more: Any
) -> Ratio:
    """A row of three rounds, which also runs in the smoke size."""
    return Ratio(
        peer,
        **{"unit": "samples/s", "contestants": contestants, "rounds": 3, **more},
        smoke=True,
        data=(data,),
    )


TABLE: Mapping[str, Ratio] = {
    "JPEG TFRecord against tf.data": row(
        TENSORFLOW,
        _tf_data,
        find_photographs,
        backend="tensorflow",
        correct=_centres,
        default=True,
    ),
    "typed digits of TFRecord against tf.data": row(
        TENSORFLOW, _digit_examples, find_digit_examples, backend="tensorflow", default=True
    ),
    "JPEG RecordIO against ImageRecordIter": row(
        MXNET, _mxnet_iterator, find_photographs, default=True
    ),
    "JPEG TFRecord against PyDataset": row(
        KERAS, _py_dataset, find_photographs, rounds=7, correct=_centres
    ),
    "JPEG RecordIO against DataLoader": row(MXNET, _mxnet_loader, find_photographs),
    "typed digits of RecordIO against DataLoader": row(
        MXNET, _digit_headers, find_digit_headers, correct=_digits_correct
    ),
}
